#pragma once

#include <memory>
#include <string>

#include "text/dataset.h"

namespace minim::text {

// Reads a data file row by row, as read_dataset() does but for memory: a regular file is mapped,
// and of its pages no more than some MiB are resident at a time.
class RowReader {
 public:
  // Throws naming the file, and checks its encoding to the end, before there is a row.
  explicit RowReader(const std::string& path, const DatasetOptions& options = {});
  // Of bytes in memory; `name` stands for the file in messages and decides the format.
  RowReader(const std::string& name, std::string bytes, const DatasetOptions& options = {});
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  // The next row, or false at the end. Throws, naming file, line and field, for a row that is
  // wrong, and at the end where there was none.
  bool next(Row& row);

  // All but the rows; columns are known from the first row on, all warnings at the end.
  const Dataset& about() const;

 private:
  class Source;
  std::unique_ptr<Source> source_;
};

}  // namespace minim::text
