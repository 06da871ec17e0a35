// Values and gradients of every operation against those that PyTorch computed in f64
// (tests/data/ops, whose README says what the attributes mean and where the tolerances come from).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/safetensors.h"

namespace minim {
namespace {

using Json = nlohmann::json;

// The inputs of a case by name; one that the case leaves out is undefined.
struct Inputs {
  std::map<std::string, Tensor> tensors;

  Tensor operator[](const std::string& name) const {
    const auto it = tensors.find(name);
    return it == tensors.end() ? Tensor() : it->second;
  }
  // x0, x1, ...
  Tensors numbered() const {
    Tensors parts;
    for (const auto& [name, tensor] : tensors)
      parts.push_back(tensor);
    return parts;
  }
};

using Call = std::function<Tensor(const Json& attrs, const Inputs& in)>;

Reduction reduction_of(const Json& attrs) {
  const std::string name = attrs.value("reduction", "mean");
  return name == "mean" ? Reduction::mean : (name == "sum" ? Reduction::sum : Reduction::none);
}

Dims dims_of(const Json& attrs) {
  return attrs.value("dims", Dims{});
}

bool keepdim_of(const Json& attrs) {
  return attrs.value("keepdim", false);
}

std::optional<double> optional_of(const Json& attrs, const char* name) {
  return attrs.contains(name) ? std::optional(attrs[name].get<double>()) : std::nullopt;
}

Shape shape_of(const Json& extents) {
  return Shape(std::span<const int64_t>(extents.get<Dims>()));
}

Tensor call_unary(Tensor (*op)(const Tensor&), const Inputs& in) {
  return op(in["x"]);
}

Tensor call_matmul(const Json& attrs, const Inputs& in) {
  const auto maybe_transposed = [&](const char* name, const char* attr) {
    return attrs.value(attr, false) ? transpose(in[name], -1, -2) : in[name];
  };
  return matmul(maybe_transposed("a", "transpose_a"), maybe_transposed("b", "transpose_b"));
}

Tensor call_cross_entropy(const Json& attrs, const Inputs& in) {
  CrossEntropyOptions options;
  options.reduction = reduction_of(attrs);
  options.ignore_index = attrs.value("ignore_index", -100);
  options.label_smoothing = attrs.value("label_smoothing", 0.0);
  options.weight = in["class_weight"];
  return cross_entropy(in["logits"], in["target"], options);
}

Tensor call_layer_norm(const Json& attrs, const Inputs& in) {
  const Tensor x = in["x"];
  const auto or_constant = [&](const char* name, double value) {
    return in[name].defined() ? in[name] : Tensor::full({x.size(-1)}, value, x.dtype());
  };
  return layer_norm(x, or_constant("weight", 1), or_constant("bias", 0), attrs["eps"]);
}

Tensor call_attention(const Json& attrs, const Inputs& in) {
  Tensor mask = in["mask"];
  if (attrs.value("causal", false)) {
    const int64_t queries = in["q"].size(-2), keys = in["k"].size(-2);
    mask = Tensor::empty({queries, keys}, DType::boolean);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j)
        mask.data<bool>()[i * keys + j] = j <= i;
  }
  return scaled_dot_product_attention(in["q"], in["k"], in["v"], mask, optional_of(attrs, "scale"));
}

Tensor call_slice(const Json& attrs, const Inputs& in) {
  Tensor x = in["x"];
  for (size_t dim = 0; dim < attrs["slices"].size(); ++dim) {
    const auto range = attrs["slices"][dim].get<Dims>();
    x = slice(x, int64_t(dim), range[0], range[1], range[2]);
  }
  return x;
}

Tensor call_masked_fill(const Json& attrs, const Inputs& in) {
  const Json& value = attrs["value"];
  return masked_fill(
      in["x"], in["mask"],
      value.is_string() ? -std::numeric_limits<double>::infinity() : value.get<double>());
}

Tensor call_dropout(const Json& attrs, const Inputs& in) {
  Generator generator;
  return dropout(in["x"], attrs["p"], generator);
}

Tensor call_embedding(const Json& attrs, const Inputs& in) {
  std::optional<int64_t> padding;
  if (attrs.contains("padding_idx")) padding = attrs["padding_idx"].get<int64_t>();
  return embedding(in["weight"], in["ids"], padding);
}

// With a pos_weight w the loss is w t softplus(-x) + (1 - t) softplus(x), and softplus is the loss
// of a hard target.
Tensor call_bce(const Json& attrs, const Inputs& in) {
  const Tensor x = in["x"], target = in["target"], w = in["pos_weight"];
  if (!w.defined()) return binary_cross_entropy_with_logits(x, target, reduction_of(attrs));
  const auto softplus_of = [&](double hard) {
    return binary_cross_entropy_with_logits(x, Tensor::full(x.shape(), hard, x.dtype()),
                                            Reduction::none);
  };
  return mean(w * target * softplus_of(1) + (1 - target) * softplus_of(0));
}

const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> table = {
      {"matmul", call_matmul},
      {"linear",
       [](const Json&, const Inputs& in) { return linear(in["x"], in["weight"], in["bias"]); }},
      {"add", [](const Json&, const Inputs& in) { return add(in["a"], in["b"]); }},
      {"sub", [](const Json&, const Inputs& in) { return sub(in["a"], in["b"]); }},
      {"mul", [](const Json&, const Inputs& in) { return mul(in["a"], in["b"]); }},
      {"div", [](const Json&, const Inputs& in) { return div(in["a"], in["b"]); }},
      {"sum",
       [](const Json& a, const Inputs& in) { return sum(in["x"], dims_of(a), keepdim_of(a)); }},
      {"mean",
       [](const Json& a, const Inputs& in) { return mean(in["x"], dims_of(a), keepdim_of(a)); }},
      {"max", [](const Json& a,
                 const Inputs& in) { return max(in["x"], a["dim"], keepdim_of(a)).values; }},
      {"min", [](const Json& a,
                 const Inputs& in) { return min(in["x"], a["dim"], keepdim_of(a)).values; }},
      {"softmax", [](const Json& a, const Inputs& in) { return softmax(in["x"], a["dim"]); }},
      {"log_softmax",
       [](const Json& a, const Inputs& in) { return log_softmax(in["x"], a["dim"]); }},
      {"logsumexp", [](const Json& a, const Inputs& in) { return logsumexp(in["x"], a["dim"]); }},
      {"cross_entropy", call_cross_entropy},
      {"layer_norm", call_layer_norm},
      {"gelu",
       [](const Json& a, const Inputs& in) {
         return call_unary(a["approximate"] == "tanh" ? gelu_tanh : gelu, in);
       }},
      {"relu", [](const Json&, const Inputs& in) { return call_unary(relu, in); }},
      {"tanh", [](const Json&, const Inputs& in) { return call_unary(tanh, in); }},
      {"sigmoid", [](const Json&, const Inputs& in) { return call_unary(sigmoid, in); }},
      {"silu", [](const Json&, const Inputs& in) { return call_unary(silu, in); }},
      {"exp", [](const Json&, const Inputs& in) { return call_unary(exp, in); }},
      {"abs", [](const Json&, const Inputs& in) { return call_unary(abs, in); }},
      {"neg", [](const Json&, const Inputs& in) { return call_unary(neg, in); }},
      {"log", [](const Json&, const Inputs& in) { return call_unary(log, in); }},
      {"sqrt", [](const Json&, const Inputs& in) { return call_unary(sqrt, in); }},
      {"pow", [](const Json& a, const Inputs& in) { return pow(in["x"], a["exponent"]); }},
      {"clamp",
       [](const Json& a, const Inputs& in) {
         return clamp(in["x"], optional_of(a, "min"), optional_of(a, "max"));
       }},
      {"embedding", call_embedding},
      {"dropout", call_dropout},
      {"masked_fill", call_masked_fill},
      {"where",
       [](const Json&, const Inputs& in) { return where(in["condition"], in["a"], in["b"]); }},
      {"transpose",
       [](const Json& a, const Inputs& in) { return transpose(in["x"], a["dim0"], a["dim1"]); }},
      {"permute", [](const Json& a, const Inputs& in) { return permute(in["x"], a["order"]); }},
      {"reshape",
       [](const Json& a, const Inputs& in) { return reshape(in["x"], shape_of(a["shape"])); }},
      {"expand",
       [](const Json& a, const Inputs& in) { return expand(in["x"], shape_of(a["shape"])); }},
      {"slice", call_slice},
      {"concat", [](const Json& a, const Inputs& in) { return concat(in.numbered(), a["dim"]); }},
      {"stack", [](const Json& a, const Inputs& in) { return stack(in.numbered(), a["dim"]); }},
      {"gather",
       [](const Json& a, const Inputs& in) { return gather(in["x"], a["dim"], in["index"]); }},
      {"index_select",
       [](const Json& a, const Inputs& in) {
         return index_select(in["x"], a["dim"], in["index"]);
       }},
      {"scaled_dot_product_attention", call_attention},
      {"mse_loss",
       [](const Json& a, const Inputs& in) {
         return mse_loss(in["x"], in["target"], reduction_of(a));
       }},
      {"l1_loss", [](const Json& a,
                     const Inputs& in) { return l1_loss(in["x"], in["target"], reduction_of(a)); }},
      {"smooth_l1_loss",
       [](const Json& a, const Inputs& in) {
         return smooth_l1_loss(in["x"], in["target"], a["beta"], reduction_of(a));
       }},
      {"bce_with_logits", call_bce},
  };
  return table;
}

// The same values behind the strides that the case asks for.
Tensor with_layout(const Tensor& x, const Json& layout) {
  Shape strides = x.shape(), wide = x.shape();
  if (layout["kind"] == "permuted") {
    const auto order = layout["order"].get<Dims>();
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0; step *= x.shape()[order[i]])
      strides[order[i]] = step;
  } else {
    const int64_t dim = layout["dim"], step = layout["step"];
    wide[dim] *= step;
    strides = contiguous_strides(wide);
    strides[dim] *= step;
  }
  const Tensor y = Tensor::zeros(wide, x.dtype()).view(x.shape(), strides);
  copy(y, x);
  return y;
}

struct Tolerance {
  double relative, floor;  // |a - b| <= relative * (|b| + floor)
};

// Where the reference is NaN or infinite ours must be the same. `own` is PyTorch's result in the
// dtype of ours: an f32 may overflow where the f64 does not.
void check_close(const Tensor& ours, const Tensor& reference, const Tensor& own,
                 Tolerance tolerance) {
  REQUIRE(ours.shape() == reference.shape());
  const std::vector<double> a = ours.to_vector<double>(), b = reference.to_vector<double>(),
                            rounded = own.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CAPTURE(a[i]);
    CAPTURE(b[i]);
    if (std::isnan(b[i]))
      CHECK(std::isnan(a[i]));
    else if (std::isinf(b[i]))
      CHECK(a[i] == b[i]);
    else if (std::isinf(rounded[i]))
      CHECK(a[i] == rounded[i]);
    else
      CHECK(std::abs(a[i] - b[i]) <= tolerance.relative * (std::abs(b[i]) + tolerance.floor));
  }
}

struct References {
  Checkpoint file = read_safetensors(MINIM_TEST_DATA "/ops/ops.safetensors");
  Json cases;

  References() {
    std::ifstream in(MINIM_TEST_DATA "/ops/ops.json");
    cases = Json::parse(in).at("cases");
  }
};

void check_case(const References& references, const Json& row, DType dtype) {
  const std::string name = row["name"];
  CAPTURE(name);
  // PyTorch's error in f32 also tells how a case is conditioned: in f64 both may be off by 2^-29 of
  // it.
  const double error = row["float32_error"];
  const Tolerance tolerance = dtype == DType::f64
                                  ? Tolerance{std::max(1e-12, 4 * error * 0x1p-29), 1}
                                  : Tolerance{std::max(1e-5, 4 * error), 1e-3};
  const std::string exact = name + "/f64/", own = name + (dtype == DType::f64 ? "/f64/" : "/f32/");
  const auto& file = references.file;

  Inputs in;
  const Json layouts = row.value("layout", Json::object());
  for (const auto& [input, type] : row["inputs"].items()) {
    Tensor x = file.tensor(name + "/in/" + input);
    if (is_floating(x.dtype())) x = convert(x, dtype);
    in.tensors[input] = layouts.contains(input) ? with_layout(x, layouts[input]) : x.clone();
  }
  for (const std::string input : row["grads"])
    in.tensors[input].set_requires_grad();

  const Tensor y = calls().at(row["op"])(row["attrs"], in);
  check_close(y, file.tensor(exact + "out"), file.tensor(own + "out"), tolerance);
  y.backward(convert(file.tensor(name + "/dy"), dtype));
  for (const std::string input : row["grads"]) {
    CAPTURE(input);
    const Tensor grad = in[input].grad();
    REQUIRE(grad.defined());
    check_close(grad, file.tensor(exact + "grad/" + input), file.tensor(own + "grad/" + input),
                tolerance);
  }
}

TEST_CASE("every operation has PyTorch's values and gradients in f64 and f32") {
  const References references;
  std::set<std::string> seen;
  for (const Json& row : references.cases) {
    seen.insert(row["op"]);
    check_case(references, row, DType::f64);
    check_case(references, row, DType::f32);
  }
  CHECK(references.cases.size() == 248);
  CHECK(seen.size() == calls().size());
}

TEST_CASE("max and min find PyTorch's places") {
  const References references;
  for (const Json& row : references.cases) {
    if (row["op"] != "max" && row["op"] != "min") continue;
    const std::string name = row["name"];
    CAPTURE(name);
    const Tensor x = references.file.tensor(name + "/in/x");
    const auto op = row["op"] == "max"
                        ? static_cast<ValuesIndices (*)(const Tensor&, int64_t, bool)>(max)
                        : min;
    const Tensor places = op(x, row["attrs"]["dim"], keepdim_of(row["attrs"])).indices;
    const Tensor expected = references.file.tensor(name + "/indices");
    CHECK(places.shape() == expected.shape());
    CHECK(places.to_vector<int64_t>() == expected.to_vector<int64_t>());
  }
}

}  // namespace
}  // namespace minim
