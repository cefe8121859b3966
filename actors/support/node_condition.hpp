#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The reasons why a node is degraded.
enum class trouble : std::uint8_t {
  // These last until the node restarts, or end with their slab, and no requests should be sent to the node.

  /// A slab file was removed or truncated: no key of its namespace can become complete any more.
  slab_damaged,
  /// The index cannot be made durable: the node is about to end.
  index_failed,
  /// Another node has taken over the data directory: this one writes nothing there any more.
  claim_lost,

  // These come and go, and the node serves as far as it can meanwhile.

  /// The disk of the index is too slow: answers to changes are late.
  index_slow,
  /// The disk of the index is full: changes wait until there is room. Stored pages are found as usual.
  index_full,
  /// The memory for ranks and keys is exhausted: new keys replace old ones early.
  memory_full,
  /// Lines of the log were dropped.
  log_dropped,
  /// Saved pages cannot be written to a slab: they are in memory only, or not saved at all.
  writes_fail,
  /// A slab file cannot grow although its limit is not reached: older pages are evicted.
  disk_full,
  /// Another node of the cluster is unreachable: its pages are not found.
  peer_unreachable,
  /// The list of nodes in etcd cannot be read: new nodes are not found.
  etcd_unreachable,
  /// The claim on the data directory could not be renewed in time: nothing is written until it is.
  claim_late,
  /// The host provides less memory for pages than the config requests, perhaps none.
  memory_short,
  /// Disconnected clients whose processes still run take so many places that no new client is admitted.
  clients_full,
  /// A Unix socket of the node, or the lock of its directory, was removed and cannot be created again.
  socket_lost,
};

inline constexpr std::uint8_t trouble_count = static_cast<std::uint8_t>(trouble::socket_lost) + 1;

/// Whether it ends only by a restart, or with its slab.
constexpr bool lasts(trouble what) noexcept {
  return what <= trouble::claim_lost;
}

/// The name of the reason in metrics.
std::string_view to_string(trouble what) noexcept;

/// The anchor of the runbook in docs/operations.md.
std::string runbook_of(trouble what);

/// The slab of one rank of one namespace.
struct slab_name {
  namespace_id ns;
  std::string namespace_name;
  rank_number rank = 0;
};

/// Records whether a node is degraded, and why. Logs, refusals, metrics and `/ready` all use it. Thread-safe.
class node_condition {
public:
  struct slab {
    slab_name name;
    bool damaged = false;
  };

  /// The part of the node with the trouble, such as the number of a shard.
  using part_number = std::uint32_t;

  /// Starts to watch a slab, which is intact.
  void add_slab(slab_name name);
  /// Stops watching it; its troubles are removed.
  void remove_slab(const namespace_id& ns, rank_number rank);

  /// Returns true if that is new and therefore to be logged. `text` is a sentence with the way out.
  bool slab_damaged(const namespace_id& ns, rank_number rank, std::string text);
  bool index_failed(std::string text);
  bool claim_lost(std::string text);

  /// A transient trouble of this part begins, or ends. Returns true if that is a change, and therefore to be logged. A
  /// new text of the same trouble replaces the old one.
  bool begins(trouble what, part_number part, std::string text);
  bool ends(trouble what, part_number part);

  /// The same for the slab of a rank. It ends with the slab as well.
  bool begins(trouble what, const namespace_id& ns, rank_number rank, std::string text);
  bool ends(trouble what, const namespace_id& ns, rank_number rank);

  /// `ok`, or the reason why no requests should be sent to this node, with its code.
  result<void> ready() const;

  /// The degradations of a node that serves, as sentences.
  std::vector<std::string> degradations() const;

  /// The reason why pages of the namespace cannot be saved, on any rank; nothing if they can. Free of cost while there
  /// is no trouble.
  std::optional<error> refuses_saves(const namespace_id& ns) const;

  /// Every present trouble, lasting ones first.
  struct known_trouble {
    trouble what;
    /// A sentence with the way out.
    std::string text;
  };
  std::vector<known_trouble> troubles() const;

  bool has(trouble what) const;
  /// In the order in which they were added.
  std::vector<slab> slabs() const;

private:
  struct reason {
    trouble what;
    std::string text;
    /// For a slab, `part` is the rank.
    namespace_id ns;
    part_number part = 0;
  };

  bool begin(reason why);
  bool begin_or_renew(reason why);

  /// Whether there is a lasting reason: without one, the check on each request needs no lock.
  std::atomic<bool> degraded_{false};
  mutable std::mutex mutex_;
  std::vector<reason> reasons_;
  std::vector<slab> slabs_;
};

} // namespace troupe
