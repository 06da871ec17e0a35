#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What label strings say by their spelling; helpers of text/labels.h.
namespace minim::text {

// Digits with an optional minus sign and no leading zeros.
bool is_integer(std::string_view label);

// Numeric order of two such integers, of any length.
bool integer_less(std::string_view a, std::string_view b);

// A decimal number in one spelling ("+01.50" and "1.5" give "1.5"), or nothing for other text.
std::optional<std::string> canonical_number(std::string_view label);

// "LABEL_0", "LABEL_1", ..., the names that say nothing.
bool are_placeholders(const std::vector<std::string>& names);

// Sentences about groups of distinct labels that a reader would take for one.
std::vector<std::string> similar_labels(const std::vector<std::string>& names);

}  // namespace minim::text
