#pragma once

#include <string>

#include "train/run_comparison.h"

namespace minim::train {

// The comparison as one HTML page that needs nothing else: the table, what it shows, the score over
// the bytes of optimizer state, states per parameter against bits per state, and the options in
// which the runs differ. Light or dark as the reader's system is.
std::string comparison_page(const Comparison& comparison);

}  // namespace minim::train
