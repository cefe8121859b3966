#pragma once

#include "base/error.hpp"
#include "base/process_watch.hpp"
#include "base/unique_descriptor.hpp"
#include "io/arena.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace troupe::io {

/// Memory of nodes on this host that a process was handed over its connections to them, by Unix sockets. A node hands
/// over two descriptors, as it lets a client attach: its arena, and the proof (`arena`). Which node a pair is of says
/// the proof, and nothing else is believed. Thread-safe.
class handed_memory : public std::enable_shared_from_this<handed_memory> {
public:
  /// What comes over one connection. When it ends, what came is kept as long as the node is known to live: the client
  /// connects again, and what a device knows of the memory is not to be lost meanwhile. Else it is closed. Memory that
  /// was mapped by then stays mapped.
  class connection {
  public:
    connection(std::shared_ptr<handed_memory> all, std::uint64_t number) : all_(std::move(all)), number_(number) {}
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection();

    /// Descriptors came along with a message, in the place of those before. `cut_off`: there were more, for which this
    /// process has no room. Any number of them but two is of no use.
    void got(std::vector<unique_descriptor> descriptors, bool cut_off);

  private:
    std::shared_ptr<handed_memory> all_;
    std::uint64_t number_;
  };

  static std::shared_ptr<handed_memory> make() { return std::shared_ptr<handed_memory>(new handed_memory); }

  /// `node`: the process at the other end; null if it cannot be watched.
  std::unique_ptr<connection> connect(std::unique_ptr<watched_process> node = nullptr);

  /// The arena of that name, if it was handed over on a connection that is still there, or by a node that still lives.
  /// Errors: `unreachable` (it was not), `io_error`.
  result<std::shared_ptr<arena>> map(const arena_name& name, std::uint64_t bytes) const;

private:
  struct pair {
    unique_descriptor memory;
    unique_descriptor proof;
    bool cut_off = false;
    std::unique_ptr<watched_process> node{};
    /// Its connection has ended.
    bool left = false;
  };

  handed_memory() = default;

  /// With the mutex: keeps what came over a connection that has ended, or closes it.
  void leave(std::uint64_t number);

  mutable std::mutex mutex_;
  /// Of those that were left, one for each memory at most.
  mutable std::unordered_map<std::uint64_t, pair> pairs_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::io
