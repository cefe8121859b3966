#include "tests/catch.hpp"
#include "tests/http_client/metadata_client.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hostile_peer_test {

using namespace troupe::test;
using stream = process::stream;

/// Peers that mean harm, at the Unix socket of a node.

namespace {

constexpr const char* small_trace = "loogle:2,1024,3,128";

/// A connection that speaks no protocol but what a test writes.
class raw_peer {
public:
  explicit raw_peer(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof where.sun_path);
    std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
  }
  raw_peer(raw_peer&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(std::exchange(other.connected_, false)) {}
  ~raw_peer() {
    if (socket_ >= 0)
      ::close(socket_);
  }

  bool connected() const noexcept { return connected_; }

  void send(const std::string& bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }

  /// Reads until the other side ends the connection; false if it has not by then.
  bool ends_within(std::chrono::milliseconds limit) const {
    const auto until = std::chrono::steady_clock::now() + limit;
    timeval step{0, 100'000};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
    char bytes[4096];
    while (std::chrono::steady_clock::now() < until) {
      const auto got = ::recv(socket_, bytes, sizeof bytes, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return true;
    }
    return false;
  }

private:
  int socket_;
  bool connected_ = false;
};

/// The header of a frame.
std::string header(std::uint8_t operation, std::uint32_t length, std::uint8_t flags = 0) {
  std::string out(32, '\0');
  out[0] = static_cast<char>(operation);
  out[3] = static_cast<char>(flags);
  for (int i = 0; i < 4; ++i)
    out[static_cast<std::size_t>(7 - i)] = static_cast<char>(length >> (8 * i));
  return out;
}

/// Bytes of memory that a process has.
/// Of its own: memory that it shares with clients is there from the start, or comes soon after.
std::uint64_t resident(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/statm");
  std::uint64_t all = 0;
  std::uint64_t pages = 0;
  std::uint64_t shared = 0;
  in >> all >> pages >> shared;
  return (pages - shared) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

struct attacked_node {
  explicit attacked_node(arguments more = {})
      : config(node_config(scratch.path())), node(write_config(scratch.path(), config), std::move(more)) {}

  /// Still there, and fit.
  void check_serves() {
    check_clean(run_replay({"--attach", node.socket(), "--trace", small_trace}), {});
    CHECK_FALSE(node.program().ended());
  }

  scratch_directory scratch;
  nlohmann::json config;
  serving_node node;
};

std::unique_ptr<troupe::metadata_client> http_client_of(const serving_node& node) {
  troupe::metadata_client_options options;
  const auto port = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  options.url = "http://127.0.0.1:" + std::to_string(port);
  options.retries = 0;
  auto made = troupe::metadata_client::make(options);
  REQUIRE(made);
  return std::move(*made);
}

/// Whether a request that involves all shards is answered.
bool answers(troupe::metadata_client& http) {
  const std::vector<std::string> keys{"a", "b", "c", "d", "e", "f", "g", "h"};
  return http.batch_key_exists(keys).has_value();
}

} // namespace

TEST_CASE("hostile peer: a frame header of four gigabytes allocates no memory in the node") {
  attacked_node x;
  x.check_serves();
  const auto before = resident(x.node.program().id());
  for (const bool has_handshake : {false, true})
    for (int i = 0; i < 8; ++i) {
      const raw_peer peer(x.node.socket());
      REQUIRE(peer.connected());
      if (has_handshake)
        peer.send(header(1, 32) + std::string(31, 'p') + static_cast<char>('a' + i));
      peer.send(header(2, 0xffffffff));
      CHECK(peer.ends_within(patience));
    }
  const auto after = resident(x.node.program().id());
  INFO(before << " bytes, then " << after);
  CHECK(after < before + (std::uint64_t{32} << 20U));
  x.check_serves();
  CHECK(x.node.stop() == 0);
}

TEST_CASE("hostile peer: connections without a handshake are closed at the deadline and block no client") {
  attacked_node x({"--set", "actors.handshake_time=300 ms", "--set", "actors.max_connections=50"});
  std::vector<raw_peer> silent;
  for (int i = 0; i < 300; ++i)
    silent.emplace_back(x.node.socket());
  for (const auto& peer : silent)
    CHECK((!peer.connected() || peer.ends_within(patience)));
  x.check_serves();
  CHECK(x.node.stop() == 0);
}

TEST_CASE("hostile peer: a node with few descriptors continues when peers use them all") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["http"] = {{"enabled", true}, {"port", 0}};
  config["hf3fs"] = {{"vllm", true}};
  config["actors"]["max_connections"] = 1000;
  config["actors"]["handshake_time"] = "500 ms";
  launch how;
  how.descriptor_limit = 128;
  serving_node node(write_config(scratch.path(), config), {}, how);
  const auto known = http_client_of(node);
  CHECK(answers(*known));
  {
    std::vector<raw_peer> silent;
    for (int i = 0; i < 300; ++i)
      silent.emplace_back(node.socket());
    // Over the existing connection, and over a new one, which may have to wait for a free descriptor.
    for (int i = 0; i < 20; ++i)
      CHECK(answers(*known));
    CHECK(answers(*http_client_of(node)));
    for (const auto& peer : silent)
      CHECK((!peer.connected() || peer.ends_within(patience)));
  }
  check_clean(run_replay({"--attach", node.socket(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("hostile peer: garbage on the socket ends only its connection") {
  attacked_node x;
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    const raw_peer peer(x.node.socket());
    REQUIRE(peer.connected());
    if (round % 2 == 1)
      peer.send(header(1, 32) + std::string(30, 'p') + static_cast<char>('a' + round / 26) +
                static_cast<char>('a' + round % 26));
    // Bytes, or frames with a sound header and bytes in them.
    std::string noise(1 + random() % 300, '\0');
    for (auto& c : noise)
      c = static_cast<char>(random());
    if (round % 3 == 0)
      noise = header(static_cast<std::uint8_t>(random() % 8), static_cast<std::uint32_t>(noise.size()),
                     static_cast<std::uint8_t>(random() % 4)) +
              noise;
    peer.send(noise);
  }
  x.check_serves();
  CHECK(x.node.stop() == 0);
}

TEST_CASE("hostile peer: a peer with a CAF connection cannot reach a node's own actors") {
  attacked_node x;
  const auto keys = x.node.statistics().keys;
  CHECK(keys == 0);
  x.check_serves();
  const auto before = x.node.wait_until_quiesced();
  CHECK(before.keys > 0);
  const auto memory = resident(x.node.program().id());
  for (int i = 0; i < 2; ++i) {
    launch hostile;
    hostile.arguments = {TROUPE_HOSTILE_PEER, x.node.socket()};
    const auto attack = run(hostile);
    INFO(attack.err << x.node.log_so_far());
    CHECK(attack.code == 0);
    CHECK(attack.out == "served to the end\n");
  }
  const auto after = x.node.wait_until_quiesced();
  CHECK(after.keys == before.keys);
  CHECK(after.complete == before.complete);
  REQUIRE(after.ranks.size() == before.ranks.size());
  CHECK(after.ranks[0].free == before.ranks[0].free);
  CHECK(after.ranks[0].live == before.ranks[0].live);
  const auto now = resident(x.node.program().id());
  INFO(memory << " bytes, then " << now);
  CHECK(now < memory + (std::uint64_t{64} << 20U));
  x.check_serves();
  CHECK(x.node.stop() == 0);
}

TEST_CASE("hostile peer: another user is refused even if the file mode allows the connection") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can switch to another user");
    return;
  }
  attacked_node x;
  const auto path = x.node.socket();
  // The file modes that the node sets would keep others out already: here only the check of the connecting user is
  // left.
  for (const auto& directory : {x.scratch.path(), std::filesystem::path(path).parent_path()})
    REQUIRE(::chmod(directory.c_str(), 0755) == 0);
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      ::_exit(3);
    const raw_peer peer(path);
    ::_exit(!peer.connected() ? 4 : peer.ends_within(std::chrono::seconds(30)) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  x.node.program().wait_for_line(stream::err, "another user");
  x.check_serves();
  CHECK(x.node.stop() == 0);
}

TEST_CASE("hostile peer: the socket belongs to its user, is removed with the node and replaced after a crash") {
  attacked_node x;
  const auto path = x.node.socket();
  struct stat found {};
  REQUIRE(::lstat(path.c_str(), &found) == 0);
  CHECK(S_ISSOCK(found.st_mode));
  CHECK((found.st_mode & 0777U) == 0600);
  x.check_serves();
  x.node.program().kill();
  CHECK(std::filesystem::exists(path));
  const auto refused = run_replay({"--attach", path, "--trace", small_trace, "--attach-limit", "8"});
  CHECK(refused.code == 1);
  CHECK(refused.err.find("connection refused") != std::string::npos);
  serving_node again(write_config(x.scratch.path(), x.config));
  // The data directory stands for the node.
  const auto data = x.config.at("data_dir").get<std::string>();
  check_clean(run_replay({"--attach", data, "--trace", small_trace}), {});
  CHECK(again.stop() == 0);
  CHECK_FALSE(std::filesystem::exists(path));
  const auto gone = run_replay({"--attach", data, "--trace", small_trace, "--attach-limit", "8"});
  CHECK(gone.code == 1);
  CHECK(gone.err.find("no socket at") != std::string::npos);
}

} // namespace hostile_peer_test
