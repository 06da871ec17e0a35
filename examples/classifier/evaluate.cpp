#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "model.h"
#include "train/evaluator.h"

namespace classifier {

using namespace minim;

namespace {

struct EvaluateOptions {
  DataOptions data;
  std::string model, test_file, average, device = "auto";
  int64_t batch_size = 32, max_seq_length = 0;
  bool skip_unseen_labels = false, json = false;
};

void print_json(const train::Metrics& metrics, const train::EvalPrediction& prediction,
                const SavedClassifier& saved) {
  nlohmann::json object;
  for (const auto& [name, value] : metrics)
    object[name] = std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
  if (saved.type == train::ProblemType::single_label_classification) {
    const train::ConfusionMatrix matrix = train::confusion_matrix(prediction);
    for (int64_t label = 0; label < matrix.classes(); ++label) {
      nlohmann::json row = nlohmann::json::array();
      for (int64_t guess = 0; guess < matrix.classes(); ++guess)
        row.push_back(matrix.count(label, guess));
      object["confusion_matrix"].push_back(row);
    }
    object["labels"] = saved.labels.names();
  }
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void run(const EvaluateOptions& options) {
  SavedClassifier saved =
      SavedClassifier::load(options.model, options.max_seq_length, choose_device(options.device));
  text::Dataset data = options.data.read(options.test_file, text::Role::evaluate, saved.type);
  if (options.skip_unseen_labels) leave_out_unseen_labels(data, saved.labels);
  const train::EncodedDataset encoded =
      train::encode_dataset(data, saved.tokenizer, saved.max_length, saved.type, saved.labels);

  train::ComputeMetrics metrics = train::default_metrics(saved.type);
  if (!options.average.empty()) {
    check(saved.type == train::ProblemType::single_label_classification,
          "--average: {} has no classes to average over", options.model);
    metrics = [average = train::average_named(options.average)](const train::EvalPrediction& p) {
      return train::averaged_metrics(p, average);
    };
  }
  const train::Evaluator evaluator(saved.model, options.batch_size, std::move(metrics));
  const train::Evaluation evaluation = evaluator.evaluate(encoded.examples);
  const std::string collapse = train::collapse_warning(evaluation.prediction, saved.labels.names());
  if (!collapse.empty()) print_notes({collapse});
  if (options.json) {
    print_json(evaluation.metrics, evaluation.prediction, saved);
    return;
  }
  fmt::print("{}\n", train::format_metrics(evaluation.metrics));
  if (saved.type == train::ProblemType::single_label_classification)
    fmt::print("{}", train::confusion_table(train::confusion_matrix(evaluation.prediction),
                                            saved.labels.names()));
}

}  // namespace

void add_evaluate(CLI::App& app) {
  auto options = std::make_shared<EvaluateOptions>();
  EvaluateOptions& o = *options;
  CLI::App& verb = add_verb(app, "evaluate", "Scores a saved model on a labelled file");
  verb.add_option(option("--model-name-or-path"), o.model, "Folder of a trained model")->required();
  verb.add_option(option("--test-file") + "," + option("--validation-file"), o.test_file,
                  "CSV, TSV or JSON lines with labels")
      ->required();
  o.data.add_to(verb);
  verb.add_option(option("--max-seq-length"), o.max_seq_length,
                  "Tokens that are kept of a text (0: as many as the model has positions)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(option("--per-device-eval-batch-size"), o.batch_size, "Rows of a batch")
      ->check(CLI::PositiveNumber);
  add_device_option(verb, o.device);
  verb.add_option("--average", o.average,
                  "How precision, recall and F1 of the classes become one number (binary for two "
                  "classes, else macro)")
      ->check(CLI::IsMember({"binary", "macro", "micro", "weighted"}));
  verb.add_flag(option("--skip-unseen-labels"), o.skip_unseen_labels,
                "Leave out rows whose label the model does not have");
  verb.add_flag("--json", o.json, "One JSON object, with the confusion matrix");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
