#pragma once

#include "base/clock.hpp"
#include "http/server/request.hpp"
#include "http/server/status.hpp"

#include <cstdint>
#include <string_view>

namespace troupe::http {

/// One request that has been answered.
struct request_record {
  /// The name of its route; "unmatched" where there was none, "malformed" where it was no HTTP.
  std::string_view route;
  status code = status::ok;
  /// From its arrival until its handler was called.
  duration waited{};
  /// From its arrival until it was answered; sending the answer is not part of it.
  duration total{};
  /// With headers; as they were before encryption.
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  /// The name of who asked, see `caller`; empty where the request was not read so far.
  std::string_view caller = {};
};

/// Is told what the server does. Called from io threads, from several at once, between one request and the next: what
/// takes long here, all connections of the thread wait for. Must outlive the server.
class observer {
public:
  virtual ~observer() = default;

  virtual void request_finished(const request_record&) noexcept {}
  virtual void connection_opened() noexcept {}
  virtual void connection_closed() noexcept {}
  /// A connection beyond the limit, which got 503 or nothing. It counts as neither opened nor closed.
  virtual void connection_refused() noexcept {}
};

} // namespace troupe::http
