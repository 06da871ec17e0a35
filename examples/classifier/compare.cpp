#include <fmt/format.h>

#include "cli.h"
#include "core/file.h"
#include "train/comparison_page.h"
#include "train/run_comparison.h"

namespace classifier {

using namespace minim;

namespace {

struct CompareOptions {
  std::vector<std::string> folders;
  std::string output, metric;
  bool json = false;
};

void run(const CompareOptions& options) {
  std::vector<train::RunRecord> runs;
  for (const std::string& folder : options.folders)
    runs.push_back(train::read_run(folder));
  const auto comparison = train::Comparison::of(std::move(runs), options.metric);
  print_notes(comparison.notes);
  if (!options.output.empty()) write_whole_file(options.output, train::comparison_page(comparison));
  if (options.json) {
    fmt::print("{}\n", comparison.json());
    return;
  }
  fmt::print("{}", comparison.table());
  for (const std::string& finding : comparison.findings())
    fmt::print("{}\n", finding);
  if (!options.output.empty()) fmt::print("{} has it with pictures\n", options.output);
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CompareOptions& o = *options;
  CLI::App& verb = add_verb(app, "compare",
                            "Sets finished runs side by side, and says what the "
                            "noise between seeds allows to say");
  verb.add_option("runs", o.folders, "Folders that train wrote")->required()->default_str("");
  verb.add_option("--metric", o.metric,
                  "The score to judge by, such as f1 (accuracy, or the first that all runs have)");
  verb.add_option(option("--output") + ",-o", o.output,
                  "Write a page with plots, such as report.html");
  verb.add_flag("--json", o.json, "One JSON object instead of the table");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
