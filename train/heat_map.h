#pragma once

#include <string>
#include <vector>

#include "train/confusion_matrix.h"

namespace minim::train {

// Classes up to which a heat map can be read.
inline constexpr int64_t most_heat_map_classes = 160;

// A confusion matrix as SVG: a row per label, a column per prediction, the class names at both. A
// cell is the stronger the larger its share of its row's examples; right ones are blue, wrong ones
// orange with a mark at the centre, so that they differ in grey too. Every cell that has rows says
// in a tooltip what it is, and where cells are large also its count.
std::string heat_map_svg(const ConfusionMatrix& matrix, const std::vector<std::string>& labels);

// The style sheet for it; once per page.
std::string heat_map_style();

}  // namespace minim::train
