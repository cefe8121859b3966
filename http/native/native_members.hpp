#pragma once

#include "http/server/json_body.hpp"

#include <cstdint>
#include <string>
#include <string_view>

/// Helpers for reading members of the native API's bodies.

namespace troupe::http::native {

/// 422, with the place first.
inline tl::unexpected<rejection> refuse(std::string_view where, std::string_view what) {
  return tl::unexpected(rejection{status::unprocessable_content, std::string{where}.append(": ").append(what)});
}

/// Passes an error on.
template <class T>
tl::unexpected<rejection> hand_on(const accepted<T>& x) {
  return tl::unexpected(x.error());
}

/// "keys[3]"
inline std::string place(std::string_view name, std::size_t i) {
  return std::string{name}.append("[").append(std::to_string(i)).append("]");
}

/// Reads a member into its place if it exists.
inline accepted<void> number_into(std::uint32_t& out, const simdjson::dom::object& x, std::string_view name,
                                  std::uint64_t min, std::uint64_t max) {
  const auto value = optional_unsigned_member(x, name, min, max);
  if (!value)
    return hand_on(value);
  if (*value)
    out = static_cast<std::uint32_t>(**value);
  return {};
}

} // namespace troupe::http::native
