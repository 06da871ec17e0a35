#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "core/half.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/cudnn.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/findings.h"

// What an attention of the stand-in does on its stream.

namespace minim::emulator {

namespace {

// Work that touched memory it must not: the device fails, and the work ends.
struct Fault {};

// One tensor of the operation with its memory.
class Operand {
 public:
  Operand(const CudnnAttention& attention, Role role, const std::map<int64_t, void*>& data)
      : layout_(attention.tensors.at(role)), data_(static_cast<char*>(data.at(layout_.id))) {
    if (layout_.offsets != 0) offsets_ = static_cast<char*>(data.at(layout_.offsets));
  }

  // Elements before the first of a sequence.
  int64_t begin(int64_t s) const {
    if (offsets_ == nullptr) return s * layout_.strides[0];
    const size_t bytes = bytes_of(layout_.offsets_type);
    const char* at = offsets_ + size_t(s) * bytes;
    note(at, bytes, false);
    return bytes == 8 ? *reinterpret_cast<const int64_t*>(at)
                      : *reinterpret_cast<const int32_t*>(at);
  }
  std::vector<double> row(int64_t begin, int64_t h, int64_t i) const {
    std::vector<double> values;
    const char* at = place(begin, h, i, false);
    for (int64_t d = 0; d < layout_.dims[3]; ++d) {
      const size_t n = size_t(d);
      values.push_back(
          layout_.type == CUDNN_DATA_FLOAT  ? double(reinterpret_cast<const float*>(at)[n])
          : layout_.type == CUDNN_DATA_HALF ? double(float(reinterpret_cast<const f16*>(at)[n]))
                                            : double(float(reinterpret_cast<const bf16*>(at)[n])));
    }
    return values;
  }
  void store(int64_t begin, int64_t h, int64_t i, const std::vector<double>& values) const {
    char* at = place(begin, h, i, true);
    for (size_t n = 0; n < values.size(); ++n) {
      const auto value = float(values[n]);
      if (layout_.type == CUDNN_DATA_FLOAT)
        reinterpret_cast<float*>(at)[n] = value;
      else if (layout_.type == CUDNN_DATA_HALF)
        reinterpret_cast<f16*>(at)[n] = f16(value);
      else
        reinterpret_cast<bf16*>(at)[n] = bf16(value);
    }
  }
  int32_t length(int64_t s) const {
    const auto* at = reinterpret_cast<const int32_t*>(data_) + s;
    note(at, sizeof(*at), false);
    return *at;
  }
  const std::array<int64_t, 4>& dims() const { return layout_.dims; }

 private:
  char* place(int64_t begin, int64_t h, int64_t i, bool writes) const {
    const size_t bytes = bytes_of(layout_.type);
    char* at = data_ + (begin + h * layout_.strides[1] + i * layout_.strides[2]) * int64_t(bytes);
    note(at, size_t(layout_.dims[3]) * bytes, writes);
    return at;
  }
  static void note(const void* at, size_t bytes, bool writes) {
    Allocation* a = find_allocation(at);
    if (a == nullptr || !a->live || uintptr_t(at) + bytes > a->end()) {
      report(a != nullptr && !a->live ? Problem::use_after_free : Problem::out_of_bounds,
             fmt::format("cuDNN's attention {} {} bytes at {}", writes ? "writes" : "reads", bytes,
                         describe_place(at)));
      corrupt_context(cudaErrorIllegalAddress);
      throw Fault();
    }
    if (writes)
      checker::write_range(*a, uintptr_t(at) - a->begin, bytes, "cuDNN's attention");
    else
      checker::read_range(*a, uintptr_t(at) - a->begin, bytes, "cuDNN's attention");
  }

  const CudnnTensorLayout& layout_;
  char* data_;
  char* offsets_ = nullptr;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

void add(std::vector<double>& to, double factor, const std::vector<double>& x) {
  for (size_t i = 0; i < to.size(); ++i)
    to[i] += factor * x[i];
}

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

void forward(const CudnnAttention& attention, const std::map<int64_t, void*>& data, double scale,
             int64_t s, int64_t h, int64_t queries, int64_t keys) {
  const Operand q(attention, Role::q, data), k(attention, Role::k, data),
      v(attention, Role::v, data), y(attention, Role::y, data), sums(attention, Role::sums, data);
  const int64_t qb = q.begin(s), kb = k.begin(s), vb = v.begin(s), yb = y.begin(s),
                sb = sums.begin(s);
  for (int64_t i = 0; i < queries; ++i) {
    // Nothing is promised of queries without keys.
    std::vector<double> result(size_t(y.dims()[3]), keys == 0 ? nan : 0), scores;
    const std::vector<double> query = q.row(qb, h, i);
    double most = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      scores.push_back(scale * dot(query, k.row(kb, h, j)));
      most = std::max(most, scores.back());
    }
    for (double& score : scores) {
      score = std::exp(score - most);
      total += score;
    }
    for (int64_t j = 0; j < keys; ++j)
      add(result, scores[size_t(j)] / total, v.row(vb, h, j));
    y.store(yb, h, i, result);
    sums.store(sb, h, i, {keys == 0 ? nan : most + std::log(total)});
  }
}

void backward(const CudnnAttention& attention, const std::map<int64_t, void*>& data, double scale,
              int64_t s, int64_t h, int64_t queries, int64_t keys) {
  const auto of = [&](Role role) { return Operand(attention, role, data); };
  const Operand q = of(Role::q), k = of(Role::k), v = of(Role::v), y = of(Role::y),
                sums = of(Role::sums), dy = of(Role::dy), dq = of(Role::dq), dk = of(Role::dk),
                dv = of(Role::dv);
  const std::vector<double> zeros(size_t(q.dims()[3]));
  std::vector<std::vector<double>> k_gradients(size_t(keys), zeros),
      v_gradients(size_t(keys), zeros);
  for (int64_t i = 0; i < queries; ++i) {
    const auto query = q.row(q.begin(s), h, i), gradient = dy.row(dy.begin(s), h, i);
    const double delta = dot(gradient, y.row(y.begin(s), h, i));
    const double sum = sums.row(sums.begin(s), h, i)[0];
    std::vector<double> result(zeros.size(), keys == 0 ? nan : 0);
    for (int64_t j = 0; j < keys; ++j) {
      const auto key = k.row(k.begin(s), h, j);
      const double p = std::exp(scale * dot(query, key) - sum);
      const double ds = scale * p * (dot(gradient, v.row(v.begin(s), h, j)) - delta);
      add(result, ds, key);
      add(k_gradients[size_t(j)], ds, query);
      add(v_gradients[size_t(j)], p, gradient);
    }
    dq.store(dq.begin(s), h, i, result);
  }
  for (int64_t j = 0; j < keys; ++j) {
    dk.store(dk.begin(s), h, j, k_gradients[size_t(j)]);
    dv.store(dv.begin(s), h, j, v_gradients[size_t(j)]);
  }
}

}  // namespace

size_t bytes_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

void run_attention(const CudnnAttention& attention, const std::map<int64_t, void*>& data,
                   float scale) {
  try {
    const Operand query_lengths(attention, Role::query_lengths, data),
        key_lengths(attention, Role::key_lengths, data);
    const auto &q = attention.tensors.at(Role::q).dims, &k = attention.tensors.at(Role::k).dims;
    for (int64_t s = 0; s < q[0]; ++s) {
      const int64_t queries = query_lengths.length(s), keys = key_lengths.length(s);
      if (queries < 0 || keys < 0 || queries > q[2] || keys > k[2]) {
        report(Problem::out_of_bounds,
               fmt::format("cuDNN's attention is for {} queries and {} keys, sequence {} has {} "
                           "and {}",
                           q[2], k[2], s, queries, keys));
        corrupt_context(cudaErrorIllegalAddress);
        return;
      }
      for (int64_t h = 0; h < q[1]; ++h)
        (attention.backward ? backward : forward)(attention, data, double(scale), s, h, queries,
                                                  keys);
    }
  } catch (const Fault&) {
  }
}

}  // namespace minim::emulator
