#pragma once

#include "lmcache/protocol/msgpack_reader.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// How a worker names the memory of its KV cache to a server that copies it. Texts and bytes are views of the message:
/// valid as long as its frames.

namespace troupe::lmcache::protocol {

/// A tensor in memory that another process may open.
struct tensor_handle {
  /// The members below are set only for these: "cpu_shm", "cuda_raw", "cuda".
  std::string_view kind;
  std::string_view dtype;
  /// Elements, and the distance between them, in elements.
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
  std::uint64_t first_element = 0;
  std::string_view device;

  /// The name of shared memory.
  std::string_view name;
  /// CUDA's handle of a GPU allocation, and the offset of the tensor's memory in it.
  byte_view allocation;
  std::uint64_t offset = 0;
  /// Accessible bytes from there.
  std::uint64_t bytes = 0;
  /// For "cuda": PyTorch's reference counter of this handle, in a file of such counters.
  byte_view counter_file;
  std::uint64_t counter_index = 0;
};

/// Layers that share one list of blocks.
struct layer_group {
  /// Indexes of the tensors.
  std::vector<std::uint32_t> layers;
  /// 0: the client did not say.
  std::uint32_t block_tokens = 0;
  /// The engine frees blocks behind the window, and replaces them by block 0.
  bool sliding = false;
  /// Blocks contain states, not tokens.
  bool recurrent = false;
};

/// A worker's KV cache in memory that the server opens.
struct kv_cache_registration {
  std::vector<tensor_handle> tensors;
  std::string_view model;
  std::uint32_t world_size = 0;
  std::string_view engine;
  /// The order of the axes of a block: "NHD", "HND", "BLNHC", "BLHNC"; empty if the client did not say.
  std::string_view layout;
  std::vector<layer_group> groups;
};

inline constexpr std::size_t tensors_max = 4096;

/// Reads the payloads of `register_kv_cache` after the instance. False if they are invalid.
bool read_kv_cache(std::span<const byte_view> frames, kv_cache_registration& out);

/// Reads lists of blocks, one per group.
bool read_blocks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out);

} // namespace troupe::lmcache::protocol
