#include "cli/replay_engine.hpp"

#include "actors/node/supervisor/rank_parts.hpp"
#include "base/unique_descriptor.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/replay_node.hpp"
#include "cli/wait_notice.hpp"
#include "connector/engine_halves.hpp"
#include "io/page.hpp"
#include "workload/engine_model/engine_model.hpp"
#include "workload/replay/engine_report.hpp"
#include "workload/replay/text_table.hpp"
#include "workload/replay/token_memory.hpp"

#include <algorithm>
#include <fcntl.h>
#include <iostream>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr std::uint32_t vocabulary = 32'000;

/// With faults, outputs are longer by less than so many tokens: requests that grow while they run are what makes an
/// engine preempt others.
constexpr std::uint32_t extra_output = 64;

/// Tokens of the block that a trace knows by a number.
void append_tokens(std::vector<connector::token_id>& out, std::uint64_t hash_id, std::uint64_t salt,
                   std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    out.push_back(static_cast<connector::token_id>(mix(hash_id + 1, salt * 0x9e3779b97f4a7c15ULL + i) % vocabulary));
}

/// A request of the trace. Each of its blocks is a page, however many tokens it had where the trace was recorded; the
/// output is as long in proportion.
engine::request_spec spec_of(const replay::trace_request& x, std::size_t number, std::uint32_t page_tokens,
                             std::uint64_t salt) {
  engine::request_spec out;
  out.id = "request-" + std::to_string(number);
  out.prompt.reserve(x.hash_ids.size() * page_tokens + 1);
  for (const auto id : x.hash_ids)
    append_tokens(out.prompt, id, salt, page_tokens);
  out.prompt.push_back(static_cast<connector::token_id>(number % vocabulary)); // so that all pages can be looked up
  const auto tokens = x.hash_ids.size() * std::uint64_t{page_tokens};
  out.output_tokens = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(x.output_length * tokens / std::max<std::uint64_t>(x.input_length, 1), 1, 4096));
  out.max_tokens = out.output_tokens;
  return out;
}

/// Flips bytes in slab files behind the back of the node that has them open.
class slab_damage {
public:
  slab_damage(const config::node_config& config, const namespace_spec& space) {
    for (rank_number rank = 0; rank < space.world_size; ++rank)
      files_.emplace_back(::open(slab_path(config, space, rank).c_str(), O_RDWR | O_CLOEXEC));
  }

  /// One byte somewhere in what has been written. False if there is nothing yet.
  bool strike(std::mt19937_64& random) {
    const auto& file = files_[random() % files_.size()];
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 || status.st_blocks == 0)
      return false;
    for (int attempt = 0; attempt < 100; ++attempt) {
      const auto offset = static_cast<off_t>(random() % static_cast<std::uint64_t>(status.st_size));
      unsigned char byte = 0;
      // What was never written reads as zero.
      if (::pread(file.get(), &byte, 1, offset) != 1 || byte == 0)
        continue;
      byte = static_cast<unsigned char>(~byte);
      return ::pwrite(file.get(), &byte, 1, offset) == 1;
    }
    return false;
  }

private:
  std::vector<unique_descriptor> files_;
};

/// The engine with its connector, and what is done to it.
class engine_replay {
public:
  engine_replay(caf::actor_system& system, const link_options& where, const config::node_config& config,
                const replay::trace& trace, const replay_options& options, progress_display& progress)
      : system_(system), config_(config), trace_(trace), options_(options), progress_(progress),
        random_(options.faults.value_or(0)) {
    connection_.where = where;
    connection_.client = {config.transfer, config.attach};
    connection_.attach_limit = options.attach_limit;
  }

  result<void> start() {
    auto space = look_at_namespace();
    if (!space)
      return tl::unexpected(std::move(space.error()));
    const auto page_tokens = space->geometry.block_tokens;
    if (options_.blocks_per_page == 0 || page_tokens % options_.blocks_per_page != 0)
      return fail(errc::invalid_argument, "--blocks-per-page: a page of " + std::to_string(page_tokens) +
                                              " tokens is not made of " + std::to_string(options_.blocks_per_page) +
                                              " blocks");
    page_tokens_ = page_tokens;
    connector::engine_options how;
    how.parallel.tensor_parallel = space->world_size;
    how.block_tokens = page_tokens / options_.blocks_per_page;
    how.lease = config_.registry.lease_default;
    how.task_deadline = config_.transfer.task_deadline;

    engine::engine_options shape;
    shape.block_tokens = how.block_tokens;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < trace_.requests.size(); ++i) {
      const auto spec = spec_of(trace_.requests[i], i, page_tokens_, options_.salt);
      longest = std::max(longest, spec.prompt.size() + spec.output_tokens);
      report_.prompt_tokens += spec.prompt.size();
    }
    longest += options_.faults ? extra_output : 1;
    shape.max_model_len = static_cast<std::uint32_t>(longest);
    const auto blocks_of_longest = static_cast<std::uint32_t>((longest + shape.block_tokens) / shape.block_tokens);
    // With faults, just enough for the prompts of some requests: as they grow, the engine has to preempt.
    const auto enough =
        options_.faults
            ? std::max((blocks_of_longest - extra_output / shape.block_tokens) * std::max(options_.concurrency / 2, 2U),
                       blocks_of_longest)
            : blocks_of_longest * options_.concurrency;
    shape.num_blocks = options_.kv_blocks.value_or(enough) + 2;
    if (shape.num_blocks <= blocks_of_longest)
      return fail(errc::invalid_argument,
                  "--kv-blocks: the longest request needs " + std::to_string(blocks_of_longest) + " blocks");
    shape.max_num_seqs = options_.concurrency;
    shape.max_num_batched_tokens = std::max<std::uint32_t>(8192, shape.block_tokens);
    shape.async_scheduling = options_.faults.has_value();
    shape.vocabulary = vocabulary;
    shape.check_every_step = false;

    if (auto ok = make_memory(space->geometry, shape.num_blocks, how.parallel); !ok)
      return ok;
    auto scheduler = connector::make_scheduler_half(system_, connection_, how);
    if (!scheduler)
      return tl::unexpected(std::move(scheduler.error()));
    scheduler_ = std::move(*scheduler);
    std::vector<connector::worker_half*> workers;
    for (std::uint32_t i = 0; i < worker_count(how.parallel); ++i) {
      auto worker = connector::make_worker_half(system_, connection_, how, i, options_.gpu);
      if (!worker)
        return tl::unexpected(std::move(worker.error()));
      if (auto ready = (*worker)->register_kv_caches(memory_->view(i)); !ready)
        return ready;
      workers.push_back(worker->get());
      workers_.push_back(std::move(*worker));
    }
    report_.workers = static_cast<std::uint32_t>(workers_.size());
    engine_ = std::make_unique<engine::engine_model>(shape, *scheduler_, workers, *memory_);
    if (options_.faults && options_.attach.empty())
      damage_ = std::make_unique<slab_damage>(config_, *space);
    return {};
  }

  /// Until the trace is through, or the user interrupts: false then.
  bool play(const interruption& signals) {
    const auto started = std::chrono::steady_clock::now();
    const auto busy_before = processor_seconds();
    auto shown = started;
    bool interrupted = false;
    while (next_ < trace_.requests.size() || !engine_->idle()) {
      feed(interrupted);
      if (options_.faults && !interrupted)
        strike();
      if (engine_->step() == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(100)); // loads are under way
      const auto now = std::chrono::steady_clock::now();
      if (now - shown < progress_.interval())
        continue;
      shown = now;
      collect_stats();
      progress_.update(progress_now(now - started), false);
      if (!interrupted && signals.caught() != 0) {
        interrupted = true;
        next_ = trace_.requests.size();
        abort_all();
      }
    }
    for (const auto& worker : workers_)
      worker->shutdown();
    collect_stats();
    const auto now = std::chrono::steady_clock::now();
    progress_.update(progress_now(now - started), true);
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
    return !interrupted;
  }

  const replay::engine_report& report() const noexcept { return report_; }
  const std::string& first_wrong() const { return memory_->first_wrong(); }

private:
  /// The node says it to each of its clients.
  result<namespace_spec> look_at_namespace() {
    node_client client(system_, connection_.client);
    auto where = connection_.where;
    const wait_notice notice(progress_, where, connection_.attach_limit);
    where.client_name = "replay";
    auto attached = client.attach(std::move(where), connection_.attach_limit);
    if (!attached)
      return tl::unexpected(std::move(attached.error()));
    return std::move(attached->space);
  }

  result<void> make_memory(const kv_geometry& geometry, std::uint32_t blocks,
                           const connector::parallel_layout& layout) {
    const auto workers = worker_count(layout);
    const auto bytes = geometry.page_bytes() / options_.blocks_per_page * blocks * workers;
    if (!options_.gpu)
      if (auto room = check_memory(bytes, "the engine", "--concurrency, --kv-blocks or --page-bytes"); !room)
        return room;
    progress_.step("making " + replay::human_bytes(bytes) + " of KV cache");
    std::vector<rank_number> ranks;
    for (std::uint32_t i = 0; i < workers; ++i)
      ranks.push_back(kv_rank(layout, i));
    auto memory =
        replay::token_memory::create(geometry, blocks, options_.blocks_per_page, std::move(ranks), options_.gpu);
    if (!memory)
      return tl::unexpected(std::move(memory.error()));
    memory_ = std::move(*memory);
    return {};
  }

  /// As many requests as the engine may run, and some more that wait.
  void feed(bool interrupted) {
    while (!interrupted && next_ < trace_.requests.size() &&
           engine_->schedule().requests().size() < 2 * std::size_t{options_.concurrency}) {
      auto spec = spec_of(trace_.requests[next_], next_, page_tokens_, options_.salt);
      if (options_.faults)
        spec.max_tokens = spec.output_tokens += static_cast<std::uint32_t>(random_() % extra_output);
      engine_->add(std::move(spec));
      ++next_;
    }
  }

  void strike() {
    if (random_() % 64 == 0 && next_ > 0) {
      const auto back = std::min<std::size_t>(next_, 2 * std::size_t{options_.concurrency});
      engine_->abort("request-" + std::to_string(next_ - 1 - random_() % back));
    }
    if (damage_ && random_() % 4 == 0 && damage_->strike(random_))
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

  replay::replay_progress progress_now(duration elapsed) const {
    const auto& so_far = engine_->statistics();
    replay::replay_progress out;
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
  const config::node_config& config_;
  const replay::trace& trace_;
  const replay_options& options_;
  progress_display& progress_;
  std::mt19937_64 random_;
  connector::half_connection connection_;
  std::uint32_t page_tokens_ = 1;
  std::unique_ptr<replay::token_memory> memory_;
  std::unique_ptr<connector::scheduler_half> scheduler_;
  std::vector<std::unique_ptr<connector::worker_half>> workers_;
  std::unique_ptr<engine::engine_model> engine_;
  std::unique_ptr<slab_damage> damage_;
  std::size_t next_ = 0;
  replay::engine_report report_;
};

} // namespace

int replay_through_engine(caf::actor_system& system, const link_options& where, const config::node_config& config,
                          const replay::trace& trace, const replay_options& options, interruption& signals,
                          progress_display& progress) {
  engine_replay run(system, where, config, trace, options, progress);
  const auto started = run.start();
  progress.clear();
  if (!started)
    return report_failure(started.error(), options);
  signals.is_looked_for();
  const auto whole = run.play(signals);
  const auto& report = run.report();
  const auto printed =
      print(options.json ? replay::to_json(report) + '\n' : '\n' + replay::to_table(report, trace.name));
  if (!run.first_wrong().empty())
    std::cerr << "the first wrong byte: " << run.first_wrong() << '\n';
  for (const auto& x : report.violations)
    std::cerr << "violation of " << x.property << ": " << x.text << '\n';
  if (!whole) {
    std::cerr << "troupe replay: interrupted after " << report.requests << " of " << trace.requests.size()
              << " requests\n";
    return interruption::exit_code(signals.caught());
  }
  return printed && report.clean() ? exit_ok : exit_failed;
}

} // namespace troupe::cli
