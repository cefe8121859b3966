#include "http/server/request_reader.hpp"

#include "http/server/receive_buffer.hpp"
#include "http/server/text.hpp"

#include <algorithm>
#include <array>
#include <boost/beast/http/basic_parser.hpp>
#include <cstring>
#include <utility>

namespace troupe::http {

namespace {

namespace beast = boost::beast;

constexpr std::size_t initial_capacity = std::size_t{8} * 1024;
/// A larger buffer is released after the request.
constexpr std::size_t kept_buffer_capacity = std::size_t{256} * 1024;
constexpr std::size_t least_space = std::size_t{4} * 1024;
constexpr std::size_t max_headers = 100;
/// The line before a chunk, and the headers after the last one.
constexpr std::size_t max_chunk_line = std::size_t{4} * 1024;
/// The last chunk, which ends every chunked body: "0\r\n\r\n".
constexpr std::size_t last_chunk_bytes = 5;

std::string_view plain(beast::string_view x) noexcept {
  return {x.data(), x.size()};
}

/// A range of bytes in the buffer, by offsets, so that the buffer may move.
struct piece {
  std::size_t begin = 0;
  std::size_t size = 0;
};

struct header_pieces {
  piece name;
  piece value;
};

} // namespace

/// The buffer, and the parsed state of the request in it.
class request_reader::parser {
public:
  using error_code = beast::error_code;

  /// Beast finds the ends of all parts; nothing is copied.
  class beast_parser final : public beast::http::basic_parser<true> {
  public:
    explicit beast_parser(parser& owner) : owner_(owner) {}

  private:
    void on_request_impl(beast::http::verb, beast::string_view name, beast::string_view target, int version,
                         error_code&) override {
      owner_.method = method_from(plain(name));
      owner_.target = owner_.place(plain(target));
      owner_.is_http_1_0 = version < 11;
    }

    void on_response_impl(int, beast::string_view, int, error_code&) override {}

    void on_field_impl(beast::http::field f, beast::string_view name, beast::string_view value,
                       error_code& ec) override {
      owner_.take_header(f, plain(name), plain(value), ec);
    }

    void on_header_impl(error_code&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}

    std::size_t on_body_impl(beast::string_view bytes, error_code& ec) override {
      return owner_.take_body(plain(bytes), ec);
    }

    void on_chunk_header_impl(std::uint64_t, beast::string_view, error_code&) override {}

    std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, error_code& ec) override {
      return owner_.take_body(plain(bytes), ec);
    }

    void on_finish_impl(error_code&) override {}

    parser& owner_;
  };

  parser(std::uint64_t max_header, byte_budget* shared) : max_header_bytes(max_header), budget(shared) {
    allocate(initial_capacity);
  }
  parser(const parser&) = delete;
  parser& operator=(const parser&) = delete;
  ~parser() { give_back(); }

  /// The part that counts in the budget: without the minimum of every connection.
  static std::size_t beyond_initial(std::size_t bytes) noexcept {
    return bytes > initial_capacity ? bytes - initial_capacity : 0;
  }

  void give_back() noexcept {
    if (budget != nullptr)
      budget->give_back(beyond_initial(capacity));
  }

  /// Installs a new buffer and returns the old one. Nothing changes if there is no memory.
  std::optional<receive_buffer> allocate(std::size_t bytes) {
    const auto before = beyond_initial(capacity);
    const auto after = beyond_initial(bytes);
    const auto more = after > before ? after - before : 0;
    if (budget != nullptr && more > 0 && !budget->take(more))
      return std::nullopt;
    try {
      // Zeroed, since parsers of bodies read beyond the received bytes.
      receive_buffer fresh{bytes + body_padding};
      if (budget != nullptr && before > after)
        budget->give_back(before - after);
      capacity = bytes;
      return std::exchange(data, std::move(fresh));
    } catch (...) {
      if (budget != nullptr)
        budget->give_back(more);
      throw;
    }
  }

  /// The size of the request as far as it is known; none if it is not.
  std::optional<std::size_t> needed() const {
    if (!headers_known || failed || !beast || beast->chunked())
      return std::nullopt;
    const auto length = beast->content_length();
    if (!length || *length > max_body_bytes)
      return std::nullopt;
    return body.begin + static_cast<std::size_t>(*length) + least_space;
  }

  void restart() noexcept {
    beast.reset();
    method.reset();
    target = {};
    headers.clear();
    authorization.reset();
    host = {};
    is_http_1_0 = has_origin = expects_continue = headers_known = failed = false;
    hosts = 0;
    body = {};
    max_body_bytes = 0;
    raw_bytes = 0;
    refusal = status::ok;
    refusal_detail = {};
  }

  piece place(std::string_view bytes) const noexcept {
    return {static_cast<std::size_t>(bytes.data() - data.get()) - begin, bytes.size()};
  }

  std::string_view at(piece x) const noexcept { return {data.get() + begin + x.begin, x.size}; }

  void refuse(status code, std::string_view detail, error_code& ec) {
    refusal = code;
    refusal_detail = detail;
    ec = beast::http::error::bad_value;
  }

  void take_header(beast::http::field f, std::string_view name, std::string_view value, error_code& ec) {
    using beast::http::field;
    if (headers_known)
      return; // after the last chunk: ignored
    if (headers.size() == max_headers)
      return refuse(status::header_fields_too_large, "more than 100 headers", ec);
    if (value.empty())
      value = {name.data() + name.size(), 0};
    if (value.data() < data.get() || value.data() > data.get() + capacity)
      return refuse(status::bad_request, "a header with a line continuation", ec);
    headers.push_back({place(name), place(value)});
    switch (f) {
    case field::host:
      ++hosts;
      host = headers.back().value;
      break;
    case field::authorization:
      if (authorization)
        return refuse(status::bad_request, "more than one Authorization header", ec);
      authorization = headers.back().value;
      break;
    case field::expect:
      if (!equal_ignoring_case(value, "100-continue"))
        return refuse(status::expectation_failed, "an expectation other than 100-continue", ec);
      expects_continue = true;
      break;
    case field::origin:
      has_origin = true;
      break;
    case field::transfer_encoding:
      // With anything else before "chunked", or instead of it, Beast would leave the body encoded, or assume none.
      if (!equal_ignoring_case(value, "chunked"))
        return refuse(status::not_implemented, "a transfer encoding other than chunked", ec);
      break;
    default:
      break;
    }
  }

  std::size_t take_body(std::string_view bytes, error_code& ec) noexcept {
    if (bytes.size() > max_body_bytes - body.size) {
      ec = beast::http::error::body_limit;
      return 0;
    }
    auto* to = data.get() + begin + body.begin + body.size;
    if (to != bytes.data())
      std::memmove(to, bytes.data(), bytes.size());
    body.size += bytes.size();
    return bytes.size();
  }

  const std::uint64_t max_header_bytes;
  byte_budget* const budget;
  receive_buffer data;
  /// Without the padding.
  std::size_t capacity = 0;
  /// The request begins at `begin`; Beast has parsed up to `seen`; bytes have been received up to `end`.
  std::size_t begin = 0;
  std::size_t seen = 0;
  std::size_t end = 0;

  std::optional<beast_parser> beast;
  std::optional<http::method> method;
  piece target;
  std::vector<header_pieces> headers;
  std::vector<named_value> header_views;
  std::optional<piece> authorization;
  piece host;
  bool is_http_1_0 = false;
  bool has_origin = false;
  bool expects_continue = false;
  bool headers_known = false;
  bool failed = false;
  std::size_t hosts = 0;
  piece body;
  std::uint64_t max_body_bytes = 0;
  std::uint64_t raw_bytes = 0;
  status refusal = status::ok;
  std::string_view refusal_detail;
  std::string failure_detail;
};

request_reader::request_reader(std::uint64_t max_header_bytes, byte_budget* budget)
    : parser_(std::make_unique<parser>(max_header_bytes, budget)) {}
request_reader::~request_reader() = default;

std::span<char> request_reader::unfilled() {
  auto& p = *parser_;
  if (p.begin == p.end)
    p.begin = p.seen = p.end = 0;
  // `advance` has made room, except after an error: then the new bytes overwrite older ones.
  if (p.capacity - p.end < least_space && !make_room(least_space))
    p.begin = p.seen = p.end = 0;
  return {p.data.get() + p.end, p.capacity - p.end};
}

bool request_reader::make_room(std::size_t bytes) {
  auto& p = *parser_;
  const auto held = p.end - p.begin;
  if (p.capacity - held >= bytes && p.begin >= p.capacity / 2) {
    std::memmove(p.data.get(), p.data.get() + p.begin, held);
  } else {
    // Doubles each time, but not beyond what the request can need.
    auto wanted = p.capacity * 2;
    if (const auto needed = p.needed())
      wanted = std::min(wanted, *needed);
    const auto old = p.allocate(std::max(wanted, held + bytes));
    if (!old)
      return false;
    std::memcpy(p.data.get(), old->get() + p.begin, held);
  }
  p.seen -= p.begin;
  p.end = held;
  p.begin = 0;
  return true;
}

void request_reader::received(std::size_t bytes) noexcept {
  parser_->end += bytes;
}

void request_reader::skip_empty_lines() noexcept {
  auto& p = *parser_;
  while (p.begin < p.end && (p.data[p.begin] == '\r' || p.data[p.begin] == '\n'))
    ++p.begin;
  p.seen = p.begin;
}

request_reader::step request_reader::advance() {
  auto& p = *parser_;
  const auto next = look();
  if (next != step::need_more || p.capacity - p.end >= least_space || p.begin == p.end || make_room(least_space))
    return next;
  p.begin = p.seen = p.end = 0;
  p.allocate(initial_capacity);
  return fail(status::service_unavailable,
              "the requests that are being received use all the memory that they may; try again later");
}

request_reader::step request_reader::look() {
  auto& p = *parser_;
  if (p.failed)
    return step::malformed;
  if (!p.beast) {
    skip_empty_lines();
    if (p.begin == p.end)
      return step::need_more;
    p.beast.emplace(p);
    p.beast->header_limit(static_cast<std::uint32_t>(p.max_header_bytes));
    // The limit of the body depends on the route; it is checked where the body is received.
    p.beast->body_limit(boost::none);
  }
  if (p.headers_known && p.beast->is_done())
    return step::complete;
  return put();
}

request_reader::step request_reader::put() {
  auto& p = *parser_;
  if (p.seen == p.end)
    return step::need_more;
  // Beast asserts that a last chunk does not arrive in smaller pieces.
  if (p.headers_known && p.beast->chunked() && p.end - p.seen < last_chunk_bytes)
    return step::need_more;
  parser::error_code ec;
  const auto used = p.beast->put({p.data.get() + p.seen, p.end - p.seen}, ec);
  p.seen += used;
  p.raw_bytes += used;
  if (!p.headers_known && (ec == beast::http::error::header_limit || p.seen - p.begin > p.max_header_bytes ||
                           (ec == beast::http::error::need_more && p.end - p.begin > p.max_header_bytes)))
    return fail_header_limit();
  if (ec == beast::http::error::need_more) {
    if (p.headers_known) {
      close_gap();
      if (p.end - p.seen > max_chunk_line)
        return fail(status::bad_request, "the line before a chunk, or the trailer, is too long");
    }
    return step::need_more;
  }
  if (ec == beast::http::error::body_limit)
    return fail(status::content_too_large,
                "the body has more than " + std::to_string(p.max_body_bytes) + " bytes, the limit of this request");
  if (p.refusal != status::ok)
    return fail(p.refusal, "the request has " + std::string{p.refusal_detail});
  if (ec)
    return fail(status::bad_request, "this is not HTTP/1.1: " + ec.message());
  if (!p.headers_known)
    return check_headers();
  if (p.beast->is_done())
    return step::complete;
  close_gap();
  return step::need_more;
}

request_reader::step request_reader::check_headers() {
  auto& p = *parser_;
  p.headers_known = true;
  p.body.begin = p.seen - p.begin;
  p.beast->eager(true);
  if (p.hosts > 1 || (p.hosts == 0 && !p.is_http_1_0))
    return fail(status::bad_request, "the request has no Host header, or more than one");
  if (p.is_http_1_0 && p.beast->chunked())
    return fail(status::bad_request, "HTTP/1.0 does not support chunks");
  return step::headers;
}

/// Moves unparsed bytes down to the end of the body, over the frames of chunks: otherwise a body in small chunks would
/// take many times its allowed memory.
void request_reader::close_gap() noexcept {
  auto& p = *parser_;
  const auto body_end = p.begin + p.body.begin + p.body.size;
  if (!p.beast->chunked() || body_end == p.seen)
    return;
  const auto rest = p.end - p.seen;
  std::memmove(p.data.get() + body_end, p.data.get() + p.seen, rest);
  p.seen = body_end;
  p.end = body_end + rest;
}

request_reader::step request_reader::fail_header_limit() {
  const auto& p = *parser_;
  const std::string_view seen{p.data.get() + p.begin, p.end - p.begin};
  if (seen.substr(0, p.max_header_bytes).find('\n') == std::string_view::npos)
    return fail(status::uri_too_long,
                "the request line has more than " + std::to_string(p.max_header_bytes) + " bytes");
  return fail(status::header_fields_too_large,
              "request line and headers have more than " + std::to_string(p.max_header_bytes) + " bytes");
}

request_reader::step request_reader::fail(status code, std::string detail) {
  parser_->failed = true;
  parser_->refusal = code;
  parser_->failure_detail = std::move(detail);
  return step::malformed;
}

void request_reader::limit_body(std::uint64_t bytes) noexcept {
  parser_->max_body_bytes = bytes;
}

void request_reader::next() {
  auto& p = *parser_;
  p.begin = p.failed ? p.end : p.seen;
  p.restart();
  if (p.begin != p.end)
    return;
  p.begin = p.seen = p.end = 0;
  const auto is_tight = p.budget != nullptr && p.budget->is_tight();
  if (p.capacity > (is_tight ? initial_capacity : kept_buffer_capacity))
    p.allocate(initial_capacity);
}

bool request_reader::is_empty() const noexcept {
  return parser_->begin == parser_->end;
}

status request_reader::failure_code() const noexcept {
  return parser_->refusal;
}

std::string_view request_reader::failure_detail() const noexcept {
  return parser_->failure_detail;
}

std::optional<method> request_reader::method() const noexcept {
  return parser_->method;
}

std::string_view request_reader::target() const {
  return parser_->at(parser_->target);
}

std::span<const named_value> request_reader::headers() {
  auto& p = *parser_;
  p.header_views.clear();
  for (const auto& x : p.headers)
    p.header_views.push_back({p.at(x.name), p.at(x.value)});
  return p.header_views;
}

std::string_view request_reader::bearer_token() const {
  constexpr std::string_view scheme = "bearer ";
  const auto& p = *parser_;
  if (!p.authorization)
    return {};
  auto value = p.at(*p.authorization);
  if (value.size() <= scheme.size() || !equal_ignoring_case(value.substr(0, scheme.size()), scheme))
    return {};
  value.remove_prefix(std::min(value.find_first_not_of(' ', scheme.size()), value.size()));
  return value;
}

bool request_reader::keep_alive() const {
  return !parser_->failed && parser_->beast->keep_alive();
}

bool request_reader::is_http_1_0() const noexcept {
  return parser_->is_http_1_0;
}

bool request_reader::has_origin() const noexcept {
  return parser_->has_origin;
}

std::string_view request_reader::host() const {
  return parser_->at(parser_->host);
}

bool request_reader::expects_continue() const noexcept {
  // RFC 9110: a 1.0 client does not understand 100 Continue.
  return parser_->expects_continue && !parser_->is_http_1_0;
}

std::optional<std::uint64_t> request_reader::announced_body() const {
  const auto& p = *parser_;
  if (p.beast->chunked())
    return std::nullopt;
  const auto length = p.beast->content_length();
  return length ? *length : 0;
}

std::string_view request_reader::body() const noexcept {
  return parser_->at(parser_->body);
}

std::uint64_t request_reader::bytes_in() const noexcept {
  return parser_->raw_bytes;
}

} // namespace troupe::http
