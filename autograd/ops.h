#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "autograd/node.h"
#include "core/functors.h"
#include "core/random.h"
#include "core/tensor.h"

// Every differentiable operation. Floating inputs of one call have one dtype; f16 and bf16 are
// computed in f32. Inputs may be views. Dimensions count from either end. Names and conventions
// are PyTorch's. All throw Error naming the operation and the shapes.
namespace minim {

using Dims = std::vector<int64_t>;
inline constexpr bool keep_dim = true;

// --- element by element ---

// Applies one of UnaryFunctors, which brings its own derivative.
Tensor unary(int functor, const Tensor& x);
template <class Functor>
Tensor unary(const Tensor& x) {
  static_assert(UnaryFunctors::index_of<Functor>() < UnaryFunctors::size,
                "add it to UnaryFunctors");
  return unary(UnaryFunctors::index_of<Functor>(), x);
}
inline Tensor gelu(const Tensor& x) {
  return unary<Gelu>(x);
}
inline Tensor gelu_tanh(const Tensor& x) {
  return unary<GeluTanh>(x);
}
inline Tensor quick_gelu(const Tensor& x) {
  return unary<QuickGelu>(x);
}
inline Tensor silu(const Tensor& x) {
  return unary<Silu>(x);
}
inline Tensor mish(const Tensor& x) {
  return unary<Mish>(x);
}
inline Tensor relu(const Tensor& x) {
  return unary<Relu>(x);
}
inline Tensor tanh(const Tensor& x) {
  return unary<Tanh>(x);
}
inline Tensor sigmoid(const Tensor& x) {
  return unary<Sigmoid>(x);
}
inline Tensor exp(const Tensor& x) {
  return unary<Exp>(x);
}
inline Tensor log(const Tensor& x) {
  return unary<Log>(x);
}
inline Tensor sqrt(const Tensor& x) {
  return unary<Sqrt>(x);
}
inline Tensor rsqrt(const Tensor& x) {
  return unary<Rsqrt>(x);
}
inline Tensor abs(const Tensor& x) {
  return unary<Abs>(x);
}
inline Tensor neg(const Tensor& x) {
  return unary<Neg>(x);
}
inline Tensor square(const Tensor& x) {
  return unary<Square>(x);
}

// x * scale + shift.
Tensor affine(const Tensor& x, double scale, double shift);
// x to a constant power.
Tensor pow(const Tensor& x, double exponent);
// x held between two bounds, either of which may be left out; the gradient at a bound is 0.
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max);

// Applies one of BinaryFunctors; shapes broadcast.
Tensor binary(int functor, const Tensor& a, const Tensor& b);
template <class Functor>
Tensor binary(const Tensor& a, const Tensor& b) {
  static_assert(BinaryFunctors::index_of<Functor>() < BinaryFunctors::size,
                "add it to BinaryFunctors");
  return binary(BinaryFunctors::index_of<Functor>(), a, b);
}
inline Tensor add(const Tensor& a, const Tensor& b) {
  return binary<Add>(a, b);
}
inline Tensor sub(const Tensor& a, const Tensor& b) {
  return binary<Sub>(a, b);
}
inline Tensor mul(const Tensor& a, const Tensor& b) {
  return binary<Mul>(a, b);
}
inline Tensor div(const Tensor& a, const Tensor& b) {
  return binary<Div>(a, b);
}
inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}
inline Tensor operator+(const Tensor& x, double c) {
  return affine(x, 1.0, c);
}
inline Tensor operator+(double c, const Tensor& x) {
  return affine(x, 1.0, c);
}
inline Tensor operator-(const Tensor& x, double c) {
  return affine(x, 1.0, -c);
}
inline Tensor operator-(double c, const Tensor& x) {
  return affine(x, -1.0, c);
}
inline Tensor operator*(const Tensor& x, double c) {
  return affine(x, c, 0.0);
}
inline Tensor operator*(double c, const Tensor& x) {
  return affine(x, c, 0.0);
}
inline Tensor operator/(const Tensor& x, double c) {
  return affine(x, 1.0 / c, 0.0);
}

// Where condition (bool, broadcasts with the others) holds a, else b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// x with `value` where the mask (bool, broadcasts to x) is true; no gradient flows there.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

// Another dtype, or a copy on another device; the gradient comes back in x's, on x's.
Tensor to(const Tensor& x, DType dtype);
Tensor to(const Tensor& x, Device device);

// Adds in place, without recording: sum += x, same shape and dtype, sum contiguous.
void add_into(const Tensor& sum, const Tensor& x);

// --- reductions: over the given dims, or over all where there are none ---

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
// The mean of nothing is NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Values, and i64 places along the dimension; the first place where several are equal.
struct ValuesIndices {
  Tensor values, indices;
};
// The whole gradient goes to the first place. NaN counts as the largest and the smallest.
ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim = false);
// Place of the largest element, i64. Has no backward.
Tensor argmax(const Tensor& x, int64_t dim = -1, bool keepdim = false);
Tensor logsumexp(const Tensor& x, int64_t dim, bool keepdim = false);
// Square root of the sum of squares of all elements, summed in f64.
Tensor norm(const Tensor& x);

Tensor softmax(const Tensor& x, int64_t dim = -1);
Tensor log_softmax(const Tensor& x, int64_t dim = -1);

// --- views: same memory, no copy ---

// One extent may be -1. Copies where the strides leave no other way.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const Dims& order);
// Extents of 1 repeated to `shape` (NumPy's broadcasting rule).
Tensor expand(const Tensor& x, const Shape& shape);
// Elements begin, begin + step, ... before end along a dimension; step > 0.
Tensor slice(const Tensor& x, int64_t dim, int64_t begin, int64_t end, int64_t step = 1);
// One index along a dimension, which disappears.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, int64_t dim);
// x, or a contiguous copy.
Tensor contiguous(const Tensor& x);

// --- joining and indexing ---

Tensor concat(const Tensors& parts, int64_t dim = 0);
Tensor stack(const Tensors& parts, int64_t dim = 0);
// y[.., i, ..] = x[.., index[.., i, ..], ..] along dim; index (i32 or i64) has x's rank.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
// Slices of x along dim at the places in index (i32 or i64, [n]).
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
// Rows of weight [rows, dim] at ids (i32 or i64, any shape): [.., dim]. The row padding_idx
// receives no gradient.
Tensor embedding(const Tensor& weight, const Tensor& ids, std::optional<int64_t> padding_idx = {});

// --- matrices ---

// Products of matrices [.., m, k] and [.., k, n]; leading dims broadcast, vectors are allowed.
Tensor matmul(const Tensor& a, const Tensor& b);
// x weightᵀ + bias.   x: [.., in], weight: [out, in], bias: [out] or undefined
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = Tensor());

// --- layers ---

// Over the last dim, with biased variance (Ba et al., 2016).   x: [.., dim], weight, bias: [dim]
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
// Zeroes elements with probability p and scales the others so that the mean stays.
Tensor dropout(const Tensor& x, float p, Generator& generator);

// Rows that each sequence of a packed batch asks with and is asked in.
struct AttentionRows {
  Tensor query_offsets;       // [sequences + 1] i32
  Tensor key_begin, key_end;  // [sequences] i32
};
// Multi-head attention within each sequence of a packed batch, without storing the probabilities.
// Dropout acts on the probabilities; p = 0 draws nothing.   q: [query rows, heads * d],
// k, v: [key rows, heads * d]
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionRows& rows,
                 int64_t heads, float dropout_p, Generator& generator);

// softmax(scale * q kᵀ + mask) v for padded batches. A bool mask says which keys may be used, a
// floating one is added; both broadcast. A query without any usable key gets zeros. scale defaults
// to 1 / sqrt(d).   q: [.., lq, d], k: [.., lk, d], v: [.., lk, dv]
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = Tensor(),
                                    std::optional<double> scale = {});

// --- losses ---

enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  Tensor weight;  // [classes]; mean divides by the weights of the rows that count
};
// logits: [rows, classes], target: [rows] i32 or i64. The mean over no rows is NaN.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options = {});
// x and target have one shape.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction = Reduction::mean);
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
// Quadratic below beta, linear above (Girshick, 2015).
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta = 1.0,
                      Reduction reduction = Reduction::mean);

}  // namespace minim
