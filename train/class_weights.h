#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/labels.h"
#include "text/packing.h"

// How much classes and rows of a skewed data set count.
namespace minim::train {

// Of each class, rows / (classes * rows of the class), as scikit-learn's "balanced"; 0 for a class
// without rows. `labels`: class ids [n], -100 where a row has none.
std::vector<double> balanced_class_weights(const Tensor& labels, int64_t classes);

// Reads "balanced", or weights by class such as "spam=5,ham=0.5", 1 where a class is not named.
// Throws for a name that is no class and a weight that is negative or no number.
std::vector<double> parse_class_weights(std::string_view text, const text::LabelSet& classes,
                                        const Tensor& labels);

// The weight that each row has for SamplingStrategy::weighted: that of its class, so that all
// classes come equally often. Throws where labels are no class ids.
std::vector<double> balanced_row_weights(const text::Examples& set);

// What rows count together: as many as have a class, or with class weights the sum of theirs.
double counted_weight(const text::Examples& set, const std::vector<int64_t>& rows,
                      std::span<const double> class_weights);

}  // namespace minim::train
