#pragma once

#include "base/clock.hpp"
#include "http/server/address_counts.hpp"
#include "http/server/connection_context.hpp"
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
#include <vector>

namespace troupe::http {

/// How a connection came in.
struct arrival {
  enum class kind : std::uint8_t {
    /// Within all limits.
    full,
    /// Beyond `limits.connections`, or `limits.connections_per_address`: only there to ask how the node is.
    reserve,
    reserve_of_address,
  };

  int socket = -1;
  /// By the Unix socket, which only this user and root can open.
  bool is_local = false;
  kind what = kind::full;
  address_key from;

  bool is_reserve() const noexcept { return what != kind::full; }
};

/// One connection: what is read, which request is under way, what is still to be written, and until when. Lives on one
/// io thread from start to end. How bytes move is left to derived classes, which keep the connection alive while
/// one of their operations is under way.
///
/// At most one read and one write are under way at once, and no read while a request waits for its answer, so a client
/// that sends ahead fills its own socket and nothing here. Requests that are answered at once are handled one after the
/// other and their answers written together.
class connection {
public:
  connection(connection_context& owner, std::uint64_t id, const arrival& came);
  virtual ~connection() = default;
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  std::uint64_t id() const noexcept { return id_; }
  const arrival& came() const noexcept { return came_; }

  void start();
  /// The answer to request `number`; ignored if that has been answered otherwise by now.
  void answer(std::uint64_t number, response&& x);
  /// The responder of request `number` was dropped.
  void drop(std::uint64_t number);
  /// Ends what has taken too long.
  void check(timestamp now);
  /// The server stops: a connection that has nothing to do ends.
  void drain();
  void close() noexcept;

protected:
  virtual void start_handshake() = 0;
  virtual void start_read(std::span<char> space) = 0;
  /// Writes what the socket takes without waiting; nothing if the connection is broken.
  virtual std::optional<std::size_t> write_now(std::string_view bytes) noexcept = 0;
  virtual void start_write(std::string_view bytes) = 0;
  /// Says that nothing more will be sent. True: what the client still sends is to be read until it ends, because
  /// closing over it could take the last answer from the client.
  virtual bool end_sending() noexcept = 0;
  /// Whether the client has closed its side, or the connection is broken; also where bytes lie before that end.
  virtual bool peer_has_ended() noexcept = 0;
  virtual void close_socket() noexcept = 0;

  // What derived classes report when an operation has ended.
  void on_handshake(bool is_ok);
  /// No bytes: the client has ended or the connection is broken.
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
  void forget_sent();
  void tell_of_end() noexcept;
  void refuse_malformed();
  void refuse_late_request();
  /// What is said to a connection beyond the limit that asks for more than it may.
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
  /// After what is to be written, the connection ends.
  bool is_ending_ = false;
  /// Of what goes on besides writing.
  timestamp deadline_ = timestamp::max();
  timestamp write_deadline_ = timestamp::max();
  /// For those beyond the limit: until when they may ask.
  timestamp reserve_deadline_ = timestamp::max();

  /// The last `Host` that was let in.
  std::string allowed_host_;
  request_reader reader_;
  std::string output_;
  /// What is being written; `output_` fills up meanwhile.
  std::string sending_;
  /// Of the answers in each of them.
  std::vector<std::shared_ptr<const void>> output_claims_;
  std::vector<std::shared_ptr<const void>> sending_claims_;

  // Of the request under way.
  std::uint64_t number_ = 0;
  const route* route_ = nullptr;
  /// The match of this request is still in the context.
  bool is_matched_ = false;
  bool is_head_ = false;
  caller_ptr caller_ = unknown_caller();
  /// The answer to a request that is refused, until its body has been passed over.
  std::optional<response> refusal_;
  /// What its handler wants called if the client does not wait for the answer.
  std::function<void()> at_end_;
  std::optional<timestamp> first_byte_;
  timestamp arrival_{};
  timestamp handled_{};
  /// No request has been handled of what was read last.
  bool has_just_arrived_ = false;
  /// The clock as it was read last, a few microseconds ago: each look at it takes about as long as finding a route.
  timestamp latest_{};
};

} // namespace troupe::http
