#include "actors/support/asking_round.hpp"

namespace troupe {

namespace {

thread_local asking_round* round_of_this_thread = nullptr;

/// Messages that an actor may handle beyond the questions of a round. Others' messages that arrive meanwhile are mostly
/// as short, and leaving them would wake a worker after all. Few, since the callers of this thread wait.
constexpr std::size_t messages_of_others = 16;

} // namespace

asking_round::asking_round(caf::actor_system& system) : caf::execution_unit(&system) {
  round_of_this_thread = this;
}

asking_round::~asking_round() {
  round_of_this_thread = nullptr;
  hand_over();
}

asking_round* asking_round::of_this_thread() noexcept {
  return round_of_this_thread;
}

void asking_round::end() {
  const auto messages = questions_ + messages_of_others;
  questions_ = 0;
  keys_ = 0;
  running_.swap(ready_);
  for (auto* job : running_)
    run(job, messages);
  running_.clear();
}

void asking_round::exec_later(caf::resumable* job) {
  // Also called for actors that get a message from one that runs here: those are for the workers.
  if (is_short_)
    ready_.push_back(job);
  else
    system().scheduler().enqueue(job);
}

/// As a worker of CAF's scheduler does.
void asking_round::run(caf::resumable* job, std::size_t messages) {
  switch (job->resume(this, messages)) {
  case caf::resumable::resume_later:
    system().scheduler().enqueue(job);
    break;
  case caf::resumable::done:
  case caf::resumable::awaiting_message:
    caf::intrusive_ptr_release(job);
    break;
  case caf::resumable::shutdown_execution_unit: // a job of the scheduler's own, which no actor is
    break;
  }
}

void asking_round::hand_over() {
  for (auto* job : ready_)
    system().scheduler().enqueue(job);
  ready_.clear();
}

asking_round::short_question::short_question(std::size_t keys) : round_(of_this_thread()) {
  if (round_ == nullptr)
    return;
  ++round_->questions_;
  round_->keys_ += keys;
  round_->is_short_ = round_->keys_ <= most_keys;
  if (!round_->is_short_)
    round_->hand_over();
}

asking_round::short_question::~short_question() {
  if (round_ != nullptr)
    round_->is_short_ = false;
}

} // namespace troupe
