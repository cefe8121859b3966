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

/// A model of an engine as a connector sees it: a scheduler, workers with paged KV cache, and steps in which every hook
/// is called in the order of vLLM 0.32. It computes no tensors: KV is represented by a number that says what it depends
/// on, so that each forward pass can check on every worker whether it reads the right KV, which means that its output
/// is the same as without any cache.
///
/// Violations are collected in `violations`, and the engine continues. It checks two properties itself: "P4", a forward
/// pass reads wrong KV, and "engine", a state that would fail an assertion of a real engine.
///
/// Plain state; the connector's halves and the device outlive it.
class engine_model {
public:
  engine_model(const engine_options& options, connector::scheduler_half& scheduler,
               std::span<connector::worker_half* const> workers, device& memory);

  /// Returns false if the engine has a request of this id, or if it could never fit.
  bool add(request_spec spec) { return scheduler_.add(std::move(spec)); }
  /// Called between steps; with `async_scheduling`, an output is outstanding then. Returns false if there is nothing to
  /// abort.
  bool abort(std::string_view id) { return scheduler_.abort(id); }

  /// Runs one step, from schedule to output. Returns the number of computed tokens.
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

  /// Checks that every block is free or held by exactly those requests that list it. Returns the contradiction; empty
  /// if there is none.
  std::string check_pool() const;

private:
  /// A read of wrong KV by a forward pass.
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
  /// The reason why the KV that this part of a step depends on is wrong; empty if it is right.
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
