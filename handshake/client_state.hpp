#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "handshake/watch_state.hpp"
#include "messages/handshake_messages.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::handshake {

struct client_options {
  /// Limit of fetches in progress that do not wait at the directory. The first one for a peer is of this kind, so
  /// unreachable peers, however many, do not delay the others.
  std::uint32_t parallel_max = 16;
  /// Limit of fetches that wait there, for peers that are not published yet. Beyond it, the client polls.
  std::uint32_t polls_max = 1024;
  std::uint32_t waiting_max = 4096;
  /// The default deadline of a request.
  duration deadline = std::chrono::seconds(30);
  /// How long one fetch may wait at the directory.
  duration poll = std::chrono::seconds(10);
  /// Additional time for the answer of a fetch.
  duration grace = std::chrono::seconds(5);
  /// Pause after a temporary failure; doubles with each.
  duration backoff_min = std::chrono::milliseconds(100);
  duration backoff_max = std::chrono::seconds(5);
  /// How long a result is cached, unless another incarnation is reported.
  duration cache_for = std::chrono::hours(1);
  std::uint32_t cached_max = 4096;
  /// Interval at which the watch, which reports restarted engines, is renewed. Its other times are those above.
  duration watch_renew = std::chrono::seconds(15);
  /// The compatibility hash of this client.
  std::string compat;
};

/// The ranks of an engine that a request needs: all of them by default.
struct wanted_ranks {
  /// As in `handshake_fetch_request`; unused members are 0.
  handshake_scope scope = handshake_scope::all;
  handshake_rank rank;
  std::uint32_t own_tp_size = 0;

  static wanted_ranks one(const handshake_rank& x) { return {handshake_scope::rank, x, 0}; }
  static wanted_ranks row(std::uint32_t dp) { return {handshake_scope::row, {dp, 0, 0}, 0}; }
  /// The ranks of one dp rank that rank `own_tp` of `own_tp_size` exchanges data with, in all pipeline stages, for any
  /// size of the other engine.
  static wanted_ranks peers_of(std::uint32_t own_tp, std::uint32_t own_tp_size, std::uint32_t dp = 0) {
    return {handshake_scope::peers, {dp, 0, own_tp}, own_tp_size};
  }

  friend constexpr auto operator<=>(const wanted_ranks&, const wanted_ranks&) = default;
};

struct resolve_request {
  std::string engine;
  /// The required incarnation of the engine, if it is known: another one is no answer. 0: the live one.
  incarnation_number incarnation = 0;
  /// 0: the client's default.
  duration deadline{};
  wanted_ranks ranks{};
};

/// A result, shared by all requests for it.
using resolution = std::shared_ptr<const handshake_fetch_reply>;

/// The rules of a client of the directory: pending requests, fetches, and the cache. Plain C++, not thread-safe, time
/// is an argument.
///
/// The same ranks of an engine have at most one fetch in progress, however many requests wait for them, and each
/// request is answered once: with the result, or with an error by its deadline. The result for a whole engine serves
/// requests for a part of it. Results for an engine end with its incarnation: a request for a later one, or a report of
/// a later one (`note`), never receives the earlier results.
class client_state {
public:
  using number = std::uint64_t;

  struct fetch_order {
    number fetch = 0;
    handshake_fetch_request what;
    /// When to count it as failed.
    timestamp deadline{};
  };

  explicit client_state(client_options options)
      : options_(std::move(options)),
        watch_({options_.watch_renew, options_.grace, options_.backoff_min, options_.backoff_max}) {}

  /// The answer, if it is available at once; otherwise it comes with `take_answers`.
  std::optional<result<resolution>> resolve(const resolve_request& x, number who, timestamp now);
  /// Cancels the request: answered with `cancelled`, if it was not answered before.
  void cancel(number who, timestamp now);
  /// The answer to an order. It is ignored after its deadline.
  void answered(number fetch, result<handshake_fetch_reply> answer, timestamp now);
  /// Reports that the engine has started again, or that it was removed with this incarnation as its last.
  void note(const std::string& engine, incarnation_number incarnation, bool lives, timestamp now);
  void forget(const std::string& engine);

  // The connection to the directory (the rules: `watch_state`). Fetches go through the most recently opened one.

  /// The next order for the connection, returned once.
  std::optional<watch_state::order> take_watch_order() { return watch_.take_order(); }
  /// False: it came too late, and is not used. Requests that waited for a connection are fetched at once.
  bool connection_opened(number order, bool is_open, timestamp now);
  /// Fetches through this connection will not be answered, so they are repeated. False: it was not in use.
  bool connection_lost(number order, timestamp now);
  void watched(number order, const result<number>& answer, timestamp now);
  void watch_lost(number watch, timestamp now);
  /// The order that opened the connection; 0: there is none.
  number connection() const noexcept { return watch_.connection(); }
  bool is_watching() const noexcept { return watch_.is_watching(); }

  /// Answers all requests with this error.
  void stop(const error& why);

  void advance(timestamp now);
  std::optional<timestamp> next_deadline() const;

  std::vector<fetch_order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<std::pair<number, result<resolution>>> take_answers() { return std::exchange(answers_, {}); }
  /// Orders whose answers are no longer needed, so that they release their place at the directory.
  std::vector<number> take_abandoned() { return std::exchange(abandoned_, {}); }

  bool is_under_way(number fetch) const { return under_way_.contains(fetch); }
  std::size_t under_way() const noexcept { return under_way_.size(); }
  std::size_t waiting() const noexcept { return waiters_.size(); }
  /// For tests: the first inconsistency.
  std::string find_inconsistency() const;

private:
  /// The unit of fetching, waiting and caching.
  struct target {
    std::string engine;
    wanted_ranks ranks;

    friend auto operator<=>(const target&, const target&) = default;
  };

  struct waiter {
    target what;
    incarnation_number incarnation = 0;
    timestamp deadline{};
  };

  /// A target with waiting requests.
  struct flight {
    std::set<number> waiting;
    /// The fetch in progress, or 0.
    number fetch = 0;
    timestamp fetch_deadline{};
    /// The incarnation that is fetched; 0: the live one.
    incarnation_number asked_for = 0;
    /// The fetch in progress waits at the directory.
    bool is_poll = false;
    /// The directory has answered that it is not published yet.
    bool has_looked = false;
    /// The earliest time of the next attempt.
    timestamp not_before{};
    duration pause{};
    bool is_queued = false;
    error last{errc::timeout, "the directory did not answer in time"};
  };

  struct known_ranks {
    resolution what;
    timestamp until{};
  };
  using known_map = std::map<target, known_ranks>;

  void queue(const target& what, timestamp now);
  void launch(timestamp now);
  void launch_one(const target& what, flight& x, bool is_poll, timestamp now);
  void fetch_over(flight& x);
  void fail_all_under_way(const error& why, timestamp now);
  void back_off(flight& x, error why, bool has_waited, timestamp now) const;
  void answer(number who, result<resolution> what);
  /// Answers the requests of the flight that this result satisfies.
  void deliver(const target& what, const resolution& found);
  /// Answers the requests of the flight whose incarnation has ended. The others may mean the live one, or a future one.
  void deliver_expired(flight& x, incarnation_number latest, const error& why, timestamp now);
  void drop_if_idle(const target& what);
  void remember(const target& what, const resolution& found, timestamp until);
  /// The cached result, of the target itself or of the whole engine.
  std::optional<result<resolution>> look_up(const target& what);
  /// All cached results of an engine.
  std::pair<known_map::iterator, known_map::iterator> known_of(const std::string& engine);
  /// The latest incarnation with a cached result; 0: none.
  incarnation_number latest_known(const std::string& engine);
  void forget_before(const std::string& engine, incarnation_number incarnation);

  const client_options options_;
  watch_state watch_;
  std::map<target, flight> flights_;
  std::map<number, waiter> waiters_;
  /// Targets in the order of their turns, for when a fetch ends.
  std::deque<target> queue_;
  std::map<number, target> under_way_;
  /// Number of fetches that wait at the directory.
  std::size_t polls_ = 0;
  /// The entries of one engine are all of one incarnation.
  known_map known_;
  /// The latest reported incarnation: an answer that was sent before may be of an earlier one.
  struct noted_start {
    incarnation_number incarnation = 0;
    number notified = 0;
  };
  std::map<std::string, noted_start> noted_;
  /// The same in the order of the last report.
  std::map<number, std::string> noted_order_;
  number last_notified_ = 0;
  number last_fetch_ = 0;
  std::vector<fetch_order> orders_;
  std::vector<std::pair<number, result<resolution>>> answers_;
  std::vector<number> abandoned_;
};

} // namespace troupe::handshake
