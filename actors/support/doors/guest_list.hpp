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
class guest_list {
public:
  using guest = std::uint64_t;

  guest_list(std::size_t most, duration greeting_time, std::string own_name)
      : most_(most), greeting_time_(greeting_time), own_name_(std::move(own_name)) {}

  /// Adds a connection; false if the limit is reached.
  bool come(guest who, timestamp now) {
    if (guests_.size() >= most_)
      return false;
    guests_.emplace(who, record{later(now, greeting_time_), {}});
    ++silent_;
    return true;
  }

  /// Records the handshake; false if the name belongs to another connection, or to the node itself.
  bool greet(guest who, const std::string& name) {
    auto& x = guests_.at(who);
    if (x.name == name)
      return true;
    if (!x.name.empty() || name == own_name_ || !names_.insert(name).second)
      return false;
    x.name = name;
    --silent_;
    return true;
  }

  void leave(guest who) {
    const auto i = guests_.find(who);
    if (i == guests_.end())
      return;
    if (i->second.name.empty())
      --silent_;
    else
      names_.erase(i->second.name);
    guests_.erase(i);
  }

  /// Connections whose handshake deadline has passed.
  std::vector<guest> late(timestamp now) const {
    std::vector<guest> out;
    if (silent_ > 0)
      for (const auto& [who, x] : guests_)
        if (x.name.empty() && x.until <= now)
          out.push_back(who);
    return out;
  }

  std::size_t size() const noexcept { return guests_.size(); }
  /// The number of connections without a handshake so far.
  std::size_t silent() const noexcept { return silent_; }

private:
  struct record {
    timestamp until;
    std::string name;
  };

  std::size_t most_;
  duration greeting_time_;
  std::string own_name_;
  std::unordered_map<guest, record> guests_;
  std::unordered_set<std::string> names_;
  std::size_t silent_ = 0;
};

} // namespace troupe
