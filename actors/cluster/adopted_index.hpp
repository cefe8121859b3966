#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/memory_budget.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::cluster {

/// The pages of one rank of a node that is dead, as its index has them.
struct adopted_rank {
  struct entry {
    key_digest key;
    slot_ref where;
  };
  /// Of its slab file, below the directory that all nodes share.
  std::string path;
  incarnation_number incarnation = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  /// By key.
  std::vector<entry> pages{};

  /// Nothing where it has no page of the key.
  std::optional<slot_ref> find(const key_digest& key) const;
};

/// What a node that is dead has left behind: which page lies in which slot of its slab files. Is read once, from its
/// index, which is opened for reading alone; nothing of it is believed, as each page is verified where it is read. Does
/// not change, and so is anybody's.
class adopted_index {
public:
  /// Reads the index in `directory`, which nobody may be writing to, and finds the slab files there, which have to lie
  /// in `shared`. What a start of the node would not believe is left out. Empty where there is nothing to be had.
  ///
  /// Errors: `no_memory` where `memory` has no room for it; `shutting_down` as soon as `ends`, which is asked now and
  /// then; those of reading the index.
  static result<std::shared_ptr<const adopted_index>> read(const std::filesystem::path& directory,
                                                           const std::filesystem::path& shared,
                                                           const shared_budget& memory,
                                                           const std::function<bool()>& ends = {});

  /// Whether it has a file for each of so many ranks, with slots for pages of so many bytes.
  bool has(const namespace_id& space, std::size_t ranks, std::uint64_t page_bytes) const;
  std::vector<namespace_id> spaces() const;
  /// So many of the keys, from the first one on, have a page of each rank.
  std::uint32_t match(const namespace_id& space, std::span<const key_digest> keys) const;
  /// Null where there is none.
  const adopted_rank* rank(const namespace_id& space, rank_number rank) const;

  std::uint64_t keys() const noexcept { return keys_; }
  std::uint64_t pages() const noexcept { return pages_; }

private:
  friend class adopted_index_reader;

  std::map<namespace_id, std::map<rank_number, adopted_rank>> spaces_;
  std::uint64_t keys_ = 0;
  std::uint64_t pages_ = 0;
  memory_share memory_;
};

} // namespace troupe::cluster
