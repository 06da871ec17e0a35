#include <fmt/format.h>

#include "cli.h"
#include "train/checkpoint.h"
#include "train/state_report.h"

namespace classifier {

using namespace minim;

namespace {

struct StateOptions {
  std::string path, name;
  bool json = false;
};

void run(const StateOptions& options) {
  const optim::SavedState state(train::find_optimizer_state(options.path));
  std::vector<const optim::SavedState::Parameter*> chosen;
  if (!options.name.empty()) chosen = state.find(options.name);
  if (options.json) {
    fmt::print("{}\n", train::state_json(state, chosen));
    return;
  }
  if (chosen.empty()) fmt::print("{}", train::state_table(state));
  for (size_t i = 0; i < chosen.size(); ++i)
    fmt::print("{}{}", i > 0 ? "\n" : "", train::parameter_report(state, *chosen[i]));
}

}  // namespace

void add_state(CLI::App& app) {
  auto options = std::make_shared<StateOptions>();
  StateOptions& o = *options;
  CLI::App& verb =
      add_verb(app, "state", "Opens an optimizer's state: all of it, or of a parameter by name");
  verb.add_option("checkpoint", o.path,
                  "Folder of a run or checkpoint, or an optimizer.safetensors")
      ->required();
  verb.add_option("name", o.name,
                  "Parameter; also the end of its name, or a pattern such as '*.q_lin.weight'");
  verb.add_flag("--json", o.json, "One JSON object instead of text");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
