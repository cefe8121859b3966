#pragma once

#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The names of those in whose names leases are held: attached clients, callers over HTTP, and the last ones that have
/// disconnected. So lookups can be explained by name, also after their client has ended. Bounded: attached clients are
/// limited by `io.max_clients`, and of the others the newest are kept. Thread-safe.
class client_names {
public:
  /// Keeps the names of that many clients that are not attached.
  explicit client_names(std::size_t others_most = 1024) : others_most_(others_most) {}

  void attached(owner_id owner, const std::string& name);
  void disconnected(owner_id owner);
  /// A caller over HTTP, which does not attach.
  void called(owner_id owner, const std::string& name);

  /// Empty for an unknown owner.
  std::string name_of(owner_id owner) const;
  /// All owners that have, or had, this name.
  std::vector<owner_id> owners_of(std::string_view name) const;

private:
  struct known {
    std::string name;
    bool is_attached = false;
  };

  void keep_for_a_while(owner_id owner);

  // `others_` lists the owners that are not attached, the oldest first; all owners are in `all_`.

  const std::size_t others_most_;
  mutable std::mutex mutex_;
  std::unordered_map<owner_id, known> all_;
  std::deque<owner_id> others_;
};

} // namespace troupe
