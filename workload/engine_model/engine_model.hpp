#pragma once

#include "connector/output_aggregator.hpp"
#include "connector/scheduler_half.hpp"
#include "connector/worker_half.hpp"
#include "workload/engine_model/device.hpp"
#include "workload/engine_model/options.hpp"
#include "workload/engine_model/scheduler.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::engine {

/// An engine as a connector sees it: a scheduler, workers with paged KV cache, and steps in which every hook is called
/// in the order of vLLM 0.32. It computes no tensors: what would be KV is a number that says what it depends on, so
/// that each forward pass can tell whether it reads the right KV, on every worker, which is when its output is the same
/// as without any cache.
///
/// What must not happen is collected in `violations`, and the engine goes on. Properties that it checks itself: "P4",
/// a forward pass reads wrong KV, and "engine", something that would make a real engine's assertions fail.
///
/// Plain state; the connector's halves and the device outlive it.
class engine_model {
public:
  engine_model(const engine_options& options, connector::scheduler_half& scheduler,
               std::span<connector::worker_half* const> workers, device& memory);

  /// False if the engine has a request of this id, or if it could never fit.
  bool add(request_spec spec) { return scheduler_.add(std::move(spec)); }
  /// Between steps; with `async_scheduling`, an output is outstanding then. False if there is nothing to abort.
  bool abort(std::string_view id) { return scheduler_.abort(id); }

  /// One step, from schedule to output. How many tokens it has computed.
  std::uint32_t step();

  bool idle() const noexcept { return scheduler_.idle(); }
  const engine_options& options() const noexcept { return scheduler_.options(); }
  const scheduler& schedule() const noexcept { return scheduler_; }
  const request* find(std::string_view id) const { return scheduler_.find(id); }
  const block_pool& pool() const noexcept { return scheduler_.pool(); }
  const engine_statistics& statistics() const noexcept { return statistics_; }
  const std::vector<violation>& found() const noexcept { return violations_.found(); }
  /// See `scheduler::reset_prefix_cache`.
  bool reset_prefix_cache(bool reset_running_requests) { return scheduler_.reset_prefix_cache(reset_running_requests); }

  /// Every block is free or held by exactly those requests that list it. What contradicts that; empty if nothing does.
  std::string check_pool() const;

private:
  /// A forward pass has read wrong KV.
  struct wrong_read {
    const request* who = nullptr;
    std::string text;
  };
  struct outcome {
    scheduled_step step;
    connector::worker_output output;
    std::vector<wrong_read> wrong;
  };

  static void sample(step_part& part);
  connector::worker_output execute(std::uint32_t worker, outcome& now);
  void forward(std::uint32_t worker, const step_part& part, std::vector<wrong_read>& wrong);
  /// Why the KV that this part of a step builds upon is wrong; empty if it is right.
  std::string find_wrong(std::uint32_t worker, const step_part& part);
  void take_output(const outcome& done);

  violations violations_;
  engine_statistics statistics_;
  scheduler scheduler_;
  std::vector<connector::worker_half*> workers_;
  device& memory_;
  connector::output_aggregator aggregator_;
  std::deque<outcome> under_way_;
  std::vector<content> row_;
};

} // namespace troupe::engine
