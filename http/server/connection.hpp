#pragma once

#include "base/clock.hpp"
#include "http/server/address_counts.hpp"
#include "http/server/connection_context.hpp"
#include "http/server/output_buffer.hpp"
#include "http/server/request_clock.hpp"
#include "http/server/request_reader.hpp"
#include "http/server/response.hpp"
#include "http/server/router.hpp"
#include "http/server/shared_state.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::http {

/// How a connection was accepted.
struct arrival {
  enum class kind : std::uint8_t {
    /// Within all limits.
    full,
    /// Beyond `limits.connections`, or `limits.connections_per_address`: only for probes.
    reserve,
    reserve_of_address,
  };

  int socket = -1;
  /// Accepted on the Unix socket, which only this user and root can open.
  bool is_local = false;
  kind what = kind::full;
  address_key from;

  bool is_reserve() const noexcept { return what != kind::full; }
};

/// One connection: its input, its pending request, its output and its deadline. Lives on one io thread from start to
/// end. Derived classes transfer the bytes, and keep the connection alive while one of their operations is in progress.
///
/// At most one read and one write are in progress at once, and no read while a request waits for its answer, so a
/// client that sends ahead fills its own socket and no memory here. Requests that are answered at once are handled one
/// after the other, and their answers are written together.
class connection {
public:
  connection(connection_context& owner, std::uint64_t id, const arrival& came);
  virtual ~connection() = default;
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  std::uint64_t id() const noexcept { return id_; }
  const arrival& came() const noexcept { return came_; }

  void start();
  /// The answer to request `number`; ignored if it has been answered otherwise.
  void answer(std::uint64_t number, response&& x);
  /// The responder of request `number` was dropped.
  void drop(std::uint64_t number);
  /// Ends an operation that has taken too long.
  void check(timestamp now);
  /// The server stops: an idle connection ends.
  void drain();
  void close() noexcept;

protected:
  virtual void start_handshake() = 0;
  virtual void start_read(std::span<char> into) = 0;
  /// Writes as much as the socket takes without blocking; none if the connection is broken.
  virtual std::optional<std::size_t> write_now(std::string_view bytes) noexcept = 0;
  virtual void start_write(std::string_view bytes) = 0;
  /// Shuts down the sending side. True: the remaining input is to be read until it ends, because closing early could
  /// take the last answer from the client.
  virtual bool end_sending() noexcept = 0;
  /// Whether the client has closed its side, or the connection is broken; also if unread bytes come before that end.
  virtual bool peer_has_ended() noexcept = 0;
  virtual void close_socket() noexcept = 0;

  // Reports of derived classes when an operation has ended.
  void on_handshake(bool is_ok);
  /// 0 bytes: the client has ended or the connection is broken.
  void on_read(std::size_t bytes);
  void on_written(bool is_ok);

  connection_context& owner_;

private:
  enum class phase { handshake, open, lingering, closed };

  void run();
  void read_more();
  bool flush();
  void linger();
  void admit();
  std::optional<response> judge();
  std::optional<response> judge_caller(const route& r);
  bool is_host_meant(std::string_view host);
  std::optional<response> judge_rate(const route& r);
  void handle();
  void call_handler(const request& r);
  response dropped();
  void finish(const response& x);
  void report_end() noexcept;
  void refuse_malformed();
  void refuse_late_request();
  /// The answer to a connection beyond the limit that sends anything but a probe.
  response no_room() const;
  void record(std::string_view route_name, status code, std::uint64_t bytes_in, std::size_t bytes_out) noexcept;

  shared_state& shared_;
  const std::uint64_t id_;
  const arrival came_;
  phase phase_ = phase::handshake;
  bool is_reading_ = false;
  bool is_writing_ = false;
  /// A handler has the request and has not answered.
  bool is_awaiting_ = false;
  /// The connection ends after the pending output.
  bool is_ending_ = false;
  /// The deadline of everything except writing.
  timestamp deadline_ = timestamp::max();
  timestamp write_deadline_ = timestamp::max();
  /// For connections beyond the limit: until when they may send a probe.
  timestamp reserve_deadline_ = timestamp::max();

  /// The last `Host` that was accepted.
  std::string allowed_host_;
  request_reader reader_;
  output_buffer output_;
  request_clock clock_;

  // Number of the pending request.
  std::uint64_t number_ = 0;
  const route* route_ = nullptr;
  /// The match of this request is still in the context.
  bool is_matched_ = false;
  bool is_head_ = false;
  caller_ptr caller_ = unknown_caller();
  /// The answer to a refused request, until its body has been skipped.
  std::optional<response> refusal_;
  /// Its handler's callback for a client that does not wait for the answer.
  std::function<void()> at_end_;
};

} // namespace troupe::http
