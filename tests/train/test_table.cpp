#include <doctest/doctest.h>

#include "core/error.h"
#include "train/table.h"

using namespace minim;
using train::Table;

TEST_CASE("columns are as wide as their widest cell, counted in characters") {
  Table table({"optimizer", "accuracy"});
  table.add({"adamw", "0.84 ± 0.01"});
  table.add({"sgd", "0.7"});
  CHECK(table.to_string() ==
        "optimizer     accuracy\n"
        "adamw      0.84 ± 0.01\n"
        "sgd                0.7\n");
}

TEST_CASE("no line of a table ends in blanks") {
  Table table({"name", ""});
  table.add({"x", ""});
  CHECK(table.to_string() == "name\nx\n");
}

TEST_CASE("a row of another length is refused") {
  Table table({"a", "b"});
  CHECK_THROWS_WITH_AS(table.add({"1"}), "table: a row of 1 cells under a header of 2", Error);
}
