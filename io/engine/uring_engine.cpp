#include "io/engine/uring_engine.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"
#include "io/engine/engine_resources.hpp"
#include "io/engine/operation_table.hpp"
#include "io/engine/ring.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <unordered_set>
#include <utility>

namespace troupe::io {

namespace {

// The upper two bits of the user data give the kind of completion; below them is the handle of a row.
enum class kind : std::uint64_t { transfer = 0, cancellation = 1, wake_up = 2 };

constexpr unsigned kind_shift = 62;
constexpr std::uint64_t handle_mask = (1ULL << kind_shift) - 1;

constexpr std::uint64_t tagged(kind what, std::uint64_t handle) noexcept {
  return static_cast<std::uint64_t>(what) << kind_shift | handle;
}

// A cancellation can miss a request that moves between two queues of the kernel, so it is repeated until the request
// ends.
constexpr auto cancel_interval = std::chrono::milliseconds(100);

// Copies into one file exclude each other, so a few, some 2 ms of work here, keep the copying thread busy. More would
// only delay other transfers where that is the ring thread itself.
constexpr std::uint64_t serial_bytes_under_way = 8ULL << 20U;

} // namespace

/// The loop of the ring thread and its state. Only that thread uses it, so it has no locks; the engine's `commands_`,
/// `ended_` and `sleeping_` are shared with callers.
///
/// No command is missed while the thread sleeps. `take_commands` empties the queue and announces the sleep under one
/// lock. A caller that queues a command later finds the announcement, clears it and writes to the eventfd, which the
/// ring reads all the time, so that the sleep ends at once or does not begin. A caller that queues one after the sleep
/// finds no announcement and writes nothing, since the queue is emptied before the next sleep anyway. So of many
/// commands only the first one costs a system call.
///
/// Every row of the table waits here or runs in the kernel. A running row ends only by a completion of the kernel,
/// because until then the kernel may write into its memory: a cancellation only asks the kernel to hurry. When the
/// engine has ended, the table is empty and no more commands are accepted, so all requests were completed.
class uring_engine::loop {
public:
  loop(uring_engine& engine, std::unique_ptr<ring> opened)
      : engine_(engine), ring_(std::move(opened)), resources_(engine.options_.max_files, engine.options_.max_buffers) {}

  void run() {
    listen();
    for (;;) {
      // Delivery comes first, so that `take_commands` finds no pending notification and takes what the sink submits.
      deliver();
      if (!take_commands())
        break;
      obey();
      expire(); // before new ones start: an expired request never reaches the kernel
      start_waiting();
      sleep();
      // Needs no lock: a caller that sees the old value wakes a thread that is awake, and the next round reads the
      // eventfd.
      engine_.sleeping_.store(false, std::memory_order_relaxed);
      reap();
    }
    hang_up();
  }

  ring& kernel() noexcept { return *ring_; }
  engine_resources& resources() noexcept { return resources_; }

private:
  using index = operation_table::index;
  using queue_name = operation_table::queue_name;

  // -- callers --

  // One read of the eventfd is always in flight; each wake-up is answered by the next read.
  void listen() {
    ring_->prepare_read(engine_.wake_up_.get(), std::as_writable_bytes(std::span(&wake_value_, 1)),
                        tagged(kind::wake_up, 0));
    listening_ = true;
  }

  // The last read writes into this object, so it has to end before the object is destroyed.
  void hang_up() {
    ring_->prepare_cancel(tagged(kind::wake_up, 0), tagged(kind::cancellation, 0));
    while (listening_) {
      ring_->submit_and_wait(std::nullopt);
      // Other completions are ignored: only the read of the eventfd is still in flight.
      ring_->reap([this](std::uint64_t user_data, std::int32_t) {
        if (user_data == tagged(kind::wake_up, 0))
          listening_ = false;
      });
    }
  }

  // Returns false when all requests are completed and no more commands are accepted.
  bool take_commands() {
    taken_.requests.clear();
    taken_.cancelled_tags.clear();
    taken_.calls.clear();
    // Swapped, not moved: both sides keep the capacity of their vectors, and neither allocates once it has grown.
    std::lock_guard guard(engine_.mutex_);
    std::swap(taken_.requests, engine_.commands_.requests);
    std::swap(taken_.cancelled_tags, engine_.commands_.cancelled_tags);
    std::swap(taken_.calls, engine_.commands_.calls);
    taken_.stop = engine_.commands_.stop;
    engine_.sleeping_.store(true, std::memory_order_relaxed);
    // Decided under the lock under which commands are queued: none comes after the last round.
    const bool idle = taken_.requests.empty() && taken_.calls.empty() && table_.empty() && done_.empty();
    engine_.ended_ = taken_.stop && idle;
    return !engine_.ended_;
  }

  void obey() {
    // Calls run first: a request may use a buffer that was added before it, and one that uses a removed buffer is
    // refused by `resources_` instead of reading freed memory.
    for (const auto& call : taken_.calls)
      call(*this);
    for (const auto& what : taken_.requests)
      accept(what);
    if (!taken_.cancelled_tags.empty())
      cancel_tags();
    // Requests that were submitted before `stop` are in the table by now, so one pass cancels all of them.
    if (taken_.stop && !stopping_) {
      stopping_ = true;
      table_.for_each([this](index i, const operation_table::row&) { abandon(i, errc::shutting_down); });
    }
  }

  void accept(const request& what) {
    const auto code = stopping_ ? errc::shutting_down : resources_.check(what);
    // An invalid request is completed without a row: there is nothing that the kernel could still use.
    if (code == errc::ok)
      table_.add(what, ring_->is_serial(what) ? queue_name::serial : queue_name::concurrent);
    else
      done_.push_back({what.tag, code, 0});
  }

  // One pass for all: a client that dies cancels thousands at once.
  void cancel_tags() {
    const std::unordered_set<std::uint64_t> tags(taken_.cancelled_tags.begin(), taken_.cancelled_tags.end());
    table_.for_each([&](index i, const operation_table::row& r) {
      if (tags.contains(r.what.tag))
        abandon(i, errc::cancelled);
    });
  }

  // -- requests --

  // A waiting request ends now. A running one ends when the kernel completes it, since until then the kernel owns its
  // memory.
  void abandon(index i, errc why) {
    auto& r = table_.at(i);
    if (r.state == operation_table::state::waiting)
      return finish(i, why, 0);
    // The first reason stays: later calls only repeat the cancellation.
    if (r.abandoned == errc::ok)
      r.abandoned = why;
    // The handle has the row's generation: if the row is reused by the time the kernel handles this, it matches
    // nothing.
    const auto handle = table_.handle_of(i);
    ring_->prepare_cancel(tagged(kind::transfer, handle), tagged(kind::cancellation, handle));
    table_.set_deadline(i, std::chrono::steady_clock::now() + cancel_interval);
  }

  void expire() {
    // Without deadlines the clock is not read.
    if (!table_.next_deadline())
      return;
    const auto now = std::chrono::steady_clock::now();
    for (auto i = table_.take_expired(now); i != operation_table::none; i = table_.take_expired(now))
      abandon(i, errc::timeout);
  }

  void start_waiting() {
    while (table_.waiting() > 0 && table_.running() < engine_.options_.depth)
      transfer(table_.start_next());
    start_serial();
  }

  // Serial requests come last in the ring, so that workers have begun if this thread has to copy.
  void start_serial() {
    while (table_.waiting(queue_name::serial) > 0 && table_.running(queue_name::serial) < engine_.options_.depth &&
           table_.running_bytes(queue_name::serial) < serial_bytes_under_way)
      transfer(table_.start_next(queue_name::serial));
  }

  void transfer(index i) {
    const auto& r = table_.at(i);
    // The claim on the directory may have been lost while the request waited.
    if (!is_allowed(engine_.options_.gate, r.what.op))
      return finish(i, final_status(errc::io_error, r.abandoned), ESTALE);
    ring_->prepare_transfer(r.what, r.done, resources_.descriptor(r.what.file),
                            tagged(kind::transfer, table_.handle_of(i)));
  }

  void finish(index i, errc status, int system_errno) {
    done_.push_back({table_.at(i).what.tag, status, system_errno});
    table_.remove(i);
  }

  // -- the kernel --

  void sleep() {
    // These completions must be delivered before the thread waits for the kernel.
    if (!done_.empty())
      return ring_->submit();
    // The sleep ends at the next deadline, which may be the time to repeat a cancellation.
    const auto until = table_.next_deadline();
    if (until)
      ring_->submit_and_wait(*until - std::chrono::steady_clock::now());
    else
      ring_->submit_and_wait(std::nullopt);
  }

  void reap() {
    ring_->reap([this](std::uint64_t user_data, std::int32_t outcome) {
      switch (static_cast<kind>(user_data >> kind_shift)) {
      case kind::transfer:
        return take_outcome(user_data & handle_mask, outcome);
      case kind::cancellation:
        return; // the completion of the request itself has the outcome
      case kind::wake_up:
        return listen();
      }
      unmatched(user_data, outcome);
    });
  }

  void take_outcome(std::uint64_t handle, std::int32_t outcome) {
    auto* const r = table_.find_running(handle);
    // A completion of an earlier use of the row must not end the present one.
    if (r == nullptr)
      return unmatched(handle, outcome);
    const auto i = operation_table::index_of(handle);
    const auto judged = judge_transfer(r->what, outcome, r->done, r->fruitless);
    if (!judged.again)
      return finish(i, final_status(judged.status, r->abandoned), judged.system_errno);
    // The kernel moved a part of a cancelled request: the rest is not requested.
    if (r->abandoned != errc::ok)
      return finish(i, r->abandoned, 0);
    engine_.continued_.fetch_add(1, std::memory_order_relaxed);
    transfer(i);
  }

  void unmatched(std::uint64_t user_data, std::int32_t outcome) {
    const auto count = engine_.unmatched_.fetch_add(1, std::memory_order_relaxed) + 1;
    log::get("io")->error("io_uring completed {:#x} with {}, which belongs to no request; {} such so far", user_data,
                          outcome, count);
  }

  void deliver() {
    if (done_.empty())
      return;
    engine_.completed_.fetch_add(done_.size(), std::memory_order_relaxed);
    engine_.sink_(done_);
    done_.clear();
  }

  uring_engine& engine_;
  std::unique_ptr<ring> ring_;
  engine_resources resources_;
  operation_table table_;
  commands taken_;
  std::vector<completion> done_;
  std::uint64_t wake_value_ = 0;
  bool listening_ = false;
  bool stopping_ = false;
};

uring_engine::uring_engine(const engine_options& options, completion_sink sink)
    : options_(options), sink_(std::move(sink)), wake_up_(::eventfd(0, EFD_CLOEXEC)) {}

result<std::unique_ptr<engine>> uring_engine::start(const engine_options& options, completion_sink sink) {
  std::unique_ptr<uring_engine> made(new uring_engine(options, std::move(sink)));
  if (!made->wake_up_)
    return tl::unexpected(system_error(errno, "cannot create an eventfd"));
  const auto opened = std::make_shared<std::promise<result<void>>>();
  auto outcome = opened->get_future();
  try {
    // The kernel lets only the thread that makes the ring use it.
    made->thread_ = std::thread(named(options.name, [self = made.get(), opened] {
      auto kernel = ring::open(self->options_);
      if (!kernel) {
        self->ended_ = true;
        return opened->set_value(tl::unexpected(kernel.error()));
      }
      self->description_ = "io_uring, depth " + std::to_string(self->options_.depth) + ", " + (*kernel)->features();
      loop running(*self, std::move(*kernel));
      self->loop_ = &running;
      opened->set_value({});
      running.run();
    }));
  } catch (const std::system_error& e) {
    made->ended_ = true;
    return tl::unexpected(no_thread("the thread of an io engine", e.code().value()));
  }
  made->ring_thread_ = made->thread_.get_id();
  if (auto ready = outcome.get(); !ready)
    return tl::unexpected(ready.error());
  return made;
}

uring_engine::~uring_engine() {
  stop();
}

template <class Append>
bool uring_engine::leave(Append append) {
  {
    std::lock_guard guard(mutex_);
    if (ended_)
      return false;
    append(commands_);
    if (!sleeping_.exchange(false, std::memory_order_relaxed))
      return true;
  }
  // Written outside the lock: the thread that this wakes acquires it at once.
  const std::uint64_t one = 1;
  while (::write(wake_up_.get(), &one, sizeof one) == -1 && errno == EINTR) {
  }
  return true;
}

bool uring_engine::call(const std::function<void(loop&)>& what) {
  // Within the sink this is the ring thread, which must not wait for itself.
  if (std::this_thread::get_id() == ring_thread_) {
    what(*loop_);
    return true;
  }
  // Shared: the ring thread may still be inside set_value when the wait has ended.
  const auto promise = std::make_shared<std::promise<void>>();
  auto finished = promise->get_future();
  const bool left = leave([&](commands& c) {
    c.calls.emplace_back([&what, promise](loop& l) {
      what(l);
      promise->set_value();
    });
  });
  if (left)
    finished.wait();
  return left;
}

result<std::uint32_t> uring_engine::add_file(int descriptor) {
  result<std::uint32_t> id = fail(errc::shutting_down, "the io engine has been stopped");
  call([&](loop& l) {
    id = l.resources().add_file(descriptor);
    if (id)
      l.kernel().add_file(*id, descriptor);
  });
  return id;
}

void uring_engine::remove_file(std::uint32_t file) {
  call([&](loop& l) {
    if (l.resources().descriptor(file) < 0)
      return;
    l.kernel().remove_file(file);
    l.resources().remove_file(file);
  });
}

result<std::uint32_t> uring_engine::add_buffer(std::span<std::byte> bytes) {
  result<std::uint32_t> id = fail(errc::shutting_down, "the io engine has been stopped");
  call([&](loop& l) {
    id = l.resources().add_buffer(bytes);
    if (id)
      l.kernel().add_buffer(*id, bytes);
  });
  return id;
}

void uring_engine::remove_buffer(std::uint32_t buffer) {
  call([&](loop& l) {
    if (l.resources().buffer(buffer).empty())
      return;
    l.kernel().remove_buffer(buffer);
    l.resources().remove_buffer(buffer);
  });
}

void uring_engine::submit(std::span<const request> requests) {
  if (requests.empty())
    return;
  submitted_.fetch_add(requests.size(), std::memory_order_relaxed);
  const bool left = leave([&](commands& c) { c.requests.insert(c.requests.end(), requests.begin(), requests.end()); });
  if (left)
    return;
  // The ring thread has ended, so this thread answers.
  std::vector<completion> refused;
  for (const auto& what : requests)
    refused.push_back({what.tag, errc::shutting_down, 0});
  completed_.fetch_add(refused.size(), std::memory_order_relaxed);
  sink_(refused);
}

void uring_engine::cancel(std::uint64_t tag) {
  leave([&](commands& c) { c.cancelled_tags.push_back(tag); });
}

void uring_engine::stop() {
  std::lock_guard guard(stop_mutex_);
  if (!thread_.joinable())
    return;
  leave([](commands& c) { c.stop = true; });
  thread_.join();
}

engine_counters uring_engine::counters() const {
  return {submitted_.load(std::memory_order_relaxed), completed_.load(std::memory_order_relaxed),
          continued_.load(std::memory_order_relaxed), unmatched_.load(std::memory_order_relaxed)};
}

std::string uring_engine::describe() const {
  return description_;
}

} // namespace troupe::io
