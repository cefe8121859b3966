#pragma once

#include "base/error.hpp"
#include "base/process_watch.hpp"
#include "base/unique_descriptor.hpp"
#include "io/memory/arena.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace troupe::io {

/// The descriptors of node memory that this process has received over its Unix sockets to nodes on this host. A node
/// sends two when a client attaches: its arena, and the proof (`arena`). The proof identifies the node of a pair;
/// nothing else is trusted. Thread-safe.
class handed_memory : public std::enable_shared_from_this<handed_memory> {
public:
  /// The descriptors of one connection. When it ends, they are kept while the node is known to live: the client
  /// reconnects, and the registration of the memory with a device must survive that. Otherwise they are closed. Memory
  /// that is mapped by then stays mapped.
  class connection {
  public:
    connection(std::shared_ptr<handed_memory> all, std::uint64_t number) : all_(std::move(all)), number_(number) {}
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection();

    /// Takes descriptors that came with a message; they replace the previous ones. `cut_off`: the kernel dropped some,
    /// because this process has no room for them. A number other than two is ignored.
    void got(std::vector<unique_descriptor> descriptors, bool cut_off);

  private:
    std::shared_ptr<handed_memory> all_;
    std::uint64_t number_;
  };

  static std::shared_ptr<handed_memory> make() { return std::shared_ptr<handed_memory>(new handed_memory); }

  /// `node`: the process at the other end; null if it cannot be watched.
  std::unique_ptr<connection> connect(std::unique_ptr<watched_process> node = nullptr);

  /// Maps the arena of that name, if it was received over a connection that still exists, or from a node that still
  /// lives. Errors: `unreachable` (it was not), `io_error`.
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

  /// Keeps the descriptors of a connection that has ended, or closes them. Called with the mutex held.
  void leave(std::uint64_t number);

  mutable std::mutex mutex_;
  /// The descriptors by connection; of ended connections at most one pair for each memory.
  mutable std::unordered_map<std::uint64_t, pair> pairs_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::io
