#include "optim/make_optimizer.h"

#include <algorithm>

#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "optim/adam.h"
#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "optim/sgd.h"

namespace minim::optim {

namespace {

// Options that have a command-line argument of their own.
struct OwnArgument {
  std::string_view key, argument;
  double OptimizerArguments::*value;
};
constexpr OwnArgument own_arguments[] = {
    {"lr", "learning_rate", &OptimizerArguments::learning_rate},
    {"beta1", "adam_beta1", &OptimizerArguments::adam_beta1},
    {"beta2", "adam_beta2", &OptimizerArguments::adam_beta2},
    {"eps", "adam_epsilon", &OptimizerArguments::adam_epsilon},
    {"weight_decay", "weight_decay", &OptimizerArguments::weight_decay},
};

// The argument that sets an option, or null. Adafactor's optional beta1 is not Adam's.
const OwnArgument* own_argument(const OptionField& field) {
  const auto* own = std::ranges::find(own_arguments, field.key, &OwnArgument::key);
  if (own == std::end(own_arguments)) return nullptr;
  const bool optional = std::holds_alternative<std::optional<double>*>(field.value);
  return optional && field.key != "lr" ? nullptr : own;
}

// What Hugging Face's Trainer makes of a rule where it does not take its defaults.
template <class Rule>
typename Rule::Options trainer_options() {
  return {};
}
// The Trainer has a rate and a schedule of its own.
template <>
AdafactorRule::Options trainer_options<AdafactorRule>() {
  return {.scale_parameter = false, .relative_step = false};
}

// Python's spellings of true, false and nothing, as Hugging Face's commands have them.
std::string our_spelling(std::string_view value) {
  if (value == "True") return "true";
  if (value == "False") return "false";
  if (value == "None") return "none";
  return std::string(value);
}

void read_optim_args(std::string_view rule, std::string_view text, const OptionFields& fields) {
  while (!text.empty()) {
    std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    // What Hugging Face's Trainer does under bitsandbytes, by a shorter name.
    if (pair == "embeddings_f32=true" || pair == "embeddings_f32=True")
      pair = "keep_f32=embeddings";
    const size_t equals = pair.find('=');
    check(equals != std::string_view::npos, "optim_args: \"{}\" has no value; write key=value",
          pair);
    const std::string_view key = pair.substr(0, equals);
    std::string known;
    bool found = false;
    for (OptionField field : fields) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", field.key);
      if (field.key != key) continue;
      if (const OwnArgument* own = own_argument(field))
        fail("optim_args: {} is set by {}", key, own->argument);
      field.from_text(rule, our_spelling(pair.substr(equals + 1)));
      found = true;
    }
    check(found, "optim_args: {} has no option \"{}\"; it has {}", rule, key, known);
  }
}

template <class Rule>
std::unique_ptr<AnyOptimizer> make(std::vector<ParameterGroup> groups,
                                   const OptimizerArguments& arguments) {
  typename Rule::Options options = trainer_options<Rule>();
  OptionFields fields;
  Rule::list_options(options, fields);
  for (const OptionField& field : fields) {
    const OwnArgument* own = own_argument(field);
    if (own == nullptr) continue;
    if (double* const* value = std::get_if<double*>(&field.value))
      **value = arguments.*own->value;
    else
      *std::get<std::optional<double>*>(field.value) = arguments.*own->value;
  }
  read_optim_args(Rule::name, arguments.optim_args, fields);
  if constexpr (requires { Rule::finds_rate(options); })
    if (Rule::finds_rate(options)) {
      check(arguments.learning_rate == 0,
            "optim_args: {} with relative_step finds the rate itself, but learning_rate is {}; set "
            "learning_rate to 0, or relative_step to False",
            Rule::name, arguments.learning_rate);
      options.lr.reset();
    }
  return std::make_unique<Optimizer<Rule>>(std::move(groups), options);
}

struct Entry {
  std::string_view name;
  std::vector<std::string_view> aliases;
  std::unique_ptr<AnyOptimizer> (*make)(std::vector<ParameterGroup>, const OptimizerArguments&);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"adamw", {"adamw_torch", "adamw_torch_fused"}, make<AdamWRule>},
      {"adam", {}, make<AdamRule>},
      {"adam8bit", {}, make<Adam8bitRule>},
      {"adamw8bit", {"adamw_bnb_8bit", "adamw_8bit"}, make<AdamW8bitRule>},
      {"sgd", {}, make<SgdRule>},
      {"adafactor", {}, make<AdafactorRule>},
      {"adafactor_torch", {}, make<AdafactorTorchRule>},
  };
  return all;
}

}  // namespace

std::vector<std::string_view> optimizer_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries())
    names.push_back(entry.name);
  return names;
}

std::unique_ptr<AnyOptimizer> make_optimizer(std::string_view name,
                                             std::vector<ParameterGroup> groups,
                                             const OptimizerArguments& arguments) {
  for (const Entry& entry : entries())
    if (entry.name == name || std::ranges::count(entry.aliases, name) > 0)
      return entry.make(std::move(groups), arguments);
  std::string known;
  for (const std::string_view other : optimizer_names())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", other);
  fail("optim: \"{}\" is unknown; there are {}", name, known);
}

}  // namespace minim::optim
