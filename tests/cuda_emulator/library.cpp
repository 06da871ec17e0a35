#include "tests/cuda_emulator/library.h"

#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/runtime.h"

namespace minim::emulator {

namespace {

// Checks one operand, row by row; false, after a report, if it is not in a live allocation.
bool use(const char* name, const Matrix& m, bool writes) {
  if (m.rows == 0 || m.row_bytes == 0) return true;
  Allocation* a = find_allocation(m.data);
  const size_t bytes = (m.rows - 1) * m.pitch + m.row_bytes;
  if (a == nullptr || !a->live || uintptr_t(m.data) + bytes > a->end()) {
    report(!is_device_address(m.data) ? Problem::host_pointer
           : a != nullptr && !a->live ? Problem::use_after_free
                                      : Problem::out_of_bounds,
           fmt::format("{} {} {} bytes from {}", name, writes ? "writes" : "reads", bytes,
                       is_device_address(m.data) ? describe_place(m.data) : "host memory"));
    corrupt_context(cudaErrorIllegalAddress);
    return false;
  }
  const size_t offset = uintptr_t(m.data) - a->begin;
  for (size_t row = 0; row < m.rows; ++row)
    if (writes)
      checker::write_range(*a, offset + row * m.pitch, m.row_bytes, name);
    else
      checker::read_range(*a, offset + row * m.pitch, m.row_bytes, name);
  return true;
}

}  // namespace

cudaError_t run_library(const char* name, cudaStream_t stream, std::vector<Matrix> reads,
                        std::vector<Matrix> writes, std::function<void()> function) {
  const Call call;
  return submit(stream, {[=] {
                  for (const Matrix& m : reads)
                    if (!use(name, m, false)) return;
                  for (const Matrix& m : writes)
                    if (!use(name, m, true)) return;
                  function();
                }});
}

}  // namespace minim::emulator
