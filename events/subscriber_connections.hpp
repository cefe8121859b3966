#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe::events {

/// Which connections of a socket for subscribers may stay: rules without sockets. Anyone on the host can connect where
/// the socket is a TCP port, so there are no more than `most`, and none sends more than `bytes_max` bytes, which ZeroMQ
/// might keep for ever: subscriptions, or parts of a message that does not end.
///
/// A connection is known by its descriptor, which ZeroMQ may close at any time and the kernel then gives to another
/// socket: what is done to one happens only if the kernel's number of the socket, its cookie, is that of the
/// connection.
class subscriber_connections {
public:
  subscriber_connections(std::uint32_t most, std::uint64_t bytes_max) : most_(most), bytes_max_(bytes_max) {}

  /// ZeroMQ has accepted a connection. One that had the descriptor before has ended.
  void begun(int descriptor) { all_[descriptor] = {descriptor, ++last_}; }
  void ended(int descriptor) { all_.erase(descriptor); }

  struct connection {
    int descriptor = -1;
    /// Its place in the order in which connections have begun.
    std::uint64_t number = 0;
    std::optional<std::uint64_t> cookie{};
    bool refused = false;
  };
  /// Those without a cookie so far.
  std::vector<connection> unknown() const {
    return those([](const connection& x) { return !x.cookie; });
  }
  /// Those with one that may stay so far.
  std::vector<connection> staying() const {
    return those([](const connection& x) { return x.cookie && !x.refused; });
  }

  /// Keeps the cookie of a connection. False if there are too many: then it is to be shut down. Nothing happens if it
  /// has ended meanwhile, also if another one has its descriptor.
  [[nodiscard]] bool identify(const connection& who, std::uint64_t cookie) {
    auto* const found = find(who);
    if (found == nullptr)
      return true;
    found->refused = staying().size() >= most_;
    found->cookie = cookie;
    return !found->refused;
  }
  /// Whether a connection that has sent so many bytes in its life may stay.
  [[nodiscard]] bool may_stay(const connection& who, std::uint64_t bytes) {
    if (bytes <= bytes_max_)
      return true;
    if (auto* const found = find(who))
      found->refused = true;
    return false;
  }

  std::size_t size() const noexcept { return all_.size(); }
  std::uint32_t most() const noexcept { return most_; }
  std::uint64_t bytes_max() const noexcept { return bytes_max_; }

private:
  template <class Condition>
  std::vector<connection> those(Condition holds) const {
    std::vector<connection> out;
    for (const auto& [descriptor, x] : all_)
      if (holds(x))
        out.push_back(x);
    return out;
  }
  connection* find(const connection& who) {
    const auto found = all_.find(who.descriptor);
    return found != all_.end() && found->second.number == who.number ? &found->second : nullptr;
  }

  std::uint32_t most_;
  std::uint64_t bytes_max_;
  std::map<int, connection> all_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::events
