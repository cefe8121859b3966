#include "tests/group_simulation/world.hpp"

#include "base/digest.hpp"

#include <cstdio>

namespace troupe::group_simulation {

void world::trace(std::string_view what, std::string_view who, std::uint64_t a, std::uint64_t b) {
  ++out.events;
  out.trace_hash = mix(out.trace_hash, mix(std::hash<std::string_view>{}(what), mix(a, b)));
  if (verbose_)
    std::printf("%12.3f ms  %.*s  %.*s  %llu %llu\n",
                std::chrono::duration<double, std::milli>(now_.time_since_epoch() - std::chrono::hours(1000)).count(),
                static_cast<int>(who.size()), who.data(), static_cast<int>(what.size()), what.data(),
                static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
}

void world::broken(std::string_view property, std::string text) {
  if (failed() || ignored_.find("," + std::string(property) + ",") != std::string::npos)
    return;
  trace("broken", property);
  out.property = property;
  out.failure = std::move(text);
}

} // namespace troupe::group_simulation
