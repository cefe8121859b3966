#pragma once

#include "tests/engine_simulation/cache.hpp"
#include "tests/engine_simulation/checks.hpp"
#include "tests/engine_simulation/halves.hpp"
#include "tests/engine_simulation/memory.hpp"
#include "tests/engine_simulation/world.hpp"
#include "workload/engine_model/engine_model.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::engine_simulation {

struct outcome {
  std::uint64_t seed = 0;
  /// Steps of the engine.
  std::uint64_t steps = 0;
  std::uint64_t trace_hash = 0;
  /// Empty if all is well.
  std::string property;
  std::string failure;
  tally counts{};
};

/// One engine, its connector and a cache, from the first request to the last.
class simulation final : private cache_client {
public:
  simulation(const plan& p, defect built_in, bool verbose);
  ~simulation() override;

  outcome run();

private:
  void lookup_answered(std::uint64_t lookup, const result<lookup_result>& answer) override;
  void task_ended(std::uint32_t worker, connector::task_tag tag, const result<transfer_result>& ended) override;
  void cancel_answered(std::uint32_t worker) override;

  void act(const action& x);
  void abort(const std::string& id);
  void start_windows();
  void take_step();
  void drain();
  void shut_down();
  void check_end();
  void count_statistics();

  const plan& plan_;
  world world_;
  memory memory_;
  cache cache_;
  sim_scheduler_half scheduler_;
  std::vector<std::unique_ptr<sim_worker_half>> workers_;
  std::unique_ptr<engine::engine_model> engine_;
  std::unique_ptr<checks> checks_;
  std::uint32_t node_back_ = 0;
  std::vector<std::string> names_;
};

outcome run(const plan& p, defect built_in, bool verbose);

/// Leaves out actions of a plan that fails, as long as the same property fails, until none can be left out.
plan shrink(const plan& failing, defect built_in, const std::string& property);

} // namespace troupe::engine_simulation
