#pragma once

#include "actors/node/namespaces/namespace_names.hpp"
#include "base/error.hpp"
#include "messages/messages.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// A registry client for threads that are no actors, such as those of the HTTP server. Each call is split over the
/// shards, one message per shard, and the answers are joined in the order of the request.
///
/// Thread-safe and non-blocking. `then` is called exactly once, in the thread of the actor that answers last, or in the
/// caller's where no actor has to be asked. It must be short and must not throw. An error means that at least one shard
/// did not do its part; what the others did stays done.
///
/// Requests in progress need the actor system and the shards, not this object.
class metadata_service {
public:
  template <class T>
  using callback = std::function<void(result<T>)>;

  using codes = std::vector<std::uint8_t>;
  using locations = std::vector<location>;

  /// `own` lists the namespaces whose slabs the node itself writes. Callers may query, erase and clear in these, but
  /// get `not_owner` for writers' requests.
  metadata_service(caf::actor_system& system, std::vector<registry_actor> shards, namespaces_actor namespaces,
                   std::shared_ptr<const namespace_names> names, std::vector<namespace_id> own = {});

  std::uint32_t shard_count() const noexcept { return static_cast<std::uint32_t>(shards_->size()); }

  // Each call is described at its message in messages/registry_messages.hpp. There is one answer per item.

  void exists(const namespace_id& ns, rank_number rank, std::vector<key_digest> keys, callback<codes> then) const;
  /// `readers_share`: as in the message, for a caller that may only read.
  void protect(const namespace_id& ns, rank_number rank, bool complete_only, duration protect_for,
               std::uint32_t readers_share, std::vector<key_digest> keys, callback<locations> then) const;
  /// `parents` is empty or parallel to `keys`.
  void allocate(const namespace_id& ns, rank_number rank, duration expires_in, std::vector<key_digest> keys,
                std::vector<key_digest> parents, callback<locations> then) const;
  void confirm(const namespace_id& ns, rank_number rank, std::vector<page_ref> pages, callback<codes> then) const;
  void reclaim(const namespace_id& ns, rank_number rank, std::vector<slot_number> slots, callback<codes> then) const;
  void erase(const namespace_id& ns, rank_number rank, std::vector<key_digest> keys, callback<codes> then) const;

  /// Erases everything in several calls; answers the number of live pages.
  void clear(const namespace_id& ns, rank_number rank, callback<std::uint64_t> then) const;

  // Calls with tickets and leases.

  void locate(const namespace_id& ns, rank_number rank, const ticket& lease, duration lease_for,
              const lease_bounds& bounds, std::vector<key_digest> keys, callback<locations> then) const;
  /// Releases a lease on all shards. `not_found` where no shard knows it or knew it recently.
  void release(const namespace_id& ns, const ticket& lease, callback<void> then) const;
  void renew(const namespace_id& ns, const ticket& lease, duration lease_for, callback<void> then) const;
  void reserve(const namespace_id& ns, rank_number rank, const ticket& reservation, duration expires_in,
               std::vector<key_digest> keys, std::vector<key_digest> parents, callback<locations> then) const;
  /// Pages that were written under another ticket get `not_owner`.
  void commit(const namespace_id& ns, rank_number rank, const ticket& reservation, std::vector<page_ref> pages,
              callback<codes> then) const;
  /// Without pages, everything under the ticket is aborted; `not_found` where no shard knows it or knew it recently.
  void abort(const namespace_id& ns, rank_number rank, const ticket& reservation, std::vector<page_ref> pages,
             callback<codes> then) const;

  /// Finds the longest prefix that is complete on all shards, and leases it. What was leased beyond it, or before a
  /// shard refused, is released. What the lease held before stays.
  void match(const namespace_id& ns, const ticket& lease, duration lease_for, const lease_bounds& bounds,
             std::vector<key_digest> keys, callback<std::uint32_t> then) const;

  // Calls that change namespaces and ranks at run time.

  void add_namespace(const namespace_spec& spec, const namespace_options& options, callback<void> then) const;
  /// Answers when all shards have removed it, with its keys.
  void remove_namespace(const namespace_id& ns, bool force, callback<void> then) const;
  void register_rank(const namespace_id& ns, rank_number rank, std::uint32_t slots, callback<void> then) const;

  /// The names of namespaces; sends no message.
  const namespace_names& names() const noexcept { return *names_; }

  // Calls for administration.

  /// Describes one namespace, or all for the null id; numbers are summed over the shards.
  void describe(const namespace_id& ns, callback<std::vector<namespace_info>> then) const;
  void look_up(const namespace_id& ns, const key_digest& key, callback<key_reply> then) const;
  void stats(callback<registry_stats> then) const;

private:
  /// Rejects writers in a namespace of the node's own slabs; true if `then` was called.
  template <class T>
  bool refuse_writer(const namespace_id& ns, const callback<T>& then) const;

  caf::actor_system& system_;
  /// Shared with requests in progress, which may outlive this object.
  std::shared_ptr<const std::vector<registry_actor>> shards_;
  namespaces_actor namespaces_;
  std::shared_ptr<const namespace_names> names_;
  std::vector<namespace_id> own_;
};

} // namespace troupe
