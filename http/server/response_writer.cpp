#include "http/server/response_writer.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::http {

namespace {

constexpr std::string_view ok_line = "HTTP/1.1 200 OK\r\n";
constexpr std::string_view type_name = "Content-Type: ";
constexpr std::string_view length_name = "Content-Length: ";
constexpr std::string_view line_end = "\r\n";
/// Digits of a number.
constexpr std::size_t number_bytes = 20;
/// More than the fixed parts: the first line, names of headers, two numbers, line ends.
constexpr std::size_t fixed_bytes = 160;

/// Concatenates pieces into memory that is reserved for all of them, so that no append has to check it.
class pieces {
public:
  explicit pieces(char* to) noexcept : to_(to) {}

  pieces& operator<<(std::string_view x) noexcept {
    to_ = std::ranges::copy(x, to_).out;
    return *this;
  }
  pieces& operator<<(std::uint64_t number) noexcept {
    to_ = std::to_chars(to_, to_ + number_bytes, number).ptr;
    return *this;
  }
  const char* end() const noexcept { return to_; }

private:
  char* to_;
};

} // namespace

void append_response(std::string& out, const response& x, const framing& how) {
  const auto has_body = x.code != status::no_content && x.code != status::not_modified;
  const auto sends_body = has_body && !how.is_head;
  const auto code_reason = x.code == status::ok ? std::string_view{} : reason(x.code);
  const auto before = out.size();
  const auto most = fixed_bytes + code_reason.size() + how.date.size() + x.content_type.size() + x.headers.size();
  out.reserve(before + most + x.body.size());
  out.resize(before + most);
  pieces to{out.data() + before};
  if (x.code == status::ok)
    to << ok_line;
  else
    to << "HTTP/1.1 " << std::uint64_t{static_cast<std::uint16_t>(x.code)} << " " << code_reason << line_end;
  to << how.date;
  if (has_body) {
    if (!x.body.empty())
      to << type_name << x.content_type << line_end;
    to << length_name << std::uint64_t{x.body.size()} << line_end;
  }
  to << x.headers;
  if (!how.keep_alive)
    to << "Connection: close\r\n";
  else if (how.is_http_1_0)
    to << "Connection: keep-alive\r\n";
  to << line_end;
  out.resize(static_cast<std::size_t>(to.end() - out.data()));
  if (sends_body)
    out += x.body;
}

} // namespace troupe::http
