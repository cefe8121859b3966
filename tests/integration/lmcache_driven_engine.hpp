#pragma once

#include "tests/catch.hpp"
#include "tests/integration/lmcache_client.hpp"
#include "tests/integration/process.hpp"
#include "tests/named_memory.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

/// An engine with LMCache whose blocks the node copies itself, out of tensors in shared memory.

namespace troupe::test::driven {

using nlohmann::json;

inline constexpr std::uint32_t chunk = lmcache_chunk;
inline constexpr std::uint32_t block_tokens = 8;
inline constexpr std::uint32_t blocks_per_chunk = chunk / block_tokens;
inline constexpr std::uint32_t blocks = 32;
inline constexpr std::uint32_t layers = 2;
inline constexpr std::uint32_t heads = 4;
inline constexpr std::uint32_t content = 16;
inline constexpr std::uint64_t element_bytes = 2;
/// The size of one plane of one layer.
inline constexpr std::uint64_t block_bytes = block_tokens * heads * content * element_bytes;

enum operations : std::uint8_t {
  register_memory = 1,
  unregister_memory = 2,
  store = 6,
  retrieve = 7,
  lookup = 8,
  query = 9,
  end_session = 13,
  register_worker = 14,
  prepare_store = 16,
  prepare_retrieve = 18,
  clear = 20,
  ping = 22,
};

/// The order of the axes of a layer.
enum class arrangement { planes_outside, planes_in_block, joined_by_heads };

using size_list = std::vector<std::uint64_t>;

inline size_list sizes_of(arrangement x) {
  switch (x) {
  case arrangement::planes_outside:
    return {2, blocks, block_tokens, heads, content};
  case arrangement::planes_in_block:
    return {blocks, 2, block_tokens, heads, content};
  case arrangement::joined_by_heads:
    return {blocks, heads, block_tokens, 2 * content};
  }
  return {};
}

inline json strides_of(const size_list& sizes) {
  json out = json::array();
  std::uint64_t stride = 1;
  for (auto i = sizes.size(); i-- > 0; stride *= sizes[i])
    out.insert(out.begin(), stride);
  return out;
}

/// The KV cache of a worker: its layers one behind the other in shared memory with a name, which goes with it.
class worker_memory {
public:
  explicit worker_memory(arrangement how = arrangement::planes_outside) : how_(how), memory_(bytes()) {}

  static constexpr std::uint64_t bytes() { return layers * 2 * blocks * block_bytes; }
  const std::string& name() const { return memory_.name(); }
  arrangement how() const { return how_; }

  void cut(std::uint64_t to) const {
    check_call(::ftruncate(memory_.descriptor(), static_cast<off_t>(to)) == 0, "ftruncate");
  }
  /// The plane of a block; where heads are outside, both planes are in one.
  std::span<std::byte> plane(std::uint32_t layer, std::uint32_t plane, std::uint32_t block) {
    const auto layer_bytes = 2 * blocks * block_bytes;
    const auto at = how_ == arrangement::planes_outside ? (plane * blocks + block) * block_bytes
                                                        : (2 * block + plane) * block_bytes;
    return memory_.bytes().subspan(layer * layer_bytes + at, block_bytes);
  }

  /// The expected content of a block of a sequence: no two bytes near each other are the same.
  static std::byte value(std::uint32_t sequence, std::uint32_t index, std::uint32_t layer, std::uint32_t plane,
                         std::uint64_t at) {
    return static_cast<std::byte>(sequence * 59 + index * 31 + layer * 17 + plane * 7 + at + at / 251);
  }

  void fill(std::uint32_t block, std::uint32_t sequence, std::uint32_t index) {
    for (std::uint32_t l = 0; l < layers; ++l)
      for (std::uint32_t p = 0; p < 2; ++p)
        for (std::uint64_t i = 0; i < block_bytes; ++i)
          plane(l, p, block)[i] = value(sequence, index, l, p, i);
  }

  bool holds(std::uint32_t block, std::uint32_t sequence, std::uint32_t index) {
    for (std::uint32_t l = 0; l < layers; ++l)
      for (std::uint32_t p = 0; p < 2; ++p)
        for (std::uint64_t i = 0; i < block_bytes; ++i)
          if (plane(l, p, block)[i] != value(sequence, index, l, p, i))
            return false;
    return true;
  }

  void wipe() { std::ranges::fill(memory_.bytes(), std::byte{0xee}); }
  bool is_wiped(std::uint32_t block) {
    return std::ranges::all_of(plane(0, 0, block), [](std::byte x) { return x == std::byte{0xee}; });
  }

  json handle(std::uint32_t layer) const {
    const auto sizes = sizes_of(how_);
    return {{"type", "cpu_shm"},
            {"version", 1},
            {"metadata",
             {{"dtype", "bfloat16"},
              {"shape", sizes},
              {"stride", strides_of(sizes)},
              {"storage_offset", layer * 2 * blocks * block_bytes / element_bytes},
              {"device_uuid", "cpu"}}},
            {"shm_name", memory_.name()},
            {"nbytes", bytes()}};
  }

  std::vector<json> handles() const {
    std::vector<json> out;
    for (std::uint32_t i = 0; i < layers; ++i)
      out.push_back(handle(i));
    return out;
  }

  std::string layout() const { return how_ == arrangement::joined_by_heads ? "HND" : "NHD"; }

private:
  arrangement how_;
  named_memory memory_;
};

inline json group(std::uint32_t id = 0) {
  return {{"engine_group_id", id}, {"layer_indices", {0, 1}},     {"tokens_per_block", block_tokens},
          {"sw_size_tokens", -1},  {"extra_object_group_tag", 0}, {"recurrent_state", false}};
}

inline std::vector<json> registration(std::int64_t instance, const std::vector<json>& handles,
                                      const std::string& layout, const json& groups = json::array({group()}),
                                      std::uint32_t world = 1) {
  json packed = json::array();
  for (const auto& x : handles)
    packed.push_back(json::binary(json::to_msgpack(x), 1));
  return {instance, packed, "m", world, "vllm", {{"kv_layout", layout}}, groups};
}

/// A worker whose blocks the node copies, and the scheduler of its engine.
struct driven_engine {
  std::uint16_t port;
  std::int64_t instance;
  worker_memory memory;
  lmcache_client scheduler{port};
  lmcache_client worker{port};
  std::uint32_t requests = 0;

  driven_engine(std::uint16_t at, std::int64_t id, arrangement how = arrangement::planes_outside)
      : port(at), instance(id), memory(how) {
    enroll();
  }

  void enroll() {
    CHECK_FALSE(worker.call(register_memory, registration(instance, memory.handles(), memory.layout())));
  }

  std::string new_request() { return "d-" + std::to_string(instance) + "-" + std::to_string(++requests); }

  /// The answer has an empty event, since all is done, and says whether it was.
  bool done(const std::optional<json>& answer) const {
    REQUIRE(answer);
    REQUIRE(answer->size() == 2);
    CHECK(answer->at(0) == json::binary({}));
    return answer->at(1).get<bool>();
  }

  bool put(std::uint32_t sequence, const std::vector<std::uint32_t>& from, const json& event = json::binary({1, 2})) {
    const auto count = static_cast<std::uint32_t>(from.size()) / blocks_per_chunk;
    return done(
        worker.call(store, {lmcache_key(sequence, new_request(), 0, count, 0), instance, json::array({from}), event}));
  }

  bool get(std::uint32_t sequence, std::uint32_t begin, const std::vector<std::uint32_t>& to, std::uint32_t skip = 0,
           const std::string& request = "none") {
    const auto count = static_cast<std::uint32_t>(to.size()) / blocks_per_chunk;
    return done(worker.call(retrieve, {lmcache_key(sequence, request, begin, begin + count, 0), instance,
                                       json::array({to}), json::binary({1, 2}), skip}));
  }

  void fill(std::uint32_t sequence, const std::vector<std::uint32_t>& in) {
    for (std::uint32_t i = 0; i < in.size(); ++i)
      memory.fill(in[i], sequence, i);
  }

  bool holds(std::uint32_t sequence, std::uint32_t first, const std::vector<std::uint32_t>& in) {
    for (std::uint32_t i = 0; i < in.size(); ++i)
      if (!memory.holds(in[i], sequence, first + i))
        return false;
    return true;
  }

  std::uint32_t look_up(std::uint32_t sequence, std::uint32_t chunks, const std::string& request) {
    CHECK_FALSE(scheduler.call(lookup, {lmcache_key(sequence, request, 0, chunks), 1}));
    for (;;)
      if (const auto found = scheduler.call(query, {request}))
        return found->get<std::uint32_t>();
  }
};

} // namespace troupe::test::driven
