#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda/device.h"
#include "core/cuda/groups.h"
#include "core/cuda/launchers.h"
#include "core/cuda/store.h"
#include "core/recording.h"
#include "core/tensor.h"

// One launch for the same work on many tensors. A kernel for it is a row kernel in two parts:
//   Tensors, Numbers                   structs with ==: where the data is, and all else
//   Kernel{tensors, numbers}           an aggregate of the two
//   operator()(group, row)             as in launch_rows()
// What is Tensors lies in a table on the device, which is written when it differs from the last
// run's; Numbers, which few tensors have differently, go with each launch. Work that is recorded
// has its Numbers from the Recording, and writes its own table whenever it is run.
namespace minim::cuda {

template <class Kernel>
struct ListEntry {
  typename Kernel::Tensors tensors;
  int64_t first_row;  // among those of the launch
  int64_t set;        // of numbers
  bool operator==(const ListEntry&) const = default;
};

inline constexpr int64_t most_sets = 16;

template <class Kernel>
struct NumberSets {
  typename Kernel::Numbers of[most_sets];
};

template <class Kernel>
__global__ void __launch_bounds__(block_threads)
    listed_rows_kernel(const ListEntry<Kernel>* entries, int count, const NumberSets<Kernel> sets,
                       const NumberSets<Kernel>* sets_there, const double* unless_nan,
                       int64_t* left_out) {
  if (unless_nan != nullptr && *unless_nan != *unless_nan) {
    if (left_out != nullptr && blockIdx.x == 0 && threadIdx.x == 0) ++*left_out;
    return;
  }
  const int64_t row = blockIdx.x;
  int low = 0, high = count - 1;  // the last entry that does not begin behind the row
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (entries[middle].first_row <= row)
      low = middle;
    else
      high = middle - 1;
  }
  const int64_t set = entries[low].set;
  const Kernel kernel{entries[low].tensors,
                      sets_there != nullptr ? sets_there->of[set] : sets.of[set]};
  kernel(BlockGroup(), row - entries[low].first_row);
}

// Collects work on tensors of one device, and runs it in as few launches as there are stages, kinds
// of kernels and sixteens of different Numbers. Used over and over for the same tensors, it neither
// allocates nor waits.
class LaunchList {
 public:
  explicit LaunchList(Device device) : device_(device) {}

  Device device() const { return device_; }

  // Forgets what was added and not run.
  void clear() {
    for (const auto& bucket : buckets_)
      bucket->clear();
    scratch_used_ = 0;
    kind_ = 0;
  }

  // What is added from now on shares no Numbers with what was added under another kind, also where
  // they are equal now: in another run of a recording they may differ.
  void set_kind(size_t kind) { kind_ = kind; }

  // Blocks of threads are to run the kernel for `rows` rows, after all that is added to earlier
  // stages.
  template <class Kernel>
  void add(int stage, int64_t rows, const typename Kernel::Tensors& tensors,
           const typename Kernel::Numbers& numbers) {
    if (rows > 0) bucket<Kernel>(stage).add(rows, tensors, numbers, kind_);
  }

  // Uninitialised memory for what stages hand to each other; the same from run to run where it is
  // asked for in the same order.
  Tensor scratch(const Shape& shape, DType dtype);

  // Runs and forgets what was added. Where a number on the device is given and is NaN by then, the
  // launches leave all memory as it is, and the last of them counts that, if it is told where.
  void run(const double* unless_nan = nullptr, int64_t* left_out = nullptr);

 private:
  struct AnyBucket {
    explicit AnyBucket(int stage) : stage(stage) {}
    virtual ~AnyBucket() = default;
    AnyBucket(const AnyBucket&) = delete;
    AnyBucket& operator=(const AnyBucket&) = delete;
    virtual bool empty() const = 0;
    virtual void clear() = 0;
    virtual void run(Device device, const double* unless_nan, int64_t* left_out) = 0;
    int stage;
  };

  template <class Kernel>
  struct Bucket final : AnyBucket {
    using AnyBucket::AnyBucket;
    struct Launch {
      size_t first_entry;
      int64_t rows;
    };

    void add(int64_t rows, const typename Kernel::Tensors& tensors,
             const typename Kernel::Numbers& numbers, size_t kind) {
      size_t set = launches.empty() ? sets.size() : (launches.size() - 1) * most_sets;
      while (set < sets.size() && !(kinds[set] == kind && sets[set] == numbers))
        ++set;
      if (set == sets.size()) {
        if (set % most_sets == 0) launches.push_back({entries.size(), 0});
        sets.push_back(numbers);
        kinds.push_back(kind);
      }
      entries.push_back({tensors, launches.back().rows, int64_t(set) % most_sets});
      launches.back().rows += rows;
    }
    bool empty() const override { return entries.empty(); }
    void clear() override {
      entries.clear();
      sets.clear();
      kinds.clear();
      launches.clear();
    }
    void run(Device device, const double* unless_nan, int64_t* left_out) override {
      if (entries.empty()) return;
      const cudaStream_t queue = stream(device);
      Recording* const recording = Recording::current();
      const bool replays = recording != nullptr && recording->replays();
      if (!replays && (recording != nullptr || entries != written)) {
        const auto bytes = int64_t(entries.size() * sizeof(entries[0]));
        if (!table.defined() || table.numel() < bytes) {
          const memory::Scope scope(memory::Category::workspace);
          table = Tensor::empty({bytes}, DType::u8, device);
        }
        store(table.raw(), entries.data(), size_t(bytes), queue);
        written = entries;
      }
      if (recording != nullptr) {
        written.clear();  // the table is what the last run left there
        uint64_t sets_of_entries = 0;
        for (const ListEntry<Kernel>& entry : entries)
          sets_of_entries = sets_of_entries * 31 + uint64_t(entry.set);
        recording->same(sets_of_entries);
      }
      const auto* first = static_cast<const ListEntry<Kernel>*>(table.raw());
      for (size_t i = 0; i < launches.size(); ++i) {
        const size_t begin = launches[i].first_entry;
        const size_t end = i + 1 < launches.size() ? launches[i + 1].first_entry : entries.size();
        NumberSets<Kernel> chosen{};
        for (size_t k = 0; k < most_sets && i * most_sets + k < sets.size(); ++k)
          chosen.of[k] = sets[i * most_sets + k];
        const NumberSets<Kernel>* there = nullptr;
        if (recording != nullptr)
          there =
              static_cast<const NumberSets<Kernel>*>(recording->argument(&chosen, sizeof(chosen)));
        if (!replays)
          launch(listed_rows_kernel<Kernel>,
                 {.blocks = {launches[i].rows}, .threads = {block_threads}, .stream = queue},
                 first + begin, int(end - begin), chosen, there, unless_nan,
                 i + 1 == launches.size() ? left_out : nullptr);
      }
      clear();
    }

    std::vector<ListEntry<Kernel>> entries, written;  // of this run, and in the table
    std::vector<typename Kernel::Numbers> sets;       // sixteen for each launch
    std::vector<size_t> kinds;                        // of the sets
    std::vector<Launch> launches;
    Tensor table;
  };

  template <class Kernel>
  Bucket<Kernel>& bucket(int stage) {
    for (const auto& known : buckets_)
      if (auto* own = dynamic_cast<Bucket<Kernel>*>(known.get()); own && own->stage == stage)
        return *own;
    auto made = std::make_unique<Bucket<Kernel>>(stage);
    Bucket<Kernel>& own = *made;
    insert(std::move(made));
    return own;
  }
  void insert(std::unique_ptr<AnyBucket> bucket);

  Device device_;
  std::vector<std::unique_ptr<AnyBucket>> buckets_;  // by stage
  std::vector<Tensor> scratch_;
  size_t scratch_used_ = 0, kind_ = 0;
};

}  // namespace minim::cuda
