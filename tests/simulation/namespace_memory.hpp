#pragma once

#include "io/memory/extent_source.hpp"
#include "tests/simulation/environment.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace troupe::simulation {

/// The arena of one run of a node. Copies there, by a client or by a disk, are registered with their place: no extent
/// may be returned while one is in progress.
class namespace_memory final : public io::extent_source {
public:
  namespace_memory(environment& world, std::uint32_t extents, std::uint64_t extent_bytes);

  result<io::extent> assign(std::optional<io::numa_node>) override;
  bool take_back(std::uint32_t number) override;
  std::uint32_t available() const override;
  io::extent_counts counts() const override;
  std::span<std::byte> memory() noexcept override { return bytes_; }
  const io::arena_facts& info() const noexcept override { return info_; }

  std::uint32_t assigned() const;

  /// Bytes move there from now on, until the copy ends or `lasts` returns false. `what`: for people.
  std::uint64_t begin_copy(std::uint64_t offset, std::string what, std::function<bool()> lasts = {});
  void end_copy(std::uint64_t copy) { copies_.erase(copy); }
  std::uint64_t offset_of(const std::byte* at) const { return static_cast<std::uint64_t>(at - bytes_.data()); }

private:
  struct copy_under_way {
    std::uint64_t offset = 0;
    std::string what;
    std::function<bool()> lasts;
  };

  environment& world_;
  io::arena_facts info_;
  std::vector<std::byte> bytes_;
  std::vector<bool> assigned_;
  std::map<std::uint64_t, copy_under_way> copies_;
  std::uint64_t last_copy_ = 0;
};

} // namespace troupe::simulation
