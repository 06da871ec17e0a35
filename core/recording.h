#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/random.h"
#include "core/tensor.h"

// Work on a device that is recorded once and run again with other numbers.
namespace minim {

// How many rows of a padded batch are real. Draws are counted for these alone, so that dropout is
// the same with padding as without; the default is a batch without padding.
struct RealRows {
  int64_t padded_tokens = -1, tokens = -1;
  int64_t padded_sequences = -1, sequences = -1;
  // No sequence of any run is longer than this; what depends on lengths is sized by it.
  int64_t longest = 0;

  // Of that many rows, which are one for each token, or each sequence, or neither.
  int64_t of(int64_t rows) const {
    return rows == padded_tokens ? tokens : rows == padded_sequences ? sequences : rows;
  }
};

// The numbers of recorded work that differ from run to run: they lie in one piece of the device's
// memory, which is written before each run. While it is in use by a thread (Recording::Use), that
// thread's launches are recorded; or, once it replays, told their new numbers and not launched.
class Recording {
 public:
  // Blocks that an operation draws from a generator.
  using Blocks = std::function<uint64_t(const RealRows&)>;

  // With room for so many bytes of arguments.
  Recording(Device device, int64_t bytes);

  class Use {
   public:
    explicit Use(Recording& recording);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };
  // The one this thread has in use; null outside of all.
  static Recording* current();
  // Whether this thread's launches are being recorded.
  static bool is_recording();

  // Where `bytes` will be on the device at each run, copied from the host. When replaying,
  // arguments are given again in the same order and sizes, from the one that go_to() names. Throws
  // for others, and for more than fit.
  void* argument(const void* value, size_t bytes);
  // A number that the work depends on, but not as an argument: throws where a run has another.
  void same(uint64_t value);
  // Place of the next argument.
  size_t place() const { return place_; }
  void go_to(size_t place) { place_ = place; }

  // A tensor on the device that has these values of the host at each run. When replaying, inputs
  // are given again in the same order and shapes.
  Tensor input(const Tensor& values);

  // Begins a run with other numbers.
  void replay();
  bool replays() const { return replays_; }

  // A mask that reads seed and offset on the device; where a forward is recorded a second time from
  // the same place of the generator (nn/recompute.h), the first one's.
  DropoutMask draw(float p, Generator& generator, const Blocks& blocks);
  // Draws for a run what was drawn when it was recorded.
  void draw_again(Generator& generator);
  void set_rows(const RealRows& rows) { rows_ = rows; }
  const RealRows& rows() const { return rows_; }

  // Copies all arguments to the device; does not wait for it.
  void upload() const;

 private:
  struct Draw {
    size_t place;
    uint64_t offset;  // of the generator, when it was recorded
    Blocks blocks;
  };

  Tensor there_;
  std::vector<std::byte> here_;
  size_t place_ = 0;
  bool replays_ = false;
  RealRows rows_;
  std::vector<Tensor> inputs_;
  size_t next_input_ = 0;
  std::vector<Draw> draws_;
};

// The mask of an operation that draws so many blocks.
DropoutMask draw_mask(float p, Generator& generator, const Recording::Blocks& blocks);

}  // namespace minim
