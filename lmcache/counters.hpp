#pragma once

#include "lmcache/client_list.hpp"
#include "lmcache/problem.hpp"
#include "lmcache/wire/operation.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace troupe::lmcache {

/// Why a connection is not served.
enum class refused_connection : std::uint8_t {
  /// It is another user's.
  user,
  /// The kernel does not say whose it is.
  unknown,
  /// There are as many as may be.
  limit,
  /// It sends, and its messages have no end.
  flood,
};

inline constexpr std::array<std::string_view, 4> refused_connection_names{"user", "unknown", "limit", "flood"};

/// What was asked for by clients of LMCache, and what became of it: for metrics. Whoever likes may read, at any time.
struct counters {
  using number = std::atomic<std::uint64_t>;

  /// By operation.
  std::array<number, wire::operation_count> requests{};
  /// Answered with the operation's way of saying no.
  number refused{0};
  /// Those of these that could not be read, by `problem`; those of `problem::envelope` have no answer.
  std::array<number, problem_count> malformed{};
  /// By `refused_connection`.
  std::array<number, refused_connection_names.size()> connections_refused{};
  number stored_pages{0};
  number retrieved_pages{0};
  /// By lookups.
  number asked_chunks{0};
  number found_chunks{0};
  /// At present: connections, workers that have registered, requests of engines, and locks of theirs.
  number clients{0};
  number instances{0};
  number sessions{0};
  number locks{0};
  /// Requests whose locks ran out.
  number expired_sessions{0};

  /// Clients that are connected, one by one.
  client_list list;
};

} // namespace troupe::lmcache
