#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <map>
#include <string>
#include <utility>

namespace troupe {

/// The handles (allocators) of each rank of each namespace. A rank keeps one allocator while it is registered: a second
/// one would treat all slots as free, also those that have pages. `Handle` identifies an allocator.
template <class Handle>
class rank_table {
public:
  /// Whether the rank can have this handle: it has the same one, or none.
  result<void> check(const namespace_id& ns, rank_number rank, const Handle& handle) const {
    const auto* known = find(ns, rank);
    if (known == nullptr || *known == handle)
      return {};
    return fail(errc::identity_mismatch, "rank " + std::to_string(rank) + " of namespace " + to_string(ns) +
                                             " has an allocator already, and another one would give out slots that "
                                             "have pages: retire the rank first");
  }

  /// Adds a handle that `check` has accepted.
  void add(const namespace_id& ns, rank_number rank, Handle handle) {
    handles_.emplace(name{ns, rank}, std::move(handle));
  }

  /// Null if the rank has none.
  const Handle* find(const namespace_id& ns, rank_number rank) const {
    const auto i = handles_.find({ns, rank});
    return i == handles_.end() ? nullptr : &i->second;
  }

  void remove(const namespace_id& ns, rank_number rank) { handles_.erase({ns, rank}); }

  /// Removes all handles of a namespace.
  void remove(const namespace_id& ns) {
    const auto end = handles_.upper_bound({ns, static_cast<rank_number>(-1)});
    handles_.erase(handles_.lower_bound({ns, 0}), end);
  }

  void clear() { handles_.clear(); }
  std::size_t size() const noexcept { return handles_.size(); }

private:
  using name = std::pair<namespace_id, rank_number>;

  std::map<name, Handle> handles_;
};

} // namespace troupe
