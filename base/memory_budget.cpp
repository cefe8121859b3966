#include "base/memory_budget.hpp"

#include "base/size_text.hpp"

#include <string>

namespace troupe {

result<void> memory_budget::take(std::uint64_t bytes, std::string_view what) {
  const auto most = lasting_part(limit());
  std::uint64_t taken = 0;
  if (bytes_.take_within(most, bytes, taken))
    return {};
  return fail(errc::no_memory, std::string(what) + " would take " + size_text(bytes) + " of memory; " +
                                   size_text(taken) + " are in use, of " + size_text(most) +
                                   " that ranks and keys may have of registry.memory_bytes (" + size_text(limit()) +
                                   "): ask for less, remove what is no longer used, " + "or raise it");
}

result<memory_share> memory_share::of(const shared_budget& budget, std::uint64_t bytes, std::string_view what) {
  memory_share out;
  if (!budget)
    return out;
  if (auto taken = budget->take(bytes, what); !taken)
    return tl::unexpected<error>(std::move(taken.error()));
  out.budget_ = budget;
  out.bytes_ = bytes;
  return out;
}

} // namespace troupe
