#include "cli/wait_notice.hpp"

#include "base/local_socket.hpp"
#include "base/threads.hpp"
#include "base/unique_descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::cli {

namespace {

constexpr int connect_milliseconds = 500;

std::string text_of(int code) {
  switch (code) {
  case 0:
    return "the server there has not admitted this client yet: is it a node?";
  case ECONNREFUSED:
    return "connection refused";
  case ETIMEDOUT:
    return "that machine does not answer";
  default:
    return std::strerror(code);
  }
}

/// 0 if a server listens, else an errno.
int try_to_connect(const addrinfo& to) {
  const unique_descriptor socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket)
    return errno;
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  pollfd connected{socket.get(), POLLOUT, 0};
  if (::poll(&connected, 1, connect_milliseconds) <= 0)
    return ETIMEDOUT;
  int code = 0;
  socklen_t length = sizeof code;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) == 0 ? code : errno;
}

/// Why no node can be attached to at an address, as far as one attempt to connect shows. Takes up to half a second for
/// each address, and as long as the system does to resolve a name.
std::string why_silent(const node_address& where) {
  if (where.is_path()) {
    const auto connected = connect_local(where.host);
    return connected ? text_of(0) : connected.error().text;
  }
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const auto code = ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &wanted, &found);
      code != 0)
    return std::string("the name cannot be resolved (") + ::gai_strerror(code) + ")";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  int first = 0;
  for (const auto* x = found; x != nullptr; x = x->ai_next) {
    const auto code = try_to_connect(*x);
    if (code == 0)
      return text_of(0);
    if (first == 0)
      first = code;
  }
  return text_of(first);
}

/// The same, in a thread that need not be joined: resolving a name may take half a minute.
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
