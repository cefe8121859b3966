#include "actors/support/lent_thread.hpp"

#include <memory>
#include <mutex>

namespace troupe {

namespace {

/// Messages that an actor handles here before the rest goes to the scheduler: its own thread waits meanwhile.
constexpr std::size_t max_messages = 4;

thread_local lent_thread* this_thread = nullptr;

} // namespace

lent_thread& lent_thread::of_this_thread() {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<lent_thread>> all;
  if (this_thread == nullptr) {
    std::lock_guard guard(mutex);
    this_thread = all.emplace_back(std::make_unique<lent_thread>()).get();
  }
  return *this_thread;
}

caf::execution_unit* lent_thread::on_offer() noexcept {
  return this_thread != nullptr && this_thread->state_ == state::on_offer ? this_thread : nullptr;
}

void lent_thread::exec_later(caf::resumable* job) {
  // An actor that ran here may think of it later, in another thread.
  if (owner_ == std::this_thread::get_id() && state_ == state::on_offer)
    jobs_.push_back(job);
  else
    scoped_execution_unit::exec_later(job);
}

void lent_thread::work() {
  state_ = state::at_work;
  for (auto* job : jobs_)
    switch (job->resume(this, max_messages)) {
    case caf::resumable::resume_later:
      scoped_execution_unit::exec_later(job);
      break;
    case caf::resumable::done:
    case caf::resumable::awaiting_message:
    case caf::resumable::shutdown_execution_unit:
      caf::intrusive_ptr_release(job);
      break;
    }
  jobs_.clear();
  state_ = state::idle;
}

lent_thread::offer::offer(caf::actor_system& system) : thread_(&of_this_thread()) {
  if (thread_->state_ != state::idle) {
    thread_ = nullptr;
    return;
  }
  thread_->system_ptr(&system);
  thread_->state_ = state::on_offer;
}

lent_thread::offer::~offer() {
  if (thread_ != nullptr)
    thread_->work();
}

} // namespace troupe
