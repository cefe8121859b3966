#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

namespace troupe {

/// A set of the processes that connected with a certificate that is not a node's, by the names in their handshakes.
/// Thread-safe.
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

  /// Whether a process may act as a node. A process without a certificate may, because a config without TLS trusts
  /// everyone who can connect.
  bool may_be_node(const std::string& name) const {
    const std::lock_guard guard(mutex_);
    return !clients_.contains(name);
  }

private:
  mutable std::mutex mutex_;
  std::unordered_set<std::string> clients_;
};

} // namespace troupe
