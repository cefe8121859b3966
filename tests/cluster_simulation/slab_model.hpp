#pragma once

#include "base/digest.hpp"
#include "base/identifiers.hpp"
#include "tests/cluster_simulation/stored_pages.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::cluster_simulation {

/// The slab files of one namespace at a node, one for each rank, on a disk that all nodes share: what the node believes
/// to lie where, and what lies there.
class slab_model {
public:
  struct cell {
    key_digest key;
    generation_number generation = 0;
    contents what = 0;
  };

  slab_model(std::uint64_t incarnation, std::uint32_t ranks) : incarnation_(incarnation), ranks_(ranks) {}

  std::uint64_t incarnation() const noexcept { return incarnation_; }

  /// The slot of the page, or its slot from now on: in place of a page that has been dropped.
  std::optional<slot_ref> place(const key_digest& key, std::uint32_t rank, std::uint64_t from,
                                const std::function<bool(const key_digest&)>& is_there) {
    auto& x = ranks_[rank];
    for (slot_number s = 0; s < slots; ++s)
      if (x.placed[s] && x.placed[s]->key == key)
        return slot_ref{s, x.placed[s]->generation};
    for (std::uint64_t k = 0; k < slots; ++k) {
      const auto s = static_cast<slot_number>((from + k) % slots);
      if (x.placed[s] && is_there(x.placed[s]->key))
        continue;
      x.placed[s] = cell{key, ++x.generations[s], 0};
      return slot_ref{s, x.placed[s]->generation};
    }
    return std::nullopt;
  }
  void write(std::uint32_t rank, slot_number slot, const cell& what) { ranks_[rank].lies[slot] = what; }
  std::optional<cell> read(std::uint32_t rank, slot_number slot) const { return ranks_[rank].lies[slot]; }
  bool is_written(std::uint32_t rank, const slot_ref& where, const key_digest& key) const {
    const auto& x = ranks_[rank].lies[where.slot];
    return x && x->key == key && x->generation == where.generation;
  }
  /// The node has forgotten all, its generations too; what lies there still does.
  void forget() {
    for (auto& x : ranks_) {
      x.placed.assign(slots, std::nullopt);
      x.generations.assign(slots, 0);
    }
  }

private:
  /// Few, so that they are written over.
  static constexpr slot_number slots = 40;

  struct rank_file {
    std::vector<std::optional<cell>> placed = std::vector<std::optional<cell>>(slots);
    std::vector<std::optional<cell>> lies = std::vector<std::optional<cell>>(slots);
    std::vector<generation_number> generations = std::vector<generation_number>(slots);
  };

  std::uint64_t incarnation_;
  std::vector<rank_file> ranks_;
};

} // namespace troupe::cluster_simulation
