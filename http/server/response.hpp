#pragma once

#include "base/error.hpp"
#include "http/server/status.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::http {

inline constexpr std::string_view json_type = "application/json";
inline constexpr std::string_view text_type = "text/plain; charset=utf-8";

/// An answer. The server adds Content-Length, Date and Connection.
struct response {
  status code = status::ok;
  std::string body = {};
  /// Must outlive the response: a literal. Not sent without a body.
  std::string_view content_type = json_type;
  /// More headers, as they are sent: "Name: value\r\n" each. See `add_header`.
  std::string headers = {};
  /// Kept until the last byte has been handed to the socket, or until the answer is discarded: accounts for the memory
  /// of answers that are being sent.
  std::shared_ptr<const void> claim = {};

  /// Adds a header. Bytes that would end it early are replaced by blanks.
  void add_header(std::string_view name, std::string_view value);

  /// `body` is JSON text.
  static response json(std::string body, status code = status::ok);
  static response text(std::string body, status code = status::ok);
  /// 204, which has no body.
  static response no_content();
  /// `{"detail":"…"}`
  static response failure(status code, std::string_view detail);
  /// The same, with the code of `status_of` for the error.
  static response failure(const error& e);
};

/// One request of one connection.
struct exchange_id {
  std::uint64_t connection = 0;
  std::uint64_t number = 0;

  friend bool operator==(const exchange_id&, const exchange_id&) = default;
};

/// The destination of responders: an io thread of the server, or a test. Both functions may be called from any thread.
class answer_sink {
public:
  virtual ~answer_sink() = default;

  virtual void deliver(exchange_id id, response&& answer) noexcept = 0;
  /// The responder was destroyed unused.
  virtual void drop(exchange_id id) noexcept = 0;
};

/// The right, and the duty, to answer one request: once, from any thread, at once or later. An answer is discarded
/// after the client has disconnected, after the deadline, or after the server has stopped. A responder that is
/// destroyed unused answers with 500.
class responder {
public:
  responder(std::shared_ptr<answer_sink> sink, exchange_id id) noexcept : sink_(std::move(sink)), id_(id) {}
  responder(responder&& other) noexcept = default;
  responder& operator=(responder&& other) noexcept;
  ~responder();

  /// Answers and consumes the responder: `std::move(reply).send(…)`. Without effect on a moved-from one.
  void send(response answer) && noexcept;
  /// Sends `response::failure` of the same arguments.
  void fail(status code, std::string_view detail) &&;
  void fail(const error& e) &&;

private:
  std::shared_ptr<answer_sink> sink_;
  exchange_id id_;
};

/// For answers that come through copied functions, such as callbacks of actors; a responder cannot be copied.
using shared_responder = std::shared_ptr<responder>;

inline shared_responder share(responder&& x) {
  return std::make_shared<responder>(std::move(x));
}

} // namespace troupe::http
