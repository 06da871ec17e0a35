#include "tests/autograd/op_cases.h"

#include <cmath>
#include <string_view>

#include "autograd/ops.h"

namespace minim {

namespace {

using In = const Tensors&;

// Where a functor is defined and smooth, with room for the steps of differences.
OpInput domain_of(std::string_view functor, const Shape& shape) {
  if (functor == "log" || functor == "sqrt" || functor == "rsqrt") return {shape, 0.5, 2};
  if (functor == "relu" || functor == "abs") return {shape, 0.1, 3};
  return {shape, -3, 3};
}

template <class F>
void add_unary(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 1, 37}, Shape{}})
    cases.push_back({fmt::format("{} {}", F::name, shape), {domain_of(F::name, shape)}, [](In in) {
                       return unary<F>(in[0]);
                     }});
}

template <class F>
void add_binary(std::vector<OpCase>& cases) {
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 5}, {3, 5}}, {{3, 5}, {5}}, {{2, 1, 4}, {3, 1}}, {{}, {2, 2}}, {{4, 3}, {1, 1}}};
  for (const auto& [a, b] : shapes)
    cases.push_back({fmt::format("{} {} and {}", F::name, a, b), {{a}, {b, 0.5, 2}}, [](In in) {
                       return binary<F>(in[0], in[1]);
                     }});
}

template <class... Fs>
void add_all_unary(TypeList<Fs...>, std::vector<OpCase>& cases) {
  (add_unary<Fs>(cases), ...);
}

template <class... Fs>
void add_all_binary(TypeList<Fs...>, std::vector<OpCase>& cases) {
  (add_binary<Fs>(cases), ...);
}

OpInput i64(const Shape& shape, std::vector<double> values) {
  return {shape, 0, 0, std::move(values), DType::i64};
}

OpInput mask(const Shape& shape, std::vector<double> values) {
  return {shape, 0, 0, std::move(values), DType::boolean};
}

OpInput given(const Shape& shape, std::vector<double> values) {
  return {shape, 0, 0, std::move(values)};
}

void add_elementwise(std::vector<OpCase>& cases) {
  cases.push_back({"affine", {{{2, 3}}}, [](In in) { return affine(in[0], -1.5, 0.25); }});
  cases.push_back({"operators with numbers",
                   {given({2}, {2, 4})},
                   [](In in) { return (3 - in[0]) * 2 + (1 + in[0] / 4 - 0.5) - (-in[0]); },
                   {2 + 1 + 2, -2 + 1.5 + 4}});
  cases.push_back({"pow 3", {{{2, 3}}}, [](In in) { return pow(in[0], 3); }});
  cases.push_back({"pow -0.5", {{{2, 3}, 0.5, 2}}, [](In in) { return pow(in[0], -0.5); }});
  cases.push_back({"clamp",
                   {given({5}, {-2, -0.25, 0, 0.25, 2})},
                   [](In in) { return clamp(in[0], -0.5, 1); },
                   {-0.5, -0.25, 0, 0.25, 1}});
  cases.push_back({"where, all three broadcast",
                   {mask({2, 1}, {1, 0}), given({3}, {1, 2, 3}), given({2, 3}, {4, 5, 6, 7, 8, 9})},
                   [](In in) { return where(in[0], in[1], in[2]); },
                   {1, 2, 3, 7, 8, 9}});
  cases.push_back({"masked_fill",
                   {given({2, 2}, {1, 2, 3, 4}), mask({2}, {0, 1})},
                   [](In in) { return masked_fill(in[0], in[1], -5); },
                   {1, -5, 3, -5}});
  cases.push_back({"to f64", {{{2, 3}}}, [](In in) { return to(in[0], DType::f64); }});
  cases.push_back({"dropout", {{{4, 9}}}, [](In in) {
                     Generator generator{.seed = 3, .offset = 2};
                     return dropout(in[0], 0.4f, generator);
                   }});
}

void add_reductions(std::vector<OpCase>& cases) {
  cases.push_back(
      {"sum of all", {given({2, 2}, {1, 2, 3, 4.5})}, [](In in) { return sum(in[0]); }, {10.5}});
  cases.push_back({"sum over the first",
                   {given({2, 3}, {1, 2, 3, 4, 5, 6})},
                   [](In in) { return sum(in[0], {0}); },
                   {5, 7, 9}});
  cases.push_back({"sum over two of three", {{{3, 4, 5}}}, [](In in) {
                     return sum(in[0], {2, 0});
                   }});
  cases.push_back({"sum over the middle, kept", {{{3, 4, 5}}}, [](In in) {
                     return sum(in[0], {1}, keep_dim);
                   }});
  cases.push_back({"mean of all", {{{7, 300}}}, [](In in) { return mean(in[0]); }});
  cases.push_back({"mean over the last",
                   {given({2, 2}, {1, 2, 3, 5})},
                   [](In in) { return mean(in[0], {-1}); },
                   {1.5, 4}});
  cases.push_back({"max",
                   {given({2, 3}, {1, 5, 2, 9, 0, 4})},
                   [](In in) { return max(in[0], 1).values; },
                   {5, 9}});
  cases.push_back({"min over the first, kept",
                   {given({2, 3}, {1, 5, 2, 9, 0, 4})},
                   [](In in) { return min(in[0], 0, keep_dim).values; },
                   {1, 0, 2}});
  cases.push_back({"argmax",
                   {given({2, 3}, {1, 5, 2, 9, 0, 4})},
                   [](In in) { return argmax(in[0].detach()); },
                   {1, 0},
                   false});
  cases.push_back(
      {"logsumexp over the middle", {{{2, 5, 3}}}, [](In in) { return logsumexp(in[0], 1); }});
  cases.push_back({"norm", {given({2, 2}, {1, -2, 4, 2})}, [](In in) { return norm(in[0]); }, {5}});
  for (int64_t dim : {0, 1, -1}) {
    const OpInput x = {{3, 4, 5}, -2, 2};
    cases.push_back(
        {fmt::format("softmax over {}", dim), {x}, [dim](In in) { return softmax(in[0], dim); }});
    cases.push_back({fmt::format("log_softmax over {}", dim), {x}, [dim](In in) {
                       return log_softmax(in[0], dim);
                     }});
  }
}

void add_views(std::vector<OpCase>& cases) {
  const OpInput x = {{2, 3, 4}}, counted = given({2, 3}, {1, 2, 3, 4, 5, 6});
  cases.push_back({"reshape", {x}, [](In in) { return reshape(in[0], {4, -1}); }});
  cases.push_back(
      {"transpose", {counted}, [](In in) { return transpose(in[0], 0, 1); }, {1, 4, 2, 5, 3, 6}});
  cases.push_back({"permute", {x}, [](In in) { return permute(in[0], {2, 0, 1}); }});
  cases.push_back({"expand", {{{3, 1}}}, [](In in) { return expand(in[0], {2, 3, 4}); }});
  cases.push_back({"slice with a step", {x}, [](In in) { return slice(in[0], 2, 1, 4, 2); }});
  cases.push_back({"select", {counted}, [](In in) { return select(in[0], 1, -1); }, {3, 6}});
  cases.push_back(
      {"unsqueeze and squeeze", {x}, [](In in) { return squeeze(unsqueeze(in[0], 1), 1); }});
  cases.push_back({"contiguous", {x}, [](In in) { return contiguous(transpose(in[0], 0, 2)); }});
  cases.push_back({"view of a view of a view", {x}, [](In in) {
                     return reshape(slice(transpose(in[0], 0, 2), 1, 1, 3), {16});
                   }});
  cases.push_back({"concat over the middle", {{{2, 1, 3}}, {{2, 4, 3}}, {{2, 0, 3}}}, [](In in) {
                     return concat({in[0], in[1], in[2]}, 1);
                   }});
  cases.push_back({"stack", {{{2, 3}}, {{2, 3}}}, [](In in) { return stack({in[0], in[1]}, -1); }});
  cases.push_back({"one tensor concatenated with itself", {{{2, 3}}}, [](In in) {
                     return concat({in[0], in[0] * 2}, 0);
                   }});
}

void add_indexing(std::vector<OpCase>& cases) {
  cases.push_back({"gather, one place twice",
                   {given({2, 3}, {1, 2, 3, 4, 5, 6}), i64({2, 2}, {2, 2, 0, 1})},
                   [](In in) { return gather(in[0], 1, in[1]); },
                   {3, 3, 4, 5}});
  cases.push_back({"index_select", {{{3, 4, 2}}, i64({5}, {3, 0, 0, 2, 3})}, [](In in) {
                     return index_select(in[0], 1, in[1]);
                   }});
  cases.push_back({"embedding", {{{5, 3}}, i64({2, 3}, {4, 0, 1, 1, 1, 4})}, [](In in) {
                     return embedding(in[0], in[1]);
                   }});
}

void add_matrices(std::vector<OpCase>& cases) {
  const std::pair<Shape, Shape> shapes[] = {
      {{3, 4}, {4, 5}},    {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {5, 4, 2}},
      {{4}, {4, 3}},       {{3, 4}, {4}},          {{6}, {6}},
      {{17, 33}, {33, 19}}};
  for (const auto& [a, b] : shapes)
    cases.push_back({fmt::format("matmul {} {}", a, b), {{a}, {b}}, [](In in) {
                       return matmul(in[0], in[1]);
                     }});
  cases.push_back({"matmul of transposed views", {{{2, 4, 3}}, {{2, 5, 4}}}, [](In in) {
                     return matmul(transpose(in[0], 1, 2), transpose(in[1], 1, 2));
                   }});
  cases.push_back({"linear",
                   {given({2, 2}, {1, 2, 3, 4}), given({1, 2}, {10, 1}), given({1}, {0.5})},
                   [](In in) { return linear(in[0], in[1], in[2]); },
                   {12.5, 34.5}});
  cases.push_back({"linear on three dims", {{{2, 3, 4}}, {{5, 4}}, {{5}}}, [](In in) {
                     return linear(in[0], in[1], in[2]);
                   }});
  cases.push_back(
      {"linear without bias", {{{7, 4}}, {{5, 4}}}, [](In in) { return linear(in[0], in[1]); }});
}

void add_layers(std::vector<OpCase>& cases) {
  cases.push_back({"layer_norm", {{{3, 8}, -2, 2}, {{8}, 0.5, 1.5}, {{8}}}, [](In in) {
                     return layer_norm(in[0], in[1], in[2], 1e-5);
                   }});
  cases.push_back({"layer_norm of a row longer than a block",
                   {{{2, 70}, -2, 2}, {{70}, 0.5, 1.5}, {{70}}},
                   [](In in) { return layer_norm(in[0], in[1], in[2], 1e-5); }});
  const auto packed = [](float p) {
    return [p](In in) {
      // Three sequences of 2, 0 and 3 tokens; the first key of the last one is hidden.
      const Device device = in[0].device();
      const AttentionRows rows = {Tensor::from({0, 2, 2, 5}, {4}, device),
                                  Tensor::from({0, 2, 3}, {3}, device),
                                  Tensor::from({2, 2, 5}, {3}, device)};
      Generator generator{.seed = 1};
      return attention(in[0], in[1], in[2], rows, 2, p, generator);
    };
  };
  const std::vector<OpInput> qkv = {{{5, 6}, -2, 2}, {{5, 6}, -2, 2}, {{5, 6}}};
  cases.push_back({"attention", qkv, packed(0)});
  cases.push_back({"attention with dropout", qkv, packed(0.3f)});
  cases.push_back({"scaled_dot_product_attention",
                   {{{2, 2, 3, 4}}, {{2, 2, 5, 4}}, {{2, 2, 5, 3}}},
                   [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2]); }});
  cases.push_back(
      {"scaled_dot_product_attention with a row that sees nothing",
       {{{1, 3, 4}}, {{1, 3, 4}}, {{1, 3, 4}}, mask({3, 3}, {1, 0, 0, 0, 0, 0, 1, 1, 1})},
       [](In in) { return scaled_dot_product_attention(in[0], in[1], in[2], in[3], 0.7); }});
  cases.push_back(
      {"scaled_dot_product_attention with a mask that is added",
       {{{2, 3, 4}}, {{2, 3, 4}}, {{2, 3, 4}}},
       [](In in) {
         const Tensor added =
             Tensor::from({0.0, -1.5, 2.0, 0.25, 0.0, -8.0, 1.0, 1.0, 0.5}, {3, 3}, in[0].device());
         return scaled_dot_product_attention(in[0], in[1], in[2], convert(added, in[0].dtype()));
       }});
}

void add_losses(std::vector<OpCase>& cases) {
  const auto name = [](const char* loss, Reduction r) {
    return fmt::format("{} {}", loss,
                       r == Reduction::mean  ? "mean"
                       : r == Reduction::sum ? "sum"
                                             : "none");
  };
  const OpInput x = {{3, 4}, 1.25, 2}, target = {{3, 4}, -2, -1.25};
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    cases.push_back(
        {name("mse_loss", r), {x, target}, [r](In in) { return mse_loss(in[0], in[1], r); }});
    cases.push_back(
        {name("l1_loss", r), {x, target}, [r](In in) { return l1_loss(in[0], in[1], r); }});
    for (double beta : {1.0, 5.0})  // all differences above, all below
      cases.push_back({name("smooth_l1_loss", r) + (beta == 1 ? " linear" : " quadratic"),
                       {x, target},
                       [r, beta](In in) { return smooth_l1_loss(in[0], in[1], beta, r); }});
    cases.push_back({name("binary_cross_entropy_with_logits", r),
                     {{{3, 4}, -3, 3}, {{3, 4}, 0, 1}},
                     [r](In in) { return binary_cross_entropy_with_logits(in[0], in[1], r); }});
    cases.push_back(
        {name("cross_entropy", r), {{{4, 5}, -2, 2}, i64({4}, {0, 4, -100, 2})}, [r](In in) {
           return cross_entropy(in[0], in[1], {.reduction = r, .weight = {}});
         }});
  }
  cases.push_back(
      {"cross_entropy smoothed and weighted", {{{4, 5}, -2, 2}, i64({4}, {0, 4, 1, 2})}, [](In in) {
         const Tensor weight = Tensor::from({0.5, 1.0, 1.5, 2.0, 0.75}, {5}, in[0].device());
         return cross_entropy(in[0], in[1],
                              {.ignore_index = 1,
                               .label_smoothing = 0.1f,
                               .weight = convert(weight, in[0].dtype())});
       }});
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    add_all_unary(UnaryFunctors{}, all);
    add_all_binary(BinaryFunctors{}, all);
    add_elementwise(all);
    add_reductions(all);
    add_views(all);
    add_indexing(all);
    add_matrices(all);
    add_layers(all);
    add_losses(all);
    return all;
  }();
  return cases;
}

}  // namespace minim
