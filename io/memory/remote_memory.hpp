#pragma once

#include "base/error.hpp"
#include "base/host_address.hpp"
#include "io/memory/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

/// One-sided access over a network to memory of another process, which replaces `io::shared_memory` where node and
/// client are on different hosts. The client exposes its own memory; the node moves pages between that and its arena.
/// Only the node initiates transfers, and it exposes nothing: its memory cannot be addressed from outside.
///
/// A transport implements both ends: `io/ucx` is one for RDMA networks; tests have one within a process.

namespace troupe::io {

/// The description of exposed memory. It authorizes writes, so it is sent over authenticated connections only.
/// `address` and `key` are opaque outside the transport.
struct remote_memory_name {
  std::vector<std::uint8_t> address;
  std::vector<std::uint8_t> key;
  /// The start address in the owner's memory, and the length in bytes.
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

/// Memory of this process that the other end may read and write. While this object lives, bytes may change at any time.
/// Its destructor returns the memory only after every write to it has ended.
class exposed_memory : public shared_memory {
public:
  virtual const remote_memory_name& name() const noexcept = 0;
};

/// The client's end.
class memory_exposer {
public:
  memory_exposer() = default;
  memory_exposer(const memory_exposer&) = delete;
  memory_exposer& operator=(const memory_exposer&) = delete;
  virtual ~memory_exposer() = default;

  /// Exposes new, zeroed memory of `bytes`, a multiple of `page_alignment`. Connections are accepted from these
  /// addresses; others are refused where the transport can tell. Slow. Errors: `invalid_argument`, `unsupported`,
  /// `unreachable`, `io_error`.
  virtual result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const host_address> from) = 0;
};

enum class remote_direction : std::uint8_t { put, get };

/// A transfer between memory of this process and as many bytes of the peer's, from offset `there` of the peer's memory.
struct remote_move {
  std::span<std::byte> here;
  std::uint64_t there = 0;
};

/// Receives the outcome, exactly once. Called by a thread of the transport, or by the caller's before the call returns;
/// must not block.
using remote_end = std::function<void(result<void>)>;

/// The memory of one other process, as seen by the node. Thread-safe; no call blocks.
///
/// A peer is closed once: by `close`, or by its destructor. After the first failure it accepts no more moves, and the
/// user closes it: the extent of the finished transfers is unknown.
class remote_peer {
public:
  remote_peer() = default;
  remote_peer(const remote_peer&) = delete;
  remote_peer& operator=(const remote_peer&) = delete;
  virtual ~remote_peer() = default;

  /// Makes all of the moves. `end` receives ok when all bytes have arrived, also at the other end; in every case it is
  /// called only when `here`, which must stay valid until then, is no longer used. Errors: `out_of_range` (outside the
  /// peer's memory; nothing was moved), `unreachable` (the peer is lost or closed).
  virtual void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) = 0;

  /// Changes while bytes move in either direction, to tell a slow transfer from a stalled one. Any thread.
  virtual std::uint64_t progress() const noexcept = 0;

  /// Ends all moves, unfinished ones with `unreachable`. Calls `closed` after every `end`, when this peer no longer
  /// uses memory of this process.
  virtual void close(std::function<void()> closed) = 0;
};

/// The node's end. Its peers do not outlive it: its destructor closes those that are still open.
class remote_mover {
public:
  remote_mover() = default;
  remote_mover(const remote_mover&) = delete;
  remote_mover& operator=(const remote_mover&) = delete;
  virtual ~remote_mover() = default;

  /// Makes a peer without contacting it: the first move shows whether it is reachable. `lost` is called at most once,
  /// as `remote_end` is, when the peer is known to be lost. Errors: `invalid_argument` for an invalid name, `io_error`.
  virtual result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                                       std::function<void(const error&)> lost) = 0;

  /// Connections that were lost while others to the same peer went on, and those of them that were opened again; of a
  /// transport that has several. Any thread.
  struct connections {
    std::uint64_t lost = 0;
    std::uint64_t reopened = 0;
  };
  virtual connections connection_counts() const noexcept { return {}; }
};

} // namespace troupe::io
