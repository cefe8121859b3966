#include "http/server/response_writer.hpp"

#include "http/server/json_text.hpp"

namespace troupe::http {

void append_response(std::string& out, const response& x, const framing& how) {
  const auto has_body = x.code != status::no_content && x.code != status::not_modified;
  out.reserve(out.size() + 192 + x.headers.size() + x.body.size());
  if (x.code == status::ok) {
    out += "HTTP/1.1 200 OK\r\n";
  } else {
    out += "HTTP/1.1 ";
    append_json(out, std::uint64_t{static_cast<std::uint16_t>(x.code)});
    out += ' ';
    out += reason(x.code);
    out += "\r\n";
  }
  out += how.date;
  if (has_body) {
    if (!x.body.empty()) {
      out += "Content-Type: ";
      out += x.content_type;
      out += "\r\n";
    }
    out += "Content-Length: ";
    append_json(out, std::uint64_t{x.body.size()});
    out += "\r\n";
  }
  out += x.headers;
  if (!how.keep_alive)
    out += "Connection: close\r\n";
  else if (how.is_http_1_0)
    out += "Connection: keep-alive\r\n";
  out += "\r\n";
  if (has_body && !how.is_head)
    out += x.body;
}

} // namespace troupe::http
