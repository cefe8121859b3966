#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "messages/packed.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Messages to a registry shard about namespaces and ranks as a whole: creation and removal at run time, descriptions,
/// statistics, and what survives a restart.

namespace troupe {

/// How a namespace was made, which decides what a restart does with it: see
/// docs/decisions/0005-what-the-store-keeps.md.
enum class namespace_origin : std::uint8_t {
  /// A client of the native API. Its engines have slab files of their own.
  api,
  /// The config, with slab files of the node.
  config,
  /// An engine that only gave a name, over one of the protocols of the `hf3fs` section. It has slab files of its own,
  /// and that section decides which namespace they belong to.
  protocol,
  /// A client that attached to it, with slab files of the node that grow.
  client,
};

/// How a shard keeps a namespace; not part of its identity.
struct namespace_options {
  /// Ranks are registered at run time, and a key is complete when every rank that is registered now has its page. The
  /// spec's world_size is 0 then. Otherwise ranks are 0 to world_size - 1.
  bool automatic = false;
  /// Whether the key of each slot is stored, for `reclaim_request`: 4 bytes a slot.
  bool slot_index = false;
  /// With `automatic`: the limit of rank numbers.
  std::uint32_t max_ranks = 64;
  /// A repeated request need not agree in this.
  namespace_origin origin = namespace_origin::api;

  friend bool operator==(const namespace_options&, const namespace_options&) = default;
};

/// Adds a namespace. A repetition with the same values is no error. identity_mismatch, naming each difference, if the
/// name or the identity exists with other values; busy while it is being removed.
struct add_namespace_request {
  namespace_spec spec;
  namespace_options options;
};

/// Removes a namespace with its keys, a bounded number per call: repeat it while there is `more`. From the first call
/// on the namespace is unknown to all other requests. Without `force`: busy while leases or reservations are open; with
/// it, these end.
struct remove_namespace_request {
  namespace_id ns;
  bool force = false;
};

struct remove_namespace_reply {
  bool more = false;
};

/// One rank of a namespace. Fields have 64 bits to avoid padding.
struct rank_info {
  std::uint64_t rank = 0;
  /// 0 if unknown.
  std::uint64_t slots = 0;
  /// Live pages.
  std::uint64_t pages = 0;
  /// Pages reserved by writers.
  std::uint64_t reserved = 0;
  /// Slots without a page that leases, protection or a time limit still hold.
  std::uint64_t withheld = 0;

  friend bool operator==(const rank_info&, const rank_info&) = default;
};

/// Lookups, with or without a lease: the requests, the keys in them, and the keys found.
struct lookup_counts {
  std::uint64_t requests = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;
  /// The found keys by where their pages were: in memory on all ranks, to be read from disk on some rank, or fetched
  /// from another node for this lookup. The keys of lookups that do not ask for it are in none of them.
  std::uint64_t memory_keys = 0;
  std::uint64_t disk_keys = 0;
  std::uint64_t peer_keys = 0;

  /// Adds the keys. Shards share requests, which therefore are not added.
  void add_keys(const lookup_counts& x) noexcept {
    asked_keys += x.asked_keys;
    found_keys += x.found_keys;
    memory_keys += x.memory_keys;
    disk_keys += x.disk_keys;
    peer_keys += x.peer_keys;
  }

  friend bool operator==(const lookup_counts&, const lookup_counts&) = default;
};

/// One namespace in one shard. Bytes are pages times the page size, which only slot clients know.
struct namespace_info {
  namespace_spec spec;
  namespace_options options;
  /// With at least one live page; with one of every rank.
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t evicted_keys = 0;
  /// Requests, then pages.
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  packed<rank_info> ranks;
  lookup_counts lookups{};
};

/// One namespace, or all for the null id.
struct describe_request {
  namespace_id ns;
};

struct describe_reply {
  std::vector<namespace_info> namespaces;
};

/// Returns a shard's statistics of when keys of a namespace are used again. `unsupported` where its policy does not
/// learn.
struct reuse_request {
  namespace_id ns;
};

struct reuse_reply {
  /// The number of keys ever added, in which ages are counted.
  std::uint64_t clock = 0;
  /// As `reuse_counts::numbers`.
  packed<std::uint32_t> counts;
};

/// The statistics of other shards, in ages of this shard's clock. Replaces earlier ones. No effect where its policy
/// does not learn.
struct learn_request {
  namespace_id ns;
  packed<std::uint32_t> counts;
};

/// Returns the state of one key, without any effect. not_found if there is no such key.
struct key_request {
  namespace_id ns;
  key_digest key;
};

/// The state of a key's page on one rank.
struct key_page {
  enum class use : std::uint32_t {
    live = 1,
    /// Reserved by a writer with a ticket; generation 0 while there is no slot.
    reserved = 2,
    /// Reserved by a slot client; then, reserved by more than one.
    allocated = 3,
    shared = 4,
  };

  rank_number rank = 0;
  use state = use::live;
  slot_ref where;

  friend bool operator==(const key_page&, const key_page&) = default;
};

struct key_reply {
  key_digest parent;
  std::int32_t children = 0;
  std::uint32_t leases = 0;
  bool complete = false;
  /// 0 if it is not.
  duration protected_for{};
  packed<key_page> pages;
};

/// A live page as it was stored.
struct stored_page {
  namespace_id ns;
  key_digest key;
  /// Null if there is none, or it was unknown when the page was published.
  key_digest parent;
  slot_ref where;
  rank_number rank = 0;
  std::uint32_t unused = 0;

  friend bool operator==(const stored_page&, const stored_page&) = default;
};

/// Pages in one `restore_request`, slots in one `drop_restored_request`: enough that the overhead of a message is
/// negligible, and so few (under 1 MiB) that all shards together hold only a few MiB of what was read.
inline constexpr std::size_t restored_pages_max = 8192;

/// Before service begins: pages that an earlier run stored. Namespaces and ranks come first. One code per page in
/// `result_codes`:
///   ok                 it is live; also when it was restored before
///   stale              another key claims the slot as well: it is unknown which is right, so neither has it
///   exists             the rank has another page of this key
///   out_of_range       no such rank, or no such slot
///   unknown_namespace  no such namespace
///   invalid_argument   null key, generation 0, or another shard's key
struct restore_request {
  packed<stored_page> pages;
};

/// Still before service begins: restored pages whose slots are also claimed by pages of another shard, as the rank's
/// allocator found. One code per slot in `result_codes`: ok or not_found.
struct drop_restored_request {
  namespace_id ns;
  rank_number rank = 0;
  packed<slot_ref> slots;
};

/// The result of all restoring.
struct restore_report {
  std::uint64_t pages = 0;
  std::uint64_t keys = 0;
  /// Pages that were dropped because another one claims the slot, and all others that were refused.
  std::uint64_t displaced = 0;
  std::uint64_t refused = 0;
};

/// The counts of one shard.
struct registry_stats {
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t invalidated_pages = 0;
  std::uint64_t expired_leases = 0;
  std::uint64_t expired_reservations = 0;
  std::uint64_t refused = 0;
  std::uint64_t resident_bytes = 0;
  /// Live pages that slot clients gave back; pages erased or cleared.
  std::uint64_t reclaimed_pages = 0;
  std::uint64_t erased_pages = 0;
  /// Slots without a page that leases, protection or a time limit still hold.
  std::uint64_t withheld_slots = 0;
  /// Pages that did not verify, by tier.
  std::uint64_t invalidated_in_memory = 0;
  std::uint64_t invalidated_on_disk = 0;
  /// Keys that are evicted first, because another node has them as well.
  std::uint64_t evict_first_keys = 0;
};

} // namespace troupe
