#pragma once

#include "io/memory/extent_source.hpp"
#include "io/memory/shared_memory.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace troupe {

/// Finds the arena of the node in this process, under any name. The result keeps it alive.
class own_arena final : public io::shared_memory_finder {
public:
  explicit own_arena(std::shared_ptr<io::extent_source> arena) : arena_(std::move(arena)) {}

  result<std::shared_ptr<io::shared_memory>> find(std::uint64_t, std::span<const std::uint8_t>) override {
    return std::make_shared<memory>(arena_);
  }

private:
  class memory final : public io::shared_memory {
  public:
    explicit memory(std::shared_ptr<io::extent_source> arena) : arena_(std::move(arena)) {}

    std::span<std::byte> bytes() noexcept override { return arena_->memory(); }

  private:
    std::shared_ptr<io::extent_source> arena_;
  };

  std::shared_ptr<io::extent_source> arena_;
};

} // namespace troupe
