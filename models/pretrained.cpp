#include "models/pretrained.h"

#include <algorithm>

namespace minim::models {

namespace {

// A list for a message: the first few, and how many more.
std::string listed(std::vector<std::string> names) {
  constexpr size_t most = 8;
  std::ranges::sort(names);
  const size_t shown = std::min(names.size(), most);
  std::string text;
  for (size_t i = 0; i < shown; ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

bool is_buffer(std::string_view name) {
  return name.ends_with("position_ids") || name.ends_with("token_type_ids");
}

// TensorFlow's names of a norm's scale and shift, which old files have for this one suffix alone.
std::string modern_name(std::string name) {
  const auto rename = [&name](std::string_view from, std::string_view to) {
    if (name.ends_with(from)) name.replace(name.size() - from.size(), from.size(), to);
  };
  rename("LayerNorm.gamma", "LayerNorm.weight");
  rename("LayerNorm.beta", "LayerNorm.bias");
  return name;
}

// Number in "distilbert.transformer.layer.5.ffn...", or nothing.
std::optional<int64_t> layer_of(std::string_view name) {
  const size_t at = name.find(".layer.");
  if (at == std::string_view::npos) return {};
  int64_t layer = 0;
  size_t i = at + 7;
  for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && layer < 1'000'000; ++i)
    layer = layer * 10 + (name[i] - '0');
  return i > at + 7 ? std::optional(layer) : std::nullopt;
}

// Has the shape and takes no memory: the numbers in a config.json may be absurd. For weights of a
// model that finish() will refuse.
Tensor placeholder(const Shape& shape, DType dtype) {
  Shape strides = shape;
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = 0;
  return Tensor::zeros({1}, dtype).view(shape, strides);
}

}  // namespace

std::string LoadReport::summary() const {
  return fmt::format("{} tensors loaded, {} new, {} dropped", loaded, initialised.size(),
                     dropped.size());
}

PretrainedWeights::PretrainedWeights(Checkpoint checkpoint, std::string body, LoadOptions options)
    : checkpoint_(std::move(checkpoint)), body_(std::move(body)), options_(options) {
  // Files of a bare body lack its prefix; those with a head have it.
  bool has_prefix = false;
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    std::string_view name = tensor.name;
    if (name.starts_with("module.")) {
      check(options_.strip_module_prefix,
            "{}: tensor names start with \"module.\" ({}), as DataParallel saves them; load with "
            "strip_module_prefix",
            checkpoint_.source(), tensor.name);
      name.remove_prefix(7);
    }
    has_prefix = has_prefix || is_body(name);
  }
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    std::string name = tensor.name;
    if (name.starts_with("module.")) name.erase(0, 7);
    if (is_buffer(name)) continue;
    name = modern_name(std::move(name));
    const bool is_bare_body = name.starts_with("embeddings.") || name.starts_with("transformer.") ||
                              name.starts_with("encoder.");
    if (!has_prefix && is_bare_body) name = fmt::format("{}.{}", body_, name);
    const auto [before, is_new] = stored_names_.emplace(name, tensor.name);
    check(is_new, "{}: {} and {} are both {} under its present name", checkpoint_.source(),
          before->second, tensor.name, name);
    taken_[name] = false;
  }
  for (const std::string& warning : checkpoint_.warnings())
    report_.notes.push_back(warning);
  for (const std::string& name : checkpoint_.unlisted())
    report_.dropped.push_back(name);
}

Tensor PretrainedWeights::take(const std::string& name, const Shape& shape) {
  const auto renew = [&](bool allowed) {
    report_.initialised.push_back(name);
    doomed_ = doomed_ || !allowed;
    return doomed_ ? placeholder(shape, options_.dtype) : Tensor();
  };
  const auto stored = stored_names_.find(name);
  if (stored == stored_names_.end()) {
    missing_.push_back(name);
    return renew(!is_body(name) || options_.allow_missing_body);
  }
  taken_[name] = true;
  const Tensor value = checkpoint_.tensor(stored->second);
  if (value.shape() != shape) {
    mismatched_.push_back(
        fmt::format("{} is {} in the file, {} in the model", name, value.shape(), shape));
    return renew(options_.ignore_mismatched_sizes);
  }
  check(is_floating(value.dtype()), "{}: {} is {}, a weight must be f32, f64, f16 or bf16",
        checkpoint_.source(), name, name_of(value.dtype()));
  ++report_.loaded;
  const memory::Scope scope(memory::Category::weights);
  if (options_.device.is_cuda()) return convert(value.to(options_.device), options_.dtype);
  if (value.dtype() != options_.dtype) return convert(value, options_.dtype);
  return options_.map_weights ? value.detach() : value.clone();
}

LoadReport PretrainedWeights::finish(int64_t n_layers) {
  const std::string& source = checkpoint_.source();
  check(mismatched_.empty() || options_.ignore_mismatched_sizes,
        "{}: {}; with ignore_mismatched_sizes these are initialised anew", source,
        listed(mismatched_));
  std::vector<std::string> missing_body, missing_head, extra_layers;
  for (const std::string& name : missing_)
    (is_body(name) ? missing_body : missing_head).push_back(name);
  check(
      missing_body.empty() || options_.allow_missing_body,
      "{}: weights of the body are missing ({}); with allow_missing_body they are initialised anew",
      source, listed(missing_body));
  for (const auto& [name, taken] : taken_) {
    if (taken) continue;
    report_.dropped.push_back(name);
    if (const auto layer = layer_of(name); layer && *layer >= n_layers)
      extra_layers.push_back(name);
  }
  check(extra_layers.empty() || options_.drop_extra_layers,
        "{}: the file has more layers than the {} of config.json ({}); with drop_extra_layers they "
        "are left out",
        source, n_layers, listed(extra_layers));
  std::ranges::sort(report_.dropped);

  if (!missing_head.empty())
    report_.notes.push_back(fmt::format(
        "new weights: {}; that is expected when a pretrained body gets a new head: train "
        "it before use",
        listed(missing_head)));
  if (!missing_body.empty())
    report_.notes.push_back(
        fmt::format("the body is incomplete, new weights: {}", listed(missing_body)));
  if (!mismatched_.empty())
    report_.notes.push_back(fmt::format("new weights instead: {}", listed(mismatched_)));
  if (!report_.dropped.empty())
    report_.notes.push_back(fmt::format("not used by this model: {}", listed(report_.dropped)));
  return report_;
}

}  // namespace minim::models
