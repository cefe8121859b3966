#pragma once

#include "actors/cluster/takeover/adopted_index.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/serial_executor.hpp"
#include "io/claims/claim_keeper.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::cluster {

struct adopter_options {
  /// The directory in which the data directories of all nodes are, and this node's own.
  std::filesystem::path shared;
  std::filesystem::path own;
  std::string node_name;
  std::string cluster{};
  duration lease{};
  /// The budget for indexes of other nodes.
  shared_budget memory{};
  /// The adopter's thread calls it when a directory was adopted or released.
  std::function<void()> changed{};
};

/// A data directory whose node is dead.
struct adopted_node {
  /// Its name in the shared directory.
  std::string name;
  /// Whether this node holds the claim; otherwise another node does, and this one only reads.
  bool own = false;
  std::shared_ptr<const adopted_index> index;
  /// For the readers: they do not read its files before this time.
  timestamp files_from = timestamp::min();
};

/// Watches the claims of all other nodes of a cluster whose data is on one file system, and takes over the directories
/// of dead nodes, read-only. One node holds the claim, so that a node that was only frozen finds it when it continues.
/// All nodes that see the claim held by an adopter read the directory. A directory is released when its owner takes it
/// back.
class adopter {
public:
  /// Starts watching. Error: `io_error` where no thread can be started.
  static result<std::unique_ptr<adopter>> start(adopter_options options);
  adopter(const adopter&) = delete;
  adopter& operator=(const adopter&) = delete;
  /// Gives claims back.
  ~adopter();

  /// Any thread.
  std::vector<adopted_node> nodes() const;
  /// The number of claims that this node lost to an owner that came back, or to another adopter.
  std::uint64_t claims_lost() const;
  /// The number of watched directories of other nodes.
  std::size_t watched() const;

private:
  struct directory {
    std::unique_ptr<io::claim_keeper> claim{};
    std::shared_ptr<const adopted_index> index{};
    bool own = false;
    /// Whether the log has no line about it yet.
    bool is_new = false;
    /// The claim under which the index was read.
    io::claim_number of = 0;
    /// The time of the next attempt after an index that could not be read, or a claim of another cluster.
    timestamp again{};
    /// Whether the directory has no claims any more, or does not exist.
    bool is_gone = false;
  };

  explicit adopter(adopter_options options);

  /// One pass over all directories; the thread repeats it.
  void follow_all();
  void look_for_directories();
  void add(const std::string& name, const std::filesystem::path& own);
  /// Returns whether there is more or less than before.
  bool follow(const std::string& name, directory& x);
  bool read(const std::string& name, directory& x, io::claim_number of);
  void publish();
  /// Logs new directories after they are published, because a reader of the log may request their pages at once.
  void report_new();

  const adopter_options options_;
  const incarnation_number incarnation_;
  /// Used by the thread only.
  std::map<std::string, directory> directories_;
  timestamp next_look_{};
  mutable std::mutex mutex_;
  std::vector<adopted_node> nodes_;
  std::uint64_t lost_ = 0;
  std::size_t watched_ = 0;
  std::unique_ptr<serial_executor> thread_;
};

} // namespace troupe::cluster
