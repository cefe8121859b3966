#include "http/server/request.hpp"

#include "http/server/text.hpp"

#include <algorithm>
#include <array>

namespace troupe::http {

namespace {

constexpr std::array<std::string_view, method_count> names{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

} // namespace

std::string_view to_string(method x) noexcept {
  const auto i = static_cast<std::size_t>(x);
  return i < names.size() ? names[i] : "unknown";
}

std::optional<method> method_from(std::string_view name) noexcept {
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    return std::nullopt;
  return static_cast<method>(found - names.begin());
}

std::string_view request::path(std::string_view name) const noexcept {
  const auto found = std::ranges::find(parts_.path_parameters, name, &named_value::name);
  return found == parts_.path_parameters.end() ? std::string_view{} : found->value;
}

std::optional<std::string_view> request::query(std::string_view name) const noexcept {
  const auto found = std::ranges::find(parts_.query_parameters, name, &named_value::name);
  if (found == parts_.query_parameters.end())
    return std::nullopt;
  return found->value;
}

std::optional<std::string_view> request::header(std::string_view name) const noexcept {
  for (const auto& x : parts_.headers)
    if (equal_ignoring_case(x.name, name))
      return x.value;
  return std::nullopt;
}

} // namespace troupe::http
