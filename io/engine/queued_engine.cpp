#include "io/engine/queued_engine.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace troupe::io {

queued_engine::queued_engine(const engine_options& options, completion_sink sink)
    : options_(options), sink_(std::move(sink)) {}

result<void> queued_engine::start_with(std::function<void()> body) {
  auto started = start_thread(options_.name, "the thread of an io engine", [this, body = std::move(body)] {
    owner_ = std::this_thread::get_id();
    body();
    owner_ = std::thread::id{}; // the system may give this number to another thread
  });
  if (!started)
    return tl::unexpected(std::move(started.error()));
  thread_ = std::move(*started);
  return {};
}

template <class Append>
bool queued_engine::leave(Append append) {
  const auto outcome = queue_.put(append);
  // Outside the lock of the queue: the thread that this wakes acquires it at once.
  if (outcome == command_queue::outcome::queued_while_asleep)
    wake();
  return outcome != command_queue::outcome::closed;
}

void queued_engine::call(const std::function<void()>& what) {
  // Within the sink this is the engine's thread, which must not wait for itself.
  if (std::this_thread::get_id() == owner_)
    return what();
  // Shared: the engine's thread may still be inside set_value when the wait has ended.
  const auto promise = std::make_shared<std::promise<void>>();
  auto finished = promise->get_future();
  const bool left = leave([&](command_queue::commands& c) {
    c.calls.emplace_back([&what, promise] {
      what();
      promise->set_value();
    });
  });
  if (left)
    finished.wait();
}

template <class Add, class Register, class Remove>
result<std::uint32_t> queued_engine::add(Add add, Register with_system, Remove remove) {
  result<std::uint32_t> id = fail(errc::shutting_down, "the io engine has been stopped");
  call([&] {
    if (loop_->rules_.is_stopping() || !(id = add()))
      return;
    if (auto known = with_system(*id); !known) {
      remove(*id);
      id = tl::unexpected(std::move(known.error()));
    }
  });
  return id;
}

result<std::uint32_t> queued_engine::add_file(int descriptor) {
  return add([&] { return loop_->resources_.add_file(descriptor); },
             [&](std::uint32_t id) { return loop_->register_file(id, descriptor); },
             [&](std::uint32_t id) { loop_->resources_.remove_file(id); });
}

void queued_engine::remove_file(std::uint32_t file) {
  call([&] {
    if (loop_->resources_.descriptor(file) < 0)
      return;
    loop_->forget_file(file);
    loop_->resources_.remove_file(file);
  });
}

result<std::uint32_t> queued_engine::add_buffer(std::span<std::byte> bytes) {
  return add([&] { return loop_->resources_.add_buffer(bytes); },
             [&](std::uint32_t id) { return loop_->register_buffer(id, bytes); },
             [&](std::uint32_t id) { loop_->resources_.remove_buffer(id); });
}

void queued_engine::remove_buffer(std::uint32_t buffer) {
  call([&] {
    if (loop_->resources_.buffer(buffer).empty())
      return;
    loop_->forget_buffer(buffer);
    loop_->resources_.remove_buffer(buffer);
  });
}

void queued_engine::submit(std::span<const request> requests) {
  if (requests.empty())
    return;
  submitted_.fetch_add(requests.size(), std::memory_order_relaxed);
  const bool left =
      leave([&](command_queue::commands& c) { c.requests.insert(c.requests.end(), requests.begin(), requests.end()); });
  if (left)
    return;
  // The loop has ended, so this thread answers.
  std::vector<completion> refused;
  for (const auto& what : requests)
    refused.push_back({what.tag, errc::shutting_down, 0});
  completed_.fetch_add(refused.size(), std::memory_order_relaxed);
  sink_(refused);
}

void queued_engine::cancel(std::uint64_t tag) {
  leave([&](command_queue::commands& c) { c.cancelled_tags.push_back(tag); });
}

void queued_engine::stop() {
  std::lock_guard guard(stop_mutex_);
  if (!thread_.joinable())
    return;
  leave([](command_queue::commands& c) { c.stop = true; });
  thread_.join();
}

engine_counters queued_engine::counters() const {
  return {submitted_.load(std::memory_order_relaxed), completed_.load(std::memory_order_relaxed),
          continued_.load(std::memory_order_relaxed), unmatched_.load(std::memory_order_relaxed)};
}

// -- on the engine's thread --

engine_loop::engine_loop(queued_engine& engine) : shell_(engine), rules_(engine.options_) {
  engine.loop_ = this;
}

bool engine_loop::begin_round() {
  do {
    // Delivery comes first, so that `take` finds no completion left and takes what the sink submits.
    if (auto& done = rules_.done(); !done.empty()) {
      shell_.completed_.fetch_add(done.size(), std::memory_order_relaxed);
      shell_.sink_(done);
      done.clear();
    }
    if (!shell_.queue_.take(taken_, rules_.is_idle()))
      return false;
    // Calls run first: a request may use a buffer that was added before it, and one that uses a removed buffer is
    // refused instead of reading freed memory.
    for (const auto& call : taken_.calls)
      call();
    for (const auto& what : taken_.requests)
      if (rules_.accept(what))
        table_.add(what, queue_of(what));
    for (const auto i : rules_.cancel(taken_.cancelled_tags))
      cancel_transfer(i);
    // Requests that were submitted before `stop` are in the table by now, so one pass cancels all of them.
    if (taken_.stop)
      for (const auto i : rules_.stop())
        cancel_transfer(i);
    // Where calls came together with `stop`, the queue is still open, and nothing would end the next sleep.
  } while (taken_.stop && rules_.is_idle());
  return true;
}

void engine_loop::expire() {
  // Without deadlines the clock is not read.
  if (table_.next_deadline())
    for (const auto i : rules_.expire(std::chrono::steady_clock::now()))
      cancel_transfer(i);
}

bool engine_loop::advance(index i, std::int64_t outcome) {
  if (!rules_.advance(i, outcome))
    return false;
  shell_.continued_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void engine_loop::unmatched(std::string_view event, std::uint64_t handle, std::int64_t outcome) {
  const auto count = shell_.unmatched_.fetch_add(1, std::memory_order_relaxed) + 1;
  log::get("io")->error("{} {:#x} with {}, which belongs to no request; {} such so far", event, handle, outcome, count);
}

} // namespace troupe::io
