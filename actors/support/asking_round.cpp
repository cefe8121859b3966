#include "actors/support/asking_round.hpp"

#include <utility>

namespace troupe {

namespace {

thread_local asking_round* round_of_this_thread = nullptr;

} // namespace

asking_round::asking_round(caf::actor_system& system) : caf::execution_unit(&system) {
  // Each collected actor was asked about one key at least, so there are no more: an actor that cannot be noted for lack
  // of memory would never run again.
  ready_.reserve(most_keys);
  running_.reserve(most_keys);
  round_of_this_thread = this;
}

asking_round::~asking_round() {
  round_of_this_thread = nullptr;
  hand_over();
}

caf::execution_unit* asking_round::for_question(const caf::actor_system& to) {
  auto* const round = round_of_this_thread;
  if (round == nullptr || &round->system() != &to)
    return nullptr;
  // This question may be for an actor that was collected for a short one, and would wait with it.
  if (!round->is_short_)
    round->hand_over();
  return round;
}

void asking_round::end() {
  keys_ = 0;
  waiting_since_ = timestamp::max();
  running_.swap(ready_);
  for (auto* job : running_)
    run(job);
  running_.clear();
}

void asking_round::exec_later(caf::resumable* job) {
  // Not collected: actors that get a message from one that runs here, and those that an answer's receiver asks.
  if (!is_short_) {
    system().scheduler().enqueue(job);
    return;
  }
  if (ready_.empty())
    waiting_since_ = std::chrono::steady_clock::now();
  ready_.push_back(job);
}

/// As a worker of CAF's scheduler does, but with a time limit: message by message, since the actor may have to do for
/// others what takes long.
void asking_round::run(caf::resumable* job) {
  const auto until = later(std::chrono::steady_clock::now(), longest_run);
  auto state = job->resume(this, 1);
  while (state == caf::resumable::resume_later && std::chrono::steady_clock::now() < until)
    state = job->resume(this, 1);
  switch (state) {
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
  waiting_since_ = timestamp::max();
  for (auto* job : ready_)
    system().scheduler().enqueue(job);
  ready_.clear();
}

asking_round::short_question::short_question(std::size_t keys) : round_(round_of_this_thread) {
  if (round_ == nullptr)
    return;
  // While a round ends, its receivers may ask: nothing would end the round that these began.
  round_->keys_ += keys;
  round_->is_short_ = round_->keys_ <= most_keys && round_->running_.empty();
}

asking_round::short_question::~short_question() {
  if (round_ != nullptr)
    round_->is_short_ = false;
}

} // namespace troupe
