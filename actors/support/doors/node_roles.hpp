#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

namespace troupe {

/// Who has come in with a certificate, and is no node by it. Processes are named as they greet. Thread-safe.
class node_roles {
public:
  /// The organizational unit (OU) in the certificate of a node.
  static constexpr const char* unit = "node";

  void came_as_client(const std::string& name) {
    const std::lock_guard guard(mutex_);
    clients_.insert(name);
  }

  void left(const std::string& name) {
    const std::lock_guard guard(mutex_);
    clients_.erase(name);
  }

  /// Whoever came without a certificate, since the config trusts everybody who reaches the door, may be a node.
  bool may_be_node(const std::string& name) const {
    const std::lock_guard guard(mutex_);
    return !clients_.contains(name);
  }

private:
  mutable std::mutex mutex_;
  std::unordered_set<std::string> clients_;
};

} // namespace troupe
