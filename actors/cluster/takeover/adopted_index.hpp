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

/// The pages of one rank of a dead node, according to its index.
struct adopted_rank {
  struct entry {
    key_digest key;
    slot_ref where;
  };
  /// The path of its slab file, relative to the directory that all nodes share.
  std::string path;
  incarnation_number incarnation = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slots = 0;
  /// Sorted by key.
  std::vector<entry> pages{};

  /// Empty where the rank has no page of the key.
  std::optional<slot_ref> find(const key_digest& key) const;
};

/// The index of a dead node: which page is in which slot of its slab files. It is read once, from an index that is
/// opened read-only. It is not trusted: each page is verified when it is read. Immutable, so any thread may use it.
class adopted_index {
public:
  /// Reads the index in `directory`, which must not be written to meanwhile, and finds the slab files there, which have
  /// to be below `shared`. Entries that the node itself would not trust at startup are left out. Empty where nothing is
  /// usable.
  ///
  /// Errors: `no_memory` where `memory` has no room for it; `shutting_down` as soon as `ends`, which is called now and
  /// then, returns true; those of reading the index.
  static result<std::shared_ptr<const adopted_index>> read(const std::filesystem::path& directory,
                                                           const std::filesystem::path& shared,
                                                           const shared_budget& memory,
                                                           const std::function<bool()>& ends = {});

  /// Whether it has a file for each of `ranks` ranks, with slots for pages of `page_bytes`.
  bool has(const namespace_id& ns, std::size_t ranks, std::uint64_t page_bytes) const;
  std::vector<namespace_id> namespaces() const;
  /// The number of leading keys that have a page of each rank.
  std::uint32_t match(const namespace_id& ns, std::span<const key_digest> keys) const;
  /// Null where the namespace has no such rank.
  const adopted_rank* rank(const namespace_id& ns, rank_number rank) const;

  std::uint64_t keys() const noexcept { return keys_; }
  std::uint64_t pages() const noexcept { return pages_; }

private:
  friend class adopted_index_reader;

  std::map<namespace_id, std::map<rank_number, adopted_rank>> namespaces_;
  std::uint64_t keys_ = 0;
  std::uint64_t pages_ = 0;
  memory_share memory_;
};

} // namespace troupe::cluster
