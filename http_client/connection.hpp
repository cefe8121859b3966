#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "http_client/endpoint.hpp"

#include <boost/asio/ssl/context.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::client_detail {

/// The failure of an attempt.
struct attempt_failure {
  error why;
  /// Whether the server may have received the request.
  bool may_have_arrived = false;
};

template <class T>
using attempt = tl::expected<T, attempt_failure>;

struct answer {
  unsigned status = 0;
  std::string body;
};

/// One open connection to a server. For one thread at a time; every call ends by its deadline.
class connection {
public:
  virtual ~connection() = default;

  /// Connects. `tls` is null for plain connections; else the server must present a certificate for its name.
  static attempt<std::unique_ptr<connection>> open(const endpoint& where, boost::asio::ssl::context* tls,
                                                   timestamp deadline);

  /// Sends the bytes of a request and reads the answer. After an error, the connection cannot be used.
  virtual attempt<answer> exchange(std::string_view request, std::size_t max_answer_bytes, timestamp deadline) = 0;

  /// Whether the server accepts another request on this connection, as far as it has said.
  virtual bool is_reusable() const noexcept = 0;
};

} // namespace troupe::client_detail
