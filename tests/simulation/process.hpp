#pragma once

#include "messages/messages.hpp"
#include "tests/simulation/environment.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// One process of the world: an actor system without threads. Who of its actors that have something to do is next, and
/// when time passes, is said by others. Each actor takes its messages in the order in which they came, one a turn.
class process {
public:
  process(environment& world, std::string name);
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  /// kill -9: the actors end without a notification outside, if the world has cut their connections before.
  ~process();

  caf::actor_system& system() noexcept { return *system_; }
  /// As other processes know it. Actor systems of one real process take themselves for the same one.
  const caf::node_id& node() const noexcept { return node_; }
  const std::string& name() const noexcept { return name_; }

  /// Spawned by the world itself: what ends with the process.
  template <class Handle>
  const Handle& keep(const Handle& actor) {
    roots_.push_back(caf::actor_cast<caf::strong_actor_ptr>(actor));
    return actor;
  }

  bool paused() const noexcept { return world_.now() < paused_until_; }
  /// Freezes the process for this time. False if it was frozen a while ago: it gets as much time to work as it was
  /// frozen, or nothing else would happen in this world.
  bool pause(duration how_long);
  timestamp goes_on() const noexcept { return paused_until_; }
  /// All the time that it was paused.
  duration paused_in_all() const noexcept { return paused_in_all_; }

  bool has_work() const noexcept { return !paused() && !scheduler_->jobs.empty(); }
  /// One message of one actor, whose number in the process is returned.
  std::uint64_t turn(random_source& random);
  /// When a timer of the process expires; not before the end of its pause.
  std::optional<timestamp> next_timer() const;
  /// The process' clock shows the world's time; timers ring.
  void wind();

  /// As long as it lives, all work of the actors is done at once, as soon as they receive a message from outside: for
  /// callers that ask and wait.
  class hurry {
  public:
    /// `quiesced` is called when no actor has work left: requests without an answer by then never get one.
    hurry(process& in, random_source& random, std::function<void()> quiesced = {});
    hurry(const hurry&) = delete;
    hurry& operator=(const hurry&) = delete;
    ~hurry();

  private:
    void expect_more();
    void work();

    process& in_;
    random_source& random_;
    std::function<void()> quiesced_;
    bool working_ = false;
  };

  /// Whether all actors that `keep` knows have ended by themselves.
  bool over() const { return system_->registry().running() == 0; }
  /// Asks everything that is kept to end, as a program does before it returns.
  void leave();

private:
  struct config;

  environment& world_;
  std::string name_;
  caf::node_id node_;
  std::unique_ptr<config> config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator* scheduler_ = nullptr;
  std::vector<caf::strong_actor_ptr> roots_;
  timestamp paused_until_ = timestamp::min();
  duration last_pause_{};
  duration paused_in_all_{};
};

} // namespace troupe::simulation
