#pragma once

#include "base/error.hpp"
#include "io/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

/// Memory of one process that another one writes to and reads from, one-sidedly, over a network: what takes the place
/// of `io::shared_memory` where node and client are on different hosts. The client exposes memory of its own; the node
/// moves pages between that and its arena. Only the node begins anything, and it exposes nothing: nobody can name its
/// memory from outside.
///
/// A transport is an implementation of both ends: `io/ucx` is that of a network; tests have one within a process.

namespace troupe::io {

/// How the owner of memory tells of it. Whoever knows this can write to it: it travels in authenticated connections
/// only. `address` and `key` mean something to the transport alone.
struct remote_memory_name {
  std::vector<std::uint8_t> address;
  std::vector<std::uint8_t> key;
  /// Where it begins in the memory of its owner, and how long it is.
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

/// Memory of this process that the other end may write to and read. While this object lives, bytes may change at any
/// time; when its destructor returns, nothing writes to them any more, however late it is on its way: then they are
/// given back.
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

  /// New memory of so many bytes, a multiple of `page_alignment`, all zero. Who connects comes from one of these IPv4
  /// addresses, in the byte order of the host; others are kept out where the transport can tell. Takes time. Errors:
  /// `invalid_argument`, `unsupported`, `io_error`.
  virtual result<std::shared_ptr<exposed_memory>> expose(std::uint64_t bytes, std::span<const std::uint32_t> from) = 0;
};

enum class remote_direction : std::uint8_t { put, get };

/// Between memory of this process and as many bytes of the peer's, from `there` on, counted from the beginning of its
/// memory.
struct remote_move {
  std::span<std::byte> here;
  std::uint64_t there = 0;
};

/// What ends once: `ok`, or why not. Called by a thread of the transport, or by the caller's before the call returns:
/// it waits for nothing.
using remote_end = std::function<void(result<void>)>;

/// The memory of one other process, as the node reaches it. Thread-safe; no call waits.
///
/// A peer is closed once: by `close`, or by its destruction. After the first failure nothing is moved any more, and
/// whoever uses it closes it: what it has moved is not known.
class remote_peer {
public:
  remote_peer() = default;
  remote_peer(const remote_peer&) = delete;
  remote_peer& operator=(const remote_peer&) = delete;
  virtual ~remote_peer() = default;

  /// Moves all of them. `end` says ok when all bytes are where they belong, at the other end as well; and in any case
  /// only when nothing touches `here` any more, which stays where it is so long. `out_of_range`: what is not the
  /// peer's memory, and nothing was moved; `unreachable`: the peer is lost, or closed.
  virtual void move(remote_direction direction, std::vector<remote_move> moves, remote_end end) = 0;

  /// Changes as long as anything moves, either way: a large move over a slow line is not one that stands still. Any
  /// thread.
  virtual std::uint64_t progress() const noexcept = 0;

  /// All that is under way ends, as `unreachable` where it is not done. When `closed` is called, every `end` has been,
  /// and nothing of this peer touches memory of this process any more.
  virtual void close(std::function<void()> closed) = 0;
};

/// The node's end. Its peers live no longer than it does; it is destroyed when all are closed, or closes them.
class remote_mover {
public:
  remote_mover() = default;
  remote_mover(const remote_mover&) = delete;
  remote_mover& operator=(const remote_mover&) = delete;
  virtual ~remote_mover() = default;

  /// Whoever is named, whether it can be reached or not: the first move will tell. `lost` is called at most once, as
  /// `remote_end` is, when it is known to be lost. Errors: `invalid_argument` for a name that cannot be, `io_error`.
  virtual result<std::shared_ptr<remote_peer>> connect(const remote_memory_name& name,
                                                       std::function<void(const error&)> lost) = 0;
};

} // namespace troupe::io
