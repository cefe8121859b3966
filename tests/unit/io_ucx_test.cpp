#include "base/host_identity.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/ucx/listener_guard.hpp"
#include "io/ucx/ucx_memory.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote_ends.hpp"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

// Memory that was exposed through UCX leaves a UCX thread behind (io/ucx/ucx_memory.cpp explains why), and leak
// detection at process exit fails because of that thread. Only a process that has used UCX skips that detection.
#ifdef __SANITIZE_ADDRESS__
namespace {
bool ucx_was_used = false;
}
// The sanitizer sees this object, which is in a separate library.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();
int __lsan_is_turned_off() {
  return ucx_was_used ? 1 : 0;
}
#endif

namespace io_ucx_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const io::ucx_options over_loopback{"tcp,self", "lo"};

/// Nothing where this was built without UCX, or runs without it.
bool there_is_ucx() {
#ifdef __SANITIZE_THREAD__
  WARN("skipped: UCX takes the place of functions for memory, as ThreadSanitizer does, and it is not built with that");
  return false;
#endif
#ifdef __SANITIZE_ADDRESS__
  ucx_was_used = true;
#endif
  const auto made = io::make_ucx_exposer(over_loopback);
  if (!made && made.error().code == errc::unsupported)
    WARN("skipped: " << made.error().text);
  return made.has_value();
}

std::shared_ptr<io::exposed_memory> expose(std::uint64_t bytes) {
  const std::array from{loopback};
  auto made = (*io::make_ucx_exposer(over_loopback))->expose(bytes, from);
  REQUIRE(made);
  return *made;
}

struct peer_of : remote_end_of {
  explicit peer_of(const io::exposed_memory& memory) : remote_end_of(mover_over_loopback(), memory.name()) {}

  static std::shared_ptr<io::remote_mover> mover_over_loopback() {
    auto made = io::make_ucx_mover(over_loopback);
    REQUIRE(made);
    return *made;
  }
};

/// Ports that this process listens on.
std::set<std::uint16_t> listening_ports() {
  std::set<std::uint16_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t length = sizeof listens;
    sockaddr_in name{};
    socklen_t name_length = sizeof name;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &name_length) == 0 && name.sin_family == AF_INET)
      out.insert(ntohs(name.sin_port));
  }
  return out;
}

/// Whether a connection succeeds within a short time.
bool connects(std::uint16_t port, std::uint32_t from) {
  const unique_descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(from);
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
  name.sin_addr.s_addr = htonl(loopback.ipv4());
  name.sin_port = htons(port);
  static_cast<void>(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name));
  pollfd what{socket.get(), POLLOUT, 0};
  int failed = 0;
  socklen_t length = sizeof failed;
  return ::poll(&what, 1, 300) == 1 && ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &length) == 0 &&
         failed == 0;
}

} // namespace

TEST_CASE("ucx: put and get transfer every byte", "[ucx]") {
  if (!there_is_ucx())
    return;
  constexpr std::size_t bytes = 8U << 20U;
  const auto memory = expose(bytes);
  peer_of far(*memory);
  auto first = byte_pattern(bytes, 1);
  std::vector<io::remote_move> moves;
  constexpr std::size_t piece = 68U << 10U;
  for (std::size_t at = 0; at < bytes; at += piece)
    moves.push_back({std::span(first).subspan(at, std::min(piece, bytes - at)), at});
  REQUIRE(far.move(io::remote_direction::put, moves));
  CHECK(std::memcmp(memory->bytes().data(), first.data(), bytes) == 0);
  std::vector<std::byte> second(bytes);
  REQUIRE(far.move(io::remote_direction::get, {{second, 0}}));
  CHECK(second == first);
  far.close();
  CHECK(far.move(io::remote_direction::get, {{second, 0}}).error().code == errc::unreachable);
}

TEST_CASE("ucx: a transfer beyond the exposed memory is refused and moves nothing", "[ucx]") {
  if (!there_is_ucx())
    return;
  const auto memory = expose(65536);
  peer_of far(*memory);
  auto some = byte_pattern(8192, 5);
  CHECK(far.move(io::remote_direction::put, {{some, 0}, {some, 65536 - 4096}}).error().code == errc::out_of_range);
  CHECK(far.move(io::remote_direction::put, {{some, ~std::uint64_t{0}}}).error().code == errc::out_of_range);
  CHECK(std::all_of(memory->bytes().begin(), memory->bytes().end(), [](std::byte x) { return x == std::byte{0}; }));
  CHECK(far.move(io::remote_direction::put, {{some, 0}}));
  CHECK(far.mover->connect({{1}, {2}, 0, 1}, {}).error().code == errc::invalid_argument);
}

TEST_CASE("ucx: a peer whose memory is freed is lost, and transfers in progress end", "[ucx]") {
  if (!there_is_ucx())
    return;
  auto memory = expose(1U << 20U);
  peer_of far(*memory);
  std::vector<std::byte> some(1U << 20U);
  REQUIRE(far.move(io::remote_direction::get, {{some, 0}}));
  memory.reset();
  CHECK(far.lost->get_future().get().code == errc::unreachable);
  CHECK(far.move(io::remote_direction::put, {{some, 0}}).error().code == errc::unreachable);
  far.close();
}

TEST_CASE("ucx: the mover does not listen, and exposed memory accepts admitted addresses only", "[ucx]") {
  if (!there_is_ucx())
    return;
  const auto before = listening_ports();
  const auto mover = io::make_ucx_mover(over_loopback);
  REQUIRE(mover);
  const auto with_mover = listening_ports();
  for (const auto port : with_mover)
    if (!before.contains(port))
      CHECK_FALSE(connects(port, loopback.ipv4()));
  const auto memory = expose(65536);
  std::size_t listening_sockets = 0;
  for (const auto port : listening_ports())
    if (!with_mover.contains(port)) {
      ++listening_sockets;
      CHECK_FALSE(connects(port, loopback.ipv4() + 1));
      CHECK(connects(port, loopback.ipv4()));
    }
  CHECK(listening_sockets == 1);
}

TEST_CASE("ucx: an unknown transport name is an error", "[ucx]") {
  if (!there_is_ucx())
    return;
  const auto made = io::make_ucx_mover({"tcp,self", "no-such-interface"});
  REQUIRE_FALSE(made);
  CHECK(made.error().code == errc::io_error);
  CHECK(made.error().text.find("no-such-interface") != std::string::npos);
}

} // namespace io_ucx_test
