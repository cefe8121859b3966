#pragma once

#include "lmcache/wire/msgpack_reader.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// How a worker names the memory of its KV cache to a server that is to copy it. Texts and bytes are those of the
/// message: valid as long as its frames.

namespace troupe::lmcache::wire {

/// A tensor in memory that somebody else may open.
struct tensor_handle {
  /// What follows below is set for these alone: "cpu_shm", "cuda_raw", "cuda".
  std::string_view kind;
  std::string_view dtype;
  /// Elements, and the distance between them, in elements.
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
  std::uint64_t first_element = 0;
  std::string_view device;

  /// Of shared memory.
  std::string_view name;
  /// Of an allocation of a GPU, as CUDA names it, and where in it the tensor's memory begins.
  byte_view allocation;
  std::uint64_t offset = 0;
  /// That may be touched, from there.
  std::uint64_t bytes = 0;
  /// Of "cuda": PyTorch's number for this handle, in a file of such numbers.
  byte_view counter_file;
  std::uint64_t counter_index = 0;
};

/// Layers that one list of blocks stands for.
struct layer_group {
  /// Of the tensors.
  std::vector<std::uint32_t> layers;
  /// 0: the client did not say.
  std::uint32_t block_tokens = 0;
  /// Blocks behind the window are given back by the engine, and read as block 0.
  bool sliding = false;
  /// Blocks hold states, and no tokens.
  bool recurrent = false;
};

/// A worker's KV cache in memory that the server is to open.
struct kv_cache_registration {
  std::vector<tensor_handle> tensors;
  std::string_view model;
  std::uint32_t world_size = 0;
  std::string_view engine;
  /// How the axes of a block lie: "NHD", "HND", "BLNHC", "BLHNC"; empty where the client did not say.
  std::string_view layout;
  std::vector<layer_group> groups;
};

inline constexpr std::size_t tensors_max = 4096;

/// Reads the payloads of `register_kv_cache` behind the instance. False if they are none.
bool read_kv_cache(std::span<const byte_view> frames, kv_cache_registration& out);

/// Reads lists of blocks, one per group.
bool read_blocks(byte_view frame, std::vector<std::vector<std::uint32_t>>& out);

} // namespace troupe::lmcache::wire
