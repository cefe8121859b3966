#include "actors/cluster/etcd/etcd_channel.hpp"
#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <vector>

/// Watches at etcd, for which a socket of the test stands in: lines, ends, and watches that replace one another.

namespace cluster_etcd_watch_test {

using namespace troupe;
using cluster::etcd_access;
using cluster::etcd_channel;
using cluster::etcd_reply;

namespace {

using numbers = std::vector<std::uint64_t>;

void limit_waits(int socket) {
  const timeval limit{test::test_patience.count(), 0};
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

/// A connection of the channel, as the server has it.
struct served {
  unique_descriptor socket;
  /// The request with its body, which ends with a brace; incomplete if the channel closes before.
  std::string request;

  void send(std::string_view text) const {
    REQUIRE(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  void begin() const { send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); }
  /// Of less than 16 bytes.
  void send_chunk(std::string_view text) const {
    send(std::string(1, "0123456789abcdef"[text.size()]) + "\r\n" + std::string(text) + "\r\n");
  }
  /// Waits for the end of the connection at the other side.
  bool ended() const {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, 0) == 0;
  }
};

class stand_in {
public:
  stand_in() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(::listen(socket_.get(), 16) == 0);
    limit_waits(socket_.get());
    port_ = ntohs(address.sin_port);
  }

  etcd_channel::member member() const { return {"127.0.0.1", port_}; }

  /// The next connection, with its request.
  served accept() const {
    served out{unique_descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)), {}};
    REQUIRE(out.socket);
    limit_waits(out.socket.get());
    char bytes[1024];
    while (!out.request.ends_with('}')) {
      const auto got = ::recv(out.socket.get(), bytes, sizeof bytes, 0);
      if (got <= 0)
        break;
      out.request.append(bytes, static_cast<std::size_t>(got));
    }
    return out;
  }

private:
  unique_descriptor socket_;
  std::uint16_t port_ = 0;
};

class watcher {
public:
  explicit watcher(std::vector<etcd_channel::member> members)
      : channel_(std::move(members), etcd_access(config::etcd_config{}), std::chrono::seconds(20),
                 {[](std::uint64_t, const result<etcd_reply>&) {},
                  [this](std::uint64_t number, const std::string& line) {
                    take([&] { lines_.push_back(std::to_string(number) + ":" + line); });
                  },
                  [this](std::uint64_t number) { take([&] { ended_.push_back(number); }); }}) {}

  void watch(std::uint64_t number, std::string token = {}) {
    channel_.watch(number, "{" + std::to_string(number) + "}", std::move(token));
  }
  std::vector<std::string> wait_for_lines(std::size_t count) {
    std::unique_lock guard(mutex_);
    test::await(changed_, guard, [&] { return lines_.size() >= count; });
    return lines_;
  }
  numbers wait_for_ends(std::size_t count) {
    std::unique_lock guard(mutex_);
    test::await(changed_, guard, [&] { return ended_.size() >= count; });
    return ended_;
  }

private:
  template <class Note>
  void take(Note note) {
    {
      const std::lock_guard guard(mutex_);
      note();
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  numbers ended_;
  etcd_channel channel_;
};

} // namespace

TEST_CASE("etcd watch: each line is reported once it is complete, and then the end of the watch", "[cluster][etcd]") {
  const stand_in etcd;
  watcher x({etcd.member()});
  x.watch(1, "a-token");
  {
    const auto there = etcd.accept();
    CHECK(there.request.starts_with("POST /v3/watch HTTP/1.1\r\n"));
    CHECK(there.request.find("a-token") != std::string::npos);
    CHECK(there.request.ends_with("\r\n\r\n{1}"));
    there.begin();
    there.send_chunk("one\ntw");
    CHECK(x.wait_for_lines(1) == std::vector<std::string>{"1:one"});
    there.send_chunk("o\n\nthree\n");
    CHECK(x.wait_for_lines(3) == std::vector<std::string>{"1:one", "1:two", "1:three"});
  }
  CHECK(x.wait_for_ends(1) == numbers{1});
}

TEST_CASE("etcd watch: a watch ends without a report when another one replaces it", "[cluster][etcd]") {
  const stand_in etcd;
  watcher x({etcd.member()});
  x.watch(1);
  const auto first = etcd.accept();
  first.begin();
  first.send_chunk("one\n");
  x.wait_for_lines(1);
  x.watch(2);
  CHECK(first.ended());
  {
    const auto second = etcd.accept();
    CHECK(second.request.ends_with("{2}"));
    second.begin();
    second.send_chunk("two\n");
    CHECK(x.wait_for_lines(2) == std::vector<std::string>{"1:one", "2:two"});
  }
  CHECK(x.wait_for_ends(1) == numbers{2});
}

TEST_CASE("etcd watch: of many watches in a row, the last one is at etcd", "[cluster][etcd]") {
  const stand_in etcd;
  watcher x({etcd.member()});
  std::uint64_t number = 0;
  for (std::size_t round = 1; round <= 2000; ++round) {
    // The channel takes some of them, and begins with each of these while the next ones arrive.
    for (int i = 0; i < 200; ++i)
      x.watch(++number);
    const auto last = "{" + std::to_string(number) + "}";
    // Only the channel ends a watch before the last one.
    std::vector<served> open;
    do
      open.push_back(etcd.accept());
    while (!open.back().request.ends_with(last));
    open.clear();
    CHECK(x.wait_for_ends(round).back() == number);
  }
}

TEST_CASE("etcd watch: after a member that refuses a watch, the next watch is at the next member", "[cluster][etcd]") {
  const stand_in refuses;
  const stand_in etcd;
  watcher x({refuses.member(), etcd.member()});
  x.watch(1);
  refuses.accept().send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
  CHECK(x.wait_for_ends(1) == numbers{1});
  x.watch(2);
  CHECK(etcd.accept().request.ends_with("{2}"));
}

} // namespace cluster_etcd_watch_test
