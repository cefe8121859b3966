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

/// What the program ends with.
enum exit_code : int {
  /// All went well.
  exit_ok = 0,
  /// It ran and something went wrong: the node failed or could not start, which may pass by itself, or a loaded byte
  /// was
  /// not what was saved.
  exit_failed = 1,
  /// The command line, the config or a file that one of them names is wrong; nothing was started.
  exit_usage = 2,
  // What `status` and `top` end with.
  exit_degraded = 1,
  exit_unreachable = 2,
  // After SIGINT, SIGTERM or SIGHUP, a replay ends with 128 and the number of the signal, as shells have it.
};

/// `troupe serve`
struct serve_options {
  /// Not set: a node in memory only, that fits the machine.
  std::optional<std::filesystem::path> config;
  std::vector<std::string> overrides;
};
int serve(const serve_options& options);

/// `troupe init`
struct init_options {
  /// Every key, not only those that a person may want to change first.
  bool all = false;
  std::vector<std::string> overrides;
};
int init(const init_options& options);

/// The effective config of `serve` without one, or what is wrong with the overrides.
config::load_result load_default(std::span<const std::string> overrides);

/// What is wrong with the files and directories that a sound config names, as far as can be seen without writing: what
/// keeps a node from starting until somebody has changed it.
std::vector<config::problem> faults_of_files(const config::node_config& config);

/// What else of a sound config cannot be had now: memory of the host and its limits, which may pass by itself and which
/// the start finds as well; and files for etcd, without which a node starts and says what it lacks.
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
  /// How long to wait for a node that does not answer, at the start and when it was lost.
  std::chrono::seconds attach_limit{20};
  std::string space;
  /// A file with a namespace that the node is to make; empty for none.
  std::string make_namespace;
  std::optional<std::size_t> limit;
  /// Requests that are played before those that are measured.
  std::uint64_t warm_up = 0;
  std::uint32_t concurrency = 4;
  std::optional<std::uint64_t> page_bytes;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint64_t> capacity_pages;
  std::uint64_t salt = 0;
  /// The GPU that holds the KV cache; host memory if not given.
  std::optional<int> gpu;
  /// Neither fill blocks nor compare them: what is measured is the transfer alone.
  bool transfer_only = false;
  /// Play the trace on a model of an engine, through both halves of its connector.
  bool engine = false;
  /// With it: blocks of KV cache on each worker (enough for all requests under way if not given), blocks that make one
  /// page, and the seed of faults to inject.
  std::optional<std::uint32_t> kv_blocks;
  std::uint32_t blocks_per_page = 1;
  std::optional<std::uint64_t> faults;
  bool synchronous_loads = false;
  bool json = false;
  bool quiet = false;
  std::vector<std::string> overrides;
};
int replay(const replay_options& options);

/// Says why a replay failed; what the program ends with then.
int report_failure(const error& why, const replay_options& options);

/// `troupe make-trace`
struct make_trace_options {
  std::string generator;
  std::uint32_t block_tokens = 64;
  std::optional<std::size_t> limit;
};
int make_trace(const make_trace_options& options);

/// A node that is asked over HTTP.
struct node_access {
  /// Not given: the node that runs as a service on this host, or else the one at 127.0.0.1:18000.
  std::string url;
  /// A file with a bearer token.
  std::optional<std::filesystem::path> token_file;
  /// With https: who signs the node's certificate, if it is not one of the system's authorities.
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
  /// Lines to print; 0: until it is ended.
  std::uint64_t count = 0;
  /// Lines, also on a terminal.
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
  /// Also where somebody renews a claim on the directory, and so may be writing there.
  bool ignore_claims = false;
};
int check_slabs(const check_slabs_options& options);

/// `troupe whatif`
struct whatif_options {
  std::string trace;
  /// In its place: what the node with this data directory has recorded.
  std::filesystem::path record;
  std::string capacities;
  std::string policies;
  std::optional<std::filesystem::path> svg;
  std::uint32_t shards = 1;
  std::uint32_t block_tokens = 64;
  std::optional<std::size_t> limit;
  bool json = false;
  bool quiet = false;
};
int whatif(const whatif_options& options);

/// `troupe cluster status`
struct cluster_status_options {
  node_access node;
  std::string what;
  bool json = false;
};
int cluster_status(const cluster_status_options& options);

/// Prints what is wrong with a config to stderr, a line each.
void print_problems(std::span<const config::problem> problems);

} // namespace troupe::cli
