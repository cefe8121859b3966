#include "tests/engine_simulation/world.hpp"

#include <cstdio>

namespace troupe::engine_simulation {

std::string_view to_string(seen x) noexcept {
  static constexpr std::string_view names[seen_count] = {
      "lookup: keys found",
      "lookup: nothing found",
      "lookup: failed",
      "lookup: answer comes late",
      "lookup: answer lost",
      "lease: ran out",
      "lease: returned",
      "save: ok",
      "save: exists",
      "save: busy",
      "save: full",
      "save: io_error",
      "save: timeout",
      "save: unreachable",
      "save: cancelled",
      "cancelled before it was copied",
      "cancelled while it was copied",
      "cancelled after it was copied",
      "a preemption waited for the cache",
      "load: ok",
      "load: not_found",
      "load: io_error",
      "load: corrupt",
      "load: timeout",
      "load: unreachable",
      "load: page that is computed in part",
      "page evicted",
      "node killed",
      "node has lost its pages",
      "cache reset",
      "output of a preempted request",
      "preemption",
      "preemption while blocks are saved",
      "load after a preemption",
      "second load of a request",
      "load failed in part",
      "load failed as a whole",
      "abort: waiting",
      "abort: during a load",
      "abort: running",
      "blocks kept for a save",
      "blocks kept for a load",
      "hit without blocks",
      "hit declined",
      "hit passed over",
      "drafts rejected",
      "name used again",
      "step without tokens",
      "store tried again",
      "shut down while busy",
      "a copy waited for the engine's event",
      "a page with a block that the engine let go",
      "a step waited for a load",
      "load within a step",
      "load within a step failed",
      "a request shared the blocks of such a load",
      "a request ended with an error",
      "prefix cache reset",
      "prefix cache in use when it was to be reset",
      "preempted and back in the same step",
  };
  return names[static_cast<std::size_t>(x)];
}

void world::trace(std::string_view what, std::string_view who, std::uint64_t a, std::uint64_t b) {
  const auto time = static_cast<std::uint64_t>((now_ - timestamp(std::chrono::hours(1))) / tick);
  auto h = mix(hash_ ^ time, mix(a, b));
  for (const auto c : what)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  for (const auto c : who)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash_ = h;
  if (verbose_)
    std::printf("%4u %7llu  %.*s %.*s %llu %llu\n", step, static_cast<unsigned long long>(time),
                static_cast<int>(what.size()), what.data(), static_cast<int>(who.size()), who.data(),
                static_cast<unsigned long long>(a), static_cast<unsigned long long>(b));
}

void world::fail(std::string_view property, std::string text) {
  if (failed() || p.ignored.find(std::string(",").append(property).append(",")) != std::string::npos)
    return;
  property_ = property;
  failure_ = std::move(text);
}

} // namespace troupe::engine_simulation
