#pragma once

#include "base/clock.hpp"
#include "http/server/caller.hpp"
#include "http/server/role.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace troupe::http {

enum class method : std::uint8_t { get, head, post, put, patch, delete_, options };

inline constexpr std::size_t method_count = 7;

/// "GET"
std::string_view to_string(method x) noexcept;

/// The method of that name; none if routes cannot have it.
std::optional<method> method_from(std::string_view name) noexcept;

/// Readable bytes after every body, so that a parser may read in wide steps. Their content is undefined.
inline constexpr std::size_t body_padding = 64;

/// A name and its value: a parameter of the path or the query, percent-decoded, or a header as it was sent.
struct named_value {
  std::string_view name;
  std::string_view value;
};

/// The parts of a request, as views into memory of another owner.
struct request_parts {
  http::method method = http::method::get;
  /// As it was sent: "/rank/3/exists?all=1".
  std::string_view target = {};
  std::span<const named_value> path_parameters = {};
  std::span<const named_value> query_parameters = {};
  std::span<const named_value> headers = {};
  /// Followed by `body_padding` readable bytes.
  std::string_view body = {};
  caller_ptr who = anonymous_caller();
  /// When the last byte of the request was read.
  timestamp arrival = {};
  /// Where the server finds the callback for the end of the client; null: there is none.
  std::function<void()>* at_end = nullptr;
};

/// A completely received request. It and all its views are valid until the handler returns: a handler that answers
/// later copies what it still needs. Not thread-safe, and not meant to leave its thread.
class request {
public:
  explicit request(request_parts parts) noexcept : parts_(std::move(parts)) {}

  /// HEAD is answered by the handler of GET, unless the path has one of its own.
  http::method method() const noexcept { return parts_.method; }
  std::string_view target() const noexcept { return parts_.target; }
  /// The decoded segment for a `{name}` of the route's pattern; never empty if the pattern has that name.
  std::string_view path(std::string_view name) const noexcept;
  /// The first parameter of the query with this name, decoded.
  std::optional<std::string_view> query(std::string_view name) const noexcept;
  /// The first header with this name, ignoring case, without surrounding blanks.
  std::optional<std::string_view> header(std::string_view name) const noexcept;
  /// Decoded, if it was sent in chunks; followed by `body_padding` readable bytes.
  std::string_view body() const noexcept { return parts_.body; }
  /// Its role is at least the route's. To be copied for a later answer.
  const caller_ptr& who() const noexcept { return parts_.who; }
  role caller() const noexcept { return parts_.who->grants; }
  /// When the last byte of the request was read.
  timestamp arrival() const noexcept { return parts_.arrival; }
  /// To be called by handlers that may answer much later: `then` is called on the io thread, at most once, if the
  /// client closes its side of the connection before there is an answer, or if nothing more can be sent to it. Detected
  /// within a quarter of a second. A client that has closed only its own side still gets the answer, which may be sent
  /// by `then`. Without effect once the handler has returned.
  void if_client_ends(std::function<void()> then) const {
    if (parts_.at_end != nullptr)
      *parts_.at_end = std::move(then);
  }

private:
  request_parts parts_;
};

} // namespace troupe::http
