#pragma once

#include "lmcache/client_list.hpp"
#include "lmcache/problem.hpp"
#include "lmcache/protocol/operation.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace troupe::lmcache {

/// Why a connection is refused.
enum class refused_connection : std::uint8_t {
  /// It belongs to another user.
  user,
  /// The kernel does not report its user.
  unknown,
  /// The limit of connections is reached.
  limit,
  /// It sends a message without an end.
  flood,
};

inline constexpr std::array<std::string_view, 4> refused_connection_names{"user", "unknown", "limit", "flood"};

/// Counters of LMCache's clients, their requests and the results: for metrics. May be read by any thread at any time.
struct counters {
  using number = std::atomic<std::uint64_t>;

  /// By operation.
  std::array<number, protocol::operation_count> requests{};
  /// Requests that were rejected in the way of their operation.
  number refused{0};
  /// Rejected requests that could not be parsed, by `problem`; those of `problem::envelope` get no answer.
  std::array<number, problem_count> malformed{};
  /// By `refused_connection`.
  std::array<number, refused_connection_names.size()> connections_refused{};
  number stored_pages{0};
  number retrieved_pages{0};
  /// Chunks requested by lookups.
  number asked_chunks{0};
  number found_chunks{0};
  /// Current numbers: connections, registered workers, sessions of engines, and their locks.
  number clients{0};
  number instances{0};
  number sessions{0};
  number locks{0};
  /// Sessions whose locks expired.
  number expired_sessions{0};

  /// The connected clients.
  client_list list;
};

} // namespace troupe::lmcache
