#include "io/engine/uring_engine.hpp"

#include "base/event_signal.hpp"
#include "io/engine/ring.hpp"

#include <cerrno>
#include <chrono>
#include <future>
#include <sys/eventfd.h>
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

/// The loop on the ring. The ring reads the eventfd all the time, so that a caller who writes to it ends the sleep at
/// once, or keeps it from beginning.
///
/// Every row of the table waits here or runs in the kernel. A running row ends only by a completion of the kernel,
/// because until then the kernel may write into its memory: a cancellation only asks the kernel to hurry.
class uring_engine::loop final : public engine_loop {
public:
  loop(uring_engine& engine, std::unique_ptr<ring> opened)
      : engine_loop(engine), engine_(engine), ring_(std::move(opened)) {}

  void run() {
    listen();
    while (begin_round()) {
      expire(); // before new ones start: an expired request never reaches the kernel
      start_waiting();
      sleep();
      awake(); // a caller that still wrote to the eventfd only ends the next sleep
      reap();
    }
    hang_up();
  }

private:
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

  // -- requests --

  queue_name queue_of(const request& what) const override {
    return ring_->is_serial(what) ? queue_name::serial : queue_name::concurrent;
  }

  void cancel_transfer(index i) override {
    // The handle has the row's generation: if the row is reused by the time the kernel handles this, it matches
    // nothing.
    const auto handle = table_.handle_of(i);
    ring_->prepare_cancel(tagged(kind::transfer, handle), tagged(kind::cancellation, handle));
    table_.set_deadline(i, std::chrono::steady_clock::now() + cancel_interval);
  }

  result<void> register_file(std::uint32_t file, int descriptor) override {
    ring_->add_file(file, descriptor);
    return {};
  }

  void forget_file(std::uint32_t file) override { ring_->remove_file(file); }

  result<void> register_buffer(std::uint32_t buffer, std::span<std::byte> bytes) override {
    ring_->add_buffer(buffer, bytes);
    return {};
  }

  void forget_buffer(std::uint32_t buffer) override { ring_->remove_buffer(buffer); }

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
      return finish(i, errc::io_error, ESTALE);
    ring_->prepare_transfer(r.what, r.done, resources_.descriptor(r.what.file),
                            tagged(kind::transfer, table_.handle_of(i)));
  }

  // -- the kernel --

  void sleep() {
    // These completions must be delivered before the thread waits for the kernel.
    if (!rules_.done().empty())
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
        return take(user_data & handle_mask, outcome);
      case kind::cancellation:
        return; // the completion of the request itself has the outcome
      case kind::wake_up:
        return listen();
      }
      unmatched("io_uring completed", user_data, outcome);
    });
  }

  void take(std::uint64_t handle, std::int32_t outcome) {
    if (table_.find_running(handle) == nullptr)
      return unmatched("io_uring completed", handle, outcome);
    if (const auto i = operation_table::index_of(handle); advance(i, outcome))
      transfer(i);
  }

  uring_engine& engine_;
  std::unique_ptr<ring> ring_;
  std::uint64_t wake_value_ = 0;
  bool listening_ = false;
};

uring_engine::uring_engine(const engine_options& options, completion_sink sink)
    : queued_engine(options, std::move(sink)), wake_up_(::eventfd(0, EFD_CLOEXEC)) {}

result<std::unique_ptr<engine>> uring_engine::start(const engine_options& options, completion_sink sink) {
  std::unique_ptr<uring_engine> made(new uring_engine(options, std::move(sink)));
  if (!made->wake_up_)
    return tl::unexpected(system_error(errno, "cannot create an eventfd"));
  const auto opened = std::make_shared<std::promise<result<void>>>();
  auto outcome = opened->get_future();
  // The kernel lets only the thread that makes the ring use it.
  auto started = made->start_with([self = made.get(), opened] {
    auto kernel = ring::open(self->options_);
    if (!kernel)
      return opened->set_value(tl::unexpected(kernel.error()));
    self->description_ = "io_uring, depth " + std::to_string(self->options_.depth) + ", " + (*kernel)->features();
    loop running(*self, std::move(*kernel));
    opened->set_value({});
    running.run();
  });
  if (started)
    started = outcome.get();
  if (!started)
    return tl::unexpected(std::move(started.error()));
  return made;
}

uring_engine::~uring_engine() {
  stop();
}

void uring_engine::wake() {
  signal_event(wake_up_.get());
}

} // namespace troupe::io
