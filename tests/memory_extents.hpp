#pragma once

#include "io/memory/extent_source.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::test {

/// Assigns memory of this process, as much as a test says.
class memory_extents final : public io::extent_source {
public:
  memory_extents(std::uint32_t extents, std::uint64_t extent_bytes)
      : memory_(new (std::align_val_t{4096}) std::byte[extents * extent_bytes]), facts_{extents * extent_bytes,
                                                                                        extent_bytes,
                                                                                        {1, 2, 3}},
        left_(extents), total_(extents) {}

  using io::extent_source::assign;
  result<io::extent> assign(std::optional<io::numa_node> wish) override {
    wishes.push_back(wish);
    if (failure != errc::ok)
      return fail(failure, "the test says so");
    for (std::uint32_t number = 0; number < total_; ++number)
      if (assigned_.size() < left_ && assigned_.insert(number).second)
        return io::extent{number, number * facts_.extent_bytes,
                          memory().subspan(number * facts_.extent_bytes, facts_.extent_bytes)};
    return fail(errc::full, "all extents are assigned");
  }

  bool take_back(std::uint32_t number) override { return assigned_.erase(number) > 0; }
  std::uint32_t available() const override { return left_ - static_cast<std::uint32_t>(assigned_.size()); }
  io::extent_counts counts() const override { return {total_, assigned_.size(), assigned_.size(), 0}; }
  std::span<std::byte> memory() noexcept override { return {memory_.get(), facts_.bytes}; }
  const io::arena_facts& info() const noexcept override { return facts_; }

  /// The name by which clients find it; without one it has an invalid name.
  void rename(io::shared_memory_name name) { facts_.name = std::move(name); }

  /// How many may be assigned at once.
  void limit(std::uint32_t extents) noexcept { left_ = extents; }

  /// The NUMA wishes of the callers that got an extent or were refused, in order.
  std::vector<std::optional<io::numa_node>> wishes;

  /// The error that `assign` returns instead.
  errc failure = errc::ok;

private:
  struct give_back_aligned {
    void operator()(std::byte* x) const noexcept { ::operator delete[](x, std::align_val_t{4096}); }
  };

  std::unique_ptr<std::byte[], give_back_aligned> memory_;
  io::arena_facts facts_;
  std::uint32_t left_;
  std::uint32_t total_;
  std::set<std::uint32_t> assigned_;
};

} // namespace troupe::test
