#include "cli.h"

#include <algorithm>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file.h"

namespace classifier {

using namespace minim;
using nlohmann::json;

const CLI::Validator at_least_three(
    [](const std::string& text) {
      int64_t value = 0;
      const bool is_number = CLI::detail::lexical_cast(text, value);
      return is_number && value >= 3 ? "" : fmt::format("must be at least 3, is {}", text);
    },
    "3 or more");

std::string option(std::string_view kebab) {
  std::string snake(kebab);
  std::replace(snake.begin() + 2, snake.end(), '-', '_');
  return snake == kebab ? snake : fmt::format("{},{}", kebab, snake);
}

std::vector<std::string> expand_config(std::vector<std::string> arguments) {
  const auto given = std::ranges::find_if(arguments, [](const std::string& argument) {
    return argument == "--config" || argument.starts_with("--config=");
  });
  if (given == arguments.end()) return arguments;
  std::string path;
  auto last = given + 1;
  if (given->size() > 8) {
    path = given->substr(9);
  } else {
    check_usage(last != arguments.end(), "--config: needs a file name");
    path = *last++;
  }
  json object;
  try {
    object = json::parse(read_whole_file(path));
  } catch (const json::exception& error) {
    check_usage(false, "{}: is not JSON ({})", path, error.what());
  } catch (const Error& error) {
    check_usage(false, "--config: {}", error.what());
  }
  check_usage(object.is_object(), "{}: must hold one JSON object of option names and values", path);
  arguments.erase(given, last);
  std::vector<std::string> expanded;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    check_usage(value.is_primitive(), "{}: {} must be a string, a number or true or false, is {}",
                path, name, value.dump());
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    expanded.push_back(fmt::format("--{}={}", name, text));
  }
  // The verb is the first argument; its options follow it.
  arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), expanded.begin(),
                   expanded.end());
  return arguments;
}

std::vector<std::string> join_flag_values(const CLI::App& app, std::vector<std::string> arguments) {
  const auto verbs = app.get_subcommands([&](const CLI::App* candidate) {
    return !arguments.empty() && candidate->get_name() == arguments[0];
  });
  const CLI::App* verb = verbs.empty() ? nullptr : verbs[0];
  std::vector<std::string> joined;
  for (std::string& argument : arguments) {
    const bool is_value =
        argument == "true" || argument == "True" || argument == "false" || argument == "False";
    const bool follows_option = !joined.empty() && joined.back().starts_with("--");
    const CLI::Option* flag = verb != nullptr && is_value && follows_option
                                  ? verb->get_option_no_throw(joined.back())
                                  : nullptr;
    if (flag != nullptr && flag->get_items_expected_max() == 0)
      joined.back() += "=" + argument;
    else
      joined.push_back(std::move(argument));
  }
  return joined;
}

CLI::App& add_verb(CLI::App& app, const std::string& name, const std::string& what) {
  CLI::App& verb = *app.add_subcommand(name, what);
  verb.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  // For --help alone: expand_config() has replaced it.
  verb.add_option("--config", "JSON file with names and values of options; the command line wins");
  return verb;
}

// What CLI11 has let through.
static text::FileFormat parse_format(const std::string& name) {
  using text::FileFormat;
  return name == "csv"    ? FileFormat::csv
         : name == "tsv"  ? FileFormat::tsv
         : name == "json" ? FileFormat::json
         : name == "text" ? FileFormat::text
                          : FileFormat::by_extension;
}

void DataOptions::add_to(CLI::App& verb) {
  verb.add_option(option("--text-column-names"), text_columns,
                  "Column with the text, or two for sentence pairs (found where unambiguous)")
      ->delimiter(',')
      ->expected(1, 2)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("");
  verb.add_option(option("--label-column-name"), label_column,
                  "Column with the label (found where unambiguous)");
  verb.add_option(option("--column-names"), column_names,
                  "Names of the columns of a file without a header line, such as label,text")
      ->delimiter(',')
      ->default_str("");
  verb.add_option(option("--file-format"), file_format, "If the file's name does not say so")
      ->check(CLI::IsMember({"csv", "tsv", "json", "text"}));
  verb.add_flag(option("--replace-invalid-utf8"), replace_invalid_utf8,
                "Replace bytes that are not UTF-8 instead of refusing the file");
}

text::DatasetOptions DataOptions::dataset_options(text::Role role, train::ProblemType type) const {
  return {.role = role,
          .format = parse_format(file_format),
          .text_columns = text_columns,
          .label_column = label_column,
          .column_names = column_names,
          .multi_label = type == train::ProblemType::multi_label_classification,
          .replace_invalid_utf8 = replace_invalid_utf8};
}

text::Dataset DataOptions::read(const std::string& path, text::Role role,
                                train::ProblemType type) const {
  text::Dataset data = text::read_dataset(path, dataset_options(role, type));
  print_notes(data.warnings);
  return data;
}

void add_device_option(CLI::App& verb, std::string& device) {
  verb.add_option("--device", device,
                  "Where to compute: cpu, cuda (the first GPU), cuda:1, or auto: a GPU where there "
                  "is one")
      ->check([](const std::string& name) -> std::string {
        try {
          if (name != "auto") Device::parse(name);
          return "";
        } catch (const Error&) {
          return fmt::format("{} is none of auto, cpu, cuda, cuda:1 ..", name);
        }
      });
}

Device choose_device(const std::string& name) {
  const UsableDevice usable = usable_device(name);
  // Who builds without CUDA knows what is used.
  const bool expected = name == "auto" && !cuda::is_built();
  if (!usable.why_not.empty() && !expected) print_notes({usable.why_not});
  return usable.device;
}

void check_model_folder(const std::string& folder) {
  struct stat status {};
  check(stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode),
        "{}: no such folder; a model is a folder on this machine, nothing is downloaded", folder);
}

void leave_out_unseen_labels(text::Dataset& data, const text::LabelSet& labels) {
  const std::vector<std::string> told = std::exchange(data.warnings, {});
  text::skip_unseen_labels(data, labels);
  print_notes(data.warnings);
  data.warnings.insert(data.warnings.begin(), told.begin(), told.end());
}

void keep_first(text::Dataset& data, int64_t rows) {
  if (rows > 0 && rows < int64_t(data.rows.size())) data.rows.resize(size_t(rows));
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes)
    fmt::print(stderr, "note: {}\n", note);
}

}  // namespace classifier
