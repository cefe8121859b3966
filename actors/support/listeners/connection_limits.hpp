#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

/// A table of the connections of a node that enforces its limits: the number of connections, a handshake in time, and a
/// name that no other connection has. Plain state; the caller numbers the connections.
class connection_limits {
public:
  using connection_id = std::uint64_t;

  connection_limits(std::size_t most, duration handshake_time, std::string own_name)
      : most_(most), handshake_time_(handshake_time), own_name_(std::move(own_name)) {}

  /// Adds a connection; false if the limit is reached.
  bool come(connection_id who, timestamp now) {
    if (connections_.size() >= most_)
      return false;
    connections_.emplace(who, record{later(now, handshake_time_), {}});
    ++silent_;
    return true;
  }

  /// Records the handshake; false if the name belongs to another connection, or to the node itself.
  bool complete_handshake(connection_id who, const std::string& name) {
    auto& x = connections_.at(who);
    if (x.name == name)
      return true;
    if (!x.name.empty() || name == own_name_ || !names_.insert(name).second)
      return false;
    x.name = name;
    --silent_;
    return true;
  }

  void leave(connection_id who) {
    const auto i = connections_.find(who);
    if (i == connections_.end())
      return;
    if (i->second.name.empty())
      --silent_;
    else
      names_.erase(i->second.name);
    connections_.erase(i);
  }

  /// Connections whose handshake deadline has passed.
  std::vector<connection_id> late(timestamp now) const {
    std::vector<connection_id> out;
    if (silent_ > 0)
      for (const auto& [who, x] : connections_)
        if (x.name.empty() && x.until <= now)
          out.push_back(who);
    return out;
  }

  std::size_t size() const noexcept { return connections_.size(); }
  /// The number of connections without a handshake so far.
  std::size_t silent() const noexcept { return silent_; }

private:
  struct record {
    timestamp until;
    std::string name;
  };

  std::size_t most_;
  duration handshake_time_;
  std::string own_name_;
  std::unordered_map<connection_id, record> connections_;
  std::unordered_set<std::string> names_;
  std::size_t silent_ = 0;
};

} // namespace troupe
