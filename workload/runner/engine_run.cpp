#include "workload/runner/engine_run.hpp"

#include "base/digest.hpp"
#include "workload/engine_model/engine_model.hpp"
#include "workload/replay/text_table.hpp"
#include "workload/replay/token_memory.hpp"
#include "workload/runner/machine.hpp"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::replay {

namespace {

constexpr std::uint32_t vocabulary = 32'000;

/// With faults, outputs are longer by less than so many tokens: an engine preempts requests because running ones grow.
constexpr std::uint32_t extra_output = 64;

/// The tokens of a block that the trace identifies by a number.
void append_tokens(std::vector<connector::token_id>& out, std::uint64_t hash_id, std::uint64_t salt,
                   std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    out.push_back(static_cast<connector::token_id>(mix(hash_id + 1, salt * 0x9e3779b97f4a7c15ULL + i) % vocabulary));
}

/// The number of prompt tokens of a request of the trace. Each of its blocks is a page, however many tokens it had in
/// the recording; one more, so that all pages can be looked up.
std::uint64_t prompt_tokens(const trace_request& x, std::uint32_t page_tokens) noexcept {
  return x.hash_ids.size() * std::uint64_t{page_tokens} + 1;
}

/// The output length in proportion.
std::uint32_t output_tokens(const trace_request& x, std::uint32_t page_tokens) noexcept {
  const auto tokens = x.hash_ids.size() * std::uint64_t{page_tokens};
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(x.output_length * tokens / std::max<std::uint64_t>(x.input_length, 1), 1, 4096));
}

engine::request_spec spec_of(const trace_request& x, std::size_t number, std::uint32_t page_tokens,
                             std::uint64_t salt) {
  engine::request_spec out;
  out.id = "request-" + std::to_string(number);
  out.prompt.reserve(prompt_tokens(x, page_tokens));
  for (const auto id : x.hash_ids)
    append_tokens(out.prompt, id, salt, page_tokens);
  out.prompt.push_back(static_cast<connector::token_id>(number % vocabulary));
  out.output_tokens = output_tokens(x, page_tokens);
  out.max_tokens = out.output_tokens;
  return out;
}

/// The engine with its connector, and the faults that are injected.
class engine_replay {
public:
  engine_replay(caf::actor_system& system, const connector::half_connection& connection, const trace& what,
                engine_run_options options, run_observer& observer)
      : system_(system), connection_(connection), trace_(what), options_(std::move(options)), observer_(observer),
        random_(options_.faults ? options_.faults->seed : 0) {}

  result<void> start(const namespace_spec& ns) {
    const auto page_tokens = ns.geometry.block_tokens;
    if (options_.blocks_per_page == 0 || page_tokens % options_.blocks_per_page != 0)
      return fail(errc::invalid_argument, "--blocks-per-page: a page of " + std::to_string(page_tokens) +
                                              " tokens is not made of " + std::to_string(options_.blocks_per_page) +
                                              " blocks");
    page_tokens_ = page_tokens;
    connector::engine_options how;
    how.parallel.tensor_parallel = ns.world_size;
    how.block_tokens = page_tokens / options_.blocks_per_page;
    how.lease = options_.common.lease;
    how.task_deadline = options_.common.task_deadline;
    how.synchronous_loads = options_.synchronous_loads;

    engine::engine_options shape;
    shape.block_tokens = how.block_tokens;
    std::uint64_t longest = 0;
    for (const auto& x : trace_.requests) {
      const auto prompt = prompt_tokens(x, page_tokens_);
      longest = std::max(longest, prompt + output_tokens(x, page_tokens_));
      report_.prompt_tokens += prompt;
    }
    longest += options_.faults ? extra_output : 1;
    shape.max_model_len = static_cast<std::uint32_t>(longest);
    const auto blocks_of_longest = static_cast<std::uint32_t>((longest + shape.block_tokens) / shape.block_tokens);
    // With faults, just enough for the prompts of some requests: when they grow, the engine has to preempt.
    const auto enough = options_.faults ? std::max((blocks_of_longest - extra_output / shape.block_tokens) *
                                                       std::max(options_.common.concurrency / 2, 2U),
                                                   blocks_of_longest)
                                        : blocks_of_longest * options_.common.concurrency;
    shape.num_blocks = options_.kv_blocks.value_or(enough) + 2;
    if (shape.num_blocks <= blocks_of_longest)
      return fail(errc::invalid_argument,
                  "--kv-blocks: the longest request needs " + std::to_string(blocks_of_longest) + " blocks");
    shape.max_num_seqs = options_.common.concurrency;
    shape.max_num_batched_tokens = std::max<std::uint32_t>(8192, shape.block_tokens);
    shape.async_scheduling = options_.faults.has_value() && !options_.synchronous_loads;
    shape.late_saves = options_.faults.has_value() && options_.faults->seed % 2 == 0;
    shape.vocabulary = vocabulary;
    shape.check_every_step = false;

    if (auto ok = make_memory(ns.geometry, shape.num_blocks, how.parallel); !ok)
      return ok;
    auto scheduler = connector::make_scheduler_half(system_, connection_, how);
    if (!scheduler)
      return tl::unexpected(std::move(scheduler.error()));
    scheduler_ = std::move(*scheduler);
    std::vector<connector::worker_half*> workers;
    for (std::uint32_t i = 0; i < worker_count(how.parallel); ++i) {
      auto worker = connector::make_worker_half(system_, connection_, how, i, options_.common.gpu);
      if (!worker)
        return tl::unexpected(std::move(worker.error()));
      if (auto ready = (*worker)->register_kv_caches(memory_->view(i)); !ready)
        return ready;
      workers.push_back(worker->get());
      workers_.push_back(std::move(*worker));
    }
    report_.workers = static_cast<std::uint32_t>(workers_.size());
    engine_ = std::make_unique<engine::engine_model>(shape, *scheduler_, workers, *memory_);
    return {};
  }

  /// Runs until the end of the trace, or until the observer requests the end.
  engine_outcome play() {
    const auto started = std::chrono::steady_clock::now();
    const auto busy_before = processor_seconds();
    auto shown = started;
    bool interrupted = false;
    while (next_ < trace_.requests.size() || !engine_->idle()) {
      feed(interrupted);
      if (options_.faults && !interrupted)
        strike();
      if (engine_->step() == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(100)); // loads are in progress
      const auto now = std::chrono::steady_clock::now();
      if (now - shown < observer_.interval())
        continue;
      shown = now;
      collect_stats();
      observer_.progress(progress_now(now - started), false);
      if (!interrupted && observer_.wants_end()) {
        interrupted = true;
        next_ = trace_.requests.size();
        abort_all();
      }
    }
    for (const auto& worker : workers_)
      worker->shutdown();
    collect_stats();
    const auto now = std::chrono::steady_clock::now();
    observer_.progress(progress_now(now - started), true);
    report_.seconds = std::chrono::duration<double>(now - started).count();
    report_.cores = report_.seconds > 0 ? (processor_seconds() - busy_before) / report_.seconds : 0.0;
    report_.engine = engine_->statistics();
    report_.requests = report_.engine.requests_stopped + report_.engine.requests_aborted;
    report_.requests_aborted = report_.engine.requests_aborted;
    report_.compared_tokens = memory_->compared();
    report_.wrong_tokens = memory_->wrong();
    report_.violations = engine_->found();
    if (const auto left = scheduler_->tracked_requests(); left > 0 && !interrupted)
      report_.violations.push_back({"P0", std::to_string(left) + " requests are tracked after the last has ended"});
    return {std::move(report_), memory_->first_wrong(), !interrupted};
  }

private:
  result<void> make_memory(const kv_geometry& geometry, std::uint32_t blocks,
                           const connector::parallel_layout& layout) {
    const auto workers = worker_count(layout);
    const auto bytes = geometry.page_bytes() / options_.blocks_per_page * blocks * workers;
    if (!options_.common.gpu)
      if (auto room = check_memory(bytes, "the engine", "--concurrency, --kv-blocks or --page-bytes"); !room)
        return room;
    observer_.preparing("making " + human_bytes(bytes) + " of KV cache");
    std::vector<rank_number> ranks;
    for (std::uint32_t i = 0; i < workers; ++i)
      ranks.push_back(kv_rank(layout, i));
    auto memory =
        token_memory::create(geometry, blocks, options_.blocks_per_page, std::move(ranks), options_.common.gpu);
    if (!memory)
      return tl::unexpected(std::move(memory.error()));
    memory_ = std::move(*memory);
    return {};
  }

  /// Adds as many requests as the engine may run, and some that wait.
  void feed(bool interrupted) {
    while (!interrupted && next_ < trace_.requests.size() &&
           engine_->schedule().requests().size() < 2 * std::size_t{options_.common.concurrency}) {
      auto spec = spec_of(trace_.requests[next_], next_, page_tokens_, options_.common.salt);
      if (options_.faults)
        spec.max_tokens = spec.output_tokens += static_cast<std::uint32_t>(random_() % extra_output);
      engine_->add(std::move(spec));
      ++next_;
    }
  }

  void strike() {
    if (random_() % 64 == 0 && next_ > 0) {
      const auto back = std::min<std::size_t>(next_, 2 * std::size_t{options_.common.concurrency});
      engine_->abort("request-" + std::to_string(next_ - 1 - random_() % back));
    }
    if (const auto& damage = options_.faults->damage; damage && random_() % 4 == 0 && damage->strike(random_))
      ++report_.damaged_pages;
  }

  void abort_all() {
    std::vector<std::string> ids;
    for (const auto& [id, request] : engine_->schedule().requests())
      ids.push_back(id);
    for (const auto& id : ids)
      engine_->abort(id);
  }

  void collect_stats() {
    for (const auto& worker : workers_)
      report_.connector.aggregate(worker->get_kv_connector_stats());
  }

  replay_progress progress_now(duration elapsed) const {
    const auto& so_far = engine_->statistics();
    replay_progress out;
    out.requests = trace_.requests.size();
    out.requests_done = so_far.requests_stopped + so_far.requests_aborted;
    out.hit_blocks = (so_far.external_tokens + so_far.prefix_cache_tokens) / page_tokens_;
    out.blocks = out.hit_blocks +
                 (so_far.scheduled_tokens - std::min(so_far.scheduled_tokens, so_far.generated_tokens)) / page_tokens_;
    out.loaded_bytes = report_.connector.loaded_bytes;
    out.saved_bytes = report_.connector.saved_bytes;
    out.failures = report_.connector.num_failed_load + report_.connector.num_failed_save;
    out.elapsed = elapsed;
    return out;
  }

  caf::actor_system& system_;
  const connector::half_connection& connection_;
  const trace& trace_;
  const engine_run_options options_;
  run_observer& observer_;
  std::mt19937_64 random_;
  std::uint32_t page_tokens_ = 1;
  std::unique_ptr<token_memory> memory_;
  std::unique_ptr<connector::scheduler_half> scheduler_;
  std::vector<std::unique_ptr<connector::worker_half>> workers_;
  std::unique_ptr<engine::engine_model> engine_;
  std::size_t next_ = 0;
  engine_report report_;
};

} // namespace

result<engine_outcome> play_through_engine(caf::actor_system& system, const connector::half_connection& connection,
                                           const namespace_spec& ns, const trace& what, engine_run_options options,
                                           run_observer& observer) {
  engine_replay run(system, connection, what, std::move(options), observer);
  if (auto started = run.start(ns); !started)
    return tl::unexpected(std::move(started.error()));
  observer.begins();
  return run.play();
}

} // namespace troupe::replay
