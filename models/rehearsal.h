#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/memory.h"
#include "core/tensor.h"

// A training step rehearsed with tensors that have sizes but no elements, to know its memory to the
// byte before anything is allocated.
//
// Each operation here has the allocations of its namesake in autograd/ops: those of its value,
// those that it keeps for its backward, and those that its backward makes. Lifetimes are those of
// handles, as of real tensors, so code that is written like a layer's forward() frees like it.
// Weights and their gradients are f32; the rest is what it would be under an Autocast, on the CPU.
namespace minim::models {

// What a rehearsal calls one use of memory, and which backward reads it there.
struct MemoryPart {
  std::string what;     // "feed-forward: lin1"
  std::string kept_by;  // operations whose backward reads it; empty for what is only passing by
  int64_t blocks = 0;   // tensors
  int64_t bytes = 0;
};

struct RehearsalOptions {
  int threads = 1;                     // attention works with a buffer for each
  std::optional<DType> autocast = {};  // f16 or bf16, while values are computed
  bool training = true;                // else: no dropout, and nothing is recorded
  // The parts are noted at this allocation, counted from 1: a first rehearsal finds the peak, a
  // second one looks at it.
  int64_t watched = 0;
};

class Rehearsal {
 public:
  // A tensor without elements.
  class Shadow;
  using Shadows = std::vector<Shadow>;

  explicit Rehearsal(const RehearsalOptions& options);
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  // Memory of `bytes` that lives as long as the handle. The names of values and operations, here
  // and below, are not copied: they outlive the rehearsal.
  Shadow hold(int64_t bytes, memory::Category category, std::string_view what);
  // A new tensor among the activations.
  Shadow make(int64_t rows, int64_t columns, std::string_view what, DType dtype = DType::f32);
  // A weight, whose memory is not counted here; the gradient it gets is kept across backwards.
  Shadow parameter(const Shape& shape, bool requires_grad);

  // y = weight[ids]; keeps the ids, which are part of the batch.
  Shadow embedding(const Shadow& weight, int64_t tokens, std::string_view what);
  // Keeps nothing: the gradient goes on unchanged, as one tensor for both operands.
  Shadow add(const Shadow& a, const Shadow& b, std::string_view what);
  // Keeps x and, per row, mean and rstd.
  Shadow layer_norm(const Shadow& x, const Shadow& weight, const Shadow& bias,
                    std::string_view what);
  // Keeps x, for the gradient of the weight.
  Shadow linear(const Shadow& x, const Shadow& weight, const Shadow& bias, std::string_view what);
  // Keeps nothing: the mask is drawn again. With p = 0 it is x itself.
  Shadow dropout(const Shadow& x, double p, std::string_view what);
  // GELU and its like: keeps x and y.
  Shadow unary(std::string_view op, const Shadow& x, std::string_view what);
  // x times a number; keeps nothing.
  Shadow scale(const Shadow& x, std::string_view what);
  // Keeps q, k, v, y and, per row and head, the logarithm of the sum of exponentials, but no
  // probabilities: those of at most 64 queries exist at a time, per thread. `offsets` are held too.
  Shadow attention(const Shadow& q, const Shadow& k, const Shadow& v, int64_t heads,
                   int64_t most_keys, const Shadow& offsets, std::string_view what);
  // The rows that are each sequence's first; keeps their numbers, which are part of the batch.
  Shadow index_select(const Shadow& x, int64_t rows, std::string_view what);
  // x in another dtype; keeps nothing.
  Shadow to(const Shadow& x, DType dtype, std::string_view what);
  // Scalars. Cross-entropy keeps x and, per row, the maximum and the logarithm of the sum.
  Shadow cross_entropy(const Shadow& x);
  // MSE or binary cross-entropy: keeps x.
  Shadow mean_loss(const Shadow& x);
  // forward(inputs), of which the inputs alone are kept; it runs again in the backward.
  Shadow recompute(const Shadows& inputs, const Shadows& parameters,
                   const std::function<Shadow(const Shadows&)>& forward);

  void backward(const Shadow& loss);

  // Bytes now.
  int64_t current(memory::Category category) const { return current_[size_t(category)]; }
  // Of parameters in autocast's dtype, which stay from step to step and are not counted otherwise.
  int64_t cast_bytes() const { return cast_bytes_; }
  // The most there were, and at which allocation.
  struct Peak {
    int64_t bytes = 0, at = 0;
  };
  Peak peak(memory::Category category) const { return peak_[size_t(category)]; }
  Peak peak() const { return total_peak_; }
  // Activations alive at the watched allocation, largest first.
  const std::vector<MemoryPart>& parts() const { return parts_; }

 private:
  struct Block;
  struct Node;
  struct Grad;
  struct Pending;
  using Backward = std::function<Shadows(const Shadow& dy)>;

  Shadow gradient(int64_t rows, int64_t columns, DType dtype = DType::f32);
  Shadow convert(const Shadow& x, std::string_view what, DType dtype = DType::f32);
  Shadows back(const Shadows& wide, DType dtype);
  Shadow to_autocast(const Shadow& x);
  Shadow to_full_precision(const Shadow& x, std::string_view what);
  Shadow record(std::string_view op, const Shadow& value, const Shadows& inputs,
                const Shadows& kept, Backward backward);
  Shadow sum_of_rows(int64_t rows, int64_t columns, DType dtype = DType::f32);
  void backward(const Shadow& y, Shadow dy);
  void add_bytes(memory::Category category, int64_t bytes);
  void note_parts();
  void accumulate(Grad& to, Shadow dx);

  RehearsalOptions options_;
  bool records_;
  int64_t allocations_ = 0, next_sequence_ = 0, cast_bytes_ = 0;
  std::array<int64_t, memory::categories> current_{};
  std::array<Peak, memory::categories> peak_{};
  int64_t total_ = 0;
  Peak total_peak_;
  std::unordered_set<const Block*> alive_;
  std::vector<MemoryPart> parts_;
};

class Rehearsal::Shadow {
 public:
  Shadow() = default;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  DType dtype() const { return dtype_; }
  bool requires_grad() const;

 private:
  friend class Rehearsal;
  bool defined() const { return rows_ >= 0; }
  bool owns_alone() const { return block_.use_count() == 1; }
  // The same memory without history.
  Shadow detach() const;

  int64_t rows_ = -1, columns_ = 0;
  DType dtype_ = DType::f32;
  std::shared_ptr<Block> block_;
  std::shared_ptr<Grad> grad_;  // null without history
};

}  // namespace minim::models
