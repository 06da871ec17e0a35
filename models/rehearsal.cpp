#include "models/rehearsal.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"

namespace minim::models {

using memory::Category;

namespace {

constexpr std::string_view passing = "gradients on their way";

}  // namespace

// One allocation, or a parameter, which takes nothing here.
struct Rehearsal::Block {
  Block(Rehearsal& books, int64_t bytes, Category category, std::string_view what)
      : books(books), bytes(bytes), category(category), what(what) {
    books.alive_.insert(this);
    books.add_bytes(category, bytes);
  }
  ~Block() {
    books.alive_.erase(this);
    books.add_bytes(category, -bytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void count_as(Category other) {
    books.add_bytes(category, -bytes);
    category = other;
    books.add_bytes(category, bytes);
  }

  Rehearsal& books;
  int64_t bytes;
  Category category;
  std::string_view what;
  std::set<std::string_view> kept_by;
  bool is_parameter = false, has_cast = false;
};

struct Rehearsal::Node {
  std::vector<std::shared_ptr<Grad>> inputs;  // null where no gradient is wanted
  Shadows kept;
  Backward backward;
  int64_t sequence = 0;
};

struct Rehearsal::Grad {
  std::shared_ptr<Node> node;  // null for a parameter
  Shadow gradient;
};

// A gradient on its way to a node, as the engine of autograd adds them up.
struct Rehearsal::Pending {
  std::shared_ptr<Grad> to;
  Shadow dy;
  bool ours = false;

  void add(Rehearsal& books, Shadow dx) {
    if (!dy.defined()) {
      ours = dx.owns_alone();
      dy = std::move(dx);
    } else if (!ours) {
      dy = books.gradient(dy.rows(), dy.columns(), dy.dtype());
      ours = true;
    }
  }
};

bool Rehearsal::Shadow::requires_grad() const {
  return grad_ != nullptr;
}

Rehearsal::Shadow Rehearsal::Shadow::detach() const {
  Shadow other = *this;
  other.grad_ = nullptr;
  return other;
}

// --- the books ---

Rehearsal::Rehearsal(const RehearsalOptions& options)
    : options_(options), records_(options.training) {}

void Rehearsal::add_bytes(Category category, int64_t bytes) {
  int64_t& now = current_[size_t(category)];
  now += bytes;
  total_ += bytes;
  if (bytes <= 0) return;
  ++allocations_;
  Peak& peak = peak_[size_t(category)];
  if (now > peak.bytes) peak = {now, allocations_};
  if (total_ > total_peak_.bytes) total_peak_ = {total_, allocations_};
  if (allocations_ == options_.watched) note_parts();
}

void Rehearsal::note_parts() {
  std::map<std::string_view, std::set<std::string_view>> keepers;
  std::map<std::string_view, MemoryPart> by_name;
  for (const Block* block : alive_) {
    if (block->category != Category::activations) continue;
    MemoryPart& part = by_name[block->what];
    ++part.blocks;
    part.bytes += block->bytes;
    keepers[block->what].insert(block->kept_by.begin(), block->kept_by.end());
  }
  for (auto& [name, part] : by_name) {
    part.what = name;
    part.kept_by = fmt::format("{}", fmt::join(keepers[name], ", "));
    parts_.push_back(std::move(part));
  }
  std::ranges::stable_sort(parts_, std::greater<>(), &MemoryPart::bytes);
}

Rehearsal::Shadow Rehearsal::hold(int64_t bytes, Category category, std::string_view what) {
  Shadow shadow;
  shadow.rows_ = 1;
  shadow.columns_ = bytes;
  shadow.block_ = std::make_shared<Block>(*this, bytes, category, what);
  return shadow;
}

Rehearsal::Shadow Rehearsal::make(int64_t rows, int64_t columns, std::string_view what,
                                  DType dtype) {
  Shadow shadow = hold(size_of(dtype) * rows * columns, Category::activations, what);
  shadow.rows_ = rows;
  shadow.columns_ = columns;
  shadow.dtype_ = dtype;
  return shadow;
}

Rehearsal::Shadow Rehearsal::gradient(int64_t rows, int64_t columns, DType dtype) {
  return make(rows, columns, passing, dtype);
}

Rehearsal::Shadow Rehearsal::parameter(const Shape& shape, bool requires_grad) {
  Shadow shadow = hold(0, Category::weights, "parameter");
  shadow.block_->is_parameter = true;
  shadow.rows_ = shape.rank() > 1 ? shape[0] : 1;
  shadow.columns_ = shape.back();
  if (requires_grad) shadow.grad_ = std::make_shared<Grad>();
  return shadow;
}

// --- the graph, as in autograd/record.cpp and autograd/engine.cpp ---

Rehearsal::Shadow Rehearsal::record(std::string_view op, const Shadow& value, const Shadows& inputs,
                                    const Shadows& kept, Backward backward) {
  if (!records_ || std::ranges::none_of(inputs, &Shadow::requires_grad)) return value;
  const auto node = std::make_shared<Node>();
  node->sequence = next_sequence_++;
  node->backward = std::move(backward);
  for (const Shadow& input : inputs)
    node->inputs.push_back(input.grad_);
  for (const Shadow& tensor : kept) {
    tensor.block_->kept_by.insert(op);
    node->kept.push_back(tensor.detach());
  }
  Shadow output = value;
  output.grad_ = std::make_shared<Grad>();
  output.grad_->node = node;
  return output;
}

void Rehearsal::accumulate(Grad& to, Shadow dx) {
  if (to.gradient.defined()) return;  // added in place
  if (dx.owns_alone()) {
    to.gradient = std::move(dx);
    to.gradient.block_->count_as(Category::gradients);
    return;
  }
  to.gradient = hold(dx.block_->bytes, Category::gradients, passing);
}

void Rehearsal::backward(const Shadow& loss) {
  check(loss.requires_grad(), "rehearsal: no parameter is trained");
  backward(loss, gradient(1, 1));
}

void Rehearsal::backward(const Shadow& y, Shadow dy) {
  std::map<int64_t, Pending, std::greater<>> waiting;
  const auto deliver = [&](const std::shared_ptr<Grad>& to, Shadow dx) {
    if (to->node) {
      Pending& pending = waiting[to->node->sequence];
      pending.to = to;
      pending.add(*this, std::move(dx));
    } else {
      accumulate(*to, std::move(dx));
    }
  };
  deliver(y.grad_, std::move(dy));
  while (!waiting.empty()) {
    Pending pending = std::move(waiting.begin()->second);
    waiting.erase(waiting.begin());
    Node& node = *pending.to->node;
    Shadows dx = node.backward(pending.dy);
    pending.dy = Shadow();
    const auto inputs = std::move(node.inputs);
    node.backward = nullptr;
    node.kept.clear();
    for (size_t i = 0; i < dx.size(); ++i)
      if (inputs[i] && dx[i].defined()) deliver(inputs[i], std::move(dx[i]));
  }
}

// As nn/recompute.cpp.
Rehearsal::Shadow Rehearsal::recompute(const Shadows& inputs, const Shadows& parameters,
                                       const std::function<Shadow(const Shadows&)>& forward) {
  const bool records = std::exchange(records_, false);
  const Shadow value = forward(inputs);
  records_ = records;
  Shadows all = inputs;
  all.insert(all.end(), parameters.begin(), parameters.end());
  Shadows saved;
  std::vector<bool> wanted;
  for (const Shadow& input : inputs) {
    saved.push_back(input.detach());
    wanted.push_back(input.requires_grad());
  }
  return record("recompute", value, all, inputs, [=, this](const Shadow& dy) {
    Shadows gradients(saved.size()), again;
    for (size_t i = 0; i < saved.size(); ++i) {
      const Shadow& leaf = saved[i];
      again.push_back(leaf);
      if (!wanted[i]) continue;
      again.back().grad_ = std::make_shared<Grad>();
      again.back() = record("recompute", leaf, {again.back()}, {},
                            [&gradients, i](const Shadow& passed) -> Shadows {
                              gradients[i] = passed.detach();
                              return {Shadow()};
                            });
    }
    const Shadow y = forward(again);
    backward(y, dy.detach());
    return gradients;
  });
}

// --- mixed precision, as in autograd/autocast.cpp ---

Rehearsal::Shadow Rehearsal::to(const Shadow& x, DType dtype, std::string_view what) {
  if (x.dtype() == dtype) return x;
  return record("to", make(x.rows(), x.columns(), what, dtype), {x}, {},
                [this, from = x.dtype()](const Shadow& dy) -> Shadows {
                  return {gradient(dy.rows(), dy.columns(), from)};
                });
}

Rehearsal::Shadow Rehearsal::to_autocast(const Shadow& x) {
  if (!options_.autocast || x.dtype() != DType::f32) return x;
  if (!x.block_->is_parameter) return to(x, *options_.autocast, "inputs of layers in 16 bits");
  Shadow cast = x.detach();
  cast.dtype_ = *options_.autocast;
  if (!std::exchange(x.block_->has_cast, true)) cast_bytes_ += 2 * x.rows() * x.columns();
  return record("to", cast, {x}, {}, [this](const Shadow& dy) -> Shadows {
    return {gradient(dy.rows(), dy.columns())};
  });
}

Rehearsal::Shadow Rehearsal::to_full_precision(const Shadow& x, std::string_view what) {
  return size_of(x.dtype()) == 2 ? to(x, DType::f32, what) : x;
}

}  // namespace minim::models
