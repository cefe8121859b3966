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

/// Why a node cannot do all that it is there for.
enum class trouble : std::uint8_t {
  // These last until the node is started again, or go with their slab, and nothing should be sent to the node.

  /// A slab file was removed or truncated: no key of its namespace can become complete any more.
  slab_damaged,
  /// The index cannot be made durable: the node is about to end.
  index_failed,
  /// Another node has taken over the data directory: this one writes nothing there any more.
  claim_lost,

  // These come and go, and what the node can do meanwhile it does.

  /// The disk of the index does not keep up: answers to changes are late.
  index_slow,
  /// The disk of the index is full: changes wait until there is room. What is stored is found as ever.
  index_full,
  /// The memory of ranks and keys is used up: new keys take the places of old ones before their time.
  memory_full,
  /// Lines of the log were dropped.
  log_dropped,
  /// What is saved cannot be written to a slab: it is in memory only, or not saved at all.
  writes_fail,
  /// A slab file cannot grow although its limit is not reached: older pages make room.
  disk_full,
  /// Another node of the cluster is not there: what it has is not found.
  peer_away,
  /// The list of nodes in etcd cannot be read: nodes that are new are not found.
  etcd_away,
  /// The claim on the data directory could not be renewed in time: nothing is written until it is.
  claim_late,
  /// The host gives less memory for pages than the config asks for, perhaps none at all.
  memory_short,
  /// Clients that have disconnected while their processes go on take so many places that no new client is admitted.
  clients_full,
  /// A Unix socket of the node, or the lock of its directory, was removed and cannot be made again.
  socket_lost,
};

inline constexpr std::uint8_t trouble_count = static_cast<std::uint8_t>(trouble::socket_lost) + 1;

/// Whether it ends by a new start only, or with its slab.
constexpr bool lasts(trouble what) noexcept {
  return what <= trouble::claim_lost;
}

/// The name of the reason, as it stands in metrics.
std::string_view to_string(trouble what) noexcept;

/// Where docs/operations.md says what to do about it: the anchor of its section.
std::string runbook_of(trouble what);

/// The slab of one rank of one namespace.
struct slab_name {
  namespace_id space;
  std::string space_name;
  rank_number rank = 0;
};

/// Whether a node is degraded, and why: what is logged, refused, measured and told by `/ready` all comes from here.
/// Thread-safe.
class node_condition {
public:
  struct slab {
    slab_name name;
    bool damaged = false;
  };

  /// Which of several parts is in trouble, such as the number of a shard.
  using part_number = std::uint32_t;

  /// A slab that is watched, and sound so far.
  void add_slab(slab_name name);
  /// It is watched no more, and what was wrong with it is nobody's trouble.
  void remove_slab(const namespace_id& space, rank_number rank);

  /// True if that was not known before: then it is to be logged. `text` is a sentence with the way out.
  bool slab_damaged(const namespace_id& space, rank_number rank, std::string text);
  bool index_failed(std::string text);
  bool claim_lost(std::string text);

  /// A trouble that comes and goes has come to this part, or gone. True if it was not so before: then it is to be
  /// logged. A new text of the same trouble takes the place of the old one.
  bool begins(trouble what, part_number part, std::string text);
  bool ends(trouble what, part_number part);

  /// The same of the slab of a rank. It ends with the slab as well.
  bool begins(trouble what, const namespace_id& space, rank_number rank, std::string text);
  bool ends(trouble what, const namespace_id& space, rank_number rank);

  /// ok, or why nothing should be sent to this node; the code goes with the reason.
  result<void> ready() const;

  /// What the node lacks although it serves, as sentences.
  std::vector<std::string> shortcomings() const;

  /// Why pages of the namespace cannot be saved, on whatever rank; nothing if they can. Costs nothing as long as all is
  /// well.
  std::optional<error> refuses_saves(const namespace_id& space) const;

  /// Everything that is wrong now, what lasts first.
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
    /// Of a slab, and then `part` is the rank.
    namespace_id space;
    part_number part = 0;
  };

  bool begin(reason why);
  bool begin_or_renew(reason why);

  /// Whether there is a reason that lasts: what is asked for each request needs no lock as long as there is none.
  std::atomic<bool> degraded_{false};
  mutable std::mutex mutex_;
  std::vector<reason> reasons_;
  std::vector<slab> slabs_;
};

} // namespace troupe
