#pragma once

#include <functional>
#include <string>
#include <vector>

namespace minim::memory {

// While it lives, the error of a thread that gets no memory names what else would need less, such
// as an option of a program. It is asked for then, without allocating tensors; what it throws is
// lost.
class Advice {
 public:
  using Options = std::function<std::vector<std::string>()>;
  explicit Advice(Options options);
  ~Advice();
  Advice(const Advice&) = delete;
  Advice& operator=(const Advice&) = delete;

 private:
  friend std::string advice();
  Options options_;
  const Advice* before_;
};

// "a smaller batch or shorter sequences need less", with the options of the innermost Advice.
std::string advice();

}  // namespace minim::memory
