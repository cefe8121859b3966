#include "cli/command_line.hpp"

#include "base/nearest_name.hpp"
#include "base/page_limits.hpp"
#include "base/parse_number.hpp"
#include "cli/node_access.hpp"
#include "cli/output.hpp"
#include "cli/version.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

namespace {

constexpr const char* set_help =
    "Override one config value, as in http.port=0 or storage.ranks[0].slab_bytes=\"1 GiB\"; can be repeated";

void add_overrides(CLI::App& command, std::vector<std::string>& overrides) {
  command.add_option("--set", overrides, set_help)->type_name("PATH=VALUE")->allow_extra_args(false);
}

/// Accepts a whole number from `least` to `most`; without `most`, any that is not below zero.
CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
  const auto is_bounded = most != std::numeric_limits<std::uint64_t>::max();
  const auto range = is_bounded ? " from " + std::to_string(least) + " to " + std::to_string(most) : std::string();
  return {[=](std::string& text) -> std::string {
            const auto value = parse_number(text);
            const auto good = value && *value >= least && *value <= most;
            return good ? std::string() : "expected a whole number" + range + ", got '" + text + "'";
          },
          is_bounded ? std::to_string(least) + " to " + std::to_string(most) : std::string()};
}

/// The number of a GPU: "cuda:1" → 1; none if the text names no GPU.
std::optional<int> gpu_of(const std::string& text) {
  if (text == "cuda")
    return 0;
  constexpr std::size_t digits_from = 5;
  constexpr std::size_t most_digits = 3;
  const auto digits = text.size() - std::min(text.size(), digits_from);
  if (!text.starts_with("cuda:") || digits == 0 || digits > most_digits ||
      text.find_first_not_of("0123456789", digits_from) != std::string::npos)
    return std::nullopt;
  return std::stoi(text.substr(digits_from));
}

CLI::App* add_serve(CLI::App& app, serve_options& options) {
  auto* command = app.add_subcommand("serve", "Run a node until SIGINT or SIGTERM, then drain and exit");
  command
      ->add_option(
          "--config", options.config,
          "The node's config file; without one: a node in memory only, sized for this machine, which logs its choices")
      ->type_name("FILE");
  add_overrides(*command, options.overrides);
  command->footer("Prints one line of JSON on stdout when ready:\n  "
                  "{\"event\":\"ready\",\"node\":NAME,\"actors\":{\"socket\":PATH}}\nLogs go to stderr. A second "
                  "signal while draining ends the program at once.");
  return command;
}

CLI::App* add_init(CLI::App& app, init_options& options) {
  auto* command = app.add_subcommand("init", "Print the config that `serve` uses without a file, with comments");
  command->add_flag("--all", options.all, "Every key, not only those that are usually changed first");
  add_overrides(*command, options.overrides);
  command->footer("To start from it:\n  troupe init > node.json\n  troupe serve --config node.json");
  return command;
}

/// Options for the node that a replay runs itself or attaches to.
void add_node_options(CLI::App& command, replay_options& options) {
  auto* config =
      command.add_option("--config", options.config, "Config of the node to run in this process")->type_name("FILE");
  auto* attach = command
                     .add_option("--attach", options.attach,
                                 "Use a running node on this host instead of an own one: its data_dir, the path of its "
                                 "socket, or HOST:PORT")
                     ->type_name("NODE");
  config->excludes(attach);
  command
      .add_option_function<std::uint32_t>(
          "--attach-limit", [&](std::uint32_t seconds) { options.attach_limit = std::chrono::seconds(seconds); },
          "Seconds to wait for a node that does not answer, at the start and after a disconnection (20 if not given)")
      ->check(whole_number(1, 86400))
      ->type_name("N")
      ->needs(attach);
  auto* ns = command.add_option("--namespace", options.ns, "Namespace to use; the node's first if not given")
                 ->type_name("NAME");
  command
      .add_option("--make-namespace", options.make_namespace,
                  "Namespace to use, which the node creates if it has no equal one: a file with one element of "
                  "`namespaces` of a config")
      ->type_name("FILE")
      ->needs(attach)
      ->excludes(ns);
  command
      .add_option("--page-bytes", options.page_bytes, "Bytes of a page on one rank, a multiple of 4096; own node only")
      ->check(whole_number(4096, max_page_bytes))
      ->type_name("N")
      ->excludes(attach);
  command.add_option("--ranks", options.ranks, "Ranks that must hold a key to make it complete; own node only")
      ->check(whole_number(1, 64))
      ->type_name("N")
      ->excludes(attach);
  command
      .add_option("--capacity-pages", options.capacity_pages,
                  "Slots per rank; own node only. Enough for the trace if neither this nor --config is given")
      ->check(whole_number(16, std::uint64_t{1} << 31U))
      ->type_name("N")
      ->excludes(attach);
}

void add_engine_options(CLI::App& command, replay_options& options, CLI::Option* engine) {
  command
      .add_option("--blocks-per-page", options.blocks_per_page,
                  "With --engine: blocks of the engine that make one page")
      ->check(whole_number(1, 1024))
      ->type_name("N")
      ->capture_default_str()
      ->needs(engine);
  command
      .add_option(
          "--kv-blocks", options.kv_blocks,
          "With --engine: blocks of KV cache on each worker; too few for all requests in progress cause preemptions")
      ->check(whole_number(1, 1U << 30U))
      ->type_name("N")
      ->needs(engine);
  command
      .add_flag("--synchronous-loads", options.synchronous_loads,
                "With --engine: load synchronously, in the step that runs the request")
      ->needs(engine);
  command
      .add_option("--inject-faults", options.faults,
                  "With --engine: abort requests, run out of blocks, and damage pages of an own node on disk, as this "
                  "seed determines")
      ->check(whole_number())
      ->type_name("SEED")
      ->needs(engine);
}

CLI::App* add_replay(CLI::App& app, replay_options& options) {
  auto* command = app.add_subcommand(
      "replay", "Replay a request trace: look up, load and verify every byte, save the missing pages");
  command
      ->add_option("--trace", options.trace,
                   "A trace file (JSON lines), or a generator: loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS or "
                   "mixed:SEED,REQUESTS,CHATS,AGENTS,DOCUMENTS,PROMPTS")
      ->required()
      ->type_name("FILE");
  add_node_options(*command, options);
  command->add_option("--limit", options.limit, "Replay the first N requests only")
      ->check(whole_number())
      ->type_name("N");
  command->add_option("--concurrency", options.concurrency, "Requests in progress at once")
      ->check(whole_number(1, 256))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option(
          "--salt", options.salt,
          "Use other keys for the same trace, so that a second replay starts cold on a node that has stored the first")
      ->check(whole_number())
      ->type_name("N");
  command
      ->add_option_function<std::string>(
          "--device", [&](const std::string& text) { options.gpu = gpu_of(text); },
          "Location of the KV cache: host memory, or the memory of a GPU (host if not given)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text == "host" || gpu_of(text) ? std::string() : "expected host, cuda or cuda:N, got '" + text + "'";
          },
          ""))
      ->type_name("host|cuda|cuda:N");
  auto* transfer_only =
      command->add_flag("--transfer-only", options.transfer_only,
                        "Neither fill blocks nor compare them, to measure the transfer of pages only");
  auto* bf16_values =
      command->add_flag("--bf16-values", options.bf16_values,
                        "Fill blocks with elements of BF16 instead of random bits, so that pages can be encoded");
  auto* warm_up =
      command
          ->add_option("--warm-up", options.warm_up,
                       "Replay the first N requests before the measured ones, to warm up the cache and the memory")
          ->check(whole_number())
          ->type_name("N");
  auto* engine = command->add_flag("--engine", options.engine,
                                   "Replay the trace on a model of an engine, through both halves of its connector");
  engine->excludes(transfer_only)->excludes(warm_up)->excludes(bf16_values);
  add_engine_options(*command, options, engine);
  command->add_flag("--json", options.json, "Print the report as one JSON object");
  command->add_flag("--quiet", options.quiet, "No progress on stderr");
  add_overrides(*command, options.overrides);
  command->footer("Without --config and --attach, a node of its own runs below a temporary directory in the "
                  "working directory (or data_dir, with --set) and is removed afterwards.");
  return command;
}

CLI::App* add_check_config(CLI::App& app, check_config_options& options) {
  auto* command = app.add_subcommand(
      "check-config", "List the errors of a config and the files it names, or print the effective config");
  command->add_option("FILE", options.config, "The config file")->required();
  add_overrides(*command, options.overrides);
  return command;
}

CLI::App* add_make_trace(CLI::App& app, make_trace_options& options) {
  auto* command = app.add_subcommand("make-trace", "Print a generated trace as JSON lines, for `replay --trace FILE`");
  command
      ->add_option("GENERATOR", options.generator,
                   "loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS or "
                   "mixed:SEED,REQUESTS,CHATS,AGENTS,DOCUMENTS,PROMPTS")
      ->required();
  command->add_option("--block-tokens", options.block_tokens, "Tokens of a block")
      ->check(whole_number(1, 65536))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--limit", options.limit, "The first N requests only")->check(whole_number())->type_name("N");
  return command;
}

constexpr const char* where_a_node_is =
    "HOST:PORT or URL of its HTTP server, or the path of its Unix socket or data_dir. Not given: the node that runs as "
    "a service on this host, if this user has access to it, or else 127.0.0.1:18000";

/// The node that a command asks: the same words for every command.
void add_node_access(CLI::App& command, node_access& node) {
  command
      .add_option_function<std::string>(
          "NODE,--url", [&](const std::string& address) { node.url = url_of(address); }, where_a_node_is)
      ->type_name("HOST:PORT");
  command.add_option("--token-file", node.token_file, "A file with the bearer token, if the node needs one")
      ->type_name("FILE");
  command.add_option("--ca", node.ca, "With https: a file with the authorities that sign the node's certificate")
      ->type_name("FILE");
}

CLI::App* add_status(CLI::App& app, status_options& options) {
  auto* command = app.add_subcommand("status", "Show a node's health on one screen (needs `http.enabled`)");
  add_node_access(*command, options.node);
  command->add_flag("--json", options.json, "Print the node's answer, one JSON object with the last hour");
  command->footer("Exit codes: 0 if the node is healthy, 1 if it is degraded, 2 if it cannot be reached.");
  return command;
}

CLI::App* add_explain(CLI::App& app, explain_options& options) {
  auto* command = app.add_subcommand("explain", "Explain why lookups did not hit (needs `http.enabled`)");
  add_node_access(*command, options.node);
  command->add_option("--client", options.client, "Lookups of the client with this name, or owner id as in the log")
      ->type_name("NAME");
  command
      ->add_option("--request", options.request,
                   "The lookups of the request with this id of the engine, or its beginning; or one lookup, by its id "
                   "in an earlier answer")
      ->type_name("ID");
  command->add_option("--namespace", options.namespace_name, "Lookups in the namespace with this name")
      ->type_name("NAME");
  command->add_option("--last", options.last, "The last N lookups")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options.json, "Print the node's answer, one JSON object");
  command->footer("Exit codes: 0 if the node answered, 1 if it does not know the client or namespace or keeps no "
                  "lookups, 2 if it cannot be reached.");
  return command;
}

CLI::App* add_top(CLI::App& app, top_options& options) {
  auto* command = app.add_subcommand("top", "Show a node's activity, live; a line for each answer without a terminal");
  add_node_access(*command, options.node);
  command
      ->add_option_function<double>(
          "--interval",
          [&](double seconds) {
            options.interval = std::chrono::duration_cast<duration>(seconds * std::chrono::seconds(1));
          },
          "Seconds between two answers (1 if not given)")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("N");
  command->add_option("--count", options.count, "Print this many lines, then exit as `status` does")
      ->check(whole_number())
      ->type_name("N");
  command->add_flag("--plain", options.plain, "Print lines, also on a terminal");
  command->footer(
      "Keys: q quit, p pause, s sort by the next column, r list all ranks or only those that differ, v next view "
      "(namespaces, clients, cluster), up and down scroll.");
  return command;
}

CLI::App* add_list_namespaces(CLI::App& app, list_namespaces_options& options) {
  auto* command = app.add_subcommand("list-namespaces", "List the namespaces of a node (needs `http.enabled`)");
  add_node_access(*command, options.node);
  command->add_flag("--json", options.json, "Print the node's answer, one JSON object");
  return command;
}

CLI::App* add_remove_namespace(CLI::App& app, remove_namespace_options& options) {
  auto* command = app.add_subcommand(
      "remove-namespace", "Remove a namespace that is not in the config, with its pages, memory and slab files");
  command->add_option("NAME", options.name, "Name of the namespace")->required();
  command->add_flag("--force", options.force,
                    "Remove it even if it has leases or reservations, or clients, which are detached");
  add_node_access(*command, options.node);
  command->footer("Exit codes: 0 if the namespace was removed completely, 1 if it was not.");
  return command;
}

CLI::App* add_check_slabs(CLI::App& app, check_slabs_options& options) {
  auto* command = app.add_subcommand("check-slabs", "Verify every page in the slab files of a node that does not run");
  command->add_option("--config", options.config, "The node's config file")->required()->type_name("FILE");
  add_overrides(*command, options.overrides);
  command->add_flag("--json", options.json, "Print the report as one JSON object");
  command->add_flag("--quiet", options.quiet, "No progress on stderr");
  command->add_flag(
      "--ignore-claims", options.ignore_claims,
      "Check even if a node on another host holds the claim on the data_dir (storage.shared) and may write to it");
  command->footer("Read only. Exit codes: 0 if all pages in the index are sound, 1 if one is corrupt or a slab is "
                  "damaged, 2 if nothing was checked, for example because a node runs on the data_dir.");
  return command;
}

CLI::App* add_whatif(CLI::App& app, whatif_options& options) {
  auto* command = app.add_subcommand(
      "whatif", "Predict the hit ratio for a trace, by capacity and eviction policy, beside the theoretical optimum");
  auto* trace =
      command
          ->add_option("--trace", options.trace,
                       "A trace file (JSON lines), or a generator: loogle:GROUPS,PREFIX_TOKENS,QUERIES,QUERY_TOKENS or "
                       "mixed:SEED,REQUESTS,CHATS,AGENTS,DOCUMENTS,PROMPTS")
          ->type_name("FILE");
  command
      ->add_option("--record", options.record,
                   "Instead of a trace: the recording of the node with this data_dir (registry.record_keys)")
      ->type_name("NODE")
      ->excludes(trace);
  command
      ->add_option("--capacity", options.capacities,
                   "Slots of a rank, as in 5000,10000,30000; if not given, six sizes up to the whole trace")
      ->type_name("N,...");
  command
      ->add_option("--policy", options.policies,
                   "Policies as in registry.eviction, such as lru,reuse; if not given, all")
      ->type_name("NAME,...");
  command->add_option("--svg", options.svg, "Draw the curves into this file")->type_name("FILE");
  command->add_option("--shards", options.shards, "As registry.shards")
      ->check(whole_number(1, 64))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--ranks", options.ranks,
                   "Ranks of the engine: a key is found if all of them have its page, and a capacity is that of each")
      ->check(whole_number(1, 64))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--block-tokens", options.block_tokens, "Tokens of a block, for generators")
      ->check(whole_number(1, 65536))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--limit", options.limit, "The first N requests only")->check(whole_number())->type_name("N");
  command->add_flag("--json", options.json, "Print the report as one JSON object");
  command->add_flag("--quiet", options.quiet, "No progress on stderr");
  return command;
}

CLI::App* add_cluster(CLI::App& app, cluster_status_options& options) {
  auto* command = app.add_subcommand("cluster", "Show the other nodes of a node's cluster (needs `http.enabled`)");
  command->add_option("WHAT", options.what, "\"status\"")->required()->check(CLI::IsMember({"status"}));
  add_node_access(*command, options.node);
  command->add_flag("--json", options.json, "Print the node's answer, one JSON object");
  command->footer("Exit codes: 0 if all nodes are reachable, and etcd where the config names one; 1 if not, or if this "
                  "node cannot be reached.");
  return command;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const auto meant = nearest_name(word, known);
  return meant.empty() ? std::string() : "; did you mean '" + std::string(meant) + "'?";
}

/// The error for a first word that is neither a command nor an option; empty if it is one. CLI11 would report a missing
/// command instead.
std::string unknown_word(const CLI::App& app, std::span<const std::string> words) {
  if (words.empty())
    return {};
  std::vector<std::string_view> names;
  const CLI::App* chosen = nullptr;
  for (const auto* x : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(x->get_name());
    if (x->get_name() == words.front())
      chosen = x;
  }
  if (chosen == nullptr && !words.front().starts_with('-')) {
    names.insert(names.end(), {"help", "version"});
    return "unknown command '" + words.front() + "'" + did_you_mean(words.front(), names);
  }
  const auto& command = chosen == nullptr ? app : *chosen;
  std::vector<std::string> options;
  for (const auto* x : command.get_options())
    for (const auto& name : x->get_lnames())
      options.push_back("--" + name);
  for (const auto& word : words.subspan(chosen == nullptr ? 0 : 1)) {
    if (word == "--")
      break;
    if (!word.starts_with("--"))
      continue;
    const auto name = word.substr(0, word.find('='));
    if (std::ranges::find(options, name) == options.end())
      return "unknown option '" + name + "'" +
             did_you_mean(name, std::vector<std::string_view>(options.begin(), options.end()));
  }
  return {};
}

/// Turns `troupe help replay` and `troupe version` into the options that CLI11 understands.
void translate(std::vector<std::string>& words) {
  if (words.empty())
    return;
  if (words.front() == "version")
    words.front() = "--version";
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
}

/// The topic of `troupe help TOPIC`; none if these are other words, or the topic is a command, which has options.
std::optional<help_options> topic_in(const CLI::App& app, std::span<const std::string> words) {
  if (words.size() != 2 || words.front() != "help" || words[1].starts_with('-'))
    return std::nullopt;
  help_options out{words[1], {}};
  for (const auto* x : app.get_subcommands([](const CLI::App*) { return true; }))
    out.commands.push_back(x->get_name());
  const bool is_command = std::ranges::find(out.commands, out.topic) != out.commands.end();
  // Words of the program as well, which its completion offers.
  const bool is_word = out.topic == "help" || out.topic == "version";
  if (is_word)
    out.topic = "topics";
  return is_command ? std::nullopt : std::optional(out);
}

/// What a command without arguments of its own was probably meant to read.
std::string config_hint(std::span<const std::string> words) {
  constexpr std::array takes_config{std::string_view("serve"), std::string_view("check-slabs")};
  if (words.size() < 2 || std::ranges::find(takes_config, words.front()) == takes_config.end())
    return {};
  for (const auto& word : words.subspan(1))
    if (!word.starts_with('-') && word.ends_with(".json"))
      return "; did you mean --config " + word + "?";
  return {};
}

nothing_to_do refuse(const std::string& why) {
  std::cerr << "troupe: " << why << "\nRun with --help for commands and options.\n";
  return {exit_usage};
}

} // namespace

command parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Troupe keeps the KV caches of LLM inference engines outside the GPU and shares them.", "troupe");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.footer("`troupe help COMMAND` lists the options of a command, `troupe help topics` the pages of the "
             "documentation.\nExit codes: 0 success, 1 failure at run time, 2 "
             "an error in the command line, the config or a file that they name; an interrupted replay ends with 128 "
             "plus the number of the signal.");
  serve_options serving;
  init_options initial;
  replay_options replaying;
  check_config_options checking;
  make_trace_options making;
  status_options looking;
  top_options watching;
  list_namespaces_options listing;
  remove_namespace_options removing;
  check_slabs_options checking_slabs;
  whatif_options supposing;
  cluster_status_options asking;
  explain_options explaining;
  const auto* serve_command = add_serve(app, serving);
  const auto* init_command = add_init(app, initial);
  const auto* replay_command = add_replay(app, replaying);
  const auto* check_command = add_check_config(app, checking);
  const auto* make_command = add_make_trace(app, making);
  const auto* status_command = add_status(app, looking);
  const auto* top_command = add_top(app, watching);
  const auto* list_command = add_list_namespaces(app, listing);
  add_remove_namespace(app, removing);
  const auto* slabs_command = add_check_slabs(app, checking_slabs);
  const auto* whatif_command = add_whatif(app, supposing);
  const auto* cluster_command = add_cluster(app, asking);
  const auto* explain_command = add_explain(app, explaining);

  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (auto topic = topic_in(app, words))
    return *topic;
  translate(words);
  const auto given = words;
  if (const auto wrong = unknown_word(app, words); !wrong.empty())
    return refuse(wrong);
  try {
    std::reverse(words.begin(), words.end()); // as CLI11 takes them
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success))
      return refuse(e.what() + (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) ? config_hint(given)
                                                                                                   : std::string()));
    std::ostringstream out;
    app.exit(e, out, out);
    return nothing_to_do{print(out.str()) ? exit_ok : exit_failed};
  }
  const std::pair<const CLI::App*, command> commands[]{
      {serve_command, serving},    {init_command, initial},   {replay_command, replaying},
      {check_command, checking},   {make_command, making},    {status_command, looking},
      {top_command, watching},     {list_command, listing},   {slabs_command, checking_slabs},
      {whatif_command, supposing}, {cluster_command, asking}, {explain_command, explaining}};
  for (const auto& [parsed, chosen] : commands)
    if (parsed->parsed())
      return chosen;
  return removing;
}

} // namespace troupe::cli
