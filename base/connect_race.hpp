#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace troupe {

/// Decides when to try which address of a host, so that one that does not answer costs no time of the others: plain
/// rules, as in RFC 8305. An attempt begins when the last one has failed, and no later than 250 ms after it has begun;
/// earlier attempts go on.
class connect_race {
public:
  static constexpr duration stagger = std::chrono::milliseconds(250);

  /// `ipv6[i]`: whether address `i` is one of IPv6. The resolver has sorted them; the families take turns, so that a
  /// host without a route for one of them is not tried with all of its addresses first.
  explicit connect_race(const std::vector<bool>& ipv6) : order_(in_turns(ipv6)) {}

  /// The address to try now, if there is one. Call it again until there is none.
  std::optional<std::size_t> start(timestamp now) {
    if (next_ == order_.size() || now < at_)
      return std::nullopt;
    at_ = later(now, stagger);
    ++open_;
    return order_[next_++];
  }
  /// An attempt has failed: the next one need not wait.
  void on_failed(timestamp now) {
    --open_;
    at_ = now;
  }

  /// When to call `start` again; `timestamp::max()` if all addresses are being tried.
  timestamp wake() const noexcept { return next_ == order_.size() ? timestamp::max() : at_; }
  /// All attempts have failed.
  bool is_over() const noexcept { return next_ == order_.size() && open_ == 0; }

private:
  static std::vector<std::size_t> in_turns(const std::vector<bool>& ipv6) {
    std::vector<std::size_t> out;
    std::vector<bool> used(ipv6.size());
    for (bool wanted = !ipv6.empty() && ipv6.front(); out.size() < ipv6.size(); wanted = !wanted)
      for (std::size_t i = 0; i < ipv6.size(); ++i)
        if (!used[i] && ipv6[i] == wanted) {
          used[i] = true;
          out.push_back(i);
          break;
        }
    return out;
  }

  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
  std::size_t open_ = 0;
  timestamp at_ = timestamp::min();
};

} // namespace troupe
