#include "cli.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file.h"

namespace classifier {

using namespace minim;
using nlohmann::json;

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
    check(last != arguments.end(), "--config: needs a file name");
    path = *last++;
  }
  json object;
  try {
    object = json::parse(read_whole_file(path));
  } catch (const json::exception& error) {
    fail("{}: is not JSON ({})", path, error.what());
  }
  check(object.is_object(), "{}: must hold one JSON object of option names and values", path);
  arguments.erase(given, last);
  std::vector<std::string> expanded;
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    check(value.is_primitive(), "{}: {} must be a string, a number or true or false, is {}", path,
          name, value.dump());
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    expanded.push_back(fmt::format("--{}={}", name, text));
  }
  // The verb is the first argument; its options follow it.
  arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), expanded.begin(),
                   expanded.end());
  return arguments;
}

static text::FileFormat parse_format(const std::string& name) {
  using text::FileFormat;
  if (name.empty()) return FileFormat::by_extension;
  if (name == "csv") return FileFormat::csv;
  if (name == "tsv") return FileFormat::tsv;
  if (name == "json") return FileFormat::json;
  check(name == "text", "--file-format: \"{}\" is unknown; there are csv, tsv, json and text",
        name);
  return FileFormat::text;
}

void DataOptions::add_to(CLI::App& verb) {
  verb.add_option(option("--text-column-names"), text_columns,
                  "Column with the text, or two for sentence pairs (found where unambiguous)")
      ->delimiter(',')
      ->expected(1, 2)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option(option("--label-column-name"), label_column,
                  "Column with the label (found where unambiguous)");
  verb.add_option(option("--column-names"), column_names,
                  "Names of the columns of a file without a header line, such as label,text")
      ->delimiter(',');
  verb.add_option(option("--file-format"), file_format,
                  "csv, tsv, json or text, if the file's name does not say so");
  verb.add_flag(option("--replace-invalid-utf8"), replace_invalid_utf8,
                "Replace bytes that are not UTF-8 instead of refusing the file");
}

text::Dataset DataOptions::read(const std::string& path, text::Role role,
                                train::ProblemType type) const {
  text::Dataset data = text::read_dataset(
      path, {.role = role,
             .format = parse_format(file_format),
             .text_columns = text_columns,
             .label_column = label_column,
             .column_names = column_names,
             .multi_label = type == train::ProblemType::multi_label_classification,
             .replace_invalid_utf8 = replace_invalid_utf8});
  print_notes(data.warnings);
  return data;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes)
    fmt::print(stderr, "note: {}\n", note);
}

}  // namespace classifier
