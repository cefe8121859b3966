#pragma once

#include "io/engine/engine.hpp"
#include "io/engine/engine_resources.hpp"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::test {

/// The fault of a disk in one request.
struct fault {
  /// Completes with this instead of carrying out the request, or after `bytes` of it.
  errc status = errc::ok;
  int system_errno = 0;
  /// Moves no more than this and says nothing about the rest: with `status` ok a torn page, with 0 a lost write.
  std::uint64_t bytes = ~std::uint64_t{0};
  /// Transfers somewhere else in the file.
  std::int64_t shift = 0;
  /// Begins only when released, like a request that the disk holds: `cancel` and deadlines are recorded, and end it
  /// when it is released. `stop` releases all.
  bool held = false;
};

/// Stands in the place of an engine in tests: reads and writes real files, but on the thread that submits or
/// releases, in order, and with the faults that a plan asks for. Nothing happens by itself: completions are given to
/// the sink before `submit` or `release` returns. The clock is an argument.
class fault_engine final : public io::engine {
public:
  /// Called for each request, with its ordinal since the start (0, 1, …).
  using plan = std::function<fault(const io::request&, std::uint64_t ordinal)>;

  explicit fault_engine(io::completion_sink sink, plan faults = {});
  ~fault_engine() override;

  /// Replaces the plan.
  void set_plan(plan faults);

  /// Carries out the held request with this tag; false if there is none.
  bool release(std::uint64_t tag);

  /// Carries out all held requests, in order; how many.
  std::size_t release_all();

  /// Tells the time: held requests with an earlier deadline complete with `timeout` when they are released.
  void set_now(timestamp now);

  /// Tags of the held requests, in order of submission.
  std::vector<std::uint64_t> held() const;

  result<std::uint32_t> add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override;
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override;
  void remove_buffer(std::uint32_t buffer) override;
  void submit(std::span<const io::request> requests) override;
  void cancel(std::uint64_t tag) override;
  void stop() override;
  io::engine_counters counters() const override;
  std::string describe() const override;

private:
  struct held_request {
    io::request what;
    fault how;
    errc abandoned = errc::ok;
  };

  io::completion carry_out(const held_request& one);
  void deliver(const std::vector<io::completion>& batch);

  const io::completion_sink sink_;

  mutable std::mutex mutex_;
  plan plan_;
  io::engine_resources resources_;
  std::vector<held_request> held_;
  timestamp now_ = timestamp::min();
  std::uint64_t ordinal_ = 0;
  bool stopped_ = false;
  io::engine_counters counters_;
};

} // namespace troupe::test
