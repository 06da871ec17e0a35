#include "model.h"

#include "cli.h"

namespace classifier {

using namespace minim;

SavedClassifier SavedClassifier::load(const std::string& folder, int64_t max_length,
                                      Device device) {
  check_model_folder(folder);
  models::LoadReport report;
  auto model = models::DistilBertForSequenceClassification::from_pretrained(
      folder, {.device = device, .map_weights = true}, &report);
  print_notes(report.notes);
  check(report.initialised.empty(),
        "{}: is not a trained classifier, {} weights are missing ({}, ...); train it first", folder,
        report.initialised.size(), report.initialised.empty() ? "" : report.initialised[0]);
  text::LoadedTokenizer loaded = text::load_tokenizer(folder);
  print_notes(loaded.notes);
  const models::DistilBertConfig& config = model.config;
  train::check_vocabulary(loaded.tokenizer, config.vocab_size, folder);
  const int64_t positions = config.max_position_embeddings;
  const train::ProblemType type =
      !config.problem_type.empty() ? train::parse_problem_type(config.problem_type)
      : config.num_labels() == 1   ? train::ProblemType::regression
                                   : train::ProblemType::single_label_classification;
  text::LabelSet labels(config.labels);
  model.eval();
  return {std::move(model), std::move(loaded.tokenizer), std::move(labels), type,
          max_length > 0 ? std::min(max_length, positions) : positions};
}

}  // namespace classifier
