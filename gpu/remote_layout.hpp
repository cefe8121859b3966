#pragma once

#include "base/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

/// The location of the blocks of another process's KV cache, as stated by that process, which is not trusted.

namespace troupe {

/// POSIX shared memory, by its name.
struct shared_memory_handle {
  std::string name;
  /// Its size in bytes.
  std::uint64_t bytes = 0;

  friend bool operator==(const shared_memory_handle&, const shared_memory_handle&) = default;
};

/// Memory of an NVIDIA GPU (`cudaIpcMemHandle_t`).
struct gpu_memory_handle {
  std::array<std::byte, 64> handle{};
  /// The offset of the memory in the allocation of the handle.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  /// The GPU's UUID, with or without the prefix "GPU-".
  std::string device;

  friend bool operator==(const gpu_memory_handle&, const gpu_memory_handle&) = default;
};

using memory_handle = std::variant<shared_memory_handle, gpu_memory_handle>;

/// A counter of PyTorch that keeps memory alive in the process that has shared it, until the process that has opened
/// the memory decrements it.
struct share_counter {
  /// The name of a file in shared memory.
  std::string name;
  std::uint64_t index = 0;

  friend bool operator==(const share_counter&, const share_counter&) = default;
};

/// A contiguous part of each block: that of block b begins at `offset + b * block_stride`.
struct block_run {
  /// The index in `remote_layout::memories`.
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const block_run&, const block_run&) = default;
};

/// A page contains, run after run, the bytes of each of its blocks.
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

/// Checks that every byte of every block is in its memory, that no two blocks of a run overlap, and that a page has a
/// size; otherwise `out_of_range` or `invalid_argument`. Opens nothing. Arithmetic on a valid layout does not overflow.
result<void> validate(const remote_layout& x);

/// Whether the name is one of a file directly in the folder of shared memory.
bool is_shared_memory_name(std::string_view x) noexcept;

} // namespace troupe
