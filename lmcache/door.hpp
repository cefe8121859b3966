#pragma once

#include "base/error.hpp"
#include "lmcache/counters.hpp"
#include "lmcache/incoming.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe::lmcache {

struct door_options {
  std::string host = "127.0.0.1";
  /// 0: whichever port is free.
  std::uint16_t port = 0;
  std::uint32_t chunk_tokens = 256;
  /// Requests that have been handed on and not answered; what is more is refused at once.
  std::uint32_t waiting_max = 65536;
  /// What the door counts of.
  std::shared_ptr<counters> counts = std::make_shared<counters>();
};

/// The ZeroMQ socket that LMCache's clients connect to, and its thread: takes messages apart, hashes their tokens,
/// hands requests on, and sends answers. Knows a client by its connection: a number that is given once, and whose end
/// is told.
///
/// Nothing that arrives ends the thread: what cannot be read is logged, counted, and refused in the way of its
/// operation, where it has one.
class door {
public:
  /// Called by the thread of the door; they must be short.
  struct listener {
    std::function<void(incoming)> asked;
    std::function<void(client_number)> gone;
  };

  /// Has the port, and takes nothing yet. Errors: `busy` where another process has the port, `io_error`,
  /// `invalid_argument` for a host that has no address.
  static result<std::unique_ptr<door>> open(const door_options& options);

  door(const door&) = delete;
  door& operator=(const door&) = delete;
  /// As `stop`.
  ~door();

  std::uint16_t port() const noexcept;

  /// From now on messages are taken. To be called once.
  void serve(listener to);

  /// The third frame of the answer, or none. Thread-safe; of a client that is gone: nothing happens.
  void answer(const incoming& to, std::optional<std::string> frame);

  /// Takes nothing any more, sends what was answered, as far as that goes without waiting, and closes the socket. Once
  /// it returns the listener is not called any more.
  void stop();

private:
  struct implementation;
  explicit door(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> x_;
};

} // namespace troupe::lmcache
