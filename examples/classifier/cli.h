#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/device.h"
#include "core/error.h"
#include "text/dataset.h"
#include "text/labels.h"
#include "text/tokenizer_files.h"
#include "train/text_classification.h"

// What the verbs of the program share on the command line.
namespace classifier {

// "--learning-rate" with its snake-case spelling beside it, as people's commands have it.
std::string option(std::string_view kebab);

// A command line that makes no sense: exit status 2.
class UsageError : public minim::Error {
 public:
  using Error::Error;
};

// Throws a UsageError unless `ok`.
template <class... Args>
void check_usage(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) throw UsageError(fmt::format(text, std::forward<Args>(args)...));
}

// Puts the contents of `--config FILE.json` into the arguments, in front of the verb's own, so that
// the command line wins. Throws a UsageError for a file that is not a flat JSON object.
std::vector<std::string> expand_config(std::vector<std::string> arguments);

// Puts "--fp16 True", as Hugging Face's commands have it, into the form "--fp16=True" where that
// option is a flag of the verb.
std::vector<std::string> join_flag_values(const CLI::App& app, std::vector<std::string> arguments);

// A verb with --config and the habits that all share.
CLI::App& add_verb(CLI::App& app, const std::string& name, const std::string& what);

// For lengths: [CLS], something and [SEP].
extern const CLI::Validator at_least_three;

// Where texts and labels are in a data file.
struct DataOptions {
  std::vector<std::string> text_columns;
  std::string label_column;
  std::vector<std::string> column_names;
  std::string file_format;
  bool replace_invalid_utf8 = false;

  void add_to(CLI::App& verb);
  // How a file with such data is to be read.
  minim::text::DatasetOptions dataset_options(minim::text::Role role,
                                              minim::train::ProblemType type) const;
  // Warnings go to standard error.
  minim::text::Dataset read(const std::string& path, minim::text::Role role,
                            minim::train::ProblemType type) const;
};

// Adds --device.
void add_device_option(CLI::App& verb, std::string& device);

// The device that --device names; where it cannot be used the CPU, with a note that says why.
minim::Device choose_device(const std::string& name);

// Throws unless it is a folder; says that nothing is downloaded, as people expect of such names.
void check_model_folder(const std::string& folder);

// Removes the rows whose label is none of these, with a note.
void leave_out_unseen_labels(minim::text::Dataset& data, const minim::text::LabelSet& labels);

// Leaves out all but the first rows; 0 keeps all.
void keep_first(minim::text::Dataset& data, int64_t rows);

// "note: ..." lines on standard error.
void print_notes(const std::vector<std::string>& notes);

// The verbs; each adds its subcommand, which runs when it is parsed.
void add_train(CLI::App& app);
void add_evaluate(CLI::App& app);
void add_predict(CLI::App& app);
void add_compare(CLI::App& app);
void add_memory(CLI::App& app);
void add_parity(CLI::App& app);
void add_state(CLI::App& app);
void add_tokenize(CLI::App& app);

}  // namespace classifier
