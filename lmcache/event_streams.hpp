#pragma once

#include "lmcache/incoming.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace troupe::lmcache {

/// The subscriptions of clients to events: plain rules. A subscription is one request with many answers. Its client
/// confirms each answer, and the next one is sent only after that; so a slow client holds up nothing, and no more than
/// one answer of it waits. An instance of a client has one subscription: a new one ends the one before.
class event_streams {
public:
  using request = std::shared_ptr<const incoming>;

  struct options {
    std::size_t streams_max = 1024;
    std::size_t per_client_max = 64;
  };

  event_streams() = default;
  explicit event_streams(const options& how) : options_(how) {}

  struct stream {
    /// Never null.
    request opened;
    /// The change up to which the client knows.
    std::uint64_t cursor = 0;
    /// The first answer is sent also where there is nothing to report.
    bool is_new = true;
    /// An answer is not confirmed yet.
    bool waits = false;
  };

  /// False if there are too many.
  bool open(const request& x);
  /// A message about the subscription that this client began with a request of that number.
  void confirmed(client_number client, const std::string& number);
  void cancelled(client_number client, const std::string& number);
  void client_disconnected(client_number client);
  void clear() { streams_.clear(); }

  /// Calls f with each subscription that may get an answer. It sets `waits` if it has sent one.
  template <class F>
  void for_each_ready(F&& f) {
    for (auto& [key, x] : streams_)
      if (!x.waits)
        f(x);
  }

  std::size_t size() const noexcept { return streams_.size(); }

private:
  /// The client, and the number of its request.
  using stream_key = std::pair<client_number, std::string>;

  options options_;
  std::map<stream_key, stream> streams_;
};

} // namespace troupe::lmcache
