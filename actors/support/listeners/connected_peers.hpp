#pragma once

#include "actors/support/listeners/descriptor_handover.hpp"
#include "base/process_watch.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe {

/// The process at the other end of a Unix socket, as the kernel reports it.
struct local_process {
  /// The process id, where the node sees it, else 0. For messages only.
  std::int32_t number = 0;
  /// Null if the process cannot be watched; `unwatched` says why.
  std::shared_ptr<watched_process> watch{};
  std::string unwatched{};
  /// Descriptors that are sent with the next message. Never null.
  std::shared_ptr<descriptor_handover> handover = std::make_shared<descriptor_handover>();
};

/// A map of the processes of this host that are connected to a node, by the names in their handshakes. No two
/// connections have the same name at once. Connections over TCP are not included, because they do not prove which
/// process of this host they belong to. Thread-safe.
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

  /// Empty if no process of that name is connected by a Unix socket.
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
