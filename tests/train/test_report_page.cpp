#include <cmath>

#include "tests/core/contains.h"
#include "tests/train/small_model.h"
#include "train/heat_map.h"
#include "train/page.h"
#include "train/report_page.h"

// What the page of a run says. What it looks like, a browser shows.
using namespace minim;
using namespace minim::test;
using train::ProblemType;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

// Three classes, of which class 2 is never given.
train::ReportedPredictions three_classes() {
  return {ProblemType::single_label_classification,
          {"red", "green", "<blue>"},
          {Tensor::from<float>({5, 0, 0, 0, 5, 0, 4, 0, 0, 9, 0, 0, 0, 1, 0}, {5, 3}),
           Tensor::from<int64_t>({0, 1, 1, 1, 2}, {5})},
          {"a", "b", "unsure <b>", "sure & wrong", "c"}};
}

}  // namespace

TEST_CASE("a heat map has a cell for each pair that occurs, and says what it is") {
  train::ConfusionMatrix matrix(3);
  matrix.add(0, 0, 7);
  matrix.add(0, 2, 1);
  matrix.add(1, 1, 4);
  const std::string svg = train::heat_map_svg(matrix, {"a", "b", "<c>"});
  CHECK(count(svg, "<rect class='right'") == 2);
  CHECK(count(svg, "<rect class='wrong'") == 1);
  CHECK(contains(svg, "<title>a → &lt;c&gt;: 1 of 8 (12 %)</title>"));
  CHECK(contains(svg, "<title>b: 4 of 4 (100 %)</title>"));
  CHECK_THROWS_WITH_AS(train::heat_map_svg(matrix, {"a"}), "heat map: 1 labels for 3 classes",
                       Error);
}

TEST_CASE("confusions come with their surest texts, escaped, and classes with their scores") {
  const std::string html = train::predictions_html(three_classes());
  CHECK(contains(html, "green → red</td><td>2&nbsp;of&nbsp;3</td>"));
  CHECK(contains(html, "&lt;blue&gt; → green</td><td>1&nbsp;of&nbsp;1</td>"));
  CHECK(html.find("sure &amp; wrong") < html.find("unsure &lt;b&gt;"));
  CHECK(!contains(html, "<blue>"));
  // red: 1 right of 3 predicted, found 1 of 1; blue: never predicted.
  CHECK(contains(html, "<td>red</td><td>0.333</td><td>1.000</td><td>0.500</td><td>1</td>"));
  CHECK(contains(html, "<td>&lt;blue&gt;</td><td>-</td><td>0.000</td><td>0.000</td><td>1</td>"));
  CHECK(contains(html,
                 "The accuracy is 0.4000; always answering green, the commonest, would have "
                 "0.6000."));
  CHECK(html.find("<td>&lt;blue&gt;</td>") < html.find("<td>red</td>"));
}

TEST_CASE("rows of several labels that are most wrong come first") {
  const std::string html =
      train::predictions_html({ProblemType::multi_label_classification,
                               {"x", "y"},
                               {Tensor::from<float>({1, -1, 1, 1, 1, -1}, {3, 2}),
                                Tensor::from<float>({1, 0, 0, 0, 1, 1}, {3, 2})},
                               {"right", "two wrong", "one wrong"}});
  CHECK(!contains(html, ">right<"));
  CHECK(contains(html, "<td>(none)</td><td>x, y</td><td>two wrong</td>"));
  CHECK(contains(html, "<td>x, y</td><td>x</td><td>one wrong</td>"));
  CHECK(html.find("two wrong") < html.find("one wrong"));
}

TEST_CASE("regression shows predictions over targets and what is farthest off") {
  const std::string html = train::predictions_html(
      {ProblemType::regression,
       {"LABEL_0"},
       {Tensor::from<float>({1, 2, 3}, {3, 1}), Tensor::from<float>({1, 2.5F, 0}, {3})},
       {"exact", "near", "far"}});
  CHECK(count(html, "<circle class='s0 dot'") == 3);
  CHECK(!contains(html, ">exact<"));
  CHECK(html.find(">far<") < html.find(">near<"));
}

TEST_CASE("text is cut between characters, not inside of one") {
  CHECK(train::shortened("äöü", 3) == "äöü");
  CHECK(train::shortened("äöü", 2) == "äö…");
}

TEST_CASE("the page of a run needs nothing else and shows what the run left") {
  const TrainingArguments arguments{.per_device_train_batch_size = 4,
                                    .num_train_epochs = 3,
                                    .eval_strategy = IntervalStrategy::epoch,
                                    .logging_steps = 2};
  Run run(arguments, 16, 6);
  const Metrics results = run.trainer.train();
  const auto tokenizer = small_tokenizer();
  const train::RunDescription description{
      run.model, tokenizer, run.optimizer, arguments, {{"train_file", "a<b>.csv"}}};
  const train::MemoryLedger ledger(description, run.trainer.state());
  train::RunReport report{.title = "runs/<first>",
                          .log_history = run.trainer.state().log_history,
                          .train_results = results,
                          .eval_results = run.recorder->evaluations.back(),
                          .predictions = three_classes(),
                          .ledger = ledger,
                          .measured = train::MeasuredMemory(Device()),
                          .optimizer_state = run.optimizer.state_size(),
                          .options = train::options_of(description),
                          .environment = train::environment_of(Device())};
  const std::string page = train::report_page(report);
  for (const char* part : {"runs/&lt;first&gt;", ">loss<", ">learning rate<", ">gradient norm<",
                           "Confusion matrix", "Worst confusions", "exp_avg_sq", "a&lt;b&gt;.csv",
                           "logging_steps", "threads", "prefers-color-scheme: dark"})
    CHECK(contains(page, part));
  for (const char* outside : {"http://", "https://", "<script", "<link", "@import", "url("})
    CHECK(count(page, outside) ==
          (std::string(outside) == "http://" ? count(page, "http://www.w3.org/2000/svg") : 0));
  // Values that are not finite are left out of curves, and the page is made all the same.
  for (Metrics& entry : report.log_history)
    for (auto& [name, value] : entry)
      if (name != "epoch") value = NAN;
  CHECK(!contains(train::report_page(report), "nan"));
}
