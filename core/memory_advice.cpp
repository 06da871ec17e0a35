#include "core/memory_advice.h"

#include <exception>
#include <utility>

namespace minim::memory {

namespace {

thread_local const Advice* innermost_advice = nullptr;

}  // namespace

Advice::Advice(Options options) : options_(std::move(options)), before_(innermost_advice) {
  innermost_advice = this;
}

Advice::~Advice() {
  innermost_advice = before_;
}

std::string advice() {
  std::vector<std::string> all = {"a smaller batch", "shorter sequences"};
  try {
    if (innermost_advice != nullptr)
      for (std::string& option : innermost_advice->options_())
        all.push_back(std::move(option));
  } catch (const std::exception&) {  // the error that is being told matters more
    all.resize(2);
  }
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 < all.size() ? ", " : " or ") + all[i];
  return text + " need less";
}

}  // namespace minim::memory
