#pragma once

#include "actors/cluster/etcd/etcd_access.hpp"
#include "actors/cluster/etcd/etcd_protocol.hpp"
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

/// The transport to etcd: two threads that block on it, one for answers and one for the lines of a watch. When a member
/// does not answer, the next request goes to the next member. Connections use TLS where `etcd_access` has it, and then
/// never fall back to plain text: a member whose certificate is refused counts as one that does not answer.
class etcd_channel {
public:
  struct member {
    std::string host;
    std::uint16_t port = 0;
  };
  /// Callbacks, called in the threads of the channel.
  struct listeners {
    std::function<void(std::uint64_t number, result<etcd_reply>)> answered;
    std::function<void(std::uint64_t number, std::string line)> said;
    std::function<void(std::uint64_t number)> watch_ended;
  };

  /// `limit`: for connecting, and for each answer. `members` is not empty.
  etcd_channel(std::vector<member> members, etcd_access access, duration limit, listeners notified);
  etcd_channel(const etcd_channel&) = delete;
  etcd_channel& operator=(const etcd_channel&) = delete;
  /// Interrupts requests in progress, which are not answered any more.
  ~etcd_channel();

  /// Is answered, unless the channel ends. One request at a time: a second one replaces a first that has not started.
  /// `token`: of a login; empty: none.
  void ask(std::uint64_t number, std::string path, std::string body, std::string token = {});
  /// The same for a login, with the credentials of `etcd_access`.
  void log_in(std::uint64_t number);
  /// Replaces the watch before.
  void watch(std::uint64_t number, std::string body, std::string token = {});
  /// Ends both threads, then sends this request in the calling thread; its result is ignored.
  void end_with(std::string path, std::string body, std::string token = {});

private:
  class exchange;
  class slot;
  struct job {
    std::uint64_t number = 0;
    std::string path;
    /// Empty for a login, whose body is read when it is sent.
    std::string body;
    std::string token;
    bool is_login = false;
  };
  struct job_queue {
    std::optional<job> next;
    /// The exchange in progress, to be interrupted.
    exchange* current = nullptr;
  };

  void put(job_queue& at, job what);
  void run_asker();
  void run_watcher();
  void end();
  /// Waits for a job; empty when the channel ends.
  std::optional<job> take(job_queue& from);
  /// Each runs an exchange of its own. False where it was interrupted: then no callback is called.
  bool answer(const job& what, result<etcd_reply>& out);
  bool follow(const job& what);
  result<etcd_reply> perform(exchange& with, job what);
  void read_lines(exchange& with, const job& what);
  std::size_t chosen();
  void cancel(std::size_t at);

  const std::vector<member> members_;
  const etcd_access access_;
  const duration limit_;
  const listeners notified_;
  std::mutex mutex_;
  std::condition_variable more_;
  bool ending_ = false;
  std::size_t at_ = 0;
  job_queue asking_;
  job_queue watching_;
  std::thread asker_;
  std::thread watcher_;
};

} // namespace troupe::cluster
