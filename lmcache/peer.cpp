#include "lmcache/peer.hpp"

#include "base/tcp_connect.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace troupe::lmcache {

namespace {

/// An address in the format of /proc/net/tcp and tcp6: words of memory in hexadecimal, a colon, the port. An IPv4
/// address is in either file, depending on the socket that has it: in tcp6 it is mapped (::ffff:127.0.0.1).
struct written_address {
  /// Empty for an address of IPv6 only.
  std::string four;
  std::string six;
};

std::string written(std::span<const std::uint32_t> words, std::uint16_t port) {
  std::string out;
  std::array<char, 16> text{};
  for (const auto word : words) {
    std::snprintf(text.data(), text.size(), "%08X", word);
    out += text.data();
  }
  std::snprintf(text.data(), text.size(), ":%04X", static_cast<unsigned>(port));
  return out + text.data();
}

template <class Call>
written_address address_by(int descriptor, Call call) {
  socket_address name;
  name.size = sizeof name.name;
  auto* const raw = reinterpret_cast<sockaddr*>(&name.name);
  if (call(descriptor, raw, &name.size) != 0)
    return {};
  const auto host = host_address::of(*raw);
  if (!host)
    return {};
  std::array<std::uint32_t, 4> words{};
  std::memcpy(words.data(), host->bytes.data(), sizeof words);
  return {host->is_ipv4() ? written(std::span(words).last(1), name.port()) : std::string(),
          written(words, name.port())};
}

template <class Number>
Number number_of(std::string_view text) {
  Number out{};
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

/// The socket that has these addresses in reverse.
std::optional<peer_socket> socket_in(const char* file, const std::string& here, const std::string& there) {
  std::ifstream table(file);
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
    std::array<std::string_view, 10> field;
    std::size_t fields = 0;
    std::string_view rest = line;
    while (fields < field.size()) {
      const auto first = rest.find_first_not_of(' ');
      if (first == std::string_view::npos)
        break;
      rest.remove_prefix(first);
      field[fields++] = rest.substr(0, rest.find(' '));
      rest.remove_prefix(field[fields - 1].size());
    }
    if (fields != field.size() || field[1] != there || field[2] != here)
      continue;
    // A socket that its process has closed has no inode, and seems to be root's.
    const peer_socket out{number_of<std::uint64_t>(field[9]), number_of<uid_t>(field[7])};
    return out.inode == 0 ? std::nullopt : std::optional(out);
  }
  return std::nullopt;
}

struct close_directory {
  void operator()(DIR* x) const noexcept { ::closedir(x); }
};
using directory = std::unique_ptr<DIR, close_directory>;

bool holds(const std::string& process, const std::string& wanted) {
  const auto path = "/proc/" + process + "/fd";
  const directory files(::opendir(path.c_str()));
  if (!files)
    return false;
  while (const auto* entry = ::readdir(files.get())) {
    std::array<char, 64> target{};
    const auto size = ::readlink((path + "/" + entry->d_name).c_str(), target.data(), target.size());
    if (size > 0 && std::string_view(target.data(), static_cast<std::size_t>(size)) == wanted)
      return true;
  }
  return false;
}

} // namespace

std::optional<peer_socket> find_peer(int descriptor) {
  const auto here = address_by(descriptor, ::getsockname);
  const auto there = address_by(descriptor, ::getpeername);
  if (here.six.empty() || there.six.empty() || here.four.empty() != there.four.empty())
    return std::nullopt;
  if (!here.four.empty())
    if (const auto found = socket_in("/proc/net/tcp", here.four, there.four))
      return found;
  return socket_in("/proc/net/tcp6", here.six, there.six);
}

std::int32_t process_with(const peer_socket& socket) {
  const auto wanted = "socket:[" + std::to_string(socket.inode) + "]";
  const directory processes(::opendir("/proc"));
  if (!processes || socket.inode == 0)
    return 0;
  while (const auto* entry = ::readdir(processes.get())) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") == std::string::npos && holds(name, wanted))
      return number_of<std::int32_t>(name);
  }
  return 0;
}

} // namespace troupe::lmcache
