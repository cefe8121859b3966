#pragma once

#include "http/server/body_budget.hpp"
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

/// Turns the bytes of one connection into requests, one after the other, whatever the pieces in which they come. Knows
/// no socket and no time. All bytes lie in one buffer that is kept between requests: headers are views into it, a body
/// is where it arrived, chunks are moved together. So it holds one request and what came behind it, and memory follows
/// what has arrived. What it needs beyond a few KiB comes out of a budget, if there is one. Where that is used up, a
/// request that needs more is malformed: with 503, and nothing of it is kept.
class request_reader {
public:
  explicit request_reader(std::uint64_t max_header_bytes, body_budget* budget = nullptr);
  ~request_reader();
  request_reader(const request_reader&) = delete;
  request_reader& operator=(const request_reader&) = delete;

  /// Where the next bytes go. Never empty; valid until the next call of a function that is not const.
  std::span<char> space();
  /// That many bytes have been put there.
  void received(std::size_t bytes) noexcept;

  enum class step {
    /// All that has arrived has been looked at.
    need_more,
    /// The headers of a request are complete, and known from now on. Comes once per request.
    headers,
    /// So is its body.
    complete,
    /// There is no telling where the next request begins: `failure_code` and `failure_detail` say why.
    malformed,
  };

  step advance();

  /// The most that the body may have, when `advance` came to the headers.
  void limit_body(std::uint64_t bytes) noexcept;
  /// Leaves a request that is complete, or a malformed one, and goes on to what is behind it.
  void next();

  /// Whether nothing of a request has arrived.
  bool is_empty() const noexcept;

  status failure_code() const noexcept;
  std::string_view failure_detail() const noexcept;

  // Of the request whose headers are complete. Views are valid until the next call of `space` or `next`.

  /// Nothing: one that no route can have.
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
  /// Whether the client waits for a go-ahead before it sends the body.
  bool expects_continue() const noexcept;
  /// Bytes of the body that are announced; nothing if it comes in chunks.
  std::optional<std::uint64_t> announced_body() const;
  /// Followed by `body_padding` readable bytes.
  std::string_view body() const noexcept;
  /// Bytes of the request so far, as they came.
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
