#include "io/engine/thread_pool_engine.hpp"

#include "base/threads.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe::io {

std::int64_t thread_pool_engine::system_transfer(operation op, int descriptor, std::byte* data, std::uint64_t length,
                                                 std::uint64_t offset) {
  const auto bytes = std::min(length, largest_transfer);
  const auto at = static_cast<off_t>(offset);
  const auto moved =
      op == operation::read ? ::pread(descriptor, data, bytes, at) : ::pwrite(descriptor, data, bytes, at);
  return moved >= 0 ? moved : -errno;
}

thread_pool_engine::thread_pool_engine(const engine_options& options, completion_sink sink, transfer_function transfer)
    : options_(options), sink_(std::move(sink)), transfer_(std::move(transfer)),
      resources_(options.max_files, options.max_buffers) {}

result<std::unique_ptr<engine>> thread_pool_engine::start(const engine_options& options, completion_sink sink,
                                                          transfer_function transfer) {
  std::unique_ptr<thread_pool_engine> made(new thread_pool_engine(options, std::move(sink), std::move(transfer)));
  auto* const self = made.get();
  try {
    made->deliverer_ = std::thread(named(options.name, [self] { self->deliver(); }));
    for (std::uint32_t i = 0; i < options.threads; ++i)
      made->workers_.emplace_back(named(options.name, [self] { self->work(); }));
  } catch (const std::system_error& e) {
    return tl::unexpected(no_thread("the threads of an io engine", e.code().value()));
  }
  return made;
}

thread_pool_engine::~thread_pool_engine() {
  stop();
}

result<std::uint32_t> thread_pool_engine::add_file(int descriptor) {
  std::lock_guard guard(mutex_);
  if (stopping_)
    return fail(errc::shutting_down, "the io engine has been stopped");
  return resources_.add_file(descriptor);
}

void thread_pool_engine::remove_file(std::uint32_t file) {
  std::lock_guard guard(mutex_);
  resources_.remove_file(file);
}

result<std::uint32_t> thread_pool_engine::add_buffer(std::span<std::byte> bytes) {
  std::lock_guard guard(mutex_);
  if (stopping_)
    return fail(errc::shutting_down, "the io engine has been stopped");
  return resources_.add_buffer(bytes);
}

void thread_pool_engine::remove_buffer(std::uint32_t buffer) {
  std::lock_guard guard(mutex_);
  resources_.remove_buffer(buffer);
}

void thread_pool_engine::submit(std::span<const request> requests) {
  std::vector<completion> refused;
  {
    std::lock_guard guard(mutex_);
    counters_.submitted += requests.size();
    const auto alarm_before = table_.next_deadline();
    for (const auto& what : requests) {
      const auto code = stopping_ ? errc::shutting_down : resources_.check(what);
      if (code == errc::ok)
        table_.add(what);
      else
        (ended_ ? refused : done_).push_back({what.tag, code, 0});
    }
    counters_.completed += refused.size();
    if (!done_.empty() || table_.next_deadline() != alarm_before)
      events_.notify_one();
  }
  if (requests.size() == 1)
    work_.notify_one();
  else
    work_.notify_all();
  if (!refused.empty())
    sink_(refused);
}

void thread_pool_engine::cancel(std::uint64_t tag) {
  std::lock_guard guard(mutex_);
  table_.for_each([&](index i, const operation_table::row& r) {
    if (r.what.tag == tag)
      abandon(i, errc::cancelled);
  });
}

void thread_pool_engine::stop() {
  std::lock_guard stopping(stop_mutex_);
  if (!deliverer_.joinable())
    return;
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
    table_.for_each([this](index i, const operation_table::row&) { abandon(i, errc::shutting_down); });
    events_.notify_one();
  }
  deliverer_.join();
  for (auto& worker : workers_)
    worker.join();
}

engine_counters thread_pool_engine::counters() const {
  std::lock_guard guard(mutex_);
  return counters_;
}

std::string thread_pool_engine::describe() const {
  return "thread pool, " + std::to_string(options_.threads) + " threads";
}

// -- with the mutex held --

void thread_pool_engine::abandon(index i, errc why) {
  auto& r = table_.at(i);
  if (r.state == operation_table::state::waiting)
    finish(i, why, 0);
  else if (r.abandoned == errc::ok)
    r.abandoned = why;
}

void thread_pool_engine::finish(index i, errc status, int system_errno) {
  done_.push_back({table_.at(i).what.tag, status, system_errno});
  table_.remove(i);
  events_.notify_one();
}

void thread_pool_engine::expire() {
  if (!table_.next_deadline())
    return;
  const auto now = std::chrono::steady_clock::now();
  for (auto i = table_.take_expired(now); i != operation_table::none; i = table_.take_expired(now))
    abandon(i, errc::timeout);
}

// -- threads --

void thread_pool_engine::work() {
  lock held(mutex_);
  for (;;) {
    work_.wait(held, [this] { return ended_ || table_.waiting() > 0; });
    if (ended_)
      return;
    expire();
    if (const auto i = table_.start_next(); i != operation_table::none)
      carry_out(i, held);
  }
}

void thread_pool_engine::carry_out(index i, lock& held) {
  for (;;) {
    const auto what = table_.at(i).what;
    const auto done = table_.at(i).done;
    const auto descriptor = resources_.descriptor(what.file);
    held.unlock();
    const auto outcome = is_allowed(options_.gate, what.op) ? transfer_(what.op, descriptor, what.data + done,
                                                                        what.length - done, what.file_offset + done)
                                                            : -ESTALE;
    held.lock();
    auto& r = table_.at(i); // the table may have moved
    const auto judged = judge_transfer(what, outcome, r.done, r.fruitless);
    if (!judged.again)
      return finish(i, final_status(judged.status, r.abandoned), judged.system_errno);
    if (r.abandoned != errc::ok)
      return finish(i, r.abandoned, 0);
    ++counters_.continued;
  }
}

void thread_pool_engine::deliver() {
  lock held(mutex_);
  std::vector<completion> batch;
  for (;;) {
    expire();
    if (!done_.empty()) {
      batch.clear();
      std::swap(batch, done_);
      counters_.completed += batch.size();
      held.unlock();
      sink_(batch);
      held.lock();
    } else if (stopping_ && table_.empty()) {
      ended_ = true;
      work_.notify_all();
      return;
    } else if (const auto until = table_.next_deadline()) {
      events_.wait_until(held, *until);
    } else {
      events_.wait(held);
    }
  }
}

} // namespace troupe::io
