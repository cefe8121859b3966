#pragma once

#include "handshake/client_state.hpp"
#include "handshake/directory_state.hpp"
#include "tests/handshake_simulation/defect.hpp"
#include "tests/sim_main/asked_requests.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// Engines, clients and a directory on a network that loses, repeats and delays packets and falls apart at times. All
/// of it in virtual time, from one seed.

namespace troupe::handshake_simulation {

/// The payload of a rank, which names everything that identifies it.
inline std::string text_of(const handshake_rank& x) {
  return std::to_string(x.dp) + "." + std::to_string(x.pp) + "." + std::to_string(x.tp);
}

inline std::string payload_of(const std::string& name, incarnation_number incarnation, const handshake_rank& rank) {
  const std::string filling(incarnation * 37 % 300, 'x');
  return name + "/" + std::to_string(incarnation) + "/" + text_of(rank) + "/" + filling;
}

/// All ranks of an engine of these sizes.
inline std::vector<handshake_rank> ranks_of(const handshake_sizes& x) {
  std::vector<handshake_rank> out;
  for (std::uint32_t dp = 0; dp < x.dp; ++dp)
    for (std::uint32_t pp = 0; pp < x.pp; ++pp)
      for (std::uint32_t tp = 0; tp < x.tp; ++tp)
        out.push_back({dp, pp, tp});
  return out;
}

/// Whether a requester of these ranks needs this one. Computed from the range of heads of a rank, and not as the rules
/// do it.
inline bool needs(const handshake::wanted_ranks& x, const handshake_rank& rank, std::uint64_t tp_size) {
  if (x.scope == handshake_scope::all)
    return true;
  if (x.scope == handshake_scope::rank)
    return x.rank == rank;
  if (x.rank.dp != rank.dp)
    return false;
  const std::uint64_t own = x.rank.tp;
  const std::uint64_t tp = rank.tp;
  return x.scope == handshake_scope::row ||
         (own * tp_size < (tp + 1) * x.own_tp_size && tp * x.own_tp_size < (own + 1) * tp_size);
}

/// The outcome of a request for these ranks of an existing engine: a missing rank may be published by a later
/// incarnation and is waited for.
inline errc end_of(const handshake::wanted_ranks& x, const handshake_sizes& sizes) {
  if (x.scope == handshake_scope::peers && x.own_tp_size % sizes.tp != 0 && sizes.tp % x.own_tp_size != 0)
    return errc::invalid_argument;
  const bool exists = x.scope == handshake_scope::rank ? sizes.contains(x.rank)
                                                       : x.scope == handshake_scope::all || x.rank.dp < sizes.dp;
  return exists ? errc::ok : errc::timeout;
}

using sim_main::outcome;

/// How long an engine lives without a heartbeat.
inline constexpr auto time_to_live = std::chrono::seconds(6);

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using number = std::uint64_t;
  using action = std::function<void()>;

  /// The directory's data on a disk.
  struct records {
    std::map<std::string, handshake::engine_noted> engines;
    std::map<std::pair<std::string, handshake_rank>, handshake::rank_noted> ranks;

    void apply(const handshake::directory_change& x);
  };

  /// A request that waits at the directory, its deadline and its requester.
  struct waiting_one {
    timestamp deadline{};
    handshake_fetch_request what;
    std::function<void(handshake_fetch_reply)> then;
  };

  struct server {
    std::optional<handshake::directory_state> state;
    /// Counts the lives: messages of an earlier one are lost.
    std::uint64_t life = 0;
    records disk;
    std::map<number, waiting_one> waiting;
    number last = 0;
    /// The watch of each client.
    std::map<std::size_t, number> watches;
    std::optional<timestamp> wakes;
    /// Changes become durable in their order.
    timestamp durable_at{};
  };

  struct engine {
    std::string name;
    incarnation_number incarnation = 0;
    handshake_sizes sizes;
    std::string compat;
    bool lives = false;
    /// The life for which publications and heartbeats are scheduled: those of an earlier one have no effect.
    std::uint64_t life = 0;
    std::set<handshake_rank> published;
    timestamp beat_at{};
    /// State of the checks: the highest incarnation that the directory has accepted, in this life of it or durably; the
    /// highest that a reader has received; the highest that has been withdrawn durably; the last heartbeat that the
    /// directory has accepted.
    incarnation_number taken = 0;
    incarnation_number taken_for_good = 0;
    incarnation_number notified = 0;
    incarnation_number withdrawn = 0;
    std::map<incarnation_number, timestamp> alive_at;
  };

  /// What waits for an answer of the directory, with its number, and the number of the request there.
  enum class waiter : std::uint8_t { engine, fetcher, watcher };
  using call = std::pair<std::pair<waiter, std::size_t>, number>;

  struct asked {
    std::size_t engine = 0;
    handshake::wanted_ranks ranks;
    incarnation_number wanted = 0;
    incarnation_number at_least = 0;
    timestamp deadline{};
    bool must_succeed = false;
  };

  struct client {
    std::optional<handshake::client_state> state;
    std::string compat;
    std::map<number, asked> open;
    number last = 0;
    /// Fetches on their way, and until when they count, by engine and ranks.
    std::map<std::pair<std::string, handshake::wanted_ranks>, std::map<number, timestamp>> flying;
    /// The latest incarnation of each engine that it was notified of.
    std::map<std::string, incarnation_number> noted;
    /// The life of the directory that its listener leads to.
    std::uint64_t connection = 0;
    bool has_watched = false;
    std::optional<timestamp> wakes;
  };

  // time
  void at(timestamp when, action what) { agenda_.emplace(std::pair(when, ++sequence_), std::move(what)); }
  void after(duration time, action what) { at(later(now_, time), std::move(what)); }
  void count(std::string_view what) { ++out_.counts[std::string(what)]; }
  void broken(std::string_view property, std::string what);
  bool has(defect x) const noexcept { return defect_ == x; }
  void trace(std::uint64_t x) { out_.trace_hash = (out_.trace_hash ^ x) * 0x100000001b3ULL; }

  // the network: `side` is the number of the end that is not the directory
  bool is_cut_off(std::size_t side) const { return cut_off_.contains(side); }
  void carry(std::size_t side, action deliver);
  /// Comes once or not at all, as through a connection.
  void carry_once(std::size_t side, const action& deliver);

  // the directory
  void start_directory();
  void crash_directory();
  void serve(action f);
  /// Like the actor behind a listener: it exists for one life of the directory.
  void serve_behind(std::uint64_t connection, action f);
  void note_request(const call& which, std::string_view name);
  void settle();
  void wake_directory();
  void answer_change(const handshake_reply& reply, std::function<void(handshake_reply)> then);
  void publish(handshake_publish_request x, std::function<void(handshake_reply)> then);
  void heartbeat(const handshake_heartbeat_request& x, std::function<void(handshake_reply)> then);
  void withdraw(const handshake_withdraw_request& x, std::function<void(handshake_reply)> then);
  void fetch(handshake_fetch_request x, std::function<void(handshake_fetch_reply)> then);
  void cancel(number who);
  /// The directory's answer to a publication beyond its limits.
  errc limit_of(const handshake_publish_request& x) const;
  void check_limits();
  void check_list();
  void check_answer(const handshake_fetch_request& what, handshake_fetch_reply& reply);
  void check_ranks(const std::string& who, const handshake::wanted_ranks& wanted, const handshake_fetch_reply& reply);
  result<number> watch(std::size_t who);
  void notify_watchers();

  // engines
  engine& find(const std::string& name);
  void start_engine(std::size_t which);
  void end_engine(std::size_t which, bool gracefully);
  void live(std::size_t which, std::uint64_t life);
  void publish_rank(std::size_t which, std::uint64_t life, const handshake_rank& rank);

  /// The request of an engine reaches the directory, which may not be there.
  void reaches(std::size_t which, std::uint64_t life, number request, std::string_view name);

  // clients
  handshake::wanted_ranks some_ranks();
  void ask(std::size_t who, bool must_succeed = false);
  void settle(std::size_t who);
  void send(std::size_t who, const handshake::client_state::fetch_order& order);
  void keep_way(std::size_t who);
  void open_connection(std::size_t who, number order);
  void ask_for_watch(std::size_t who, number order);
  void hear(std::size_t who, number watch, const handshake_update& update);
  void wake(std::size_t who);
  void check_pushed();
  void check_resolution(const client& c, const asked& what, const result<handshake::resolution>& found);
  void check_waits();

  void step();
  void finish();

  simulation::random_source random_;
  const std::uint64_t steps_;
  const defect defect_;
  timestamp now_{std::chrono::hours(1000)};
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
  handshake::directory_options options_;
  /// The acknowledgement of an update to a client.
  std::uint64_t update_bytes_max_ = 0;
  server directory_;
  std::vector<engine> engines_;
  std::vector<client> clients_;
  std::set<std::size_t> cut_off_;
  sim_main::asked_requests<call> requests_{[this](const std::string& name) { count(name); }};
  /// Those that have reached the directory: some do so twice.
  std::set<call> reached_;
  number last_request_ = 0;
  bool is_calm_ = false;
  outcome out_;
};

} // namespace troupe::handshake_simulation
