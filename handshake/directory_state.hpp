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

/// Bytes of the name of an engine, and of a hash.
inline constexpr std::size_t name_bytes_max = 128;
inline constexpr std::size_t compat_bytes_max = 256;
/// Of all tags that somebody has.
inline constexpr std::size_t etag_bytes_max = 1024;

struct directory_options {
  std::uint64_t payload_bytes_max = std::uint64_t{1} << 20U;
  /// Of one engine.
  std::uint32_t ranks_max = 1024;
  std::uint32_t engines_max = 4096;
  /// Of all payloads together.
  std::uint64_t bytes_max = std::uint64_t{256} << 20U;
  /// Fetches that wait.
  std::uint32_t waiting_max = 16384;
  duration wait_max = std::chrono::minutes(1);
  duration ttl_default = std::chrono::seconds(30);
  duration ttl_max = std::chrono::hours(1);
  /// How long it is known of an engine that is gone which incarnation it had, so that what was sent before and comes
  /// late does not bring it back.
  duration remember = std::chrono::hours(1);
  std::uint32_t remembered_max = 65536;
  std::uint32_t watches_max = 1024;
  /// Payloads of one update; the rest follows in the next one.
  std::uint64_t update_bytes = std::uint64_t{1} << 20U;
  /// A watcher that takes longer to see an update is not told anything any more.
  duration watch_patience = std::chrono::minutes(1);
  /// Readers are told of a change when it is durable (`durable`), and not before: else the directory could end in
  /// between, and come back with what they have heard to be replaced.
  bool hold_back = false;
  /// Changes that wait for the disk; more are refused.
  std::uint32_t changes_waiting_max = 16384;
  /// How long beyond its own deadline a fetch waits for what is to be durable first.
  duration disk_patience = std::chrono::seconds(10);
};

/// How an engine ended.
enum class ending : std::uint8_t { none, expired, withdrawn };

// What has to survive a restart. Deadlines are of the directory's clock: who writes them down has to turn them into
// times of day.

/// The engine lives, or is remembered.
struct engine_noted {
  std::string engine;
  incarnation_number incarnation = 0;
  handshake_sizes sizes;
  std::string compat;
  duration ttl{};
  ending over = ending::none;
  /// When it ends, or is forgotten.
  timestamp deadline{};
};

struct rank_noted {
  std::string engine;
  handshake_rank rank;
  incarnation_number incarnation = 0;
  handshake_form form = handshake_form::bytes;
  shared_payload payload;
};

/// All that was noted of the engine and of its ranks goes.
struct engine_erased {
  std::string engine;
};

using directory_change = std::variant<engine_noted, rank_noted, engine_erased>;

/// What an answer takes on a connection, about, and not less.
std::uint64_t message_bytes(const handshake_fetch_reply& x);

/// The rules of the directory: what engines have published, for how long it stands, who waits for what. Plain C++, not
/// thread-safe. Time is an argument and must not run backwards.
///
/// An incarnation is one start of an engine, a number that is higher for each. What an engine publishes belongs to its
/// incarnation, and a higher one replaces all of it at once: so no answer ever has ranks of two, and none has what was
/// replaced before it was made.
///
/// After each call: `next_answer` has answers to those who waited, one after the other, `take_changes` what is to be
/// written down before the call is answered, and `take_updates` what watchers are to be told.
class directory_state {
public:
  /// Numbers of those who wait and watch are the caller's, each used once.
  using number = std::uint64_t;
  static constexpr auto no_bound = std::numeric_limits<std::uint64_t>::max();

  explicit directory_state(const directory_options& options) : options_(options) {}

  handshake_reply publish(const handshake_publish_request& x, timestamp now);
  handshake_reply heartbeat(const handshake_heartbeat_request& x, timestamp now);
  handshake_reply withdraw(const handshake_withdraw_request& x, timestamp now);

  /// The answer; or nothing: it waits, and has its answer at its deadline at the latest. What is not durable yet is
  /// waited for beyond that, but not longer than `disk_patience`.
  std::optional<handshake_fetch_reply> fetch(const handshake_fetch_request& x, number who, timestamp now);
  /// Nobody waits for this answer any more.
  void give_up(number who);
  /// Whoever waits is answered with this; and whoever would wait from now on.
  void stop_waiting(const error& why);

  /// What is durable, and not over. Needs no waiting.
  handshake_list_reply list(const handshake_list_request& x, timestamp now);

  /// Tells of this engine, or of all with an empty name: first of what is there, then of what changes. No update has
  /// more bytes than that (`message_bytes`): an engine that does not go into one is told of without its payloads.
  result<void> watch(std::string engine, number who, timestamp now, std::uint64_t bytes_max = no_bound);
  /// False: there is no such watch, or none any more.
  bool seen(number who);
  bool is_watching(number who, std::string_view engine) const;
  void unwatch(number who);

  /// Lets go of what has had its time.
  void advance(timestamp now);
  /// When `advance` has something to do; nothing if never.
  std::optional<timestamp> next_deadline() const;

  /// The next answer to somebody who waited, made when it is asked for: of many who wait for the same payloads, one at
  /// a time has a copy of them here.
  std::optional<std::pair<number, handshake_fetch_reply>> next_answer();
  /// All of them.
  std::vector<std::pair<number, handshake_fetch_reply>> take_answers();
  std::vector<directory_change> take_changes() { return std::exchange(changes_, {}); }
  /// The number of the last change that readers are told of.
  number last_change() const noexcept { return last_change_; }
  /// Changes up to this number are durable.
  void durable(number change, timestamp now);
  struct updates {
    std::vector<std::pair<number, handshake_update>> told;
    /// Watchers that were given up.
    std::vector<number> dropped;
  };
  /// Those for whom there is room.
  updates take_updates(timestamp now, const std::function<bool(number)>& has_room = {});
  /// An update that was taken could not be sent, and comes again.
  void put_back(number who, const handshake_update& x);

  /// What an earlier run wrote down, engines before their ranks, before anything else is asked. What does not fit, and
  /// what has had its time, is left out, which is a change.
  void restore(const engine_noted& x, timestamp now);
  void restore(const rank_noted& x, timestamp now);

  handshake_stats stats() const;

  /// For tests: the first thing that is not as it must be, or nothing.
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

  /// What lists say of an engine, and when it ends for all that readers know.
  struct listed_engine {
    handshake_engine_info info;
    timestamp deadline{};
  };

  /// What a change makes of it, once durable; nothing: it is gone.
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
    /// Its time is up: it has an answer as soon as there is one that may be told. Its deadline is that of the disk.
    bool is_late = false;
  };

  struct watcher {
    /// Empty: all.
    std::string engine;
    std::uint64_t bytes_max = no_bound;
    std::set<std::string> changed;
    /// Sent and not seen.
    bool is_told = false;
    timestamp told_at{};
  };

  using engine_map = std::map<std::string, live_engine, std::less<>>;
  enum class due_kind : std::uint8_t { engine, memory, waiter, watch };
  /// Of `advance`: engines and what is remembered by name, others by number.
  struct due {
    timestamp at;
    due_kind what = due_kind::engine;
    std::string name;
    number who = 0;

    friend auto operator<=>(const due&, const due&) = default;
  };

  /// What is wrong with the request in itself.
  std::optional<std::string> what_is_wrong(const handshake_publish_request& x) const;
  duration ttl_of(duration wanted, duration before) const;
  handshake_reply refuse(std::uint64_t& counter, errc code, std::string text, incarnation_number known = 0);
  handshake_reply describe(const live_engine& x, timestamp now, bool added = false) const;
  /// Looks up who lives under this name for a caller of that incarnation, or says why it cannot go on.
  live_engine* find(std::string_view name, incarnation_number incarnation, handshake_reply& refusal);

  live_engine& begin(const handshake_publish_request& x, duration ttl);
  void renew(const std::string& name, live_engine& x, duration ttl, timestamp now);
  void end(engine_map::iterator which, ending how, timestamp now);
  void remember(const std::string& name, const past_engine& x);
  void forget(const std::string& name);
  void note(const std::string& name, const live_engine& x);

  /// Nothing: it is to wait. With `last`, there is always an answer.
  std::optional<handshake_fetch_reply> look(const handshake_fetch_request& x, timestamp now, bool last);
  std::optional<handshake_fetch_reply> look_at(const handshake_fetch_request& x, const live_engine& found,
                                               timestamp now, bool last) const;
  handshake_fetch_reply known_of(std::string_view name, const live_engine& x, timestamp now) const;
  handshake_fetch_reply everything_of(std::string_view name, timestamp now) const;
  void count(const handshake_fetch_reply& x);

  /// Something of the engine is not as it was.
  void changed(const std::string& name);
  /// What lists say of it becomes what it is now: when that is durable, or at once.
  void relist(const std::string& name);
  void list_as(const std::string& name, std::optional<listed_engine> x);
  std::optional<listed_engine> listing_of(const std::string& name) const;
  bool is_held_back(std::string_view name) const { return held_back_.contains(name); }
  void time_is_up(number who, timestamp now);
  /// Who waits for it may have an answer now.
  void look_again(std::string_view name);
  void forget_waiter(number who);

  const directory_options options_;
  engine_map engines_;
  std::map<std::string, past_engine, std::less<>> past_;
  std::unordered_map<number, waiter> waiters_;
  std::map<std::string, std::set<number>, std::less<>> waiting_for_;
  /// Those of them whose answer may be there.
  std::set<number> ready_;
  std::map<number, watcher> watchers_;
  std::set<due> due_;
  /// Engines with changes that are not durable yet, and the last of these.
  std::map<std::string, number, std::less<>> held_back_;
  /// As of what is durable.
  std::map<std::string, listed_engine, std::less<>> listed_;
  /// In the order of their changes.
  std::deque<unwritten_change> unwritten_;
  number last_change_ = 0;
  timestamp now_{};
  std::optional<error> stopped_;
  std::uint64_t ranks_ = 0;
  std::uint64_t bytes_ = 0;

  /// Of those who cannot wait any more.
  std::deque<std::pair<number, handshake_fetch_reply>> answers_;
  std::vector<directory_change> changes_;
  std::vector<number> dropped_;
  handshake_stats stats_;
};

} // namespace troupe::handshake
