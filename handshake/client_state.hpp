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
  /// Fetches under way at once that do not wait at the directory. The first one for a peer is such, so peers that are
  /// away cost the others nothing, however many they are.
  std::uint32_t parallel_max = 16;
  /// Those that wait there, for peers that are away. For more of these, the client asks now and then.
  std::uint32_t polls_max = 1024;
  std::uint32_t waiting_max = 4096;
  /// For requests that do not say.
  duration deadline = std::chrono::seconds(30);
  /// How long one fetch may wait at the directory.
  duration poll = std::chrono::seconds(10);
  /// And how much longer its answer may take.
  duration grace = std::chrono::seconds(5);
  /// Pause after a failure that may pass; doubles with each.
  duration backoff_min = std::chrono::milliseconds(100);
  duration backoff_max = std::chrono::seconds(5);
  /// How long what was found is taken for granted, as long as nobody hears of another incarnation.
  duration cache_for = std::chrono::hours(1);
  std::uint32_t cached_max = 4096;
  /// How often the watch is asked for again, which tells of engines that start again. Its other times are those above.
  duration watch_renew = std::chrono::seconds(15);
  /// The hash of who asks.
  std::string compat;
};

/// Which ranks of an engine somebody needs: all of them, unless said otherwise.
struct wanted_ranks {
  /// As in `handshake_fetch_request`; what does not count there is 0.
  handshake_scope scope = handshake_scope::all;
  handshake_rank rank;
  std::uint32_t own_tp_size = 0;

  static wanted_ranks one(const handshake_rank& x) { return {handshake_scope::rank, x, 0}; }
  static wanted_ranks row(std::uint32_t dp) { return {handshake_scope::row, {dp, 0, 0}, 0}; }
  /// Those of one dp rank that rank `own_tp` of `own_tp_size` meets, in all pipeline stages, whatever the size of the
  /// other engine.
  static wanted_ranks peers_of(std::uint32_t own_tp, std::uint32_t own_tp_size, std::uint32_t dp = 0) {
    return {handshake_scope::peers, {dp, 0, own_tp}, own_tp_size};
  }

  friend constexpr auto operator<=>(const wanted_ranks&, const wanted_ranks&) = default;
};

struct resolve_request {
  std::string engine;
  /// The start of the engine that is meant, if that is known: another one is no answer. 0: whichever lives.
  incarnation_number incarnation = 0;
  /// 0: the client's own.
  duration deadline{};
  wanted_ranks ranks{};
};

/// What was found, shared by all who asked.
using resolution = std::shared_ptr<const handshake_fetch_reply>;

/// The rules of a client of the directory: who waits for which engine, what is fetched, what is known. Plain C++, not
/// thread-safe, time is an argument.
///
/// The same ranks of an engine have at most one fetch under way, however many wait for them, and each who waits is
/// answered once: with what was found, or with an error by its deadline. What is known of a whole engine serves who
/// needs a part of it. What is known of an engine ends with its incarnation: who asks for a later one, or says that
/// there is one (`note`), is never given what was known before.
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

  /// An answer at once, or nothing: it comes with `take_answers`.
  std::optional<result<resolution>> resolve(const resolve_request& x, number who, timestamp now);
  /// Does not want it any more: answered with `cancelled`, if it was not before.
  void cancel(number who, timestamp now);
  /// The answer to an order. One that comes after its deadline is ignored.
  void answered(number fetch, result<handshake_fetch_reply> answer, timestamp now);
  /// The engine is known to have started again, or to be gone with this incarnation as its last.
  void note(const std::string& engine, incarnation_number incarnation, bool lives, timestamp now);
  void forget(const std::string& engine);

  // The way to the directory (the rules: `watch_state`). What is fetched goes through the door that was opened last.

  /// What is to be done for it, once.
  std::optional<watch_state::order> take_watch_order() { return watch_.take_order(); }
  /// False: it came too late, and is not used. Who waited for a door is fetched for at once.
  bool door_opened(number order, bool is_open, timestamp now);
  /// What was asked for through this door is not answered any more, so it is asked for again. False: nobody used it.
  bool door_lost(number order, timestamp now);
  void watched(number order, const result<number>& answer, timestamp now);
  void watch_lost(number watch, timestamp now);
  /// The order that has opened the door; 0: there is none.
  number door() const noexcept { return watch_.door(); }
  bool is_watching() const noexcept { return watch_.is_watching(); }

  /// Everybody is answered with this.
  void stop(const error& why);

  void advance(timestamp now);
  std::optional<timestamp> next_deadline() const;

  std::vector<fetch_order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<std::pair<number, result<resolution>>> take_answers() { return std::exchange(answers_, {}); }
  /// Orders whose answers are not waited for any more, so that they need not take a place at the directory.
  std::vector<number> take_abandoned() { return std::exchange(abandoned_, {}); }

  bool is_under_way(number fetch) const { return under_way_.contains(fetch); }
  std::size_t under_way() const noexcept { return under_way_.size(); }
  std::size_t waiting() const noexcept { return waiters_.size(); }
  /// For tests: the first thing that is not as it must be.
  std::string find_inconsistency() const;

private:
  /// What is fetched, waited for and known as one.
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

  /// Somebody waits for this.
  struct flight {
    std::set<number> waiting;
    /// Under way, or 0.
    number fetch = 0;
    timestamp fetch_deadline{};
    /// The start that is fetched; 0: whichever lives.
    incarnation_number asked_for = 0;
    /// What is under way waits at the directory.
    bool is_poll = false;
    /// The directory has answered that there is nothing yet.
    bool has_looked = false;
    /// The earliest time of the next attempt.
    timestamp not_before{};
    duration pause{};
    bool is_queued = false;
    error last{errc::timeout, "the directory has not answered in time"};
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
  /// Answers those of the flight whom this suits.
  void deliver(const target& what, const resolution& found);
  /// Answers those of the flight whose start is over. The others may mean one that lives, or that is to come.
  void deliver_expired(flight& x, incarnation_number latest, const error& why, timestamp now);
  void drop_if_idle(const target& what);
  void remember(const target& what, const resolution& found, timestamp until);
  /// What is known of it, in itself or as a part of the whole engine.
  std::optional<result<resolution>> look_up(const target& what);
  /// All that is known of an engine.
  std::pair<known_map::iterator, known_map::iterator> known_of(const std::string& engine);
  /// The latest start that anything is known of; 0: nothing is.
  incarnation_number latest_known(const std::string& engine);
  void forget_before(const std::string& engine, incarnation_number incarnation);

  const client_options options_;
  watch_state watch_;
  std::map<target, flight> flights_;
  std::map<number, waiter> waiters_;
  /// Whose turn it is when a fetch ends.
  std::deque<target> queue_;
  std::map<number, target> under_way_;
  /// So many of them wait at the directory.
  std::size_t polls_ = 0;
  /// Of one engine: all of one start.
  known_map known_;
  /// The latest start that somebody has told of: an answer that was on its way meanwhile may be of an earlier one.
  struct noted_start {
    incarnation_number incarnation = 0;
    number told = 0;
  };
  std::map<std::string, noted_start> noted_;
  /// The same by when they were told of last.
  std::map<number, std::string> noted_order_;
  number last_told_ = 0;
  number last_fetch_ = 0;
  std::vector<fetch_order> orders_;
  std::vector<std::pair<number, result<resolution>>> answers_;
  std::vector<number> abandoned_;
};

} // namespace troupe::handshake
