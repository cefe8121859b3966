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
  const auto at = static_cast<off_t>(offset);
  if (op == operation::trim)
    return ::fallocate(descriptor, trim_mode, at, static_cast<off_t>(length)) == 0 ? 0 : -errno;
  const auto bytes = std::min(length, largest_transfer);
  const auto moved =
      op == operation::read ? ::pread(descriptor, data, bytes, at) : ::pwrite(descriptor, data, bytes, at);
  return moved >= 0 ? moved : -errno;
}

thread_pool_engine::thread_pool_engine(const engine_options& options, completion_sink sink, transfer_function transfer)
    : options_(options), sink_(std::move(sink)), transfer_(std::move(transfer)), rules_(options) {}

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
  if (rules_.is_stopping())
    return fail(errc::shutting_down, "the io engine has been stopped");
  return rules_.resources().add_file(descriptor);
}

void thread_pool_engine::remove_file(std::uint32_t file) {
  std::lock_guard guard(mutex_);
  rules_.resources().remove_file(file);
}

result<std::uint32_t> thread_pool_engine::add_buffer(std::span<std::byte> bytes) {
  std::lock_guard guard(mutex_);
  if (rules_.is_stopping())
    return fail(errc::shutting_down, "the io engine has been stopped");
  return rules_.resources().add_buffer(bytes);
}

void thread_pool_engine::remove_buffer(std::uint32_t buffer) {
  std::lock_guard guard(mutex_);
  rules_.resources().remove_buffer(buffer);
}

void thread_pool_engine::submit(std::span<const request> requests) {
  std::vector<completion> refused;
  {
    std::lock_guard guard(mutex_);
    counters_.submitted += requests.size();
    const auto alarm_before = rules_.table().next_deadline();
    for (const auto& what : requests)
      if (rules_.accept(what))
        rules_.table().add(what);
    if (ended_)
      std::swap(refused, rules_.done());
    counters_.completed += refused.size();
    if (!rules_.done().empty() || rules_.table().next_deadline() != alarm_before)
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
  rules_.cancel({&tag, 1});
  notify();
}

void thread_pool_engine::stop() {
  std::lock_guard stopping(stop_mutex_);
  if (!deliverer_.joinable())
    return;
  {
    std::lock_guard guard(mutex_);
    rules_.stop();
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

void thread_pool_engine::notify() {
  if (!rules_.done().empty())
    events_.notify_one();
}

void thread_pool_engine::expire() {
  if (!rules_.table().next_deadline())
    return;
  rules_.expire(std::chrono::steady_clock::now());
  notify();
}

// -- threads --

void thread_pool_engine::work() {
  lock held(mutex_);
  for (;;) {
    work_.wait(held, [this] { return ended_ || rules_.table().waiting() > 0; });
    if (ended_)
      return;
    expire();
    if (const auto i = rules_.table().start_next(); i != operation_table::none)
      carry_out(i, held);
  }
}

void thread_pool_engine::carry_out(index i, lock& held) {
  for (;;) {
    const auto what = rules_.table().at(i).what;
    const auto done = rules_.table().at(i).done;
    const auto descriptor = rules_.resources().descriptor(what.file);
    held.unlock();
    const auto outcome = is_allowed(options_.gate, what.op) ? transfer_(what.op, descriptor, what.data + done,
                                                                        what.length - done, what.file_offset + done)
                                                            : -ESTALE;
    held.lock();
    if (!rules_.advance(i, outcome))
      return notify();
    ++counters_.continued;
  }
}

void thread_pool_engine::deliver() {
  lock held(mutex_);
  std::vector<completion> batch;
  for (;;) {
    expire();
    if (!rules_.done().empty()) {
      batch.clear();
      std::swap(batch, rules_.done());
      counters_.completed += batch.size();
      held.unlock();
      sink_(batch);
      held.lock();
    } else if (rules_.is_stopping() && rules_.table().empty()) {
      ended_ = true;
      work_.notify_all();
      return;
    } else if (const auto until = rules_.table().next_deadline()) {
      events_.wait_until(held, *until);
    } else {
      events_.wait(held);
    }
  }
}

} // namespace troupe::io
