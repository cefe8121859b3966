#pragma once

#include "io/arena.hpp"
#include "io/shared_memory.hpp"
#include "messages/io_messages.hpp"
#include "tests/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::test {

/// Arenas of this process, under names of one byte: what a copy engine finds, without looking into any process.
class known_arenas final : public io::shared_memory_finder {
public:
  /// A new one.
  arena_info add(std::uint64_t bytes, std::uint64_t extent_bytes) {
    all_.push_back(*io::arena::create(bytes));
    return {bytes, extent_bytes, std::vector{static_cast<std::uint8_t>(all_.size() - 1)}};
  }
  /// The memory that this name, or that number, stands for.
  const std::shared_ptr<io::arena>& memory(std::size_t number = 0) const { return all_.at(number); }
  /// From now on it cannot be found.
  void lose(std::size_t number) { all_.at(number).reset(); }
  /// How often something was looked for.
  std::size_t searches() const { return searches_; }

  result<std::shared_ptr<io::shared_memory>> find(std::uint64_t, std::span<const std::uint8_t> name) override {
    ++searches_;
    REQUIRE(name.size() == 1);
    if (!all_.at(name[0]))
      return fail(errc::unreachable, "the node is gone");
    return std::shared_ptr<io::shared_memory>(all_.at(name[0]));
  }

private:
  std::vector<std::shared_ptr<io::arena>> all_;
  std::size_t searches_ = 0;
};

} // namespace troupe::test
