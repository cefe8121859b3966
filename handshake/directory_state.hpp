#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "messages/handshake_messages.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::handshake {

/// Limit in bytes of the name of an engine, and of a hash.
inline constexpr std::size_t name_bytes_max = 128;
inline constexpr std::size_t compat_bytes_max = 256;
/// Limit in bytes of all tags in a request.
inline constexpr std::size_t etag_bytes_max = 1024;

struct directory_options {
  std::uint64_t payload_bytes_max = std::uint64_t{1} << 20U;
  /// Limit for one engine.
  std::uint32_t ranks_max = 1024;
  std::uint32_t engines_max = 4096;
  /// Limit for all payloads together.
  std::uint64_t bytes_max = std::uint64_t{256} << 20U;
  /// Limit of waiting fetches.
  std::uint32_t waiting_max = 16384;
  duration wait_max = std::chrono::minutes(1);
  duration ttl_default = std::chrono::seconds(30);
  duration ttl_max = std::chrono::hours(1);
  /// How long the incarnation of a removed engine is remembered, so that its late requests do not publish it again.
  duration remember = std::chrono::hours(1);
  std::uint32_t remembered_max = 65536;
  std::uint32_t watches_max = 1024;
  /// Limit of payloads in one update; the rest follows in the next one.
  std::uint64_t update_bytes = std::uint64_t{1} << 20U;
  /// A watcher that takes longer to receive an update is dropped.
  duration watch_patience = std::chrono::minutes(1);
  /// Readers see a change only when it is durable (`durable`). Otherwise the directory could end in between, and after
  /// a restart the data that they have read would be replaced.
  bool hold_back = false;
  /// Limit of changes that wait for the disk; more are refused.
  std::uint32_t changes_waiting_max = 16384;
  /// How long beyond its own deadline a fetch waits for a change to become durable.
  duration disk_patience = std::chrono::seconds(10);
};

/// How an engine ended.
enum class ending : std::uint8_t { none, expired, withdrawn };

// The records that survive a restart. Deadlines are of the directory's clock: they must be converted to wall-clock time
// for storage.

/// The engine is live, or remembered.
struct engine_noted {
  std::string engine;
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  std::string compat;
  duration ttl{};
  ending over = ending::none;
  /// When it expires, or is forgotten.
  timestamp deadline{};
};

struct rank_noted {
  std::string engine;
  handshake_rank rank;
  incarnation_number incarnation = 0;
  handshake_form form = handshake_form::bytes;
  shared_payload payload;
};

/// Removes all records of the engine and of its ranks.
struct engine_erased {
  std::string engine;
};

using directory_change = std::variant<engine_noted, rank_noted, engine_erased>;

/// Upper estimate of an answer's size on a connection.
std::uint64_t message_bytes(const handshake_fetch_reply& x);

/// The rules of the directory: publications of engines, their lifetime, and waiting requests. Plain C++, not
/// thread-safe. Time is an argument and must not run backwards.
///
/// An incarnation is one start of an engine, a number that is higher for each. What an engine publishes belongs to its
/// incarnation, and a higher one replaces all of it at once: so no answer contains ranks of two, and none contains data
/// that was replaced before the answer was made.
///
/// After each call: `next_answer` returns answers to waiting fetches, one after the other, `take_changes` returns what
/// must be stored before the call is answered, and `take_updates` returns the updates for watchers.
class directory_state {
public:
  /// Numbers of fetches and watches are chosen by the caller, each used once.
  using number = std::uint64_t;
  static constexpr auto no_bound = std::numeric_limits<std::uint64_t>::max();

  explicit directory_state(const directory_options& options) : options_(options) {}

  handshake_reply publish(const handshake_publish_request& x, timestamp now);
  handshake_reply heartbeat(const handshake_heartbeat_request& x, timestamp now);
  handshake_reply withdraw(const handshake_withdraw_request& x, timestamp now);

  /// The answer; none if the fetch waits, which is answered at its deadline at the latest. A change that is not durable
  /// yet is waited for beyond that, but not longer than `disk_patience`.
  std::optional<handshake_fetch_reply> fetch(const handshake_fetch_request& x, number who, timestamp now);
  /// Cancels a waiting fetch without an answer.
  void cancel(number who);
  /// Answers all waiting fetches with this error, and all that would wait from now on.
  void stop_waiting(const error& why);

  /// Engines whose publication is durable and has not expired. Never waits.
  handshake_list_reply list(const handshake_list_request& x, timestamp now);

  /// Watches this engine, or all with an empty name: reports first the present state, then changes. No update is larger
  /// than `bytes_max` (`message_bytes`): an engine that does not fit is reported without its payloads.
  result<void> watch(std::string engine, number who, timestamp now, std::uint64_t bytes_max = no_bound);
  /// False: there is no such watch, or it was dropped.
  bool seen(number who);
  bool is_watching(number who, std::string_view engine) const;
  void unwatch(number who);

  /// Removes what has expired.
  void advance(timestamp now);
  /// The time of the next call of `advance`; none if it is not needed.
  std::optional<timestamp> next_deadline() const;

  /// The next answer to a waiting fetch, created on request: of many fetches that wait for the same payloads, one at a
  /// time has a copy of them here.
  std::optional<std::pair<number, handshake_fetch_reply>> next_answer();
  /// All of them.
  std::vector<std::pair<number, handshake_fetch_reply>> take_answers();
  std::vector<directory_change> take_changes() { return std::exchange(changes_, {}); }
  /// The number of the last change that is visible to readers.
  number last_change() const noexcept { return last_change_; }
  /// Changes up to this number are durable.
  void durable(number change, timestamp now);
  struct updates {
    std::vector<std::pair<number, handshake_update>> notified;
    /// Watchers that were dropped.
    std::vector<number> dropped;
  };
  /// Updates for the watchers that can receive one.
  updates take_updates(timestamp now, const std::function<bool(number)>& has_room = {});
  /// Returns an update that could not be sent; it is sent again later.
  void put_back(number who, const handshake_update& x);

  /// Restores the records of an earlier run, engines before their ranks, before any other call. Records that exceed a
  /// limit, or have expired, are dropped, which is a change.
  void restore(const engine_noted& x, timestamp now);
  void restore(const rank_noted& x, timestamp now);

  handshake_stats stats() const;

  /// For tests: the first inconsistency, or none.
  std::string find_inconsistency() const;

private:
  struct rank_entry {
    std::string etag;
    handshake_form form = handshake_form::bytes;
    shared_payload payload;
  };

  struct live_engine {
    incarnation_number incarnation = 0;
    handshake_sizes sizes;
    std::string compat;
    duration ttl{};
    timestamp deadline{};
    std::map<handshake_rank, rank_entry> ranks;
    std::uint64_t bytes = 0;

    bool complete() const noexcept { return ranks.size() == sizes.count(); }
  };

  /// The list entry of an engine, and its deadline as readers see it.
  struct listed_engine {
    handshake_engine_info info;
    timestamp deadline{};
  };

  /// The list entry after the change is durable; none: the engine is removed.
  struct unwritten_change {
    number change = 0;
    std::string engine;
    std::optional<listed_engine> then;
  };

  struct past_engine {
    incarnation_number incarnation = 0;
    ending over = ending::expired;
    timestamp deadline{};
  };

  struct waiter {
    handshake_fetch_request what;
    timestamp deadline{};
    /// Its deadline has passed: it is answered as soon as an answer is durable. Its deadline is then that of the disk.
    bool is_late = false;
  };

  struct watcher {
    /// Empty: all engines.
    std::string engine;
    std::uint64_t bytes_max = no_bound;
    std::set<std::string> changed;
    /// An update was sent and not acknowledged.
    bool is_notified = false;
    timestamp notified_at{};
  };

  using engine_map = std::map<std::string, live_engine, std::less<>>;
  enum class due_kind : std::uint8_t { engine, memory, waiter, watch };
  /// Entries for `advance`: engines and remembered ones by name, others by number.
  struct due {
    timestamp at;
    due_kind what = due_kind::engine;
    std::string name;
    number who = 0;

    friend auto operator<=>(const due&, const due&) = default;
  };

  /// The error in the request itself, independent of the state.
  std::optional<std::string> what_is_wrong(const handshake_publish_request& x) const;
  duration ttl_of(duration wanted, duration before) const;
  handshake_reply refuse(std::uint64_t& counter, errc code, std::string text, incarnation_number known = 0);
  handshake_reply describe(const live_engine& x, timestamp now, bool added = false) const;
  /// Finds the live engine of this name for a caller of that incarnation, or sets the refusal.
  live_engine* find(std::string_view name, incarnation_number incarnation, handshake_reply& refusal);

  live_engine& begin(const handshake_publish_request& x, duration ttl);
  void renew(const std::string& name, live_engine& x, duration ttl, timestamp now);
  void end(engine_map::iterator which, ending how, timestamp now);
  void remember(const std::string& name, const past_engine& x);
  void forget(const std::string& name);
  void note(const std::string& name, const live_engine& x);

  /// None: it has to wait. With `last`, there is always an answer.
  std::optional<handshake_fetch_reply> look(const handshake_fetch_request& x, timestamp now, bool last);
  std::optional<handshake_fetch_reply> look_at(const handshake_fetch_request& x, const live_engine& found,
                                               timestamp now, bool last) const;
  handshake_fetch_reply known_of(std::string_view name, const live_engine& x, timestamp now) const;
  handshake_fetch_reply everything_of(std::string_view name, timestamp now) const;
  void count(const handshake_fetch_reply& x);

  /// Notes a change of the engine.
  void changed(const std::string& name);
  /// Updates the list entry of the engine: when the change is durable, or at once.
  void relist(const std::string& name);
  void list_as(const std::string& name, std::optional<listed_engine> x);
  std::optional<listed_engine> listing_of(const std::string& name) const;
  bool is_held_back(std::string_view name) const { return held_back_.contains(name); }
  void time_is_up(number who, timestamp now);
  /// Marks fetches that wait for the engine: they may have an answer now.
  void look_again(std::string_view name);
  void forget_waiter(number who);

  const directory_options options_;
  engine_map engines_;
  std::map<std::string, past_engine, std::less<>> past_;
  std::unordered_map<number, waiter> waiters_;
  std::map<std::string, std::set<number>, std::less<>> waiting_for_;
  /// Waiting fetches whose answer may be available.
  std::set<number> ready_;
  std::map<number, watcher> watchers_;
  std::set<due> due_;
  /// Engines with changes that are not durable yet, and the last change of each.
  std::map<std::string, number, std::less<>> held_back_;
  /// The durable state.
  std::map<std::string, listed_engine, std::less<>> listed_;
  /// In the order of the changes.
  std::deque<unwritten_change> unwritten_;
  number last_change_ = 0;
  timestamp now_{};
  std::optional<error> stopped_;
  std::uint64_t ranks_ = 0;
  std::uint64_t bytes_ = 0;

  /// Answers to fetches that cannot wait any longer.
  std::deque<std::pair<number, handshake_fetch_reply>> answers_;
  std::vector<directory_change> changes_;
  std::vector<number> dropped_;
  handshake_stats stats_;
};

} // namespace troupe::handshake
