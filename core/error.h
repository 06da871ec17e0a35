#pragma once

#include <stdexcept>
#include <utility>

#include <fmt/core.h>

// Every failure a user can cause is an Error whose text is one sentence:
// operation, colon, what was given, what it must be.
namespace minim {

// The exception users catch; what() names the operation, file or tensor and its shapes.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws an Error with the formatted text.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format(text, std::forward<Args>(args)...));
}

// Throws an Error unless `ok`; the text is formatted only on failure.
template <class... Args>
void check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(text, std::forward<Args>(args)...);
}

}  // namespace minim
