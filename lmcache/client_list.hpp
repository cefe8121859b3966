#pragma once

#include "lmcache/peer.hpp"
#include "lmcache/session_table.hpp"
#include "lmcache/wire/versions.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::lmcache {

/// A client that is connected, for people.
struct client_info {
  client_number number = 0;
  /// 0 where it cannot be found, and then there is no name either.
  std::int32_t process = 0;
  /// Of the process: "VLLM::Worker".
  std::string name;
  std::uint32_t user = 0;
  /// The protocol versions that all of its messages so far are written in.
  wire::version_set versions = wire::version_set::all();
  std::uint64_t requests = 0;
  /// Of these, those that were not served, and what was different about the last one that was logged; see
  /// `problem.hpp`.
  std::uint64_t malformed = 0;
  std::string difference;
};

/// "client 3 (process 4711 'VLLM::Worker', user 1000, LMCache 0.5.7)"
std::string to_string(const client_info& x);

/// Clients that are connected and what they speak: written by the thread of the door, read by any.
class client_list {
public:
  void connected(client_number number, const peer_socket& socket);
  void disconnected(client_number number);

  /// A message of the client; `versions` are those it can be of.
  void served(client_number number, wire::version_set versions);
  void malformed(client_number number);
  /// Which process it is, so that it need not be looked for; 0 where it cannot be found.
  void found(client_number number, std::int32_t process);
  /// What was different about the last message that was logged.
  void differed(client_number number, std::string difference);

  /// Finds out who a client is, which takes milliseconds at the first time. Nothing for one that has disconnected.
  std::optional<client_info> find(client_number number);
  /// So many at most, the oldest first. Of many that are new, some have a name at the next call only.
  std::vector<client_info> all(std::size_t most);
  std::size_t size() const;

private:
  struct entry {
    client_info info;
    std::uint64_t inode = 0;
    bool is_named = false;
  };

  /// Looks for the processes of these without the mutex, which the thread of the door waits for.
  void name_processes(const std::vector<client_number>& which);

  mutable std::mutex mutex_;
  std::map<client_number, entry> clients_;
};

} // namespace troupe::lmcache
