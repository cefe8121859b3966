#include "actors/client/node_client.hpp"
#include "actors/node/namespaces/rank_parts.hpp"
#include "actors/node/supervisor/node_listeners.hpp"
#include "actors/node/supervisor/node_start.hpp"
#include "actors/support/system_config.hpp"
#include "base/log.hpp"
#include "base/threads.hpp"
#include "cli/interruption.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/wait_notice.hpp"
#include "workload/replay/text_table.hpp"
#include "workload/runner/direct_run.hpp"
#include "workload/runner/engine_run.hpp"
#include "workload/runner/own_node.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// Shows the progress of a run on the terminal, and ends it when the user interrupts.
class watcher final : public replay::run_observer {
public:
  watcher(progress_display& display, interruption& signals) : display_(display), signals_(signals) {}

  void preparing(std::string_view what) override { display_.step(what); }
  void begins() override {
    display_.clear();
    signals_.is_looked_for();
  }
  std::chrono::milliseconds interval() const override { return display_.interval(); }
  void progress(const replay::replay_progress& x, bool last) override { display_.update(x, last); }
  bool wants_end() override { return signals_.caught() != 0; }

private:
  progress_display& display_;
  interruption& signals_;
};

/// The setup of a replay: a node of its own, or one to attach to.
struct setting {
  std::optional<replay::own_node> own;
  std::optional<node_address> remote;
  /// The config of the own node, or the part of it that a client needs.
  config::node_config config;
  /// The namespace that the node is to create.
  std::optional<namespace_spec> ns;
};

/// The text of the file; none if it cannot be read.
std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string out{std::istreambuf_iterator<char>(in), {}};
  return in ? std::optional(std::move(out)) : std::nullopt;
}

/// Whether the text has keys that a config has and a namespace has not.
bool is_node_config(const std::string& text) {
  const auto x = nlohmann::json::parse(text, nullptr, false, true);
  return std::ranges::any_of(std::initializer_list<const char*>{"namespaces", "data_dir", "storage", "memory",
                                                                "registry", "actors", "http", "node_name"},
                             [&](const char* key) { return x.contains(key); });
}

replay::own_node_options own_node_options_of(const replay_options& options) {
  return {options.config, options.overrides, options.ns, options.page_bytes, options.ranks, options.capacity_pages};
}

/// Prints errors, and returns none then.
std::optional<setting> make_setting(const replay_options& options) {
  setting out;
  if (options.attach.empty()) {
    auto made = replay::make_own_node(own_node_options_of(options));
    if (!made) {
      print_problems(made.error());
      return std::nullopt;
    }
    for (const auto& x : made->leftovers)
      std::cerr << "troupe replay: " << (x.removed ? "removed " : "cannot remove ") << x.path.string() << " ("
                << replay::human_bytes(x.bytes) << "), which was left behind by a killed replay\n";
    out.own = std::move(*made);
    return out;
  }
  auto remote = parse_node_address(options.attach);
  if (!remote) {
    std::cerr << "--attach: " << remote.error().text << '\n';
    return std::nullopt;
  }
  out.remote = std::move(*remote);
  std::string text = R"({"log_level": "warn"})";
  std::string origin = "built-in config";
  if (!options.make_namespace.empty()) {
    const auto ns = text_of(options.make_namespace);
    if (!ns) {
      std::cerr << "--make-namespace: cannot read " << options.make_namespace << '\n';
      return std::nullopt;
    }
    if (is_node_config(*ns)) {
      std::cerr << "--make-namespace: " << options.make_namespace
                << " is the config of a node; name a file with a single object of `namespaces`, such as "
                   "configs/namespaces/sample.json\n";
      return std::nullopt;
    }
    text = R"({"log_level": "warn", "namespaces": [)" + *ns + "]}";
    origin = options.make_namespace;
  }
  auto loaded = config::parse(text, origin, options.overrides, config::purpose::client);
  if (!loaded) {
    print_problems(loaded.error());
    return std::nullopt;
  }
  out.config = std::move(*loaded);
  if (!options.make_namespace.empty())
    out.ns = out.config.namespaces.front();
  return out;
}

/// The size of all slab files.
std::uint64_t slab_bytes(const config::node_config& config) {
  std::uint64_t out = 0;
  for (const auto& ns : config.namespaces)
    for (rank_number rank = 0; rank < ns.world_size; ++rank)
      out += config.storage.ranks[rank].slab_bytes;
  return out;
}

/// One replay on a running node.
class session {
public:
  session(caf::actor_system& system, link_options where, const config::node_config& config, const replay::trace& trace,
          const replay_options& options, interruption& signals, progress_display& progress)
      : system_(system), where_(std::move(where)), config_(config), trace_(trace), options_(options), signals_(signals),
        progress_(progress), watcher_(progress, signals) {}

  int run() { return options_.engine ? through_engine() : directly(); }

private:
  replay::run_options common() const {
    return {options_.concurrency,
            options_.warm_up,
            options_.salt,
            options_.gpu,
            options_.bf16_values ? replay::page_values::bf16 : replay::page_values::random,
            config_.registry.lease_default,
            config_.transfer.task_deadline,
            options_.attach_limit};
  }

  result<attach_reply> attach(node_client& client) {
    const wait_notice notice(progress_, where_, options_.attach_limit);
    return client.attach(where_, options_.attach_limit);
  }

  int directly() {
    replay::direct_run run(trace_, common(), !options_.transfer_only);
    result<replay::direct_outcome> outcome;
    {
      node_client client(system_, {config_.transfer, config_.attach, config_.remote});
      const auto attached = attach(client);
      outcome = attached ? run.play(system_, client, *attached, watcher_) : tl::unexpected<error>(attached.error());
    }
    progress_.clear();
    return outcome ? report(*outcome) : report_failure(outcome.error());
  }

  int report(const replay::direct_outcome& x) const {
    const auto printed =
        print(options_.json ? replay::to_json(x.report) + '\n'
                            : '\n' + replay::to_table(x.report, trace_.name) + '\n' + replay::to_table(x.phases));
    if (!x.first_wrong.empty())
      std::cerr << "the first wrong byte: " << x.first_wrong << '\n';
    if (x.abandoned) {
      std::cerr << "troupe replay: aborted after " << x.report.requests << " of " << trace_.requests.size()
                << " requests: " << to_string(*x.abandoned) << '\n';
      return signals_.caught() != 0 ? interruption::exit_code(signals_.caught()) : exit_failed;
    }
    if (x.slab_damaged) {
      say_damaged(x.report.save_failures);
      return exit_failed;
    }
    return printed && x.report.verify_failures == 0 ? exit_ok : exit_failed;
  }

  static void say_damaged(std::uint64_t pages) {
    std::cerr << "troupe replay: " << pages
              << " pages could not be saved, because a slab of the node is damaged: see its log and /ready\n";
  }

  int through_engine() {
    connector::half_connection connection;
    connection.where = where_;
    connection.client = {config_.transfer, config_.attach, config_.remote};
    connection.attach_limit = options_.attach_limit;
    result<attach_reply> attached;
    {
      // The node describes the namespace to each of its clients.
      node_client client(system_, connection.client);
      attached = attach(client);
    }
    if (!attached)
      return report_failure(attached.error());
    auto outcome =
        replay::play_through_engine(system_, connection, attached->ns, trace_, engine_options(attached->ns), watcher_);
    progress_.clear();
    return outcome ? report(*outcome) : report_failure(outcome.error());
  }

  replay::engine_run_options engine_options(const namespace_spec& ns) const {
    replay::engine_run_options out{
        common(), options_.kv_blocks, options_.blocks_per_page, {}, options_.synchronous_loads};
    if (!options_.faults)
      return out;
    out.faults.emplace();
    out.faults->seed = *options_.faults;
    if (!options_.attach.empty())
      return out;
    std::vector<std::filesystem::path> slabs;
    for (rank_number rank = 0; rank < ns.world_size; ++rank)
      slabs.push_back(slab_path(config_, ns, rank));
    out.faults->damage = std::make_unique<replay::slab_damage>(slabs);
    return out;
  }

  int report(const replay::engine_outcome& x) const {
    const auto printed =
        print(options_.json ? replay::to_json(x.report) + '\n' : '\n' + replay::to_table(x.report, trace_.name));
    if (!x.first_wrong.empty())
      std::cerr << "the first wrong byte: " << x.first_wrong << '\n';
    for (const auto& v : x.report.violations)
      std::cerr << "violation of " << v.property << ": " << v.text << '\n';
    if (!x.whole) {
      std::cerr << "troupe replay: interrupted after " << x.report.requests << " of " << trace_.requests.size()
                << " requests\n";
      return interruption::exit_code(signals_.caught());
    }
    if (const auto refused = x.report.connector.refused_pages; refused != 0) {
      say_damaged(refused);
      return exit_failed;
    }
    return printed && x.report.clean() ? exit_ok : exit_failed;
  }

  int report_failure(const error& why) const { return cli::report_failure(why, options_); }

  caf::actor_system& system_;
  const link_options where_;
  const config::node_config& config_;
  const replay::trace& trace_;
  const replay_options& options_;
  interruption& signals_;
  progress_display& progress_;
  watcher watcher_;
};

/// Runs the replay, on a node of its own or on the one to attach to.
int play(caf::actor_system& system, const setting& on, const replay::trace& trace, const replay_options& options,
         interruption& signals, progress_display& progress) {
  const auto& config = on.own ? on.own->config : on.config;
  std::unique_ptr<running_node> node;
  std::unique_ptr<listeners> ways;
  link_options where;
  where.namespace_name = options.ns;
  where.ns = on.ns;
  where.client_name = "replay";
  if (on.own) {
    progress.step("making " + replay::human_bytes(slab_bytes(config)) + " of slab files in " +
                  config.data_dir.string());
    auto started = start_node(system, config);
    progress.clear();
    if (!started)
      return report_failure(started.error(), options);
    node = std::move(*started);
    where.local = node->reception();
  } else {
    auto how = listener_options_of(config.actors);
    how.connect_time = std::min(how.connect_time, config.attach.request_timeout / 2);
    auto made = listeners::make(system, how);
    if (!made)
      return report_failure(made.error(), options);
    ways = std::move(*made);
    where.where = *on.remote;
    where.dialer = ways->dialer();
    where.handed = ways->handed();
  }
  const auto code = session(system, where, config, trace, options, signals, progress).run();
  if (node)
    if (const auto stopped = node->stop(system, config.drain_timeout); !stopped)
      std::cerr << "troupe replay: the node was not drained: " << to_string(stopped.error()) << '\n';
  return code;
}

} // namespace

int report_failure(const error& why, const replay_options& options) {
  auto line = "troupe replay: " + why.text + " (" + std::string(to_string(why.code)) + ")";
  if (why.code == errc::unreachable && !options.attach.empty())
    line += "; `troupe serve` starts a node, --attach-limit waits longer for one";
  std::cerr << line + '\n';
  return why.code == errc::invalid_argument ? exit_usage : exit_failed;
}

int replay(const replay_options& options) {
  ::umask(077);                 // the files of its node are private to this user
  interruption signals(SIGHUP); // which a closing terminal sends
  std::optional<setting> made;
  signals.before_end([&]() -> std::function<void()> {
    made = make_setting(options);
    return [path = made && made->own ? made->own->scratch.path() : std::filesystem::path()] {
      replay::remove_scratch(path);
    };
  });
  if (!made)
    return exit_usage;

  progress_display progress(options.quiet);
  // A generated trace comes in tokens; blocks of 64 are between the 16 of many engines and the 512 of the traces.
  const auto trace = replay::open_trace(options.trace, 64, options.limit);
  if (!trace) {
    std::cerr << "--trace: " << trace.error().text << '\n';
    return exit_usage;
  }
  if (made->own)
    replay::give_room(own_node_options_of(options), *trace, options.salt, made->own->config);
  const auto& config = made->own ? made->own->config : made->config;
  log::set_level(config.log_level);

  system_config actors(config.caf);
  // Includes the thread of the listeners.
  if (const auto room = actors.check_room(1); !room)
    return report_failure(room.error(), options);
  caf::actor_system system(actors);
  try {
    return play(system, *made, *trace, options, signals, progress);
  } catch (const std::exception& e) { // out of threads, open files or memory
    progress.clear();
    report_failure(error_of(e, "cannot go on"), options);
  }
  // Not by returning, as that would wait for actors that were never stopped.
  if (made->own)
    replay::remove_scratch(made->own->scratch.path());
  log::flush(std::chrono::seconds(1));
  ::_exit(exit_failed);
}

} // namespace troupe::cli
