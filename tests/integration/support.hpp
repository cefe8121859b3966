#pragma once

#include "tests/integration/process.hpp"
#include "tests/replay_model/expected_hits.hpp"
#include "workload/replay/trace.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The program as its users run it: config files, nodes, replays.

namespace troupe::test {

using arguments = std::vector<std::string>;

/// The program with these arguments.
launch program_with(arguments what);

/// Runs it to its end.
struct outcome {
  int code = 0;
  std::string out;
  std::string err;
};
outcome run(launch what, std::chrono::milliseconds limit = patience);

// -- config ---------------------------------------------------------------------------------------------------------

struct node_shape {
  std::uint32_t ranks = 1;
  std::uint64_t page_bytes = 4096;
  /// Per rank.
  std::uint64_t slots = 1024;
  /// Slots of all ranks; 0: the default of the config, more than any test has pages.
  std::uint64_t memory_bytes = 0;
  /// A page is saved when it is in its slab.
  bool strict = false;
};

/// So little that pages of some size are not all in memory.
inline constexpr std::uint64_t little_memory = std::uint64_t{4} << 20U;

/// A node with a Unix socket and on any free port, with its data in `directory`/data. A test changes it as it likes.
nlohmann::json node_config(const std::filesystem::path& directory, const node_shape& shape = {});

/// Writes it to `directory`/node.json.
std::filesystem::path write_config(const std::filesystem::path& directory, const nlohmann::json& config);

/// Where a node with that config keeps the pages of a rank.
std::filesystem::path slab_path(const nlohmann::json& config, std::uint32_t rank = 0);

// -- nodes ----------------------------------------------------------------------------------------------------------

struct rank_statistics {
  std::uint64_t free = 0;
  std::uint64_t reserved = 0;
  std::uint64_t live = 0;
  std::uint64_t quarantined = 0;
  /// Of the slab, and beyond it as far as there is memory.
  std::uint64_t total = 0;
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  std::uint64_t failed = 0;
};

/// The statistics that a node logs at intervals.
struct node_statistics {
  std::uint64_t clients = 0;
  std::uint64_t keys = 0;
  std::uint64_t complete = 0;
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  std::uint64_t evicted = 0;
  std::vector<rank_statistics> ranks;

  /// No lease is held and no transfer is in progress: each slot is free or has a page.
  bool quiesced() const;
};

/// A line of the log of a node, by its number: it and all that follow were logged after this call. What was logged
/// before may come later than this call, as lines wait in the node and in the pipe. The node has to log its statistics.
std::size_t log_mark(const process& node);

/// A node in a process of its own, ready for clients. Arguments of `how` come before the program's, as what runs it.
class serving_node {
public:
  explicit serving_node(const std::filesystem::path& config, arguments more = {}, launch how = {});

  process& program() noexcept { return program_; }
  std::uint16_t port() const noexcept { return port_; }
  /// The path of its Unix socket.
  const std::string& socket() const noexcept { return socket_; }
  /// Where clients attach: the socket.
  const std::string& address() const noexcept { return socket_; }
  /// HOST:PORT
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  const std::string& ready_line() const noexcept { return ready_line_; }
  /// All it has logged. Only once it has ended, as with `process::text`.
  std::string log() const { return program_.text(process::stream::err); }
  /// For the report of a failed test; no text in it is expected.
  std::string log_so_far() const { return program_.so_far(process::stream::err); }
  /// Waits until it has logged a line with this in it. Throws with the log where that does not come.
  process::found_line wait_for_log(std::string_view part, std::size_t from = 0) const {
    return program_.wait_for_line(process::stream::err, part, from);
  }
  /// `test::log_mark` of it.
  std::size_t log_mark() const { return test::log_mark(program_); }

  /// The first statistics that `wanted` accepts, of those that were collected after this call.
  node_statistics wait_for_statistics(const std::function<bool(const node_statistics&)>& wanted);

  /// The first statistics after all clients have detached, with only stored pages in use.
  node_statistics wait_until_quiesced();

  /// Statistics that were collected after this call.
  node_statistics statistics();

  /// SIGTERM; the exit code.
  int stop();

private:
  /// The statistics whose first line is at or after `from`, which is moved behind them.
  node_statistics next_statistics(std::size_t& from);

  std::size_t ranks_;
  process program_;
  std::string ready_line_;
  std::string socket_;
  std::uint16_t port_ = 0;
};

// -- replays --------------------------------------------------------------------------------------------------------

/// `troupe replay --json --quiet` and these arguments.
launch replay_command(arguments what);

struct replay_outcome {
  int code = 0;
  /// Null where none was printed.
  nlohmann::json report;
  std::string err;

  std::uint64_t count(const char* key) const { return report.at(key).get<std::uint64_t>(); }
};

/// Runs a replay to its end; or waits for that of one that runs.
replay_outcome run_replay(arguments what, const std::filesystem::path& directory = {});
replay_outcome result_of(process& running);

/// CHECKs what holds for every replay that did not lose its node: the report has the documented keys and no others,
/// its numbers agree with each other, and no byte was wrong.
void check_report(const replay_outcome& x, const node_shape& shape);

/// CHECKs that nothing failed either, and the exit code.
void check_clean(const replay_outcome& x, const node_shape& shape);

/// False, with a word, where this was built without UCX, or runs without it.
bool there_is_ucx();

/// A trace that no replay ends within a test: for clients that must still be working when something happens to them.
/// How fast a machine is may decide nothing there.
inline constexpr const char* endless_trace = "loogle:4000,20480,20,128";

/// The prediction of the cache model for a trace, given as for `--trace`.
expected_hits expected(const std::string& trace, std::optional<std::uint64_t> capacity = {},
                       std::optional<std::size_t> limit = {});

/// One request per list of block ids, as a trace file. Its path.
std::string write_trace(const std::filesystem::path& file, const std::vector<std::vector<std::uint64_t>>& requests);

/// `count` ids from `first` on.
std::vector<std::uint64_t> ids(std::uint64_t first, std::uint64_t count);

/// Names of what lies in a directory.
std::vector<std::string> entries(const std::filesystem::path& directory);

} // namespace troupe::test
