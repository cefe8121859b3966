#include "workload/replay/numbers.hpp"

#include <spdlog/fmt/fmt.h>

#include <charconv>

namespace troupe::replay {

std::optional<error> parse_numbers(std::string_view text, std::string_view prefix, std::string_view form,
                                   std::span<std::uint64_t* const> fields, std::uint64_t most) {
  const auto malformed = [&](std::string_view what) {
    return error{errc::invalid_argument, fmt::format("{}: {}; the form is {}", text, what, form)};
  };
  if (!text.starts_with(prefix))
    return malformed("no generator of this name");
  auto rest = text.substr(prefix.size());
  if (rest == ":")
    return std::nullopt;
  for (std::size_t i = 0; !rest.empty(); ++i) {
    if (rest.front() != (i == 0 ? ':' : ','))
      return malformed(fmt::format("'{}' is out of place", rest));
    if (i == fields.size())
      return malformed(fmt::format("more than {} numbers", fields.size()));
    rest.remove_prefix(1);
    const auto* end = rest.data() + rest.size();
    const auto [stop, code] = std::from_chars(rest.data(), end, *fields[i]);
    if (code != std::errc{} || *fields[i] > most)
      return malformed(fmt::format("'{}' is not an integer from 0 to 2^32", rest.substr(0, rest.find(','))));
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  }
  return std::nullopt;
}

} // namespace troupe::replay
