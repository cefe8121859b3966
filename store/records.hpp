#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/namespace_spec.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// What survives a restart, record by record, and the bytes that each becomes. docs/decisions/0005 says why these.
///
/// A record is a key and a value. Keys are made so that the order of their bytes is the order in which a node wants to
/// read them: identity, namespaces, ranks, then pages by namespace, key and rank. For that, numbers in keys are
/// big-endian. Numbers in values are little-endian. Nothing depends on how many shards the registry has.
///
/// Keys:   table (1 byte), then namespace (16) and rank (4) or namespace, key digest (16) and rank.
///         A handshake is (table, engine, 0) for what is known of the engine, and behind that three numbers (4 each)
///         for each of its ranks.
/// Values: a page is slot (4) and generation (4), the incarnation of its rank (8), and the parent (16) where there is
///         one; a rank is its number of slots (8) and its incarnation (8). An incarnation of 0 is left out; the length
///         tells. What is rare has a version byte first, so that fields can be added.

namespace troupe::store {

/// Says how the directory of a store is laid out. Raised when a build could not read what an older one wrote.
inline constexpr std::uint32_t schema_version = 1;

/// Where the number of ranks that make a key complete comes from.
enum class world_size_mode : std::uint8_t {
  /// `namespace_spec::world_size`, which is part of the identity.
  fixed = 0,
  /// The ranks that have registered.
  automatic = 1,
};

/// Who made a namespace: what becomes of it at the next start follows from this, and from nothing else.
enum class space_origin : std::uint8_t {
  /// Written before origins were.
  unknown = 0,
  /// The config: its pages are in slab files of the node.
  config = 1,
  /// An engine, by a name alone: to which namespace its files belong depends on the config.
  wire = 2,
  /// A client of the native API, for files of its own.
  api = 3,
  /// A client that attached to it: its pages are in slab files of the node, made with it.
  client = 4,
};

struct namespace_record {
  namespace_id id;
  namespace_spec spec;
  world_size_mode mode = world_size_mode::fixed;
  /// The registry remembers which key has a slot.
  bool slot_index = false;
  /// With `automatic`: ranks are below it.
  std::uint32_t max_ranks = 0;
  std::chrono::sys_seconds created;
  space_origin origin = space_origin::unknown;

  friend bool operator==(const namespace_record&, const namespace_record&) = default;
};

struct rank_record {
  namespace_id space;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  /// Of this registration of the rank, or of its slab file where that is the node's.
  incarnation_number incarnation = 0;

  friend bool operator==(const rank_record&, const rank_record&) = default;
};

/// One live page. All that is known of it is in this one record, so that a commit is one put, an eviction one delete,
/// and ranks of one key need not read what other ranks wrote.
struct page_record {
  namespace_id space;
  key_digest key;
  rank_number rank = 0;
  slot_ref where;
  /// Null if the key has none.
  key_digest parent;
  /// The rank's when the page was published: a page of another one than the rank has now is nobody's.
  incarnation_number incarnation = 0;

  friend bool operator==(const page_record&, const page_record&) = default;
};

/// What the directory of handshakes knows of an engine.
struct handshake_engine_record {
  /// At most `handshake_name_bytes`, none of them 0.
  std::string engine;
  std::uint64_t incarnation = 0;
  std::array<std::uint32_t, 3> sizes{};
  std::string compat;
  std::chrono::nanoseconds ttl{};
  /// 0: it lives. Else how it ended; it is remembered.
  std::uint8_t over = 0;
  /// When it ends, or is forgotten: the time of day.
  std::chrono::sys_time<std::chrono::nanoseconds> deadline{};

  friend bool operator==(const handshake_engine_record&, const handshake_engine_record&) = default;
};

/// What one rank of it has published.
struct handshake_rank_record {
  std::string engine;
  std::array<std::uint32_t, 3> rank{};
  /// Of another one than its engine's: it is nobody's.
  std::uint64_t incarnation = 0;
  std::uint8_t form = 0;
  std::string payload;

  friend bool operator==(const handshake_rank_record&, const handshake_rank_record&) = default;
};

inline constexpr std::size_t handshake_name_bytes = 200;

/// What a node knows of itself.
struct node_identity {
  /// Counts the starts, 1 the first time: durable before the store is handed out, so no number is ever used twice.
  std::uint64_t run = 0;
  /// Random, made at the first start and then kept.
  std::array<std::byte, 32> secret{};
  /// The epochs of the data directory (store/epoch_file.hpp) of which this index knows all that happened: that of the
  /// last run, or the one before it, if the run never came to serve. 0 is none.
  incarnation_number epoch = 0;
  incarnation_number next_epoch = 0;

  friend bool operator==(const node_identity&, const node_identity&) = default;
};

/// The identity of a node that starts for the first time: run 1, and a secret from the system's entropy.
node_identity first_identity();

/// The first byte of every key.
enum class table : std::uint8_t { identity = 1, namespaces = 2, ranks = 3, pages = 4, handshakes = 5 };

void append_identity_key(std::string& out);
void append_namespace_key(std::string& out, const namespace_id& space);
void append_rank_key(std::string& out, const namespace_id& space, rank_number rank);
void append_page_key(std::string& out, const namespace_id& space, const key_digest& key, rank_number rank);
/// Of the engine; those of its ranks begin with it.
void append_handshake_key(std::string& out, std::string_view engine);
void append_handshake_key(std::string& out, std::string_view engine, const std::array<std::uint32_t, 3>& rank);
/// What the keys of all ranks, or of all pages, of a namespace begin with.
void append_rank_prefix(std::string& out, const namespace_id& space);
void append_page_prefix(std::string& out, const namespace_id& space);

void append_value(std::string& out, const node_identity& record);
void append_value(std::string& out, const namespace_record& record);
void append_value(std::string& out, const rank_record& record);
void append_value(std::string& out, const page_record& record);
void append_value(std::string& out, const handshake_engine_record& record);
void append_value(std::string& out, const handshake_rank_record& record);

/// The record of these bytes, whatever they are; corrupt, naming the record, if they are no record of that kind.
result<node_identity> decode_identity(std::string_view key, std::string_view value);
result<namespace_record> decode_namespace(std::string_view key, std::string_view value);
result<rank_record> decode_rank(std::string_view key, std::string_view value);
result<page_record> decode_page(std::string_view key, std::string_view value);
result<handshake_engine_record> decode_handshake_engine(std::string_view key, std::string_view value);
result<handshake_rank_record> decode_handshake_rank(std::string_view key, std::string_view value);
/// Which of the two the key is of, if it is of one of them.
bool is_handshake_engine(std::string_view key) noexcept;

/// The key in words, for errors: "page of key … and rank 3 in namespace …", or its bytes in hexadecimal.
std::string describe_key(std::string_view key);

/// Where the pages of a namespace begin whose digest has at least this upper half: `pages_from(id, 0)` is before all of
/// them. For scans of parts.
std::string pages_from(const namespace_id& space, std::uint64_t digest_hi);

/// The one byte that all keys of the table, and nothing before them, begin with.
std::string first_of(table which);
/// After all keys that begin with these bytes, of which one is not all ones.
std::string end_of_prefix(std::string_view prefix);

} // namespace troupe::store
