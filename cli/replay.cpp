#include "actors/client/node_client.hpp"
#include "actors/node/supervisor/node_doors.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/replay_engine.hpp"
#include "cli/replay_node.hpp"
#include "cli/replay_worker.hpp"
#include "cli/wait_notice.hpp"
#include "workload/replay/text_table.hpp"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <sys/stat.h>

namespace troupe::cli {

namespace {

/// Blocks of the longest request, per request under way.
std::size_t longest_request(const replay::trace& trace) {
  std::size_t out = 0;
  for (const auto& x : trace.requests)
    out = std::max(out, x.hash_ids.size());
  return out;
}

/// Device memory for all workers: where that is the host's, it has to fit into half of it.
result<void> make_devices(replay_job& job, const namespace_spec& space, std::size_t blocks, std::optional<int> gpu) {
  const auto bytes = space.geometry.page_bytes() * blocks * space.world_size;
  if (auto room = gpu ? result<void>{} : check_memory(bytes, "the requests under way", "--concurrency or --page-bytes");
      !room)
    return room;
  for (rank_number rank = 0; rank < space.world_size; ++rank) {
    auto device =
        replay::device_memory::create(space.geometry, static_cast<std::uint32_t>(std::max<std::size_t>(blocks, 1)),
                                      {.layout = kv_layout::split, .seed = 1 + rank, .gpu = gpu});
    if (!device)
      return tl::unexpected<error>(device.error());
    job.devices.push_back(std::make_unique<replay::device_memory>(std::move(*device)));
  }
  return {};
}

/// Serves each rank's device memory, waits until all is bound to the node, and tells the workers whom to ask.
result<void> start_ranks(node_client& client, replay_job& job, std::optional<int> gpu, duration limit) {
  for (rank_number rank = 0; rank < job.devices.size(); ++rank) {
    auto memory = node_client::rank_memory::of(rank, job.devices[rank]->view(), gpu);
    if (!memory)
      return tl::unexpected<error>(memory.error());
    client.add_rank(std::move(*memory));
  }
  if (auto bound = client.bind(limit); !bound)
    return bound;
  job.lookup = client.lookup();
  job.link = client.tie();
  for (std::size_t i = 0; i < job.devices.size(); ++i) {
    job.load.push_back(client.load(i));
    job.save.push_back(client.save(i));
  }
  return {};
}

/// Keys evicted on the node so far; 0 when it cannot be asked.
std::uint64_t evicted_keys(caf::actor_system& system, const lookup_actor& lookup) {
  std::uint64_t out = 0;
  caf::scoped_actor self{system};
  self->request(lookup, std::chrono::seconds(10), stats_atom_v)
      .receive([&](const registry_stats& x) { out = x.evicted_keys; }, [](const caf::error&) {});
  return out;
}

replay::replay_progress progress_of(replay_job& job, duration elapsed) {
  replay::replay_progress x;
  x.requests = job.trace.requests.size();
  x.elapsed = elapsed;
  std::lock_guard guard(job.mutex);
  x.requests_done = job.report.requests;
  x.blocks = job.report.blocks;
  x.hit_blocks = job.report.hit_blocks;
  x.loaded_bytes = job.report.loaded_bytes;
  x.saved_bytes = job.report.saved_bytes;
  x.failures = job.report.verify_failures + job.report.load_failures + job.report.save_failures;
  return x;
}

/// Runs the workers until the trace is through, the node is gone for good, or the user interrupts.
void play(caf::actor_system& system, const std::shared_ptr<replay_job>& job, const replay_options& options,
          std::size_t longest, const interruption& signals, progress_display& progress) {
  caf::scoped_actor self{system};
  const auto started = std::chrono::steady_clock::now();
  const auto busy_before = processor_seconds();
  std::size_t running = 0;
  for (std::uint32_t i = 0; i < options.concurrency; ++i) {
    std::vector<std::vector<std::uint32_t>> blocks;
    for (auto& device : job->devices)
      blocks.push_back(device->take(longest).value()); // made for exactly this many
    const auto worker = system.spawn<replay_worker>(job, std::move(blocks));
    self->monitor(worker);
    caf::anon_send(worker, caf::ok_atom_v);
    ++running;
  }
  while (running > 0) {
    self->receive([&](const caf::down_msg&) { --running; }, caf::after(progress.interval()) >> [] {});
    progress.update(progress_of(*job, std::chrono::steady_clock::now() - started), running == 0);
    if (signals.caught() != 0) {
      job->stop = true;
      std::lock_guard guard(job->mutex);
      if (!job->given_up)
        job->given_up = error{errc::cancelled, "interrupted"};
    }
  }
  const auto ended = std::chrono::steady_clock::now();
  auto& report = job->report;
  const auto seconds = [](duration x) { return std::chrono::duration<double>(x).count(); };
  const auto gbps = [&](std::uint64_t bytes, duration busy) {
    return busy > duration::zero() ? static_cast<double>(bytes) / 1e9 / seconds(busy) : 0.0;
  };
  report.seconds = seconds(ended - started);
  report.cores = report.seconds > 0 ? (processor_seconds() - busy_before) / report.seconds : 0.0;
  report.load_gbps = gbps(report.loaded_bytes, job->load_busy.total(ended));
  report.save_gbps = gbps(report.saved_bytes, job->save_busy.total(ended));
  report.lookup_us = job->lookup_times.summary();
  report.load_us = job->load_times.summary();
  report.save_us = job->save_times.summary();
}

int print_outcome(const replay_job& job, const replay_options& options, int signal_number) {
  const auto printed =
      print(options.json ? replay::to_json(job.report) + '\n'
                         : '\n' + replay::to_table(job.report, job.trace.name) + '\n' + replay::to_table(job.phases));
  if (!job.first_wrong.empty())
    std::cerr << "the first wrong byte: " << job.first_wrong << '\n';
  if (job.given_up) {
    std::cerr << "troupe replay: given up after " << job.report.requests << " of " << job.trace.requests.size()
              << " requests: " << to_string(*job.given_up) << '\n';
    return signal_number != 0 ? interruption::exit_code(signal_number) : exit_failed;
  }
  if (job.node_degraded) {
    std::cerr << "troupe replay: " << job.report.save_failures
              << " pages could not be saved, because a slab of the node is damaged: see its log and /ready\n";
    return exit_failed;
  }
  return printed && job.report.verify_failures == 0 ? exit_ok : exit_failed;
}

/// What a replay works with: a node of its own, or one that is to be attached to.
struct setting {
  std::optional<own_node> own;
  std::optional<node_address> remote;
  /// The node's own, or what a client needs of one.
  config::node_config config;
};

/// Prints what is wrong, and returns none.
std::optional<setting> make_setting(const replay_options& options) {
  setting out;
  if (options.attach.empty()) {
    out.own = make_own_node(options);
    if (!out.own)
      return std::nullopt;
    return out;
  }
  auto remote = parse_node_address(options.attach);
  if (!remote) {
    std::cerr << "--attach: " << remote.error().text << '\n';
    return std::nullopt;
  }
  out.remote = std::move(*remote);
  auto loaded =
      config::parse(R"({"log_level": "warn"})", "built-in config", options.overrides, config::purpose::client);
  if (!loaded) {
    print_problems(loaded.error());
    return std::nullopt;
  }
  out.config = std::move(*loaded);
  return out;
}

/// Of all slab files.
std::uint64_t slab_bytes(const config::node_config& config) {
  std::uint64_t out = 0;
  for (const auto& space : config.namespaces)
    for (rank_number rank = 0; rank < space.world_size; ++rank)
      out += config.storage.ranks[rank].slab_bytes;
  return out;
}

/// Plays the trace straight on a client of the node.
result<void> play_directly(caf::actor_system& system, const link_options& where, const config::node_config& config,
                           const std::shared_ptr<replay_job>& job, const replay_options& options, interruption& signals,
                           progress_display& progress) {
  node_client client(system, {config.transfer, config.attach});
  result<attach_reply> attached;
  {
    const wait_notice notice(progress, where, options.attach_limit);
    attached = client.attach(where, options.attach_limit);
  }
  if (!attached)
    return tl::unexpected<error>(attached.error());
  const auto& space = attached->space;
  const auto longest = longest_request(job->trace);
  job->page_bytes = space.geometry.page_bytes();
  job->batch_keys = attached->limits.batch_keys;
  job->lease = std::min(config.registry.lease_default, attached->limits.lease);
  job->task_deadline = config.transfer.task_deadline;
  job->reconnect_limit = options.attach_limit;
  progress.step("making " + replay::human_bytes(job->page_bytes * longest * options.concurrency * space.world_size) +
                " of KV cache");
  if (auto made = make_devices(*job, space, longest * options.concurrency, options.gpu); !made)
    return made;
  if (auto started = start_ranks(client, *job, options.gpu, options.attach_limit); !started)
    return started;
  const auto evicted = evicted_keys(system, client.lookup());
  signals.is_looked_for();
  play(system, job, options, longest, signals, progress);
  for (const auto& device : job->devices)
    if (const auto failure = device->failure())
      return tl::unexpected<error>(*failure);
  const auto evicted_now = evicted_keys(system, client.lookup());
  job->report.evicted_keys = evicted_now > evicted ? evicted_now - evicted : 0;
  return {};
}

int play_and_report(caf::actor_system& system, const link_options& where, const config::node_config& config,
                    const std::shared_ptr<replay_job>& job, const replay_options& options, interruption& signals,
                    progress_display& progress) {
  const auto done = play_directly(system, where, config, job, options, signals, progress);
  progress.clear();
  job->load.clear();
  job->save.clear();
  job->lookup = nullptr;
  job->link = nullptr;
  return done ? print_outcome(*job, options, signals.caught()) : report_failure(done.error(), options);
}

} // namespace

int report_failure(const error& why, const replay_options& options) {
  auto line = "troupe replay: " + to_string(why);
  if (why.code == errc::unreachable && !options.attach.empty())
    line += "; `troupe serve` starts a node, --attach-limit waits longer for one";
  std::cerr << line + '\n';
  return why.code == errc::invalid_argument ? exit_usage : exit_failed;
}

int replay(const replay_options& options) {
  ::umask(077);                 // what its node writes is for this user
  interruption signals(SIGHUP); // which a terminal sends when it goes
  std::optional<setting> made;
  signals.before_end([&]() -> std::function<void()> {
    made = make_setting(options);
    return [path = made && made->own ? made->own->scratch.path() : std::filesystem::path()] { remove_scratch(path); };
  });
  if (!made)
    return exit_usage;

  auto job = std::make_shared<replay_job>();
  job->salt = options.salt;
  job->report.compared = !options.transfer_only;
  // A generated trace comes in tokens; blocks of 64 are between the 16 of many engines and the 512 of the traces.
  auto trace = replay::open_trace(options.trace, 64, options.limit);
  if (!trace) {
    std::cerr << "--trace: " << trace.error().text << '\n';
    return exit_usage;
  }
  job->trace = std::move(*trace);
  if (made->own)
    give_room(options, job->trace, made->own->config);
  const auto& config = made->own ? made->own->config : made->config;
  log::set_level(config.log_level);

  progress_display progress(options.quiet);
  system_config actors(config.caf);
  caf::actor_system system(actors);
  std::unique_ptr<running_node> node;
  std::optional<doors> ways;
  link_options where;
  where.space_name = options.space;
  where.client_name = "replay";
  if (made->own) {
    progress.step("making " + replay::human_bytes(slab_bytes(config)) + " of slab files in " +
                  config.data_dir.string());
    auto started = start_node(system, config);
    progress.clear();
    if (!started)
      return report_failure(started.error(), options);
    node = std::move(*started);
    where.local = node->reception();
  } else {
    ways.emplace(system, options_of_doors(config.actors));
    where.where = *made->remote;
    where.entrance = ways->entrance();
  }
  const auto code = options.engine
                        ? replay_through_engine(system, where, config, job->trace, options, signals, progress)
                        : play_and_report(system, where, config, job, options, signals, progress);
  if (node)
    if (const auto stopped = node->stop(system, config.drain_timeout); !stopped)
      std::cerr << "troupe replay: the node did not come to rest: " << to_string(stopped.error()) << '\n';
  return code;
}

} // namespace troupe::cli
