#pragma once

#include <type_traits>

namespace minim {

// A list of types to be expanded with `(f<Ts>(), ...)`, and the place of a type in it.
template <class... Ts>
struct TypeList {
  static constexpr int size = sizeof...(Ts);

  template <class T>
  static constexpr int index_of() {
    int index = 0;
    (void)((std::is_same_v<T, Ts> ? false : (++index, true)) && ...);
    return index;
  }
};

}  // namespace minim
