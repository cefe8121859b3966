#pragma once

#include "base/clock.hpp"
#include "io/memory/remote_memory.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

/// Access to memory of another host over TCP. The node connects to a listener of the client, authenticates with a
/// token, and sends orders to write and read the memory, encrypted if configured. The client's own threads carry them
/// out and touch no other memory. So an authenticated node can only access this memory, and other processes nothing.
///
/// A node makes several connections to one memory, as many as both ends allow, and spreads the pages over them.

namespace troupe::io {

/// The connections of an attachment: as many as wanted, 64 at most; for 0 as many as suit this machine, which is one
/// for every two processors, from 1 to 8, and at least one for each address.
std::uint32_t chosen_streams(std::uint32_t wanted, std::size_t addresses = 1) noexcept;

/// Makes the client's end: each memory has a listener on each of the `addresses` of this host, which connections use in
/// turn, and a thread for each connection. Listeners are closed once the node has made its connection, where there is
/// only one, and otherwise with the memory, because the node opens lost connections again. `encrypted`: whether
/// transfers are encrypted. `streams`: the most connections, as in `chosen_streams`.
std::shared_ptr<memory_exposer> make_tcp_exposer(std::vector<host_address> addresses, bool encrypted,
                                                 std::uint32_t streams = 0);

struct tcp_mover_options {
  /// For all peers; 0: as many as a peer has connections, two at least.
  unsigned threads = 0;
  /// Peers without encryption are refused: `unsupported`.
  bool encrypted = true;
  /// The most connections to a peer, as in `chosen_streams`.
  std::uint32_t streams = 0;
  /// A connection on which nothing moves for this time is ended, if another one to the same peer works.
  duration silence = std::chrono::milliseconds(2500);
  /// The first pause before a lost connection is opened again, if another one to the same peer works.
  duration reopen = std::chrono::seconds(10);
  /// Addresses of this host from which to connect, to what is on their networks; empty: what the system chooses.
  std::vector<host_address> addresses{};
};

/// Makes the node's end. Errors: `io_error`.
result<std::shared_ptr<remote_mover>> make_tcp_mover(const tcp_mover_options& options);

} // namespace troupe::io
