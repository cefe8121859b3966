#pragma once

#include "actors/cluster/pages/fetching.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/transfer_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace troupe::cluster {

/// Inbound transfers of one rank: pages that a sender delivers on request, once the node that saves them has frames for
/// them. They connect the actor that knows the sender with the one that knows the target.
///
/// Guarantees: every request is answered exactly once, even if the sender is destroyed; and the end of a number is
/// reported once, when no request under it is in progress any more.
///
/// Safe for calls of several threads at once. Requests in progress keep the object alive, so it is made with
/// `std::make_shared`.
class inbound_transfers : public std::enable_shared_from_this<inbound_transfers> {
public:
  /// Is called once with an answer, in any thread.
  using receiver = std::function<void(const result<transfer_result>&)>;
  /// Transfers the pages of the task into its blocks, and answers as a load does. A request that is destroyed
  /// unanswered answers `unreachable`.
  using sender = std::function<void(transfer_task, receiver)>;
  using ended = std::function<void(const sending_counts&)>;

  /// Allows requests under this number, which has to be unused, until `until`.
  void expect(std::uint64_t number, sender from, timestamp until);

  /// Requests pages. False where the number has ended or is unknown: then `then` is not called.
  bool ask(std::uint64_t number, packed<key_digest> keys, packed<std::uint32_t> blocks, timestamp now, receiver then);

  /// Ends the number: no more pages can be requested under it. `then` receives the counts of those that were, as soon
  /// as all have been answered; in this call, or in the thread of the last answer, after its receiver.
  void end(std::uint64_t number, ended then);

  std::size_t size() const;

private:
  struct inbound_transfer {
    sender from;
    timestamp until;
    sending_counts counts;
    std::size_t under_way = 0;
    /// Set when the number has ended.
    ended then{};
  };
  class question;

  void answered(std::uint64_t number, const result<transfer_result>& outcome, std::size_t pages);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, inbound_transfer> expected_;
};

} // namespace troupe::cluster
