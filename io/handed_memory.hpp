#pragma once

#include "base/error.hpp"
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
  /// What comes over one connection. Closes what came when it ends: memory that was mapped by then stays mapped.
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

  std::unique_ptr<connection> connect();

  /// The arena of that name, if it was handed over on a connection that is still there. Errors: `unreachable` (it was
  /// not), `io_error`.
  result<std::shared_ptr<arena>> map(const arena_name& name, std::uint64_t bytes) const;

private:
  struct pair {
    unique_descriptor memory;
    unique_descriptor proof;
    bool cut_off = false;
  };

  handed_memory() = default;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, pair> pairs_;
  std::uint64_t last_ = 0;
};

} // namespace troupe::io
