#pragma once

#include "base/byte_budget.hpp"
#include "http/server/request.hpp"
#include "http/server/status.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Splits the bytes of one connection into requests, in pieces of any size. Independent of sockets and time. All bytes
/// are in one buffer that is kept between requests: headers are views into it, a body stays where it was received,
/// chunks are joined in place. So the buffer holds one request and the bytes received after it, and memory follows the
/// received bytes. Memory beyond a few KiB comes out of a budget, if there is one. If the budget is used up, a request
/// that needs more is malformed: with 503, and its bytes are dropped.
class request_reader {
public:
  explicit request_reader(std::uint64_t max_header_bytes, byte_budget* budget = nullptr);
  ~request_reader();
  request_reader(const request_reader&) = delete;
  request_reader& operator=(const request_reader&) = delete;

  /// The memory for the next bytes. Never empty; valid until the next call of a non-const function.
  std::span<char> unfilled();
  /// That many bytes have been put there.
  void received(std::size_t bytes) noexcept;

  enum class step {
    /// All received bytes have been parsed.
    need_more,
    /// The headers of a request are complete and available. Returned once per request.
    headers,
    /// Its body is complete as well.
    complete,
    /// The end of the request cannot be determined: `failure_code` and `failure_detail` say why.
    malformed,
  };

  step advance();

  /// The limit of the body, once `advance` has returned `headers`.
  void limit_body(std::uint64_t bytes) noexcept;
  /// Leaves a complete or malformed request, and continues with the bytes after it.
  void next();

  /// Whether no byte of a request has been received.
  bool is_empty() const noexcept;

  status failure_code() const noexcept;
  std::string_view failure_detail() const noexcept;

  // The following functions are about the request whose headers are complete. Views are valid until the next call of
  // `unfilled` or `next`.

  /// None: a method that no route can have.
  std::optional<http::method> method() const noexcept;
  std::string_view target() const;
  /// Rebuilt at each call.
  std::span<const named_value> headers();
  /// The token of "Authorization: Bearer"; empty if there is none.
  std::string_view bearer_token() const;
  bool keep_alive() const;
  bool is_http_1_0() const noexcept;
  bool has_origin() const noexcept;
  /// The value of the Host header; empty if there is none, which only HTTP/1.0 allows.
  std::string_view host() const;
  /// Whether the client waits for 100 Continue before it sends the body.
  bool expects_continue() const noexcept;
  /// The announced size of the body; none if it is chunked.
  std::optional<std::uint64_t> announced_body() const;
  /// Followed by `body_padding` readable bytes.
  std::string_view body() const noexcept;
  /// Bytes of the request so far, as received.
  std::uint64_t bytes_in() const noexcept;

private:
  class parser;

  void skip_empty_lines() noexcept;
  step look();
  step fail(status code, std::string detail);
  step fail_header_limit();
  step put();
  step check_headers();
  void close_gap() noexcept;
  /// False if there is no memory for that many more bytes.
  bool make_room(std::size_t bytes);

  std::unique_ptr<parser> parser_;
};

} // namespace troupe::http
