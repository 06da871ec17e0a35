#include "text/dataset.h"

#include <utility>

#include <fmt/format.h>

#include "text/row_reader.h"

namespace minim::text {
namespace {

Dataset read_all(RowReader& reader) {
  std::vector<Row> rows;
  for (Row row; reader.next(row);)
    rows.push_back(std::exchange(row, {}));
  Dataset data = reader.about();
  data.rows = std::move(rows);
  return data;
}

}  // namespace

Dataset read_dataset(const std::string& path, const DatasetOptions& options) {
  RowReader reader(path, options);
  return read_all(reader);
}

Dataset parse_dataset(const std::string& name, std::string bytes, const DatasetOptions& options) {
  RowReader reader(name, std::move(bytes), options);
  return read_all(reader);
}

std::string label_place(const Dataset& data, const Row& row) {
  if (data.label_field == 0) return fmt::format("{}: line {}", data.file, row.line);
  return fmt::format("{}: line {}, field {}", data.file, row.line, data.label_field);
}

}  // namespace minim::text
