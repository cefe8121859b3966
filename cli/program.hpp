#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::cli {

/// Exit codes of the program.
enum exit_code : int {
  /// Success.
  exit_ok = 0,
  /// A failure at run time: the node failed or could not start, which may be temporary, or a loaded byte differed from
  /// the saved one.
  exit_failed = 1,
  /// An error in the command line, the config or a file that one of them names; nothing was started.
  exit_usage = 2,
  // Exit codes of `status` and `top`.
  exit_degraded = 1,
  exit_unreachable = 2,
  // After SIGINT, SIGTERM or SIGHUP, a replay ends with 128 plus the number of the signal, as in a shell.
};

/// `troupe serve`
struct serve_options {
  /// Not set: a node with pages in memory only, sized for the machine.
  std::optional<std::filesystem::path> config;
  std::vector<std::string> overrides;
};
int serve(const serve_options& options);

/// `troupe init`
struct init_options {
  /// Print every key, not only those that people change first.
  bool all = false;
  std::vector<std::string> overrides;
};
int init(const init_options& options);

/// The effective config of `serve` without a file, or the errors in the overrides.
config::load_result load_default(std::span<const std::string> overrides);

/// Errors in the files and directories that a valid config names, as far as they can be detected without writing. With
/// one of them, a node cannot start until a person has changed something.
std::vector<config::problem> faults_of_files(const config::node_config& config);

/// Other resources of a valid config that are missing now: memory of the host and its limits, which may be temporary
/// and which the start detects as well; and files for etcd, without which a node starts with a warning.
std::vector<config::problem> faults_of_host(const config::node_config& config);

/// `troupe check-config`
struct check_config_options {
  std::filesystem::path config;
  std::vector<std::string> overrides;
};
int check_config(const check_config_options& options);

/// `troupe replay`
struct replay_options {
  std::string trace;
  std::optional<std::filesystem::path> config;
  std::string attach;
  /// How long to wait for a node that does not answer, at the start and after a disconnection.
  std::chrono::seconds attach_limit{20};
  std::string ns;
  /// A file with a namespace that the node is to create; empty for none.
  std::string make_namespace;
  std::optional<std::size_t> limit;
  /// Requests that are replayed before the measured ones.
  std::uint64_t warm_up = 0;
  std::uint32_t concurrency = 4;
  std::optional<std::uint64_t> page_bytes;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint64_t> capacity_pages;
  std::uint64_t salt = 0;
  /// The GPU that holds the KV cache; host memory if not given.
  std::optional<int> gpu;
  /// Neither fill blocks nor compare them: measures the transfer alone.
  bool transfer_only = false;
  /// Fill blocks with elements of BF16, as of a KV cache, instead of random bits.
  bool bf16_values = false;
  /// Replay the trace on a model of an engine, through both halves of its connector.
  bool engine = false;
  /// With `engine`: blocks of KV cache on each worker (enough for all requests in progress if not given), blocks that
  /// make one page, and the seed of faults to inject.
  std::optional<std::uint32_t> kv_blocks;
  std::uint32_t blocks_per_page = 1;
  std::optional<std::uint64_t> faults;
  bool synchronous_loads = false;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> overrides;
};
int replay(const replay_options& options);

/// Prints why a replay failed; returns the exit code of the program.
int report_failure(const error& why, const replay_options& options);

/// `troupe make-trace`
struct make_trace_options {
  std::string generator;
  std::uint32_t block_tokens = 64;
  std::optional<std::size_t> limit;
};
int make_trace(const make_trace_options& options);

/// The HTTP server of a node.
struct node_access {
  /// Not given: the node that runs as a service on this host, or else the one at 127.0.0.1:18000.
  std::string url;
  /// A file with a bearer token.
  std::optional<std::filesystem::path> token_file;
  /// With https: the authority of the node's certificate, if it is not one of the system's.
  std::optional<std::filesystem::path> ca;
};

/// `troupe status`
struct status_options {
  node_access node;
  bool json = false;
};
int status(const status_options& options);

/// `troupe top`
struct top_options {
  node_access node;
  duration interval = std::chrono::seconds(1);
  /// Lines to print; 0: no limit.
  std::uint64_t count = 0;
  /// Print lines, also on a terminal.
  bool plain = false;
};
int top(const top_options& options);

/// `troupe list-namespaces`
struct list_namespaces_options {
  node_access node;
  bool json = false;
};
int list_namespaces(const list_namespaces_options& options);

/// `troupe remove-namespace`
struct remove_namespace_options {
  node_access node;
  std::string name;
  bool force = false;
};
int remove_namespace(const remove_namespace_options& options);

/// `troupe check-slabs`
struct check_slabs_options {
  std::filesystem::path config;
  std::vector<std::string> overrides;
  bool json = false;
  bool quiet = false;
  /// Also check while a node renews a claim on the directory, and so may be writing there.
  bool ignore_claims = false;
};
int check_slabs(const check_slabs_options& options);

/// `troupe whatif`
struct whatif_options {
  std::string trace;
  /// Instead of a trace: the recording of the node with this data directory.
  std::filesystem::path record;
  std::string capacities;
  std::string policies;
  std::optional<std::filesystem::path> svg;
  std::uint32_t shards = 1;
  std::uint32_t ranks = 1;
  std::uint32_t block_tokens = 64;
  std::optional<std::size_t> limit;
  bool json = false;
  bool quiet = false;
};
int whatif(const whatif_options& options);

/// `troupe explain`
struct explain_options {
  node_access node;
  /// Empty: of all clients, all lookups, all namespaces.
  std::string client;
  std::string request;
  std::string namespace_name;
  std::uint32_t last = 20;
  bool json = false;
};
int explain(const explain_options& options);

/// `troupe cluster status`
struct cluster_status_options {
  node_access node;
  std::string what;
  bool json = false;
};
int cluster_status(const cluster_status_options& options);

/// `troupe help TOPIC`
struct help_options {
  /// "topics", or a page of the documentation with a section if one is asked for: "install",
  /// "docs/operations.md#alerts".
  std::string topic;
  /// The names of all commands.
  std::vector<std::string> commands;
};
int help(const help_options& options);

/// Prints the errors of a config to stderr, one per line.
void print_problems(std::span<const config::problem> problems);

} // namespace troupe::cli
