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

/// The durable records and their encoding. docs/decisions/0005 has the reasons.
///
/// A record is a key and a value. The byte order of keys is the order in which a node reads them: identity, namespaces,
/// ranks, pages by namespace, key and rank, then handshakes (store/handshake_records.hpp). For that, numbers in keys
/// are big-endian. Numbers in values are little-endian. Nothing depends on the number of registry shards.
///
/// Keys:   table (1 byte), then namespace (16) and rank (4) or namespace, key digest (16) and rank.
/// A description has (table, namespace, key digest).
/// Values: a page has slot (4) and generation (4), the incarnation of its rank (8), and the parent (16) where there is
/// one; a rank has its number of slots (8) and its incarnation (8). An incarnation of 0 is omitted; the length tells.
/// Rare records begin with a version byte, so that fields can be added.

namespace troupe::store {

/// The version of a store's directory layout. It is raised when a build cannot read what an older one wrote.
inline constexpr std::uint32_t schema_version = 1;

/// The source of the number of ranks that make a key complete.
enum class world_size_mode : std::uint8_t {
  /// `namespace_spec::world_size`, which is part of the identity.
  fixed = 0,
  /// The ranks that have registered.
  automatic = 1,
};

/// The creator of a namespace, which alone decides what happens to it at the next start.
enum class stored_origin : std::uint8_t {
  /// Written before origins were recorded.
  unknown = 0,
  /// The config: its pages are in slab files of the node.
  config = 1,
  /// An engine, by a name only: the config decides to which namespace its files belong.
  protocol = 2,
  /// A client of the native API, for files of its own.
  api = 3,
  /// An attached client: its pages are in slab files of the node, created with the namespace.
  client = 4,
};

struct namespace_record {
  namespace_id id;
  namespace_spec spec;
  world_size_mode mode = world_size_mode::fixed;
  /// The registry remembers which key has a slot.
  bool slot_index = false;
  /// With `automatic`: the exclusive bound of rank numbers.
  std::uint32_t max_ranks = 0;
  std::chrono::sys_seconds created;
  stored_origin origin = stored_origin::unknown;

  friend bool operator==(const namespace_record&, const namespace_record&) = default;
};

struct rank_record {
  namespace_id ns;
  rank_number rank = 0;
  std::uint64_t slots = 0;
  /// The incarnation of this registration of the rank, or of its slab file if the node owns that.
  incarnation_number incarnation = 0;

  friend bool operator==(const rank_record&, const rank_record&) = default;
};

/// One live page. All data of it is in this one record, so that a commit is one put, an eviction is one delete, and the
/// ranks of a key do not read each other's records.
struct page_record {
  namespace_id ns;
  key_digest key;
  rank_number rank = 0;
  slot_ref where;
  /// Null if the key has none.
  key_digest parent;
  /// The incarnation of the rank when the page was published: a page of another incarnation is not valid.
  incarnation_number incarnation = 0;

  friend bool operator==(const page_record&, const page_record&) = default;
};

/// What an engine has said about a complete key, for the events of the node. The bytes belong to their writer
/// (events/description_text.hpp).
struct description_record {
  namespace_id ns;
  key_digest key;
  std::string text;

  friend bool operator==(const description_record&, const description_record&) = default;
};

/// The identity and the run number of a node.
struct node_identity {
  /// Counts the starts from 1: it is durable before the store is used, so no number is ever used twice.
  std::uint64_t run = 0;
  /// Random, made at the first start and then kept.
  std::array<std::byte, 32> secret{};
  /// The epochs of the data directory (store/epoch_file.hpp) for which this index is up to date: that of the last run,
  /// or the one before it, if the run never came to serve. 0 is none.
  incarnation_number epoch = 0;
  incarnation_number next_epoch = 0;

  friend bool operator==(const node_identity&, const node_identity&) = default;
};

/// The identity of a node that starts for the first time: run 1, and a secret from the system's entropy.
node_identity first_identity();

/// The first byte of every key.
enum class table : std::uint8_t {
  identity = 1,
  namespaces = 2,
  ranks = 3,
  pages = 4,
  handshakes = 5,
  descriptions = 6
};

void append_identity_key(std::string& out);
void append_namespace_key(std::string& out, const namespace_id& ns);
void append_rank_key(std::string& out, const namespace_id& ns, rank_number rank);
void append_page_key(std::string& out, const namespace_id& ns, const key_digest& key, rank_number rank);
void append_description_key(std::string& out, const namespace_id& ns, const key_digest& key);
/// The common prefix of the keys of all ranks, pages or descriptions of a namespace.
void append_rank_prefix(std::string& out, const namespace_id& ns);
void append_page_prefix(std::string& out, const namespace_id& ns);
void append_description_prefix(std::string& out, const namespace_id& ns);

void append_value(std::string& out, const node_identity& record);
void append_value(std::string& out, const namespace_record& record);
void append_value(std::string& out, const rank_record& record);
void append_value(std::string& out, const page_record& record);
void append_value(std::string& out, const description_record& record);

/// Decodes a record from any bytes. Error: `corrupt`, naming the record, if they are not a record of that kind.
result<node_identity> decode_identity(std::string_view key, std::string_view value);
result<namespace_record> decode_namespace(std::string_view key, std::string_view value);
result<rank_record> decode_rank(std::string_view key, std::string_view value);
result<page_record> decode_page(std::string_view key, std::string_view value);
result<description_record> decode_description(std::string_view key, std::string_view value);

/// The key in words for errors: "page of key … and rank 3 in namespace …", or its bytes in hexadecimal.
std::string describe_key(std::string_view key);

/// The start of the pages of a namespace whose digest has at least this upper half: `pages_from(id, 0)` precedes all of
/// them. For partial scans.
std::string pages_from(const namespace_id& ns, std::uint64_t digest_hi);

/// The first byte of all keys of the table.
std::string first_of(table which);
/// The end of all keys with this prefix, which must contain a byte other than 0xff.
std::string end_of_prefix(std::string_view prefix);

} // namespace troupe::store
