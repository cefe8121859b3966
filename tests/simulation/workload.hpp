#pragma once

#include "tests/simulation/engine_host.hpp"
#include "tests/simulation/environment.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::simulation {

/// The engine of one client: sessions that look up, load, save and release paths of one tree of keys, so that all
/// clients share prefixes and compete. Checks every answer: that it comes once and in time, that its codes are
/// possible, and that loaded blocks hold the right bytes.
class workload {
public:
  workload(environment& world, engine_host& by);

  /// Called when the client's process has started.
  void start();

  /// Requests without an answer.
  std::uint64_t waiting() const noexcept { return waiting_; }

  /// Saves as many new keys as there are slots, on each rank, trying again where there is no room yet. Answers whether
  /// all were stored.
  void fill(std::function<void(bool)> done);

private:
  using keys = std::vector<key_digest>;
  using then = std::function<void()>;

  /// One request of an engine, in the way that the replay works.
  struct cycle {
    keys path;
    std::uint32_t matched = 0;
    ticket lease;
    /// Found keys certainly exist until then, in this attachment.
    timestamp held_until = timestamp::min();
    std::uint64_t epoch = 0;
    std::uint32_t left = 0;
  };

  /// A load or save that may be cancelled.
  struct under_way {
    bool cancelled = false;
    bool ended = false;
    /// A save's blocks hold something else since the cancel was answered.
    bool overwritten = false;
  };

  keys make_path();
  duration make_deadline();
  void next();
  void begin_cycle();
  void load_matched(const std::shared_ptr<cycle>& c);
  void save_rest(const std::shared_ptr<cycle>& c);
  void end_cycle(const cycle& c);
  void save_something();
  void load_something();

  std::shared_ptr<under_way> watch(transfer_task& work);
  void cancel_some_time(const std::shared_ptr<under_way>& x, std::function<void()> cancel);
  void load(rank_number rank, keys what, timestamp held_until, std::uint64_t epoch, then done);
  void save(rank_number rank, keys what, const key_digest& parent, then done);
  std::vector<std::uint32_t> take_blocks(rank_number rank, keys& what);

  void check_time(timestamp started, duration limit, duration paused_before, const char* what);
  void check_refusal(const error& why, const char* what);
  void check_load(rank_number rank, const transfer_task& work, const transfer_result& got, bool held,
                  const under_way& how);
  void check_save(rank_number rank, const transfer_task& work, const transfer_result& got, const under_way& how);
  void fill_next(rank_number rank, std::uint32_t first, std::uint32_t tries, std::function<void(bool)> done);

  environment& world_;
  engine_host& client_;
  random_source random_;
  std::uint64_t waiting_ = 0;
  std::uint64_t last_tag_ = 0;
};

} // namespace troupe::simulation
