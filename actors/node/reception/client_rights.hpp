#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_messages.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace troupe {

/// What an attached client is held to.
struct client_scope {
  owner_id owner = 0;
  /// The namespace it attached to.
  namespace_id space;
  std::uint32_t batch_keys = 0;
  std::uint32_t batch_pages = 0;
  /// Requests under way at once, over all of the client's handles.
  std::uint32_t requests = 0;
  /// Another node: it looks up and fetches, and saves nothing.
  bool reads_only = false;
};

/// What one attached client may ask of a node: in its own name, in its own namespace, within its limits, and writes to
/// no slot but those that were reserved for it. Where the node's actors believe what they are told, these rules stand
/// before them. Thread-safe: shared by all actors that serve the client.
class client_rights {
public:
  explicit client_rights(const client_scope& scope) : scope_(scope) {}

  const client_scope& scope() const noexcept { return scope_; }

  /// `not_owner`, `unknown_namespace` or `limit_exceeded` where the client may not.
  result<void> may(const match_request& x) const;
  result<void> may(const locate_request& x) const;
  result<void> may(const release_request& x) const;
  result<void> may(const renew_request& x) const;
  result<void> may(const reserve_request& x) const;
  result<void> may(const finish_request& x) const;
  result<void> may(const invalidate_request& x) const;
  result<void> may(const bring_request& x) const;
  result<void> may(const reuse_request& x) const;

  /// From here on the client may write to the slots of this answer.
  void reserved(rank_number rank, const reserve_reply& reply);

  /// From here on it may not, whatever comes of the commit or abort.
  void finished(const finish_request& x);

  /// Not more pages than one batch has.
  result<void> may_fetch(const frame_request& x) const;

  /// Also, pages that are reserved for it only.
  result<void> may_place(rank_number rank, const frame_request& x) const;

  /// Each request that is begun is to be ended. `of_memory`: it is about frames, which the client may touch from then
  /// on. `limit_exceeded` where too many are under way, `unreachable` where the attachment is over.
  result<void> begin_request(bool of_memory = false);
  void end_request() noexcept { under_way_.fetch_sub(1, std::memory_order_relaxed); }

  /// The attachment is over: no request begins any more. Whether one of memory ever did: a client that has never asked
  /// for a frame has no memory of the node's in use, whatever else it asked.
  bool end() noexcept;

private:
  result<void> check(owner_id owner, const namespace_id& space, std::size_t keys) const;
  result<void> check_writer() const;

  client_scope scope_;
  std::atomic<std::uint32_t> under_way_{0};
  /// Whoever begins a request of memory sets the one and looks at the other, and who ends it all does so the other way
  /// round. So either that request is refused or the end knows of it.
  std::atomic<bool> had_memory_{false};
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  /// By rank and slot. One entry per slot at most, so it is bounded by the slabs.
  std::unordered_map<std::uint64_t, generation_number> reserved_;
};

} // namespace troupe
