#pragma once

#include "base/clock.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::lmcache {

/// A connection of a client. Numbers are used once.
using client_number = std::uint64_t;

/// The rules of sessions: the locks of a lookup, until they are not needed any more. Chunks are known by their
/// position.
///
/// A session is one request of one client: a lookup begins it, and the caller reports the chunks that it has found and
/// holds under a lease. Each chunk is locked as often as it will be read: for each worker, as often as it has readers.
/// A retrieve of a worker takes one lock of each of its chunks, free_lookup_locks takes all that are left. When no lock
/// is left, or the request ends, its client disconnects, or the time has expired, the lease ends, once: see
/// `take_ended`. The lease covers all chunks, and ends with the last lock.
///
/// Workers are other clients than the one of the lookup, and name only the request: a retrieve is counted for the
/// oldest session of that name that has a lock of every chunk of it. Two engines may have requests of one name; then
/// the choice makes no difference, since both hold the same chunks, or one of them holds none.
class session_table {
public:
  /// Names a lease; chosen by the caller.
  using lease_number = std::uint64_t;

  struct options {
    /// Limit of sessions.
    std::size_t sessions_max = 65536;
    /// How long locks are held, and how long an answer is kept until it is requested: a request may wait long for its
    /// turn, and one that its client has forgotten holds pages on the disk until then.
    duration hold = std::chrono::minutes(30);
  };

  /// The result of a lookup: the number of leading chunks, held by a lease, and the readers of each worker's page.
  struct finding {
    std::uint32_t chunks = 0;
    std::uint32_t workers = 0;
    std::uint32_t readers = 0;
    lease_number lease = 0;
  };

  explicit session_table(const options& how) : options_(how) {}

  /// Begins a lookup and returns its number. An existing session of that name and client ends. None if there are too
  /// many. `computed`: the whole chunks that the engine has in its own cache, if it said so.
  std::optional<std::uint64_t> begin(client_number client, const std::string& request, timestamp now,
                                     std::optional<std::uint32_t> computed = std::nullopt);

  /// Reports the number of leading chunks that it has found, under a lease. 0 chunks: nothing is held, and `lease` is
  /// ignored. False if the session has ended meanwhile: the result is not needed.
  bool found(client_number client, const std::string& request, std::uint64_t lookup, const finding& what,
             timestamp now);

  struct status {
    /// Otherwise `chunks` is valid.
    bool pending = false;
    std::uint32_t chunks = 0;
  };
  /// The result of a lookup: the number of chunks of the prefix, those before the first requested one included.
  /// Returned once; 0 for a lookup that does not exist.
  status take_status(client_number client, const std::string& request);

  /// Whether a lookup has no result yet.
  bool pending(client_number client, const std::string& request) const;

  /// A worker has read chunks, from `begin` to before `end`.
  void retrieved(const std::string& request, std::uint32_t worker, std::uint32_t begin, std::uint32_t end);

  /// These chunks will not be read.
  void freed(client_number client, const std::string& request, std::uint32_t begin, std::uint32_t end);

  /// The first chunk from which on the engine computes the request itself, and so has all blocks of each chunk when it
  /// stores it, those of windows included. Of chunks before, an engine may have lost blocks of a window, or never had
  /// them, and then stores whatever another block holds: LMCache's workers say so only if they have none of a chunk's
  /// blocks. `begin`: where a store begins.
  ///
  /// None if this is not known: there was no lookup, or it did not say what the engine has; or a store has begun before
  /// the end of what the lookup found. The engine then computes again what it had from elsewhere, since its load has
  /// failed, and nothing says what it had itself when it began.
  std::optional<std::uint32_t> computed_from(const std::string& request, std::uint32_t begin);

  /// The request has ended.
  void ended(client_number client, const std::string& request);

  void client_disconnected(client_number client);

  void tick(timestamp now);

  /// Lookups without a result whose result is not needed any more, each once.
  std::vector<std::uint64_t> take_cancelled() { return std::exchange(cancelled_, {}); }

  /// Leases that are not needed any more, each once.
  std::vector<lease_number> take_ended() { return std::exchange(ended_, {}); }

  std::size_t sessions() const noexcept { return sessions_.size(); }
  /// The number of locks of all sessions.
  std::uint64_t locks() const noexcept { return locks_; }
  /// Sessions that expired while they held locks.
  std::uint64_t expired() const noexcept { return expired_; }

private:
  struct session {
    std::uint64_t order = 0;
    timestamp until;
    bool pending = true;
    bool answered = false;
    /// As in `begin`; none also if it is not true any more.
    std::optional<std::uint32_t> computed;
    std::uint32_t chunks = 0;
    std::uint32_t workers = 0;
    /// For each chunk and worker, in this order; empty when no lock is left.
    std::vector<std::uint16_t> left;
    std::uint64_t locks = 0;
    std::optional<lease_number> lease;
  };
  /// By the request first, since workers know only that.
  using session_name = std::pair<std::string, client_number>;
  using session_map = std::map<session_name, session>;

  void unlock(session& x, std::uint64_t locks);
  void end_lease(session& x);
  session_map::iterator erase(session_map::iterator at);

  options options_;
  session_map sessions_;
  std::vector<lease_number> ended_;
  std::vector<std::uint64_t> cancelled_;
  std::uint64_t locks_ = 0;
  std::uint64_t expired_ = 0;
  std::uint64_t last_order_ = 0;
};

} // namespace troupe::lmcache
