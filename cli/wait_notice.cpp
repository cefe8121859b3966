#include "cli/wait_notice.hpp"

#include "base/local_socket.hpp"
#include "base/tcp_connect.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::cli {

namespace {

constexpr auto connect_time = std::chrono::milliseconds(500);
constexpr auto no_node_yet = "the server there has not admitted this client yet: is it a node?";

/// Why no node can be attached to at an address, as far as one attempt to connect shows. Takes up to half a second for
/// an address, and `resolve_time` for a name.
std::string why_silent(const node_address& where) {
  if (where.is_path()) {
    const auto connected = connect_local(where.host);
    return connected ? no_node_yet : connected.error().text;
  }
  const auto addresses = resolve_host(where.host, where.port);
  if (!addresses)
    return addresses.error().text;
  const auto connected = connect_to_any(*addresses, connect_time);
  if (connected)
    return no_node_yet;
  return connected.error().code == errc::timeout ? "that machine does not answer" : connected.error().text;
}

/// The same, in a thread that need not be joined: resolving a name may take a while.
std::future<std::string> ask_why_silent(const node_address& where) {
  std::packaged_task<std::string()> task([where] { return why_silent(where); });
  auto out = task.get_future();
  try {
    std::thread(named(thread_name("troupe-reason"), std::move(task))).detach();
  } catch (const std::system_error&) { // no thread is available, so the cause is unknown
    std::promise<std::string> unknown;
    unknown.set_value("cause unknown");
    return unknown.get_future();
  }
  return out;
}

} // namespace

wait_notice::wait_notice(progress_display& display, const link_options& where, duration limit) : display_(display) {
  if (where.local)
    return;
  // Without a thread, the program waits without a notice.
  if (auto started =
          start_thread(thread_name("troupe-notice"), "the thread of the wait notice",
                       [this, to = where.where, until = std::chrono::steady_clock::now() + limit] { tell(to, until); }))
    thread_ = std::move(*started);
}

wait_notice::~wait_notice() {
  {
    const std::lock_guard guard(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable())
    thread_.join();
  display_.clear();
}

void wait_notice::tell(const node_address& where, std::chrono::steady_clock::time_point until) {
  auto asked = ask_why_silent(where);
  std::string why = "the name is being resolved, or that machine does not answer";
  bool is_first = true;
  std::unique_lock guard(mutex_);
  while (!changed_.wait_for(guard, std::chrono::seconds(1), [this] { return over_; })) {
    if (asked.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      why = asked.get();
      asked = ask_why_silent(where);
    }
    const auto left = std::chrono::ceil<std::chrono::seconds>(until - std::chrono::steady_clock::now()).count();
    const auto line = "waiting for a node at " + to_string(where) + ": " + why + " (" +
                      std::to_string(std::max<long>(left, 0)) + " s left)";
    is_first ? display_.step(line) : display_.wait(line);
    is_first = false;
  }
}

} // namespace troupe::cli
