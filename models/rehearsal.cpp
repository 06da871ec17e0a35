#include "models/rehearsal.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "core/error.h"

namespace minim::models {

using memory::Category;

namespace {

constexpr std::string_view passing = "gradients on their way";

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

// One allocation.
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
      dy = books.gradient(dy.rows(), dy.columns());
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

Rehearsal::Rehearsal(int threads, int64_t watched) : threads_(threads), watched_(watched) {}

void Rehearsal::add_bytes(Category category, int64_t bytes) {
  int64_t& now = current_[size_t(category)];
  now += bytes;
  total_ += bytes;
  if (bytes <= 0) return;
  ++allocations_;
  Peak& peak = peak_[size_t(category)];
  if (now > peak.bytes) peak = {now, allocations_};
  if (total_ > total_peak_.bytes) total_peak_ = {total_, allocations_};
  if (allocations_ == watched_) note_parts();
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

Rehearsal::Shadow Rehearsal::make(int64_t rows, int64_t columns, std::string_view what) {
  Shadow shadow = hold(4 * rows * columns, Category::activations, what);
  shadow.rows_ = rows;
  shadow.columns_ = columns;
  return shadow;
}

Rehearsal::Shadow Rehearsal::gradient(int64_t rows, int64_t columns) {
  return make(rows, columns, passing);
}

Rehearsal::Shadow Rehearsal::parameter(const Shape& shape, bool requires_grad) const {
  Shadow shadow;
  shadow.rows_ = shape.rank() > 1 ? shape[0] : 1;
  shadow.columns_ = shape.back();
  if (requires_grad) shadow.grad_ = std::make_shared<Grad>();
  return shadow;
}

// --- the graph, as in autograd/record.cpp and autograd/engine.cpp ---

Rehearsal::Shadow Rehearsal::record(std::string_view op, const Shadow& value, const Shadows& inputs,
                                    const Shadows& kept, Backward backward) {
  if (std::ranges::none_of(inputs, &Shadow::requires_grad)) return value;
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
  check(loss.requires_grad(), "rehearsal: no parameter is trained");
  deliver(loss.grad_, gradient(1, 1));
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

// --- operations ---

Rehearsal::Shadow Rehearsal::embedding(const Shadow& weight, int64_t tokens,
                                       std::string_view what) {
  const int64_t rows = weight.rows(), dim = weight.columns();
  return record("embedding", make(tokens, dim, what), {weight}, {},
                [this, rows, dim](const Shadow&) -> Shadows { return {gradient(rows, dim)}; });
}

Rehearsal::Shadow Rehearsal::add(const Shadow& a, const Shadow& b, std::string_view what) {
  return record("add", make(a.rows(), a.columns(), what), {a, b}, {},
                [](const Shadow& dy) -> Shadows {
                  return {dy.detach(), dy.detach()};
                });
}

Rehearsal::Shadow Rehearsal::layer_norm(const Shadow& x, const Shadow& weight, const Shadow& bias,
                                        std::string_view what) {
  const Shadow y = make(x.rows(), x.columns(), what);
  const Shadow mean = make(x.rows(), 1, "layer norms: mean and rstd of each row");
  const Shadow rstd = make(x.rows(), 1, "layer norms: mean and rstd of each row");
  return record("layer_norm", y, {x, weight, bias}, {x, mean, rstd},
                [this, n = x.columns()](const Shadow& dy) -> Shadows {
                  const Shadow dx = gradient(dy.rows(), n);
                  const Shadow dweight = gradient(1, n), dbias = gradient(1, n);
                  return {dx, dweight, dbias};
                });
}

// The sum over rows: long ones are cut into parts, as autograd/ops/reduce.cpp does.
Rehearsal::Shadow Rehearsal::sum_of_rows(int64_t rows, int64_t columns) {
  const int64_t part = rows == 1 || columns == 1 ? 16384 : 256;
  Shadow y = gradient(1, columns);
  int64_t parts = ceil_div(rows, part);
  if (parts <= 1) return y;
  Shadow partial = gradient(parts, columns);
  while ((parts = ceil_div(parts, part)) > 1) {
    const Shadow shorter = gradient(parts, columns);
    partial = shorter;
  }
  return y;
}

Rehearsal::Shadow Rehearsal::linear(const Shadow& x, const Shadow& weight, const Shadow& bias,
                                    std::string_view what) {
  const int64_t rows = x.rows(), in = weight.columns(), out = weight.rows();
  const bool wants_dx = x.requires_grad(), wants_dw = weight.requires_grad();
  const bool wants_db = bias.requires_grad();
  return record("linear", make(rows, out, what), {x, weight, bias}, {x},
                [=, this](const Shadow&) -> Shadows {
                  Shadow dx, dw, db;
                  if (wants_dx) dx = gradient(rows, in);
                  if (wants_dw) dw = gradient(out, in);
                  if (wants_db) db = sum_of_rows(rows, out);
                  return {dx, dw, db};
                });
}

Rehearsal::Shadow Rehearsal::dropout(const Shadow& x, double p, std::string_view what) {
  if (p == 0) return x;
  return record(
      "dropout", make(x.rows(), x.columns(), what), {x}, {},
      [this](const Shadow& dy) -> Shadows { return {gradient(dy.rows(), dy.columns())}; });
}

Rehearsal::Shadow Rehearsal::unary(std::string_view op, const Shadow& x, std::string_view what) {
  const Shadow y = make(x.rows(), x.columns(), what);
  return record(op, y, {x}, {x, y}, [this](const Shadow& dy) -> Shadows {
    return {gradient(dy.rows(), dy.columns())};
  });
}

Rehearsal::Shadow Rehearsal::scale(const Shadow& x, std::string_view what) {
  return record(
      "scale", make(x.rows(), x.columns(), what), {x}, {},
      [this](const Shadow& dy) -> Shadows { return {gradient(dy.rows(), dy.columns())}; });
}

Rehearsal::Shadow Rehearsal::attention(const Shadow& q, const Shadow& k, const Shadow& v,
                                       int64_t heads, int64_t most_keys, const Shadow& offsets,
                                       std::string_view what) {
  constexpr int64_t tile_rows = 64;
  const int64_t scores = 4 * threads_ * tile_rows * most_keys;
  const Shadow y = make(q.rows(), q.columns(), what);
  const Shadow log_sum_exp = make(q.rows(), heads, "attention: log-sum-exp of each row and head");
  hold(scores, Category::workspace, "scores");
  return record(
      "attention", y, {q, k, v}, {q, k, v, y, log_sum_exp, offsets},
      [=, this, queries = q.rows(), keys = k.rows(), dim = q.columns()](const Shadow&) -> Shadows {
        const Shadow dq = gradient(queries, dim);
        const Shadow dk = gradient(keys, dim), dv = gradient(keys, dim);
        hold(2 * scores, Category::workspace, "scores and their gradients");
        return {dq, dk, dv};
      });
}

Rehearsal::Shadow Rehearsal::index_select(const Shadow& x, int64_t rows, std::string_view what) {
  const int64_t all = x.rows(), dim = x.columns();
  return record("index_select", make(rows, dim, what), {x}, {},
                [this, all, dim](const Shadow&) -> Shadows { return {gradient(all, dim)}; });
}

Rehearsal::Shadow Rehearsal::cross_entropy(const Shadow& x) {
  const int64_t rows = x.rows();
  const Shadow losses = make(rows, 1, "loss"), largest = make(rows, 1, "loss");
  const Shadow log_sum = make(rows, 1, "loss"), divisor = make(1, 1, "loss");
  return record("cross_entropy", make(1, 1, "loss"), {x}, {x, largest, log_sum, divisor},
                [this, rows, classes = x.columns()](const Shadow&) -> Shadows {
                  return {gradient(rows, classes)};
                });
}

Rehearsal::Shadow Rehearsal::mean_loss(const Shadow& x) {
  const int64_t rows = x.rows(), columns = x.columns();
  Shadow y;
  {
    const Shadow partial = make(ceil_div(rows * columns, 4096), 1, "loss");
    const Shadow sum = sum_of_rows(partial.rows(), 1);
    y = make(1, 1, "loss");
  }
  return record("loss", y, {x}, {x}, [this, rows, columns](const Shadow&) -> Shadows {
    return {gradient(rows, columns)};
  });
}

}  // namespace minim::models
