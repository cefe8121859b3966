#pragma once

#include "connector/output_aggregator.hpp"
#include "tests/group_simulation/scheduler.hpp"
#include "tests/group_simulation/workers.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::group_simulation {

/// A model of vLLM with several KV cache groups, as a connector sees it: a scheduler with block tables for each group,
/// and workers whose forward passes check every place that they read.
///
/// Blocks that no later token needs are freed at the next allocation of their request, and given to others in the same
/// step.
class engine {
public:
  explicit engine(world& w);
  ~engine();

  /// Runs from its seed to its end.
  void run(std::uint64_t steps);

private:
  using tables = std::vector<std::vector<block_id>>;

  // requests: arrivals.cpp
  void add_request();
  void extend(request& x);
  void abort_one();
  void finish(request& x);
  void forget(request& x);
  void free_all(request& x);
  request* find(const std::string& name);

  // scheduling: schedule.cpp
  step schedule();
  void schedule_running(step& out, std::uint32_t& budget);
  void schedule_waiting(step& out, std::uint32_t& budget);
  /// False: the blocks do not suffice.
  bool start(request& x, step& out, std::uint32_t& budget, std::size_t position);
  /// Whether requests that wait with their blocks, and this one, can all go on to their ends.
  bool has_room_for(const request& x) const;
  bool begin_load(request& x, std::uint32_t computed, std::uint32_t external);
  void preempt(request& x, step& out);
  /// Drafts tokens behind the last one, at most `most`. Returns their number.
  std::uint32_t draft(request& x, std::uint32_t most);
  /// The tokens of a step, which ends at the boundary of a state where that is how states are written.
  std::uint32_t tokens_of_step(const request& x, std::uint32_t budget) const;
  /// The longest prefix that the engine has itself.
  std::uint32_t computed_prefix(const request& x) const;
  /// Puts blocks of the engine's own prefix, and new ones up to `length`, into the tables of a request that has none;
  /// what a prefix of `length` tokens does not need stays null. False, with nothing changed, if there are too few.
  bool place(request& x, std::uint32_t computed, std::uint32_t length);
  /// Frees what no token from `computed` on needs, and allocates for the tokens up to `last`. Returns the new blocks.
  std::optional<tables> allocate(request& x, std::uint32_t last);
  void free_passed(request& x);
  /// Positions in a table that the step from `x.computed` to `last` writes.
  std::vector<std::uint32_t> positions_written(const request& x, std::uint32_t table, std::uint32_t last) const;
  void add_part(request& x, step& out, std::uint32_t count, bool whole_tables, tables added);

  // steps: steps.cpp
  void one_step();
  void execute(const step& of, const connector::connector_metadata& said);
  /// Where a worker does not name the loads of other stages.
  void forget_others(std::uint32_t worker, const connector::connector_metadata& said,
                     connector::finished_requests& ended) const;
  void forward(std::uint32_t worker, const step_part& part);
  void check_read(std::uint32_t worker, const request& x, std::uint32_t computed, std::string_view property);
  void check_tokens(std::uint32_t worker, const request& x, std::uint32_t table, std::uint32_t computed,
                    std::string_view property);
  void write(std::uint32_t worker, const step_part& part, std::uint32_t table);
  void end_of_step(const step& of);
  /// Takes the drafts of a step that the model accepts. Returns the number of the others.
  std::uint32_t take_drafts(request& x);
  void name_blocks(request& x, std::uint32_t from, std::uint32_t last);
  void take_output(const connector::worker_output& output);
  void load_ended(request& x, bool failed);
  void faults();
  void check_in_the_end();

  world& world_;
  block_pool pool_;
  cache cache_;
  scheduler_side scheduler_;
  std::vector<group_worker> workers_;
  connector::output_aggregator aggregator_;
  std::map<std::string, std::unique_ptr<request>> requests_;
  std::deque<request*> waiting_;
  std::vector<request*> running_;
  std::deque<std::vector<connector::worker_output>> outputs_;
  life_number last_life_ = 0;
};

} // namespace troupe::group_simulation
