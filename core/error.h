#pragma once

#include <stdexcept>
#include <type_traits>
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

// A format text that is checked against its arguments when compiled; nvcc cannot, so it checks when
// run.
#if defined(__CUDACC__)
template <class...>
using FormatText = fmt::string_view;
#else
template <class... Args>
using FormatText = fmt::format_string<Args...>;
#endif

// Throws an Error with the formatted text.
template <class... Args>
[[noreturn]] void fail(std::type_identity_t<FormatText<Args...>> text, Args&&... args) {
  throw Error(fmt::vformat(text, fmt::make_format_args(args...)));
}

// Throws an Error unless `ok`; the text is formatted only on failure.
template <class... Args>
void check(bool ok, std::type_identity_t<FormatText<Args...>> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::vformat(text, fmt::make_format_args(args...)));
}

}  // namespace minim
