#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/event_messages.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace troupe {

/// The identity and limits of an attached client.
struct client_scope {
  owner_id owner = 0;
  /// The namespace it attached to.
  namespace_id ns;
  std::uint32_t batch_keys = 0;
  std::uint32_t batch_pages = 0;
  /// Concurrent requests over all of the client's handles.
  std::uint32_t requests = 0;
  /// Another node of the cluster: it looks up and fetches, and saves nothing.
  bool reads_only = false;
};

/// The rights of one attached client: requests in its own name, in its own namespace and within its limits, and writes
/// only to slots that were reserved for it. The actors of the node trust their callers, so these rules are checked
/// first. Thread-safe; shared by all actors that serve the client.
class client_rights {
public:
  explicit client_rights(const client_scope& scope) : scope_(scope) {}

  const client_scope& scope() const noexcept { return scope_; }

  /// Each returns `not_owner`, `unknown_namespace` or `limit_exceeded` where the request is not allowed.
  result<void> may(const match_request& x) const;
  result<void> may(const locate_request& x) const;
  result<void> may(const release_request& x) const;
  result<void> may(const renew_request& x) const;
  result<void> may(const reserve_request& x) const;
  result<void> may(const finish_request& x) const;
  result<void> may(const invalidate_request& x) const;
  result<void> may(const prefix_fetch_request& x) const;
  result<void> may(const search_peers_request& x) const;
  result<void> may(const fetch_pages_request& x) const;
  result<void> may(const reuse_request& x) const;
  result<void> may(const describe_pages_request& x) const;

  /// Allows the client to write to the slots of this answer.
  void reserved(rank_number rank, const reserve_reply& reply);

  /// Withdraws that permission, whatever the outcome of the commit or abort.
  void finished(const finish_request& x);

  /// Checks that the request has no more pages than one batch may have.
  result<void> may_fetch(const frame_request& x) const;

  /// As `may_fetch`; and all pages must be reserved for this client.
  result<void> may_place(rank_number rank, const frame_request& x) const;

  /// Counts a request; each one that begins must be ended. `of_memory`: the request is about frames, which the client
  /// may access from then on. `limit_exceeded` where too many are in progress, `unreachable` after the end of the
  /// attachment.
  result<void> begin_request(bool of_memory = false);
  void end_request() noexcept { under_way_.fetch_sub(1, std::memory_order_relaxed); }

  /// Ends the attachment: no further request begins. Returns whether a request for memory ever began. A client that
  /// never asked for a frame uses no memory of the node, whatever else it asked for.
  bool end() noexcept;

private:
  result<void> check(owner_id owner, const namespace_id& ns, std::size_t keys) const;
  result<void> check_writer() const;

  client_scope scope_;
  std::atomic<std::uint32_t> under_way_{0};
  /// A request for memory sets `had_memory_` and then reads `ended_`; `end` does so in the opposite order. So either
  /// the request is rejected or `end` sees it.
  std::atomic<bool> had_memory_{false};
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  /// Keyed by rank and slot. At most one entry per slot, so the slabs bound its size.
  std::unordered_map<std::uint64_t, generation_number> reserved_;
};

} // namespace troupe
