#pragma once

#include "actors/cluster/fetching.hpp"
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

/// Pages of one rank that somebody else sends when they are asked for: whoever saves them has frames for them first.
/// Between the actor that knows who has the pages, and the one that knows where they go.
///
/// What always holds: whoever asked has exactly one answer, be what was to send dropped; and the end of a number is
/// told once, when nothing that was asked for under it is under way any more.
///
/// The calls of several threads at once are safe. Whatever is under way keeps it: it is made as a shared one.
class arrivals : public std::enable_shared_from_this<arrivals> {
public:
  /// Gets an answer once, in any thread.
  using receiver = std::function<void(const result<transfer_result>&)>;
  /// Has the pages of the task come into its blocks, and answers as a load does. What is dropped without an answer
  /// answers `unreachable`.
  using sender = std::function<void(transfer_task, receiver)>;
  using ended = std::function<void(const sending_counts&)>;

  /// Pages may be asked for under this number, which is nobody else's, until `until`.
  void expect(std::uint64_t number, sender from, timestamp until);

  /// Asks for pages. False where the number has ended, or never was: then `then` is not called.
  bool ask(std::uint64_t number, packed<key_digest> keys, packed<std::uint32_t> blocks, timestamp now, receiver then);

  /// No more pages are asked for under this number. `then` is told what came of those that were, as soon as all have
  /// been answered; in this call, or in the thread of the last answer, behind its receiver.
  void end(std::uint64_t number, ended then);

  std::size_t size() const;

private:
  struct arrival {
    sender from;
    timestamp until;
    sending_counts counts;
    std::size_t under_way = 0;
    /// Set when it has ended.
    ended then{};
  };
  class question;

  void answered(std::uint64_t number, const result<transfer_result>& outcome, std::size_t pages);

  mutable std::mutex mutex_;
  std::map<std::uint64_t, arrival> expected_;
};

} // namespace troupe::cluster
