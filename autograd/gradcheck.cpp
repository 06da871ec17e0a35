#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/node.h"
#include "core/memory.h"
#include "core/random.h"

namespace minim {

namespace {

// A copy in memory of its own with the same strides; contiguous where elements share memory.
Tensor copy_with_strides(const Tensor& x) {
  int64_t span = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (x.shape()[d] > 1 && x.strides()[d] <= 0) return x.clone();
    span += std::max<int64_t>(x.shape()[d] - 1, 0) * x.strides()[d];
  }
  if (span < x.numel()) return x.clone();
  const Tensor y = Tensor::empty({span}, x.dtype()).view(x.shape(), x.strides());
  copy(y, x);
  return y;
}

// Element number `index` (row-major) of a tensor of any strides, as f64.
class Element {
 public:
  Element(const Tensor& x, int64_t index) : x_(x) {
    for (int d = x.rank() - 1; d >= 0; --d) {
      place_.insert(0, index % x.shape()[d]);
      offset_ += index % x.shape()[d] * x.strides()[d];
      index /= x.shape()[d];
    }
  }
  double get() const {
    return x_.dtype() == DType::f64 ? x_.data<double>()[offset_]
                                    : double(x_.data<float>()[offset_]);
  }
  void set(double value) const {
    if (x_.dtype() == DType::f64)
      x_.data<double>()[offset_] = value;
    else
      x_.data<float>()[offset_] = float(value);
    x_.bump_version();
  }
  const Shape& place() const { return place_; }

 private:
  Tensor x_;
  Shape place_;
  int64_t offset_ = 0;
};

class Check {
 public:
  Check(const std::function<Tensor(const Tensors&)>& function, const Tensors& inputs,
        const GradcheckOptions& options)
      : function_(function), options_(options) {
    for (const Tensor& input : inputs) {
      const bool differentiate = input.defined() && is_floating(input.dtype());
      check(!differentiate || input.device().is_cpu(),
            "gradcheck: needs tensors on the cpu, got one on {}; let the function copy them",
            differentiate ? input.device() : Device());
      check(!differentiate || input.dtype() == DType::f32 || input.dtype() == DType::f64,
            "gradcheck: needs f32 or f64, got {}", differentiate ? name_of(input.dtype()) : "");
      inputs_.push_back(differentiate ? copy_with_strides(input).set_requires_grad() : input);
      differentiated_.push_back(differentiate);
      single_ = single_ || (differentiate && input.dtype() == DType::f32);
    }
    if (options_.step == 0) options_.step = single_ ? 0x1p-7 : 0x1p-13;
    if (options_.tolerance == 0) options_.tolerance = single_ ? 1e-3 : 1e-8;
  }

  GradcheckResult run() {
    // The first run leaves blocks of all needed sizes in the pool, for the poison.
    if (!differentiate() || !differentiate()) return result_;
    const Tensors gradients = take_gradients();
    if (!compare_with_differences(gradients)) return result_;
    if (!add_to(gradients)) return result_;
    result_.ok = true;
    return result_;
  }

 private:
  bool refuse(std::string message) {
    result_.message = "gradcheck: " + std::move(message);
    return false;
  }

  // One forward and backward in memory full of NaN.
  bool differentiate() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (differentiated_[i]) inputs_[i].set_grad(Tensor());
    return backward(0xff);
  }

  bool backward(uint8_t poison) {
    memory::poison_pool(poison);
    const Tensor y = function_(inputs_);
    if (!y.requires_grad()) return refuse("the result depends on no input through the graph");
    weights_ = rand(y.shape(), options_.seed, DType::f32).to_vector<double>();
    for (double& w : weights_)
      w = 2 * w - 1;  // exact in f32 as well
    y.backward(convert(Tensor::from(weights_, y.shape()), y.dtype()));
    return true;
  }

  // The gradients of the inputs; zeros where none arrived.
  Tensors take_gradients() const {
    Tensors gradients;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Tensor grad = differentiated_[i] ? inputs_[i].grad() : Tensor();
      if (differentiated_[i] && !grad.defined())
        grad = Tensor::zeros(inputs_[i].shape(), inputs_[i].dtype());
      gradients.push_back(std::move(grad));
    }
    return gradients;
  }

  // The weighted sum of the function's values.
  double value() const {
    const NoGrad no_grad;
    const std::vector<double> y = function_(inputs_).to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += weights_[i] * y[i];
    return sum;
  }

  double difference(const Element& element) const {
    const double x = element.get(), h = options_.step;
    const auto at = [&](double shifted) {
      element.set(shifted);
      return value();
    };
    const double d = (8 * (at(x + h) - at(x - h)) - (at(x + 2 * h) - at(x - 2 * h))) / (12 * h);
    element.set(x);
    return d;
  }

  bool compare_with_differences(const Tensors& gradients) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!differentiated_[i]) continue;
      const std::vector<double> grad = gradients[i].to_vector<double>();
      for (size_t j = 0; j < grad.size(); ++j) {
        const Element element(inputs_[i], int64_t(j));
        const double expected = difference(element);
        double error = std::abs(grad[j] - expected) / (1 + std::abs(expected));
        if (std::isnan(error)) error = INFINITY;
        if (error < result_.worst_error || (error == 0 && !result_.message.empty())) continue;
        result_.worst_error = error;
        result_.message = fmt::format(
            "gradcheck: input {} element {}: backward says {:.9g}, differences say {:.9g}, error "
            "{:.2g} (allowed {:.2g})",
            i, element.place(), grad[j], expected, error, options_.tolerance);
      }
    }
    return result_.worst_error <= options_.tolerance;
  }

  // A second backward must double each gradient, in memory full of another value. Only rounding may
  // differ, since contributions to one input are added in another order.
  bool add_to(const Tensors& gradients) {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (differentiated_[i]) inputs_[i].set_grad(gradients[i].clone());
    if (!backward(0x5a)) return false;
    const Tensors sums = take_gradients();
    const double rounding = single_ ? 1e-5 : 1e-13;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!differentiated_[i]) continue;
      const std::vector<double> once = gradients[i].to_vector<double>();
      const std::vector<double> twice = sums[i].to_vector<double>();
      for (size_t j = 0; j < once.size(); ++j)
        if (!(std::abs(twice[j] - 2 * once[j]) <= rounding * (1 + std::abs(once[j]))))
          return refuse(fmt::format(
              "input {} element {}: the gradient is {:.9g}, after a second backward {:.9g}; it "
              "must "
              "be added to the one that is there and not depend on what memory held before",
              i, Element(inputs_[i], int64_t(j)).place(), once[j], twice[j]));
    }
    return true;
  }

  const std::function<Tensor(const Tensors&)>& function_;
  GradcheckOptions options_;
  Tensors inputs_;
  std::vector<bool> differentiated_;
  bool single_ = false;
  std::vector<double> weights_;  // of the result's elements, in order
  GradcheckResult result_;
};

}  // namespace

GradcheckResult gradcheck(const std::function<Tensor(const Tensors&)>& function,
                          const Tensors& inputs, const GradcheckOptions& options) {
  return Check(function, inputs, options).run();
}

}  // namespace minim
