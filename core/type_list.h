#pragma once

namespace minim {

// A list of types to be expanded with `(f<Ts>(), ...)`.
template <class... Ts>
struct TypeList {};

}  // namespace minim
