#pragma once

#include "io/engine/engine.hpp"
#include "io/engine/request_rules.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::io {

/// An engine of threads that call pread and pwrite, for systems without io_uring. It has the same contract, except that
/// a transfer in progress cannot be cancelled: it runs to its end and is completed then.
class thread_pool_engine final : public engine {
public:
  /// Moves bytes between a file and memory; returns their number or -errno. Called by several threads at once.
  using transfer_function = std::function<std::int64_t(operation op, int descriptor, std::byte* data,
                                                       std::uint64_t length, std::uint64_t offset)>;

  /// Calls pread or pwrite.
  static std::int64_t system_transfer(operation op, int descriptor, std::byte* data, std::uint64_t length,
                                      std::uint64_t offset);

  /// Error: `io_error` when the threads cannot be started.
  static result<std::unique_ptr<engine>> start(const engine_options& options, completion_sink sink,
                                               transfer_function transfer = system_transfer);

  ~thread_pool_engine() override;

  result<std::uint32_t> add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override;
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override;
  void remove_buffer(std::uint32_t buffer) override;
  void submit(std::span<const request> requests) override;
  void cancel(std::uint64_t tag) override;
  void stop() override;
  engine_counters counters() const override;
  std::string describe() const override;

private:
  using index = operation_table::index;
  using lock = std::unique_lock<std::mutex>;

  thread_pool_engine(const engine_options& options, completion_sink sink, transfer_function transfer);

  void work();
  void carry_out(index i, lock& held);
  void deliver();
  void expire();
  void notify();

  const engine_options options_;
  const completion_sink sink_;
  const transfer_function transfer_;

  mutable std::mutex mutex_;
  /// Workers wait here for requests, the delivering thread for completions and deadlines.
  std::condition_variable work_;
  std::condition_variable events_;
  request_rules rules_;
  engine_counters counters_;
  bool ended_ = false;

  std::mutex stop_mutex_;
  std::vector<std::thread> workers_;
  std::thread deliverer_;
};

} // namespace troupe::io
