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

/// Why a node cannot do all that it is there for. Each lasts until the node is started again.
enum class trouble : std::uint8_t {
  /// A slab file was removed or truncated: no key of its namespace can become complete any more.
  slab_damaged,
  /// The index cannot be made durable: the node is about to end.
  index_failed,
};

inline constexpr std::uint8_t trouble_count = static_cast<std::uint8_t>(trouble::index_failed) + 1;

/// The name of the reason, as it stands in metrics.
std::string_view to_string(trouble what) noexcept;

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

  /// A slab that is watched, and sound so far.
  void add_slab(slab_name name);

  /// True if that was not known before: then it is to be logged. `text` is a sentence with the way out.
  bool slab_damaged(const namespace_id& space, rank_number rank, std::string text);
  bool index_failed(std::string text);

  /// ok, or why nothing should be sent to this node; the code goes with the reason.
  result<void> ready() const;

  /// Why pages of the namespace cannot be saved, on whatever rank; nothing if they can. Costs nothing as long as all is
  /// well.
  std::optional<error> refuses_saves(const namespace_id& space) const;

  bool has(trouble what) const;
  /// In the order in which they were added.
  std::vector<slab> slabs() const;

private:
  struct reason {
    trouble what;
    std::string text;
    /// Of a slab.
    namespace_id space;
  };

  bool begin(reason why);

  std::atomic<bool> degraded_{false};
  mutable std::mutex mutex_;
  std::vector<reason> reasons_;
  std::vector<slab> slabs_;
};

} // namespace troupe
