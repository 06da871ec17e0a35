#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace minim::train {

// A curve in one line of text: a block from "▁" for the smallest to "█" for the largest value each,
// "▄" where all are equal, "×" for what is not finite. More values than `columns` are averaged over
// as many neighbours as it takes.
std::string sparkline(std::span<const double> values, size_t columns = 60);

// Counts as bars: blank for none, from "▁" up for the others.
std::string bars(std::span<const int64_t> counts);

}  // namespace minim::train
