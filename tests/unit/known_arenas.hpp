#pragma once

#include "io/memory/shared_memory.hpp"
#include "io/page.hpp"
#include "messages/io_messages.hpp"
#include "tests/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace troupe::test {

/// Memory that starts as zeroes.
class plain_memory final : public io::shared_memory {
public:
  explicit plain_memory(std::uint64_t bytes)
      : bytes_(new (std::align_val_t{io::page_alignment}) std::byte[bytes]()), size_(bytes) {}

  std::span<std::byte> bytes() noexcept override { return {bytes_.get(), size_}; }

private:
  struct give_back {
    void operator()(std::byte* x) const noexcept { ::operator delete[](x, std::align_val_t{io::page_alignment}); }
  };

  std::unique_ptr<std::byte[], give_back> bytes_;
  std::uint64_t size_;
};

/// Arenas of this process under names of one byte, which a copy engine finds without access to another process.
class known_arenas final : public io::shared_memory_finder {
public:
  /// A new one.
  arena_info add(std::uint64_t bytes, std::uint64_t extent_bytes) {
    all_.push_back(std::make_shared<plain_memory>(bytes));
    return {bytes, extent_bytes, std::vector{static_cast<std::uint8_t>(all_.size() - 1)}};
  }
  /// The memory with this name or number.
  const std::shared_ptr<plain_memory>& memory(std::size_t number = 0) const { return all_.at(number); }
  /// Makes the arena impossible to find from now on.
  void lose(std::size_t number) { all_.at(number).reset(); }
  /// How often something was looked for.
  std::size_t searches() const { return searches_; }

  result<std::shared_ptr<io::shared_memory>> find(std::uint64_t, std::span<const std::uint8_t> name) override {
    ++searches_;
    REQUIRE(name.size() == 1);
    if (!all_.at(name[0]))
      return fail(errc::unreachable, "the node has ended");
    return std::shared_ptr<io::shared_memory>(all_.at(name[0]));
  }

private:
  std::vector<std::shared_ptr<plain_memory>> all_;
  std::size_t searches_ = 0;
};

} // namespace troupe::test
