#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/namespace_spec.hpp"
#include "connector/capi/troupe.h"
#include "connector/live/runtime.hpp"
#include "connector/types.hpp"
#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Conversions between the structs of the C interface and Troupe's types. Everything is checked, because a caller may
/// be a program in a language without types.
namespace troupe::capi {

inline constexpr std::size_t text_bytes_max = 4096;

/// A text of the caller; NULL is empty. Errors: limit_exceeded, naming it.
result<std::string_view> text_of(const char* text, std::string_view name);

/// The id of a request: neither NULL nor empty.
result<std::string_view> id_of(const char* text);

/// An array of the caller. Errors: invalid_argument where it is NULL and has elements.
template <class T>
result<std::span<const T>> array_of(const T* data, std::size_t count, std::string_view name) {
  if (data == nullptr && count > 0)
    return fail(errc::invalid_argument,
                std::string(name) + " is NULL but must have " + std::to_string(count) + " elements");
  return std::span<const T>(data, count);
}

/// Fills `out`, whose memory is reused, with views of the ids.
result<void> read_ids(const troupe_ids& ids, std::string_view name, std::vector<std::string_view>& out);

/// Ids for an output, whose memory is reused.
class id_list {
public:
  template <class Ids>
  void assign(const Ids& ids) {
    clear();
    for (const auto& x : ids)
      add(x);
  }
  void clear() {
    text_.clear();
    count_ = 0;
  }
  void add(std::string_view id) {
    text_.append(id).push_back('\0');
    ++count_;
  }
  troupe_ids view() const noexcept { return {text_.data(), text_.size(), count_}; }

private:
  std::string text_;
  std::size_t count_ = 0;
};

/// The caller's hashes in the form of the halves: views where they have 32 bytes, else padded into `room`.
result<std::span<const connector::block_hash>> hashes_of(const std::uint8_t* data, std::size_t count,
                                                         std::uint32_t hash_bytes, std::string_view name,
                                                         std::vector<connector::block_hash>& room);

/// Seconds as a duration, with a default for 0. Errors: invalid_argument for a value that is negative, not a number, or
/// above a year.
result<duration> seconds_of(double seconds, duration if_zero, std::string_view name);

/// 16 bytes, the most significant first, as keys are written in hexadecimal.
key_digest digest_of(const std::uint8_t* bytes) noexcept;
void put_digest(const key_digest& x, std::uint8_t* to) noexcept;

/// The options of an engine in the C interface, including those that `engine_options` does not have.
struct engine_terms {
  connector::engine_options options;
  std::uint32_t hash_bytes = 32;
};

result<engine_terms> engine_of(const troupe_engine* engine);

/// A namespace, and the bytes of its opaque blocks.
struct namespace_terms {
  namespace_spec spec;
  /// 0: blocks are not opaque.
  std::uint64_t opaque_block_bytes = 0;
};

/// A namespace with the engine's share in it. `block_tokens`: tokens of a block; 0: a block is a whole page.
result<namespace_terms> namespace_of(const troupe_namespace* ns, std::uint32_t world_size, std::uint32_t block_tokens);

/// The groups of layers of an engine.
struct group_terms {
  connector::grouped_layout layout;
  /// One for each group; 0 where its blocks are not opaque.
  std::vector<std::uint64_t> opaque_block_bytes;
};

result<group_terms> groups_of(const troupe_groups* groups, const connector::engine_options& engine);

/// The cache of a worker or of a pool, from the caller's layers. `opaque_block_bytes`: from the caller's geometry.
/// Errors: as of `validate`, and identity_mismatch for a wrong number of layers.
result<kv_cache_view> cache_of(const kv_geometry& geometry, std::uint32_t blocks_per_page,
                               std::uint64_t opaque_block_bytes, const troupe_layer* layers, std::size_t layer_count,
                               std::uint32_t blocks);

} // namespace troupe::capi
