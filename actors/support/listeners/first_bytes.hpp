#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/tcp_connect.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What the program at the other end of a connection speaks, by its first bytes. An actor system sends first, and so do
/// ZeroMQ and SSH; TLS and HTTP answer.
enum class spoken_protocol : std::uint8_t { actors, tls, http, zmq, ssh, other };

/// Nothing while more bytes are needed; `bytes` are all that have arrived.
std::optional<spoken_protocol> protocol_of(std::span<const std::uint8_t> bytes) noexcept;

/// Why a program that speaks this is not the node that was looked for, with the way out; empty if it may be one.
/// `encrypted`: whether this side speaks TLS.
std::string why_no_node(spoken_protocol what, bool encrypted);

/// Reads what has arrived at a connected socket without taking it, and waits for it until `limit`. Error: `unreachable`
/// if what answers there is not a node, or has closed the connection; `cancelled` once that function, which is asked
/// now and then, returns true. `ok` also where nothing has arrived.
result<void> check_first_bytes(int socket, bool encrypted, duration limit, const std::function<bool()>& cancelled = {});

/// For a listener that sends nothing by itself: connects once more, sends what servers of TLS and HTTP answer with an
/// error, and reads that. Blocks for `limit` at most. Errors as above; `ok` where nothing has arrived.
result<void> check_silent_listener(const std::vector<socket_address>& where, duration limit,
                                   const std::function<bool()>& cancelled = {});

} // namespace troupe
