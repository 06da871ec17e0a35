// The program: fine-tunes, evaluates and uses text classifiers. Each verb is a thin shell over the
// library.

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "cli.h"
#include "core/error.h"

static bool is_verb(const CLI::App& app, const std::string& name) {
  return std::ranges::any_of(app.get_subcommands(nullptr),
                             [&](const CLI::App* verb) { return verb->get_name() == name; });
}

int main(int count, char** values) {
  CLI::App app("minim: DistilBERT-style text classification");
  app.name("classifier");
  app.set_version_flag("--version", MINIM_VERSION);
  app.require_subcommand(1);
  classifier::add_train(app);
  classifier::add_evaluate(app);
  classifier::add_predict(app);
  classifier::add_compare(app);
  classifier::add_memory(app);
  classifier::add_parity(app);
  classifier::add_state(app);
  classifier::add_tokenize(app);
  app.footer("Every verb has its own --help, which lists all options with their defaults.");

  try {
    std::vector<std::string> arguments =
        classifier::expand_config(std::vector<std::string>(values + 1, values + count));
    const bool has_verb = !arguments.empty() && !arguments[0].starts_with("-");
    if (has_verb)
      classifier::check_usage(is_verb(app, arguments[0]),
                              "there is no verb \"{}\"; classifier --help lists all", arguments[0]);
    arguments = classifier::join_flag_values(app, std::move(arguments));
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    app.parse(arguments);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // all has been said
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : 2;
  } catch (const classifier::UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "error: standard output cannot be written, as on a full disk\n");
    return 1;
  }
  return 0;
}
