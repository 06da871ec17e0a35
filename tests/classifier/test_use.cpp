#include "tests/classifier/program.h"

// predict, evaluate and tokenize with a trained model.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

TEST_CASE("predict answers texts of the command line") {
  const Outcome outcome = succeed({"predict", "--model-name-or-path", trained_model(), "--text",
                                   "my card is lost", "--text", "what is the exchange rate"});
  const auto lines = lines_of(outcome.output);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("lost_card\t"));
  CHECK(lines[0].ends_with("\tmy card is lost"));
  CHECK(lines[1].starts_with("exchange_rate\t"));
  CHECK(outcome.errors.empty());
}

TEST_CASE("predict writes JSON lines and CSV with all probabilities") {
  const std::string text = "say \"lost\", card";
  const json object = json::parse(succeed({"predict", "--model-name-or-path", trained_model(),
                                           "--text", text, "--format", "jsonl"})
                                      .output);
  CHECK(object["text"] == text);
  const double lost = object["probabilities"]["lost_card"];
  const double rate = object["probabilities"]["exchange_rate"];
  CHECK(lost + rate == doctest::Approx(1));
  CHECK(object["label"] == (lost > rate ? "lost_card" : "exchange_rate"));

  const auto lines = lines_of(
      succeed({"predict", "--model-name-or-path", trained_model(), "--text", text, "--format=csv"})
          .output);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "text,label,exchange_rate,lost_card");
  CHECK(lines[1].starts_with("\"say \"\"lost\"\", card\","));
}

TEST_CASE("predict answers files, and standard input line by line, alike") {
  const TemporaryFolder folder;
  write_whole_file(folder / "texts.txt", "i lost my card\nrates for euros\n");
  write_whole_file(folder / "texts.csv", "text\ni lost my card\nrates for euros\n");
  const Arguments predict = {"predict", "--model-name-or-path", trained_model(), "--format",
                             "jsonl"};
  const std::string expected =
      succeed(predict + Arguments{"--text", "i lost my card", "--text", "rates for euros"}).output;
  CHECK(lines_of(expected).size() == 2);
  CHECK(succeed(predict + Arguments{"--predict-file", folder / "texts.txt"}).output == expected);
  CHECK(succeed(predict + Arguments{"--predict-file", folder / "texts.csv"}).output == expected);
  // One text alone is computed in another batch, which may change the last digit.
  const auto lines = lines_of(succeed(predict, "i lost my card\n\r\nrates for euros\r\n").output);
  REQUIRE(lines.size() == 3);
  CHECK(json::parse(lines[1])["text"] == "");  // whoever writes an empty line waits for its answer
  for (size_t i = 0; i < 2; ++i) {
    const json a = json::parse(lines[2 * i]), b = json::parse(lines_of(expected)[i]);
    CHECK(a["text"] == b["text"]);
    CHECK(a["probabilities"]["lost_card"].get<double>() ==
          doctest::Approx(b["probabilities"]["lost_card"].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("predict gives the most probable classes on request, in every format") {
  const Arguments predict = {"predict", "--model-name-or-path", trained_model(), "--text",
                             "my card is lost"};
  const json object =
      json::parse(succeed(predict + Arguments{"--top-k", "2", "--format", "jsonl"}).output);
  REQUIRE(object["top_k"].size() == 2);
  CHECK(object["top_k"][0]["label"] == "lost_card");
  CHECK(object["top_k"][1]["label"] == "exchange_rate");
  const double first = object["top_k"][0]["score"], second = object["top_k"][1]["score"];
  CHECK(first > second);
  CHECK(first + second == doctest::Approx(1).epsilon(1e-12));
  const std::string text = succeed(predict + Arguments{"--top-k", "1"}).output;
  CHECK(text.starts_with("lost_card\t0."));
  CHECK(!contains(text, "exchange_rate"));
  // More than there are: all.
  const auto csv = lines_of(succeed(predict + Arguments{"--top-k=9", "--format=csv"}).output);
  CHECK(csv[0] == "text,label,probability,label_2,probability_2");
  CHECK(csv[1].starts_with("my card is lost,lost_card,0."));
}

TEST_CASE("predict takes pairs with a tab between them, and names lines that are none") {
  const Arguments predict = {"predict", "--model-name-or-path", trained_model(), "--format=jsonl",
                             "--pairs"};
  const auto lines = lines_of(succeed(predict, "my card\tlost\nrates\t\n").output);
  REQUIRE(lines.size() == 2);
  CHECK(json::parse(lines[0])["text_pair"] == "lost");
  CHECK(json::parse(lines[1])["text_pair"] == "");
  const Outcome bad = classifier(predict, "my card\tlost\nrates\nmy\tcard\n");
  CHECK(bad.status == 1);
  CHECK(lines_of(bad.output).size() == 1);  // lines before the bad one are answered
  CHECK(bad.errors ==
        "error: standard input: line 2: 0 tabs; with --pairs it must be two texts with a tab "
        "between them\n");
}

TEST_CASE("predict names the line of standard input that is not UTF-8, after the answers before") {
  const Outcome bad =
      classifier({"predict", "--model-name-or-path", trained_model()}, "my card\nca\xff\nrates\n");
  CHECK(bad.status == 1);
  CHECK(lines_of(bad.output).size() == 1);
  CHECK(bad.errors ==
        "error: standard input: line 2: byte 3 is not UTF-8; --replace-invalid-utf8 replaces such "
        "bytes\n");
}

TEST_CASE("predict answers at once while its input stays open, and long lines too") {
  int to[2], from[2];
  REQUIRE(::pipe(to) == 0);
  REQUIRE(::pipe(from) == 0);
  const TemporaryFolder folder;
  const pid_t child =
      start_classifier({"predict", "--model-name-or-path", trained_model()}, folder, "", [&] {
        ::dup2(to[0], 0);
        ::dup2(from[1], 1);
        for (const int end : {to[0], to[1], from[0], from[1]})
          ::close(end);
      });
  ::close(to[0]);
  ::close(from[1]);
  std::string longer = "rates";  // than one read
  for (int i = 0; i < 20000; ++i)
    longer += " rates";
  for (const std::string& text : {std::string("my card is lost"), std::string(), longer}) {
    const std::string line = text + "\n";
    REQUIRE(::write(to[1], line.data(), line.size()) == ssize_t(line.size()));
    std::string answer;
    for (char c = 0; c != '\n'; answer += c)
      REQUIRE(::read(from[0], &c, 1) == 1);  // would wait for ever without an answer
    CHECK(answer.ends_with("\t" + line));
  }
  ::close(to[1]);
  CHECK(wait_for(child, folder).status == 0);
  ::close(from[0]);
}

TEST_CASE("predict may take the first rows of a file alone") {
  const TemporaryFolder folder;
  write_whole_file(folder / "texts.txt", "i lost my card\nrates for euros\n");
  CHECK(lines_of(succeed({"predict", "--model-name-or-path", trained_model(), "--predict-file",
                          folder / "texts.txt", "--max-predict-samples", "1"})
                     .output)
            .size() == 1);
}

TEST_CASE("evaluate prints a line of metrics and the table, or one JSON object") {
  const TemporaryFolder folder;
  write_whole_file(folder / "test.csv", questions(8));
  const Arguments evaluate = {"evaluate", "--model-name-or-path", trained_model(), "--test-file",
                              folder / "test.csv"};
  const auto lines = lines_of(succeed(evaluate).output);
  CHECK(lines[0].starts_with("{'eval_loss': "));
  CHECK(contains(lines[0], "'eval_accuracy': 1.0"));
  CHECK(lines.size() > 3);
  const json object = json::parse(succeed(evaluate + Arguments{"--json"}).output);
  CHECK(object["eval_accuracy"] == 1.0);
  CHECK(object["labels"] == json({"exchange_rate", "lost_card"}));
  CHECK(object["confusion_matrix"] == json({{4, 0}, {0, 4}}));
}

TEST_CASE("tokenize prints ids, pieces and offsets") {
  const Arguments tokenize = {"tokenize", "--model-name-or-path", trained_model()};
  const json one = json::parse(succeed(tokenize + Arguments{"--text", "my card"}).output);
  const size_t size = one["ids"].size();
  CHECK(one["tokens"][0] == "[CLS]");
  CHECK(one["tokens"].back() == "[SEP]");
  for (const char* name : {"tokens", "type_ids", "offsets"})
    CHECK(one[name].size() == size);

  const std::string ids =
      succeed(tokenize + Arguments{"--format", "ids", "--text", "my card"}).output;
  std::string joined;
  for (const json& id : one["ids"])
    joined += (joined.empty() ? "" : " ") + std::to_string(id.get<int>());
  CHECK(ids == joined + "\n");
  CHECK(succeed(tokenize + Arguments{"--format", "ids"}, "my card\n").output == ids);
}

TEST_CASE("tokenize reads pairs from JSON lines") {
  const TemporaryFolder folder;
  write_whole_file(folder / "pairs.jsonl",
                   "{\"text\": \"my card\", \"text_pair\": \"rates\"}\n\n"
                   "{\"text\": \"rates\", \"text_pair\": null}\n");
  const auto lines = lines_of(
      succeed({"tokenize", "--tokenizer-name", trained_model(), folder / "pairs.jsonl"}).output);
  REQUIRE(lines.size() == 2);
  CHECK(json::parse(lines[0])["type_ids"].back() == 1);
  CHECK(json::parse(lines[1])["type_ids"].back() == 0);
}

TEST_CASE("every verb lists its options with their defaults") {
  for (const char* verb : {"train", "evaluate", "predict", "tokenize"}) {
    const Outcome outcome = succeed({verb, "--help"});
    CHECK(outcome.errors.empty());
    CHECK(contains(outcome.output, "--model-name-or-path,--model_name_or_path"));
    CHECK(contains(outcome.output, "--config"));
  }
  const std::string train = succeed({"train", "--help"}).output;
  for (const char* part : {"FLOAT=5e-05", "--num-train-epochs,--num_train_epochs FLOAT=3",
                           "=linear", "--seed UINT=42", "=128", "--optim TEXT=adamw"})
    CHECK(contains(train, part));
  const Outcome help = succeed({"--help"});
  for (const char* verb : {"train ", "evaluate ", "predict ", "tokenize "})
    CHECK(contains(help.output, verb));
  MESSAGE("classifier --help took ", help.seconds * 1000, " ms");
}
