#pragma once

#include "base/clock.hpp"
#include "messages/messages.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace troupe {

/// How a thread that is no worker of the actor system, and serves many callers in rounds, wakes the actors that it asks
/// with `ask`. An io thread of the HTTP server is one: it handles all requests that have arrived, and then waits.
///
/// A question about one key takes an index shard about a microsecond; to wake a worker for it, and this thread again
/// for the answer, takes ten times as long. So actors that short questions make ready are collected, and at the end of
/// the round this thread runs them itself: no thread is woken, and the answers come before the thread waits.
///
/// All other questions, and those of a round about more than `most_keys`, are worth a thread of their own beside the
/// parsing of the next request. They go to the workers at once, with all that was collected before: the same actor may
/// be asked. What an actor has to do besides, for others, is left to the workers after `longest_run`.
///
/// CAF allows that: an actor is a job that any thread may run, as long as one does at a time, and its mailbox sees to
/// that.
///
/// For the thread that made it, at most one for each thread. The actors that are asked with short questions must not
/// use their execution unit (`context()`) except while they run, since the one that they ran in last may have ended.
class asking_round final : public caf::execution_unit {
public:
  static constexpr std::size_t most_keys = 32;
  static constexpr duration longest_run = std::chrono::microseconds{50};

  /// Applies to all questions of this thread from now on, which must be to actors of `system`.
  explicit asking_round(caf::actor_system& system);
  /// Passes what is collected to the workers.
  ~asking_round() override;
  asking_round(const asking_round&) = delete;
  asking_round& operator=(const asking_round&) = delete;

  /// The execution unit for a question of this thread to an actor of that system, which is about to be asked; null:
  /// workers run it.
  static caf::execution_unit* for_question(const caf::actor_system& to);

  /// Runs the collected actors. Without this call they would not run: it must follow every round. Actors that are made
  /// ready meanwhile, by answers or by one that runs, go to the workers.
  void end();

  /// When the first actor of this round was collected; `timestamp::max()` if none was. It takes no message until the
  /// round ends.
  timestamp waiting_since() const noexcept { return waiting_since_; }

  void exec_later(caf::resumable* job) override;

  /// While it exists, questions of this thread are short, and ask about so many keys together. They must change
  /// nothing that the answer waits for. Has no effect on threads without a round.
  class short_question {
  public:
    explicit short_question(std::size_t keys);
    ~short_question();
    short_question(const short_question&) = delete;
    short_question& operator=(const short_question&) = delete;

  private:
    asking_round* round_;
  };

private:
  void run(caf::resumable* job);
  void hand_over();

  /// Those that this round has asked about.
  std::size_t keys_ = 0;
  bool is_short_ = false;
  timestamp waiting_since_ = timestamp::max();
  /// Actors with a reference each, which is released after they have run. None twice: an actor becomes ready once, and
  /// then only after it was run.
  std::vector<caf::resumable*> ready_;
  /// Empty between rounds; kept for its memory.
  std::vector<caf::resumable*> running_;
};

} // namespace troupe
