#include "http/server/mailbox.hpp"

#include "base/log.hpp"

#include <exception>
#include <utility>

namespace troupe::http {

namespace {

/// The mailbox of the current thread; null on threads that serve no connections.
thread_local const mailbox* of_this_thread = nullptr;

} // namespace

void mailbox::adopt_thread() noexcept {
  of_this_thread = this;
}

void mailbox::deliver(exchange_id id, response&& answer) noexcept {
  put({id, std::move(answer)});
}

void mailbox::drop(exchange_id id) noexcept {
  put({id, std::nullopt});
}

void mailbox::put(late_answer&& x) noexcept {
  // The owner closes the mailbox on its own thread, so on that thread no lock is needed.
  if (of_this_thread == this && owner_ != nullptr && owner_->take_at_once(x))
    return;
  try {
    const std::lock_guard guard{mutex_};
    if (owner_ == nullptr)
      return;
    answers_.push_back(std::move(x));
    if (answers_.size() == 1)
      owner_->wake();
  } catch (const std::exception& e) {
    // Only if memory is lacking. The request will be answered at its deadline.
    log::get("http")->error("answer lost: {}", e.what());
  }
}

void mailbox::fetch(std::vector<late_answer>& out) {
  const std::lock_guard guard{mutex_};
  answers_.swap(out);
}

void mailbox::close() noexcept {
  std::vector<late_answer> rest;
  const std::lock_guard guard{mutex_};
  owner_ = nullptr;
  answers_.swap(rest);
}

} // namespace troupe::http
