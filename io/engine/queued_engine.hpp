#pragma once

#include "io/engine/command_queue.hpp"
#include "io/engine/engine.hpp"
#include "io/engine/request_rules.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe::io {

class engine_loop;

/// An engine of which one thread makes all calls to the system, in an `engine_loop`. Callers queue commands, and wake
/// the thread when it sleeps. The destructor of a derived class calls `stop`.
class queued_engine : public engine {
public:
  result<std::uint32_t> add_file(int descriptor) final;
  void remove_file(std::uint32_t file) final;
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) final;
  void remove_buffer(std::uint32_t buffer) final;
  void submit(std::span<const request> requests) final;
  void cancel(std::uint64_t tag) final;
  void stop() final;
  engine_counters counters() const final;

protected:
  queued_engine(const engine_options& options, completion_sink sink);

  /// Starts the thread with `body`, which runs the loop. Error: `io_error`.
  result<void> start_with(std::function<void()> body);

  /// Ends the present or the next sleep of the loop. May be called from any thread.
  virtual void wake() = 0;

  const engine_options options_;

private:
  friend class engine_loop;

  /// Appends to the commands and wakes the thread if it sleeps; returns false if its loop has ended.
  template <class Append>
  bool leave(Append append);

  /// Runs `what` on the engine's thread and waits for it. Does nothing if its loop has ended.
  void call(const std::function<void()>& what);

  /// Adds a file or buffer on the engine's thread, unless the system refuses it.
  template <class Add, class Register, class Remove>
  result<std::uint32_t> add(Add add, Register with_system, Remove remove);

  const completion_sink sink_;
  command_queue queue_;

  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> continued_{0};
  std::atomic<std::uint64_t> unmatched_{0};

  /// Set before the first command.
  engine_loop* loop_ = nullptr;
  /// The engine's thread while it runs.
  std::atomic<std::thread::id> owner_{};

  std::mutex stop_mutex_;
  std::thread thread_;
};

/// The loop of the thread of a `queued_engine`, and its state. Only that thread uses it, so it has no locks. A derived
/// class decides when the steps come, and adds its own: starting what waits, sleeping, and taking outcomes.
///
/// A running row ends only by an outcome or when the derived class knows that the system no longer uses its memory.
/// When the loop has ended, the table is empty and no more commands are accepted, so all requests were completed.
class engine_loop {
public:
  explicit engine_loop(queued_engine& engine);
  engine_loop(const engine_loop&) = delete;
  engine_loop& operator=(const engine_loop&) = delete;
  virtual ~engine_loop() = default;

protected:
  using index = operation_table::index;
  using queue_name = operation_table::queue_name;

  virtual queue_name queue_of(const request& what) const = 0;

  /// Cancels the transfer of a row that runs and is abandoned, as far as possible. It is called again each time that
  /// there is another reason.
  virtual void cancel_transfer(index i) = 0;

  // Files and buffers that `resources_` has added, or is about to remove.
  virtual result<void> register_file(std::uint32_t file, int descriptor) = 0;
  virtual void forget_file(std::uint32_t file) = 0;
  virtual result<void> register_buffer(std::uint32_t buffer, std::span<std::byte> bytes) = 0;
  virtual void forget_buffer(std::uint32_t buffer) = 0;

  /// Delivers completions, then takes and carries out commands, and announces the sleep. Returns false when the loop
  /// has to end.
  bool begin_round();
  /// Ends the requests whose deadline has passed.
  void expire();
  /// Is called after the sleep.
  void awake() noexcept { shell_.queue_.awake(); }

  /// Takes the outcome of a transfer. Returns true if the rest has to be transferred.
  bool advance(index i, std::int64_t outcome);
  void finish(index i, errc status, int system_errno) { rules_.finish(i, status, system_errno); }
  /// Counts and logs an outcome that names no running row: one of an earlier use of a row must not end the present one.
  /// `event`: "io_uring completed".
  void unmatched(std::string_view event, std::uint64_t handle, std::int64_t outcome);

private:
  friend class queued_engine;

  queued_engine& shell_;
  command_queue::commands taken_;

protected:
  request_rules rules_;
  engine_resources& resources_ = rules_.resources();
  operation_table& table_ = rules_.table();
};

} // namespace troupe::io
