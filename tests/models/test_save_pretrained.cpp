#include <csignal>
#include <filesystem>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/models/distilbert_tiny.h"

using namespace minim;
using namespace minim::test;

namespace {

// While it lives, no file of this process may grow beyond `bytes`: a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("saving and loading gives bitwise equal logits, in every dtype") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(name_of(dtype));
    TemporaryFolder folder;
    const auto model = tiny_model(dtype);
    model.save_pretrained(folder / "made/for/it");
    const auto loaded = DistilBertForSequenceClassification::from_pretrained(folder / "made/for/it",
                                                                             {.dtype = dtype});
    loaded.eval();
    CHECK(same_bits(model.forward(packed("main")), loaded.forward(packed("main"))));
  }
}

TEST_CASE("the files of a saved model are those that transformers wrote, byte for byte") {
  TemporaryFolder folder;
  tiny_model().save_pretrained(folder.path());
  CHECK(folder.files() == std::vector<std::string>{"config.json", "model.safetensors"});
  for (const std::string name : {"/config.json", "/model.safetensors"})
    CHECK(read_whole_file(folder.path() + name) == read_whole_file(tiny + name));
}

TEST_CASE("a new model keeps its config and labels") {
  TemporaryFolder folder;
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 30;
  config.labels = {"no", "yes", "maybe"};
  config.problem_type = "single_label_classification";
  config.other = R"({"finetuning_task": "x"})";
  const DistilBertForSequenceClassification model(config, {.seed = 5});
  model.save_pretrained(folder.path());
  LoadReport report;
  const auto loaded =
      DistilBertForSequenceClassification::from_pretrained(folder.path(), {}, &report);
  CHECK(loaded.config.to_json() == config.to_json());
  CHECK(report.summary() == "40 tensors loaded, 0 new, 0 dropped");
  CHECK(report.notes.empty());
  for (size_t i = 0; i < 40; ++i) {
    CHECK(loaded.parameters()[i].name == model.parameters()[i].name);
    CHECK(same_bits(loaded.parameters()[i].tensor, model.parameters()[i].tensor));
  }
}

TEST_CASE("mapped weights can be saved over their own file") {
  TemporaryFolder folder;
  tiny_model().save_pretrained(folder.path());
  const auto mapped =
      DistilBertForSequenceClassification::from_pretrained(folder.path(), {.map_weights = true});
  fill(mapped.classifier.bias, 7);
  mapped.save_pretrained(folder.path());
  const auto again = DistilBertForSequenceClassification::from_pretrained(folder.path());
  CHECK(again.classifier.bias.to_vector<float>() == std::vector<float>{7, 7, 7});
  CHECK(same_bits(again.pre_classifier.weight, mapped.pre_classifier.weight));
}

TEST_CASE("a full disk is one sentence, and the old files stay") {
  TemporaryFolder folder;
  tiny_model().save_pretrained(folder.path());
  const auto model = tiny_model();
  fill(model.classifier.bias, 7);
  std::string error;
  {
    const FullDisk full(1000);
    error = error_of([&] { model.save_pretrained(folder.path()); });
  }
  CHECK(error.starts_with(folder / "model.safetensors: "));
  CHECK(error.ends_with("File too large; the file is as it was before"));
  CHECK(read_whole_file(folder / "model.safetensors") ==
        read_whole_file(tiny + "/model.safetensors"));
  CHECK(folder.files() == std::vector<std::string>{"config.json", "model.safetensors"});
}

TEST_CASE("a folder that cannot be made or written is one sentence") {
  TemporaryFolder folder;
  write_whole_file(folder / "file", "x");
  CHECK(error_of([&] { tiny_model().save_pretrained(folder / "file"); }) ==
        folder / "file: the folder cannot be made (Not a directory)");
  if (::geteuid() == 0) return;  // root writes everywhere
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  CHECK(error_of([&] {
          tiny_model().save_pretrained(folder.path());
        }).starts_with(folder / "model.safetensors: cannot be written: no file can be made in "));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}
