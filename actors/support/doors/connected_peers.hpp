#pragma once

#include "actors/support/doors/descriptor_handover.hpp"
#include "base/process_watch.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe {

/// The process at the other end of a Unix socket, as the kernel says.
struct local_process {
  /// Its number, where the node sees it; else 0. For people.
  std::int32_t number = 0;
  /// Null if it cannot be watched; `unwatched` says why.
  std::shared_ptr<watched_process> watch{};
  std::string unwatched{};
  /// What it is to get with the next message. Never null.
  std::shared_ptr<descriptor_handover> handover = std::make_shared<descriptor_handover>();
};

/// Which processes of this host are connected to a node, by the names by which they greeted, which no two connections
/// have at once. What comes over TCP is not among them: nobody proves there which process of this host it is.
/// Thread-safe.
class connected_peers {
public:
  void came(const std::string& name, local_process who) {
    const std::lock_guard guard(mutex_);
    all_.insert_or_assign(name, std::move(who));
  }

  void left(const std::string& name) {
    const std::lock_guard guard(mutex_);
    all_.erase(name);
  }

  /// Nothing if no process of that name is connected by a Unix socket.
  std::optional<local_process> find(const std::string& name) const {
    const std::lock_guard guard(mutex_);
    const auto found = all_.find(name);
    return found == all_.end() ? std::nullopt : std::optional(found->second);
  }

private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, local_process> all_;
};

} // namespace troupe
