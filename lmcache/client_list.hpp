#pragma once

#include "lmcache/peer.hpp"
#include "lmcache/protocol/versions.hpp"
#include "lmcache/session_table.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::lmcache {

/// A connected client, for people.
struct client_info {
  client_number number = 0;
  /// 0 if it cannot be found; then there is no name either.
  std::int32_t process = 0;
  /// Name of the process: "VLLM::Worker".
  std::string name;
  std::uint32_t user = 0;
  /// The protocol versions that fit all of its messages so far.
  protocol::version_set versions = protocol::version_set::all();
  std::uint64_t requests = 0;
  /// The number of malformed messages, and the difference of the last one that was logged; see `problem.hpp`.
  std::uint64_t malformed = 0;
  std::string difference;
};

/// "client 3 (process 4711 'VLLM::Worker', user 1000, LMCache 0.5.7)"
std::string to_string(const client_info& x);

/// The connected clients and their protocol versions: written by the listener's thread, read by any.
class client_list {
public:
  void connected(client_number number, const peer_socket& socket);
  void disconnected(client_number number);

  /// Counts a message of the client; `versions` are the possible ones.
  void served(client_number number, protocol::version_set versions);
  void malformed(client_number number);
  /// Sets the client's process, so that it need not be looked for; 0 if it cannot be found.
  void found(client_number number, std::int32_t process);
  /// Sets the difference of the last message that was logged.
  void differed(client_number number, std::string difference);

  /// Finds a client and its process, which takes milliseconds the first time. None for a disconnected one.
  std::optional<client_info> find(client_number number);
  /// At most this many, the oldest first. Of many new ones, some have a name at the next call only.
  std::vector<client_info> all(std::size_t most);
  std::size_t size() const;

private:
  struct entry {
    client_info info;
    std::uint64_t inode = 0;
    bool is_named = false;
  };

  /// Looks for the processes of these without the mutex, which the listener's thread waits for.
  void name_processes(const std::vector<client_number>& which);

  mutable std::mutex mutex_;
  std::map<client_number, entry> clients_;
};

} // namespace troupe::lmcache
