#include "tests/unit/http_support.hpp"

#include "base/log.hpp"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <netdb.h>
#include <netinet/in.h>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace troupe::http {

namespace {

/// This is far beyond every wait of a test that passes.
constexpr int patience_ms = 60'000;

} // namespace

bool knows_localhost() {
  addrinfo* found = nullptr;
  const auto known = ::getaddrinfo("localhost", nullptr, nullptr, &found) == 0;
  if (known)
    ::freeaddrinfo(found);
  return known;
}

quiet_log::quiet_log() {
  troupe::log::get("http")->set_level(spdlog::level::off);
}

quiet_log::~quiet_log() {
  troupe::log::get("http")->set_level(spdlog::level::info);
}

client::client(std::uint16_t port, int receive_buffer, const char* from)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0)
    throw std::runtime_error{"no socket"};
  if (receive_buffer > 0)
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (from != nullptr && (::inet_pton(AF_INET, from, &address.sin_addr) != 1 ||
                          ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0))
    throw std::runtime_error{"this address cannot be had"};
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error{"the server accepts no connection"};
}

client::~client() {
  if (socket_ >= 0)
    ::close(socket_);
}

bool client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void client::end() {
  ::shutdown(socket_, SHUT_WR);
}

void client::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ::close(socket_);
  socket_ = -1;
}

void client::wait_for_bytes() {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, patience_ms) <= 0)
    throw std::runtime_error{"the server neither answers nor closes"};
}

std::size_t client::receive(std::span<char> into) {
  wait_for_bytes();
  const auto n = ::recv(socket_, into.data(), into.size(), 0);
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

bool client::receive_more() {
  std::array<char, 16384> buffer{};
  const auto n = receive(buffer);
  received_.append(buffer.data(), n);
  return n > 0;
}

std::optional<reply> client::read(bool is_head) {
  reply x;
  auto end = received_.find("\r\n\r\n");
  while (end == std::string::npos) {
    if (!receive_more())
      return std::nullopt;
    end = received_.find("\r\n\r\n");
  }
  x.head = received_.substr(0, end + 2);
  received_.erase(0, end + 4);
  x.code = std::atoi(x.head.substr(9, 3).c_str());
  std::size_t length = 0;
  if (const auto at = x.head.find("Content-Length: "); at != std::string::npos)
    std::from_chars(x.head.data() + at + 16, x.head.data() + x.head.size(), length);
  if (is_head)
    length = 0;
  while (received_.size() < length)
    if (!receive_more())
      return std::nullopt;
  x.body = received_.substr(0, length);
  received_.erase(0, length);
  return x;
}

reply client::must_read(bool is_head) {
  auto x = read(is_head);
  if (!x)
    throw std::runtime_error{"the server has closed without an answer"};
  return *x;
}

std::string client::read_to_end() {
  while (receive_more()) {
  }
  return std::exchange(received_, {});
}

scratch_directory::scratch_directory() {
  auto pattern = (std::filesystem::temp_directory_path() / "troupe-http-XXXXXX").string();
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

scratch_directory::~scratch_directory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path scratch_directory::write(std::string_view name, std::string_view text) const {
  const auto file = path_ / name;
  std::ofstream{file, std::ios::binary | std::ios::trunc} << text;
  std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  return file;
}

} // namespace troupe::http
