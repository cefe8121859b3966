#pragma once

#include "actors/cluster/etcd_access.hpp"
#include "actors/cluster/etcd_wire.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace troupe::cluster {

/// How requests reach an etcd: two threads that wait for it, one for its answers and one for the lines of a watch.
/// Whenever a member does not answer, the next request goes to the next one. Over TLS where `etcd_access` has it, and
/// never without it then: a member whose certificate is refused counts as one that does not answer.
class etcd_channel {
public:
  struct member {
    std::string host;
    std::uint16_t port = 0;
  };
  /// Called in the threads of the channel.
  struct listeners {
    std::function<void(std::uint64_t number, result<etcd_reply>)> answered;
    std::function<void(std::uint64_t number, std::string line)> said;
    std::function<void(std::uint64_t number)> watch_ended;
  };

  /// `limit`: for connecting, and for each answer. `members` is not empty.
  etcd_channel(std::vector<member> members, etcd_access access, duration limit, listeners told);
  etcd_channel(const etcd_channel&) = delete;
  etcd_channel& operator=(const etcd_channel&) = delete;
  /// Ends what is under way, which is told of no more.
  ~etcd_channel();

  /// Is answered, unless the channel ends. One at a time: a second one takes the place of a first that has not begun.
  /// `token`: of a login; empty: none.
  void ask(std::uint64_t number, std::string path, std::string body, std::string token = {});
  /// Likewise, with what `etcd_access` has for it.
  void log_in(std::uint64_t number);
  /// In the place of the watch before.
  void watch(std::uint64_t number, std::string body, std::string token = {});
  /// Ends both threads, then asks this in the calling one; what comes of it is all the same.
  void end_with(std::string path, std::string body, std::string token = {});

private:
  class exchange;
  class seat;
  struct job {
    std::uint64_t number = 0;
    std::string path;
    /// Of a login, it is read when it is sent.
    std::string body;
    std::string token;
    bool is_login = false;
  };
  struct desk {
    std::optional<job> next;
    /// What is under way, to be interrupted.
    exchange* current = nullptr;
  };

  void put(desk& at, job what);
  void run_asker();
  void run_watcher();
  void end();
  /// Waits for something to do; nothing when the channel ends.
  std::optional<job> take(desk& from);
  /// Each by an exchange of its own. False where it was interrupted: nobody is to be told.
  bool answer(const job& what, result<etcd_reply>& out);
  bool follow(const job& what);
  result<etcd_reply> perform(exchange& with, job what);
  void read_lines(exchange& with, const job& what);
  std::size_t chosen();
  void give_up(std::size_t at);

  const std::vector<member> members_;
  const etcd_access access_;
  const duration limit_;
  const listeners told_;
  std::mutex mutex_;
  std::condition_variable more_;
  bool ending_ = false;
  std::size_t at_ = 0;
  desk asking_;
  desk watching_;
  std::thread asker_;
  std::thread watcher_;
};

} // namespace troupe::cluster
