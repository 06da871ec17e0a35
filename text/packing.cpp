#include "text/packing.h"

#include <limits>

#include "core/error.h"

namespace minim::text {
namespace {

// Grows a batch sequence by sequence.
class Packer {
 public:
  void add(int32_t id, int32_t position, int32_t type) {
    ids_.push_back(id);
    positions_.push_back(position);
    types_.push_back(type);
  }

  // Ends a sequence whose first `hidden` tokens may not be attended to.
  void end_sequence(int32_t hidden = 0) {
    check(ids_.size() <= size_t(std::numeric_limits<int32_t>::max()),
          "pack: more than 2^31 - 1 tokens in a batch; make it smaller");
    key_begin_.push_back(offsets_.back() + hidden);
    offsets_.push_back(int32_t(ids_.size()));
  }

  PackedBatch finish(bool with_types, const Tensor& labels) const {
    const int64_t tokens = int64_t(ids_.size()), sequences = int64_t(key_begin_.size());
    check(!labels.defined() || (labels.rank() > 0 && labels.size(0) == sequences),
          "pack: labels {} for {} sequences, must have one row for each",
          labels.defined() ? labels.shape() : Shape(), sequences);
    PackedBatch batch;
    batch.input_ids = Tensor::from(ids_, {tokens});
    batch.position_ids = Tensor::from(positions_, {tokens});
    if (with_types) batch.token_type_ids = Tensor::from(types_, {tokens});
    batch.offsets = Tensor::from(offsets_, {sequences + 1});
    batch.key_begin = Tensor::from(key_begin_, {sequences});
    batch.labels = labels;
    return batch;
  }

 private:
  std::vector<int32_t> ids_, positions_, types_, offsets_ = {0}, key_begin_;
};

PackedBatch pack_all(std::span<const TokenSequence* const> sequences, const Tensor& labels) {
  check(!sequences.empty(), "pack: no sequences, must be at least one");
  Packer packer;
  bool with_types = false;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto& [ids, types] = *sequences[s];
    check(!ids.empty(), "pack: sequence {} has no tokens, must have at least one", s);
    check(types.empty() || types.size() == ids.size(),
          "pack: sequence {} has {} token types for {} tokens", s, types.size(), ids.size());
    with_types |= !types.empty();
    for (size_t i = 0; i < ids.size(); ++i) {
      packer.add(ids[i], int32_t(i), types.empty() ? 0 : types[i]);
    }
    packer.end_sequence();
  }
  return packer.finish(with_types, labels);
}

template <class T>
Tensor select_typed(const Tensor& table, std::span<const int64_t> rows) {
  Shape shape = table.shape();
  const Tensor whole = table.contiguous();
  const auto values = whole.values<T>();
  const size_t width = values.size() / size_t(shape[0]);
  std::vector<T> chosen;
  chosen.reserve(rows.size() * width);
  for (const int64_t row : rows) {
    const auto from = values.subspan(size_t(row) * width, width);
    chosen.insert(chosen.end(), from.begin(), from.end());
  }
  shape[0] = int64_t(rows.size());
  return Tensor::from(chosen, shape);
}

std::vector<int32_t> ids_of(const Tensor& input_ids) {
  const std::vector<int64_t> wide = input_ids.to_vector<int64_t>();
  const int64_t length = input_ids.size(1);
  std::vector<int32_t> ids;
  ids.reserve(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    check(wide[i] >= 0 && wide[i] <= std::numeric_limits<int32_t>::max(),
          "input_ids: id {} in row {}, column {}, must be 0 to 2^31 - 1", wide[i],
          int64_t(i) / length, int64_t(i) % length);
    ids.push_back(int32_t(wide[i]));
  }
  return ids;
}

// 1 for each token that counts; where there is no mask, for all that are not padding.
std::vector<uint8_t> mask_of(const PaddedInput& padded, const std::vector<int32_t>& ids,
                             int32_t pad_token_id, std::vector<std::string>& notices) {
  std::vector<uint8_t> mask(ids.size(), 1);
  if (!padded.attention_mask.defined()) {
    int64_t pads = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      mask[i] = ids[i] != pad_token_id;
      pads += mask[i] == 0;
    }
    if (pads > 0) {
      notices.push_back(fmt::format(
          "attention_mask: not given, so the {} token{} equal to the pad id {} {} masked", pads,
          pads == 1 ? "" : "s", pad_token_id, pads == 1 ? "is" : "are"));
    }
    return mask;
  }
  const std::vector<double> values = padded.attention_mask.to_vector<double>();
  const int64_t length = padded.input_ids.size(1);
  for (size_t i = 0; i < values.size(); ++i) {
    check(values[i] == 0 || values[i] == 1,
          "attention_mask: value {} in row {}, column {}, must be 0 or 1", values[i],
          int64_t(i) / length, int64_t(i) % length);
    mask[i] = values[i] == 1;
  }
  return mask;
}

}  // namespace

std::vector<int64_t> Examples::lengths() const {
  std::vector<int64_t> lengths(sequences.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = sequences.length(i);
  return lengths;
}

Tensor select_labels(const Tensor& labels, std::span<const int64_t> rows) {
  if (!labels.defined()) return {};
  if (labels.dtype() == DType::i64) return select_typed<int64_t>(labels, rows);
  check(labels.dtype() == DType::f32, "pack: labels are {}, must be i64 or f32",
        name_of(labels.dtype()));
  return select_typed<float>(labels, rows);
}

PackedBatch pack(std::span<const TokenSequence> sequences, const Tensor& labels) {
  std::vector<const TokenSequence*> all;
  for (const TokenSequence& sequence : sequences)
    all.push_back(&sequence);
  return pack_all(all, labels);
}

PackedBatch pack(const Examples& examples, std::span<const int64_t> rows) {
  const int64_t n = int64_t(examples.sequences.size());
  const Tensor& labels = examples.labels;
  check(!labels.defined() || (labels.rank() > 0 && labels.size(0) == n),
        "pack: labels {} for {} sequences, must have one row for each",
        labels.defined() ? labels.shape() : Shape(), n);
  std::vector<const TokenSequence*> chosen;
  std::vector<TokenSequence> buffers(rows.size());
  for (const int64_t row : rows) {
    check(row >= 0 && row < n, "pack: row {} of {} examples", row, n);
    chosen.push_back(&examples.sequences.read(size_t(row), buffers[chosen.size()]));
  }
  return pack_all(chosen, select_labels(labels, rows));
}

PackedBatch pack_padded(const PaddedInput& padded, int32_t pad_token_id,
                        std::vector<std::string>& notices) {
  const Shape& shape = padded.input_ids.shape();
  check(shape.rank() == 2 && shape.numel() > 0, "input_ids: {}, must be [batch, length]", shape);
  check(!is_floating(padded.input_ids.dtype()), "input_ids: {}, must be integers",
        name_of(padded.input_ids.dtype()));
  const auto check_shape = [&](const Tensor& x, const char* name) {
    check(!x.defined() || x.shape() == shape, "{}: {}, must be {} as input_ids", name,
          x.defined() ? x.shape() : Shape(), shape);
  };
  check_shape(padded.attention_mask, "attention_mask");
  check_shape(padded.token_type_ids, "token_type_ids");
  const std::vector<int32_t> ids = ids_of(padded.input_ids);
  const std::vector<uint8_t> mask = mask_of(padded, ids, pad_token_id, notices);
  const bool with_types = padded.token_type_ids.defined();
  const auto types =
      with_types ? padded.token_type_ids.to_vector<int32_t>() : std::vector<int32_t>(ids.size());
  Packer packer;
  for (int64_t row = 0; row < shape[0]; ++row) {
    const size_t begin = size_t(row * shape[1]);
    bool any = false;
    for (size_t i = 0; i < size_t(shape[1]); ++i) {
      const bool counts = mask[begin + i] != 0;
      any = any || counts;
      if (i == 0 || counts) packer.add(ids[begin + i], int32_t(i), types[begin + i]);
    }
    check(any, "attention_mask: row {} has no 1, must have at least one token to attend to", row);
    packer.end_sequence(mask[begin] != 0 ? 0 : 1);
  }
  return packer.finish(with_types, padded.labels);
}

}  // namespace minim::text
