#pragma once

#include "base/clock.hpp"
#include "http/server/request.hpp"
#include "http/server/status.hpp"

#include <cstdint>
#include <string_view>

namespace troupe::http {

/// One answered request.
struct request_record {
  /// The name of its route; "unmatched" if there was none, "malformed" if it was not HTTP.
  std::string_view route;
  status code = status::ok;
  /// From its arrival until its handler was called.
  duration waited{};
  /// From its arrival until it was answered, without sending the answer.
  duration total{};
  /// Including headers; before encryption.
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  /// The name of the caller, see `caller`; empty if the request was not read far enough.
  std::string_view caller = {};
};

/// Receives the events of a server. Called from several io threads at once, between one request and the next: a slow
/// function delays all connections of the thread. Must outlive the server.
class observer {
public:
  virtual ~observer() = default;

  virtual void request_finished(const request_record&) noexcept {}
  virtual void connection_opened() noexcept {}
  virtual void connection_closed() noexcept {}
  /// A connection beyond the limit, which got 503 or no answer. It counts as neither opened nor closed.
  virtual void connection_refused() noexcept {}
};

} // namespace troupe::http
