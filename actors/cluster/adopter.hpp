#pragma once

#include "actors/cluster/adopted_index.hpp"
#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "io/claim_keeper.hpp"

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::cluster {

struct adopter_options {
  /// In which the data directories of all nodes lie, and this node's own.
  std::filesystem::path shared;
  std::filesystem::path own;
  std::string node_name;
  std::string cluster{};
  duration lease{};
  /// For indexes of other nodes.
  shared_budget memory{};
  /// Called by the adopter's thread when there is more or less than before.
  std::function<void()> changed{};
};

/// A data directory whose node is dead.
struct adopted_node {
  /// As it is called in the directory that all share.
  std::string name;
  /// This node has the claim; else another one has, and this one reads along.
  bool own = false;
  std::shared_ptr<const adopted_index> index;
  /// Of who reads: not before.
  timestamp files_from = timestamp::min();
};

/// Watches the claims of all other nodes of a cluster that keep their data on one file system, and takes over what the
/// dead ones have left: to be read, and never to be written. One node has the claim, so that the dead one finds it when
/// it was only frozen; all read along who see that it is held by somebody who only reads. What its owner takes back is
/// let go of.
class adopter {
public:
  explicit adopter(adopter_options options);
  adopter(const adopter&) = delete;
  adopter& operator=(const adopter&) = delete;
  /// Gives claims back.
  ~adopter();

  /// Any thread.
  std::vector<adopted_node> nodes() const;
  /// How often a claim of this node's was lost to an owner that came back, or to another adopter.
  std::uint64_t claims_lost() const;
  /// Directories of other nodes that are looked after.
  std::size_t watched() const;

private:
  struct directory {
    std::unique_ptr<io::claim_keeper> claim{};
    std::shared_ptr<const adopted_index> index{};
    bool own = false;
    /// The log does not have it yet.
    bool is_new = false;
    /// Of which the index was read.
    io::claim_number of = 0;
    /// After an index that could not be read, or a claim of another cluster.
    timestamp again{};
    /// There are no claims any more, and maybe no directory.
    bool is_gone = false;
  };

  void run();
  void look_for_directories();
  void add(const std::string& name, const std::filesystem::path& own);
  /// Whether there is more or less than before.
  bool follow(const std::string& name, directory& x);
  bool read(const std::string& name, directory& x, io::claim_number of);
  void publish();
  /// Once others know of it: who reads the log may ask for it.
  void tell_of_new();
  bool ends() const;

  const adopter_options options_;
  const incarnation_number incarnation_;
  /// Of the thread.
  std::map<std::string, directory> directories_;
  timestamp next_look_{};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<adopted_node> nodes_;
  std::uint64_t lost_ = 0;
  std::size_t watched_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

} // namespace troupe::cluster
