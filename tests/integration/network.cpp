#include "tests/integration/network.hpp"

#include "tests/simulation/random.hpp"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <map>
#include <mutex>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::test {

namespace {

using switch_clock = std::chrono::steady_clock;

bool network_shell(const std::string& what) {
  launch how;
  how.arguments = {"/bin/sh", "-c", what};
  return run(how).code == 0;
}

/// The settings of a switch's port to a host, and of the host's end of the cable.
std::string port_name(std::size_t host) {
  return "port" + std::to_string(host);
}
std::string hardware_address(std::size_t host) {
  return "02:00:00:00:09:0" + std::to_string(host + 1);
}

/// Frames as they are on a cable: without checksum offload and segmentation.
bool is_plain(int socket, const std::string& interface) {
  for (const auto which : {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO}) {
    ethtool_value off{static_cast<std::uint32_t>(which), 0};
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_data = reinterpret_cast<char*>(&off); // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
    if (::ioctl(socket, SIOCETHTOOL, &request) != 0 && which == ETHTOOL_STXCSUM)
      return false;
  }
  return true;
}

} // namespace

/// A thread that passes frames between the ports, some later, some never.
class network::network_switch {
public:
  network_switch(const std::string& ns, std::size_t ports, std::uint64_t seed)
      : ports_(ports), random_(seed), wake_(::eventfd(0, EFD_CLOEXEC)) {
    // Sockets stay in the network namespace in which they were made, threads in theirs.
    std::thread([&] { open(ns); }).join();
    for (const auto& x : ports_)
      if (x.socket < 0) {
        close_all();
        throw std::runtime_error("no sockets for the switch");
      }
    thread_ = std::thread([this] { run(); });
  }
  network_switch(const network_switch&) = delete;
  network_switch& operator=(const network_switch&) = delete;
  ~network_switch() {
    const std::uint64_t one = 1;
    ending_ = true;
    [[maybe_unused]] const auto notified = ::write(wake_, &one, sizeof one);
    thread_.join();
    close_all();
  }

  void set_quality(std::size_t port, const quality& x) {
    const std::lock_guard guard(mutex_);
    ports_[port].is = x;
    // Frames that wait on a link that was slow do not delay later ones.
    ports_[port].sent_until = ports_[port].taken_until = {};
  }
  void reach(std::size_t a, std::size_t b, bool can) {
    const std::lock_guard guard(mutex_);
    const auto pair = std::minmax(a, b);
    if (can)
      apart_.erase(pair);
    else
      apart_.insert(pair);
  }

  std::atomic<std::uint64_t> carried{0};
  std::atomic<std::uint64_t> lost{0};

private:
  using frame = std::vector<std::byte>;
  struct socket_of_host {
    int socket = -1;
    quality is{};
    /// Until when the link is busy, from the host and to it.
    switch_clock::time_point sent_until{};
    switch_clock::time_point taken_until{};
  };

  void open(const std::string& ns) {
    const int there = ::open(("/run/netns/" + ns).c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = there >= 0 && ::setns(there, CLONE_NEWNET) == 0;
    if (there >= 0)
      ::close(there);
    if (!entered)
      return;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      const int made = ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
      if (made < 0)
        return;
      ports_[i].socket = made;
      const int room = 8 << 20;
      ::setsockopt(made, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
      sockaddr_ll where{};
      where.sll_family = AF_PACKET;
      where.sll_protocol = htons(ETH_P_ALL);
      where.sll_ifindex = static_cast<int>(::if_nametoindex(port_name(i).c_str()));
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      if (where.sll_ifindex == 0 || ::bind(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) {
        ::close(std::exchange(ports_[i].socket, -1));
        return;
      }
    }
  }

  void close_all() {
    for (auto& x : ports_)
      if (x.socket >= 0)
        ::close(std::exchange(x.socket, -1));
    ::close(wake_);
  }

  void run() {
    std::vector<pollfd> all;
    for (const auto& x : ports_)
      all.push_back({x.socket, POLLIN, 0});
    all.push_back({wake_, POLLIN, 0});
    while (!ending_) {
      timespec how_long{1, 0};
      if (!waiting_.empty()) {
        const auto left = std::max(waiting_.begin()->first - switch_clock::now(), switch_clock::duration::zero());
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        how_long = {seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
      }
      ::ppoll(all.data(), all.size(), &how_long, nullptr);
      for (std::size_t i = 0; i < ports_.size(); ++i)
        if (all[i].revents != 0)
          take_from(i);
      while (!waiting_.empty() && waiting_.begin()->first <= switch_clock::now()) {
        const auto& [to, bytes] = waiting_.begin()->second;
        // A port that is down takes nothing, and that is as lost as anything.
        if (::send(ports_[to].socket, bytes.data(), bytes.size(), MSG_DONTWAIT) >= 0)
          ++carried;
        else
          ++lost;
        waiting_.erase(waiting_.begin());
      }
    }
  }

  void take_from(std::size_t from) {
    std::array<std::byte, 65536> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init)
    for (int some = 0; some < 64; ++some) {
      sockaddr_ll who{};
      socklen_t length = sizeof who;
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      auto* const address = reinterpret_cast<sockaddr*>(&who);
      const auto size = ::recvfrom(ports_[from].socket, buffer.data(), buffer.size(), 0, address, &length);
      if (size <= 0)
        return;
      if (who.sll_pkttype == PACKET_OUTGOING || size < ETH_HLEN)
        continue;
      const frame bytes(buffer.begin(), buffer.begin() + size);
      // The last byte of an address is the number of the host, and one.
      const bool to_all = (static_cast<unsigned>(bytes[0]) & 1U) != 0;
      const auto to = static_cast<std::size_t>(bytes[5]) - 1;
      for (std::size_t i = 0; i < ports_.size(); ++i)
        if (i != from && (to_all || to == i))
          pass(from, i, bytes);
    }
  }

  void pass(std::size_t from, std::size_t to, const frame& bytes) {
    const std::lock_guard guard(mutex_);
    auto when = switch_clock::now();
    bool arrives = !apart_.contains(std::minmax(from, to));
    const auto over = [&](const quality& x, switch_clock::time_point& in_use_until) {
      when += x.delay + std::chrono::microseconds(random_.below(static_cast<std::uint64_t>(x.jitter.count()) + 1));
      if (x.lost > 0 && random_.chance(x.lost))
        arrives = false;
      if (x.bytes_per_second == 0)
        return;
      in_use_until =
          std::max(in_use_until, when) + std::chrono::microseconds(1'000'000 * bytes.size() / x.bytes_per_second);
      // As much as a switch keeps for a port.
      if (in_use_until - when > std::chrono::milliseconds(500))
        arrives = false;
      when = in_use_until;
    };
    over(ports_[from].is, ports_[from].sent_until);
    over(ports_[to].is, ports_[to].taken_until);
    if (arrives)
      waiting_.emplace(when, std::pair(to, bytes));
    else
      ++lost;
  }

  std::vector<socket_of_host> ports_;
  std::set<std::pair<std::size_t, std::size_t>> apart_;
  simulation::random_source random_;
  std::mutex mutex_;
  /// The thread's own.
  std::multimap<switch_clock::time_point, std::pair<std::size_t, frame>> waiting_;
  std::atomic<bool> ending_{false};
  int wake_;
  std::thread thread_;
};

network::network(std::size_t hosts, std::uint64_t seed) : name_("troupe" + std::to_string(::getpid())), hosts_(hosts) {
  const auto ns = name_ + "-switch";
  remove(); // left by a test that was killed, whose number this process has now
  bool there = network_shell("ip netns add " + ns);
  for (std::size_t i = 0; there && i < hosts; ++i) {
    const auto port = port_name(i);
    const auto in_switch = "ip netns exec " + ns + ' ';
    const auto in_host = "ip netns exec " + host_name(i) + ' ';
    there =
        network_shell("ip netns add " + host_name(i) + " && " + in_switch + "ip link add " + port +
                      " type veth peer name eth0 address " + hardware_address(i) + " && " + in_switch +
                      "ip link set eth0 netns " + host_name(i) + " && " + in_switch + "sh -c 'echo 1 > /proc/sys/" +
                      "net/ipv6/conf/" + port + "/disable_ipv6; ip link set " + port + " up' && " + in_host +
                      "sh -c 'ip addr add " + address(i) + "/24 dev eth0 && ip link set eth0 up && ip link set lo up'");
  }
  std::thread([&] {
    for (std::size_t i = 0; there && i < hosts; ++i) {
      const int at = ::open(("/run/netns/" + host_name(i)).c_str(), O_RDONLY | O_CLOEXEC);
      there = at >= 0 && ::setns(at, CLONE_NEWNET) == 0;
      if (at >= 0)
        ::close(at);
      const int socket = there ? ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
      there = socket >= 0 && is_plain(socket, "eth0");
      if (socket >= 0)
        ::close(socket);
    }
  }).join();
  if (!there)
    return;
  try {
    switch_ = std::make_unique<network_switch>(ns, hosts, seed);
  } catch (const std::runtime_error&) {
    switch_.reset(); // this user may not
  }
}

network::~network() {
  switch_.reset();
  remove();
}

void network::remove() const {
  for (std::size_t i = 0; i < hosts_; ++i)
    network_shell("ip netns del " + host_name(i));
  network_shell("ip netns del " + name_ + "-switch");
}

arguments network::on(std::size_t host) const {
  return {"/bin/sh", "-c", "exec ip netns exec " + host_name(host) + " \"$0\" \"$@\""};
}

launch network::on(std::size_t host, launch what) const {
  const auto where = on(host);
  what.arguments.insert(what.arguments.begin(), where.begin(), where.end());
  return what;
}

void network::set_quality(std::size_t host, const quality& x) {
  switch_->set_quality(host, x);
}

void network::cable(std::size_t host, bool there) {
  network_shell("ip netns exec " + name_ + "-switch ip link set " + port_name(host) + (there ? " up" : " down"));
}

void network::reach(std::size_t a, std::size_t b, bool can) {
  switch_->reach(a, b, can);
}

std::uint64_t network::carried() const {
  return switch_->carried;
}

std::uint64_t network::lost() const {
  return switch_->lost;
}

} // namespace troupe::test
