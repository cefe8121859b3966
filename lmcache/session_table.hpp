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

/// A connection of a client. Numbers are given once.
using client_number = std::uint64_t;

/// What a lookup has locked, until nobody needs it any more: rules of sessions, which know chunks by their position.
///
/// A session is one request of one client: a lookup begins it, which the caller answers with the chunks that it has
/// found and holds under a lease. Each chunk is locked as often as it will be read: by each worker, as often as its
/// readers are. A retrieve of a worker takes one lock of each of its chunks, free_lookup_locks takes all that are left.
/// When no lock is left, or the request ends, its client is gone, or the time is over, the lease ends, once: see
/// `take_ended`. The lease covers all chunks, and ends with the last lock.
///
/// Workers are other clients than the one that looked up, and name the request only: a retrieve is counted for the
/// oldest session of that name that has a lock of every chunk of it. Two engines may have requests of one name; then
/// which of them a retrieve belongs to makes no difference, since both hold the same chunks, or one of them holds none.
class session_table {
public:
  /// Names a lease; the caller's.
  using lease_number = std::uint64_t;

  struct options {
    /// Sessions there may be at once.
    std::size_t sessions_max = 65536;
    /// How long locks are held, and how long an answer waits to be asked for: a request may wait for its turn for long,
    /// and one that is forgotten by its client holds pages on the disk until then.
    duration hold = std::chrono::minutes(30);
  };

  /// What a lookup has found: so many leading chunks, held by a lease, of which each worker's page has so many readers.
  struct finding {
    std::uint32_t chunks = 0;
    std::uint32_t workers = 0;
    std::uint32_t readers = 0;
    lease_number lease = 0;
    /// The first chunk that was asked for: what is told counts from it.
    std::uint32_t begin = 0;
  };

  explicit session_table(const options& how) : options_(how) {}

  /// A lookup has begun; its number. A session of that name that the client has ends. Nothing where there are too many.
  std::optional<std::uint64_t> begin(client_number client, const std::string& request, timestamp now);

  /// And has found so many leading chunks, under a lease. 0 chunks: nothing is held, and `lease` means nothing.
  /// False where the session has ended meanwhile: nobody needs what was found.
  bool found(client_number client, const std::string& request, std::uint64_t lookup, const finding& what,
             timestamp now);

  struct status {
    /// Else `chunks`.
    bool pending = false;
    std::uint32_t chunks = 0;
  };
  /// What there is to say of a lookup: how many chunks follow each other from the first that was asked for. Said once,
  /// and of one that there is not: 0.
  status take_status(client_number client, const std::string& request);

  /// Whether a lookup has not been answered.
  bool pending(client_number client, const std::string& request) const;

  /// A worker has read chunks, from `begin` to before `end`.
  void retrieved(const std::string& request, std::uint32_t worker, std::uint32_t begin, std::uint32_t end);

  /// Nobody will read these.
  void freed(client_number client, const std::string& request, std::uint32_t begin, std::uint32_t end);

  /// The request has ended.
  void ended(client_number client, const std::string& request);

  void client_gone(client_number client);

  void tick(timestamp now);

  /// Lookups that have begun, were not answered, and never need to be, each once.
  std::vector<std::uint64_t> take_given_up() { return std::exchange(given_up_, {}); }

  /// Leases that nobody needs any more, each once.
  std::vector<lease_number> take_ended() { return std::exchange(ended_, {}); }

  std::size_t sessions() const noexcept { return sessions_.size(); }
  /// Locks that are held, of all sessions.
  std::uint64_t locks() const noexcept { return locks_; }
  /// Sessions whose time ran out while they held locks.
  std::uint64_t expired() const noexcept { return expired_; }

private:
  struct session {
    std::uint64_t order = 0;
    timestamp until;
    bool pending = true;
    bool answered = false;
    std::uint32_t begin = 0;
    std::uint32_t chunks = 0;
    std::uint32_t workers = 0;
    /// Of each chunk and worker, in this order; empty when no lock is left.
    std::vector<std::uint16_t> left;
    std::uint64_t locks = 0;
    std::optional<lease_number> lease;
  };
  /// By the request first, since workers know nothing else.
  using session_name = std::pair<std::string, client_number>;
  using session_map = std::map<session_name, session>;

  void unlock(session& x, std::uint64_t locks);
  void end_lease(session& x);
  session_map::iterator erase(session_map::iterator at);

  options options_;
  session_map sessions_;
  std::vector<lease_number> ended_;
  std::vector<std::uint64_t> given_up_;
  std::uint64_t locks_ = 0;
  std::uint64_t expired_ = 0;
  std::uint64_t last_order_ = 0;
};

} // namespace troupe::lmcache
