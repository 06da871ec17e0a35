#include "optim/fields.h"

#include <charconv>
#include <type_traits>

namespace minim::optim {

namespace {

template <class Number>
bool parse(std::string_view text, Number& number) {
  Number whole{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  number = whole;
  return true;
}

}  // namespace

std::string OptionField::text() const {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::optional<double>>)
          return *value ? fmt::format("{}", **value) : "none";
        else
          return fmt::format("{}", *value);
      },
      value);
}

void OptionField::from_text(std::string_view rule, std::string_view text) const {
  const auto refuse = [&](std::string_view wanted) {
    fail("{}: option {} is \"{}\", must be {}", rule, key, text, wanted);
  };
  std::visit(
      [&](auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          *value = text;
        } else if constexpr (std::is_same_v<T, bool>) {
          const bool yes = text == "true" || text == "True" || text == "1";
          if (!yes && text != "false" && text != "False" && text != "0") refuse("true or false");
          *value = yes;
        } else if constexpr (std::is_same_v<T, int64_t>) {
          if (!parse(text, *value)) refuse("an integer");
        } else if constexpr (std::is_same_v<T, double>) {
          if (!parse(text, *value)) refuse("a number");
        } else {
          double number = 0;
          const bool none = text == "none" || text == "None";
          if (!none && !parse(text, number)) refuse("a number or none");
          *value = none ? T() : T(number);
        }
      },
      value);
}

}  // namespace minim::optim
