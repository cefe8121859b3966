#pragma once

#include "io/claims/claim_rules.hpp"
#include "tests/owner_simulation/defect.hpp"
#include "tests/sim_main/sim_main.hpp"
#include "tests/simulation/random.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Nodes whose data directories are on one file system: each has one of its own, and adopts those of the others. They
/// crash, freeze and restart, also on another host, their clocks drift apart, and their file operations take time,
/// fail, or come late; and for a while the file system is unavailable for all of them. All of it in virtual time, from
/// one seed.

namespace troupe::owner_simulation {

using sim_main::outcome;

class world {
public:
  world(std::uint64_t seed, std::uint64_t steps, defect built_in);

  outcome run();

private:
  using action = std::function<void()>;
  using page_key = std::uint32_t;

  /// The content of a claim file, and when it was written.
  struct claim_file {
    /// No value between the creation of the file and its first write.
    std::optional<io::claim_record> record;
    std::uint64_t fingerprint = 0;
    timestamp made{};
    timestamp written{};
  };
  /// A page as it lies in a slot.
  struct page {
    page_key key = 0;
    std::uint32_t generation = 0;
  };
  struct location {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
  };
  using page_index = std::map<page_key, location>;

  /// The files on the file system.
  struct directory {
    std::map<io::claim_number, claim_file> claims;
    io::claim_number highest_ever = 0;
    std::vector<page> slots;
    page_index index;
    /// How often the index was opened for writing: late writes of an earlier time are in a log that is not read.
    std::uint64_t opened = 0;
  };

  /// A candidate for a directory: a node for its own, or one that adopts.
  struct contender {
    std::size_t directory = 0;
    io::claim_kind kind = io::claim_kind::owner;
    incarnation_number incarnation = 0;
    duration lease{};
    std::optional<io::claim_rules> rules;
    /// The last reading of a watcher: when the file was in the state that it saw.
    timestamp seen_at{};
    /// The sightings of the last reading, for defects.
    io::claim_sighting own{};
    io::claim_sighting seen{};
    bool held = false;
    /// The index of an owner, in memory; of an adopter, as it was when it held its claim.
    page_index index;
    std::uint64_t opened = 0;
  };

  /// A process, with the clock of its host.
  struct process {
    std::uint64_t number = 0;
    std::size_t home = 0;
    duration clock_offset{};
    /// Parts per million that it runs too fast.
    std::int64_t clock_drift = 0;
    duration lost_time{};
    std::optional<timestamp> frozen_since;
    std::vector<action> held_up;
    /// Its own directory first.
    std::vector<contender> contenders;
  };

  // time
  void at(timestamp when, action what) { agenda_.emplace(std::pair(when, ++sequence_), std::move(what)); }
  void after(duration time, action what) { at(later(now_, time), std::move(what)); }
  timestamp local(const process& x) const;
  /// The time at which the clock of the process shows this local time.
  timestamp when(const process& x, timestamp local_time) const;
  void count(std::string_view what) { ++out_.counts[std::string(what)]; }
  void broken(std::string_view property, std::string what);
  bool has(defect x) const noexcept { return defect_ == x; }
  void trace(std::uint64_t x) { out_.trace_hash = (out_.trace_hash ^ x) * 0x100000001b3ULL; }
  duration file_time();
  void plan_outage(timestamp end);
  bool is_away() const noexcept { return away_from_ <= now_ && now_ < away_until_; }

  // processes
  process* find(std::uint64_t number);
  void start(std::size_t home);
  void crash(std::uint64_t number);
  void stop(std::uint64_t number);
  void freeze(std::uint64_t number, duration time);
  void thaw(std::uint64_t number);
  /// Runs in turn: at once, when the node resumes, or never.
  void in_turn(std::uint64_t number, action what);
  io::claim_options options_for(const contender& x, const process& of) const;
  void begin(process& x, std::size_t which);

  // claims
  void carry_out(std::uint64_t number, std::size_t which, incarnation_number life);
  io::claim_sighting look_at(std::size_t where, contender& x, duration stale);
  void write_claim(std::size_t where, io::claim_number number, const io::claim_record& what);
  result<void> make_claim(const contender& x, io::claim_number number, const io::claim_record& what);
  void settle(std::uint64_t number, std::size_t which);
  bool believes(const process& x, const contender& c) const;
  void check_take(const contender& x, io::claim_number number);
  void check();

  // pages
  void save(std::uint64_t number);
  void commit(std::uint64_t number, page_key key, location where, std::optional<page_key> evicted);
  void read(process& x, contender& c);
  bool is_free(const contender& c, std::uint32_t slot) const;

  void step();
  void finish();
  void check_adopted(std::size_t dead);
  void check_returned();

  simulation::random_source random_;
  /// A generator of its own, so that the other draws stay the same without it.
  simulation::random_source weather_;
  /// The time range in which the file system fails every call.
  timestamp away_from_{};
  timestamp away_until_{};
  const std::uint64_t steps_;
  const defect defect_;
  timestamp now_{std::chrono::hours(1000)};
  std::map<std::pair<timestamp, std::uint64_t>, action> agenda_;
  std::uint64_t sequence_ = 0;
  std::vector<directory> directories_;
  std::map<std::uint64_t, process> processes_;
  std::uint64_t last_process_ = 0;
  incarnation_number last_incarnation_ = 0;
  std::uint64_t last_fingerprint_ = 0;
  std::uint32_t last_generation_ = 0;
  bool is_calm_ = false;
  outcome out_;
};

} // namespace troupe::owner_simulation
