#pragma once

#include <caf/all.hpp>

#include <thread>
#include <vector>

namespace troupe {

/// A thread that belongs to no actor, lent to the actors that it asks: one that has nothing to do when it is asked does
/// its work here, instead of having a thread of the scheduler woken up for it, and its answer is there when the asker
/// goes on. Being woken costs more than most questions do, twice: for the question and for the answer.
///
/// Nothing changes for the actor. It is run by one thread at a time, as always; one that is at work already goes on
/// where it is, and finds the message in its mailbox. Whatever an actor sends while it runs here goes to the scheduler,
/// and so does the rest of its work after a few messages.
///
/// One for each thread that ever lent itself; they live for ever, because an actor remembers which execution unit it
/// last ran on.
class lent_thread final : public caf::scoped_execution_unit {
public:
  static lent_thread& of_this_thread();

  void exec_later(caf::resumable* job) override;

  /// What `ask` gives the actors it asks; null while this thread is not to be had.
  static caf::execution_unit* on_offer() noexcept;

  /// While it lives, this thread is on offer; then it works for those that have taken it. No use inside of another one,
  /// or of an actor's work: then nothing is lent.
  class offer {
  public:
    explicit offer(caf::actor_system& system);
    offer(const offer&) = delete;
    offer& operator=(const offer&) = delete;
    ~offer();

  private:
    lent_thread* thread_;
  };

private:
  enum class state : std::uint8_t { idle, on_offer, at_work };

  void work();

  std::thread::id owner_ = std::this_thread::get_id();
  state state_ = state::idle;
  std::vector<caf::resumable*> jobs_;
};

} // namespace troupe
