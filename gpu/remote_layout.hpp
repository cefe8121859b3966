#pragma once

#include "base/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// Where the blocks of another process' KV cache lie, as that process says, which may say anything.

namespace troupe {

/// POSIX shared memory, by its name.
struct shared_memory_handle {
  std::string name;
  /// That there are, from its first byte.
  std::uint64_t bytes = 0;

  friend bool operator==(const shared_memory_handle&, const shared_memory_handle&) = default;
};

/// Memory of an NVIDIA GPU (`cudaIpcMemHandle_t`).
struct gpu_memory_handle {
  std::array<std::byte, 64> handle{};
  /// Of what is meant, in the allocation that the handle stands for.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  /// The GPU's UUID, with or without "GPU-" in front.
  std::string device;

  friend bool operator==(const gpu_memory_handle&, const gpu_memory_handle&) = default;
};

using memory_handle = std::variant<shared_memory_handle, gpu_memory_handle>;

/// A number of PyTorch that keeps memory alive in the process that has shared it, until whoever has opened the memory
/// has taken one off.
struct share_counter {
  /// Of a file in shared memory.
  std::string name;
  std::uint64_t index = 0;

  friend bool operator==(const share_counter&, const share_counter&) = default;
};

/// The bytes that a block has in one piece: those of block b begin at `offset + b * block_stride`.
struct block_run {
  /// Of `remote_layout::memories`.
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const block_run&, const block_run&) = default;
};

/// A page has, run after run, the bytes of each of its blocks.
struct remote_layout {
  /// All of one kind; at least one.
  std::vector<memory_handle> memories;
  std::vector<block_run> runs;
  std::uint32_t blocks = 0;
  std::uint32_t blocks_per_page = 1;
  std::uint32_t block_tokens = 1;
  std::vector<share_counter> counters;

  std::uint64_t page_bytes() const noexcept;

  friend bool operator==(const remote_layout&, const remote_layout&) = default;
};

inline constexpr std::size_t remote_runs_max = 4096;

/// Whether every byte of every block lies in its memory, no block over another one of its run, and a page has a size:
/// else out_of_range or invalid_argument. Nothing is opened. What passes may be computed with: nothing overflows.
result<void> validate(const remote_layout& x);

/// Whether a name is one of a file directly in the folder of shared memory.
bool is_shared_memory_name(std::string_view x) noexcept;

} // namespace troupe
