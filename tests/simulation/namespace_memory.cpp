#include "tests/simulation/namespace_memory.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

namespace_memory::namespace_memory(environment& world, std::uint32_t extents, std::uint64_t extent_bytes)
    : world_(world), info_{extents * extent_bytes, extent_bytes, {1, 2, 3}}, bytes_(info_.bytes), assigned_(extents) {}

std::uint32_t namespace_memory::assigned() const {
  return static_cast<std::uint32_t>(std::count(assigned_.begin(), assigned_.end(), true));
}

std::uint32_t namespace_memory::available() const {
  return static_cast<std::uint32_t>(assigned_.size()) - assigned();
}

io::extent_counts namespace_memory::counts() const {
  return {assigned_.size(), assigned(), assigned(), 0};
}

result<io::extent> namespace_memory::assign(std::optional<io::numa_node>) {
  const auto free = std::find(assigned_.begin(), assigned_.end(), false);
  if (free == assigned_.end())
    return fail(errc::full, "all extents are assigned");
  *free = true;
  world_.count("extent: assigned");
  return at(static_cast<std::uint32_t>(free - assigned_.begin()));
}

bool namespace_memory::take_back(std::uint32_t number) {
  if (number >= assigned_.size() || !assigned_[number])
    return false;
  world_.count("extent: came back");
  for (const auto& [id, x] : copies_)
    if (x.offset / info_.extent_bytes == number && (!x.lasts || x.lasts()))
      world_.fail("memory", "extent " + std::to_string(number) + " comes back, and " + x.what);
  if (!world_.has(defect::keep_extents))
    assigned_[number] = false;
  return true;
}

std::uint64_t namespace_memory::begin_copy(std::uint64_t offset, std::string what, std::function<bool()> lasts) {
  copies_.emplace(++last_copy_, copy_under_way{offset, std::move(what), std::move(lasts)});
  return last_copy_;
}

} // namespace troupe::simulation
