#pragma once

#include "http/server/response.hpp"

#include <string>
#include <string_view>

namespace troupe::http {

/// The parts of an answer that the server decides.
struct framing {
  /// An answer to HEAD has the headers of the answer to GET, and no body.
  bool is_head = false;
  bool keep_alive = true;
  /// HTTP/1.0 closes by default, HTTP/1.1 keeps the connection.
  bool is_http_1_0 = false;
  /// "Date: …\r\n"
  std::string_view date = {};
};

/// Appends the answer as it is sent.
void append_response(std::string& out, const response& x, const framing& how);

} // namespace troupe::http
