#include "base/local_socket.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// Connections that wait to be accepted: an engine's ranks connect at once, and one that finds no room retries.
constexpr int backlog = 128;

/// A socket's address by a descriptor of its directory, which is short however long the path of the directory is.
struct address {
  unique_descriptor directory;
  sockaddr_un name{};
};

result<address> address_of(const fs::path& path) {
  address out;
  const auto directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  out.directory = unique_descriptor(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!out.directory)
    return tl::unexpected<error>(system_error(errno, "open " + directory.string()));
  const auto text = "/proc/self/fd/" + std::to_string(out.directory.get()) + "/" + path.filename().string();
  if (text.size() >= sizeof out.name.sun_path)
    return fail(errc::invalid_argument, "the name of the socket " + path.string() + " is too long");
  out.name.sun_family = AF_UNIX;
  std::memcpy(out.name.sun_path, text.c_str(), text.size() + 1);
  return out;
}

const sockaddr* of(const sockaddr_un& x) {
  return reinterpret_cast<const sockaddr*>(&x);
}

result<unique_descriptor> new_socket() {
  unique_descriptor out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out)
    return tl::unexpected<error>(system_error(errno, "make a Unix socket"));
  return out;
}

/// Whether a process listens there now.
bool answers(const address& where) {
  const auto probe = new_socket();
  return probe && (::connect(probe->get(), of(where.name), sizeof where.name) == 0 || errno == EAGAIN);
}

result<void> clear_place(const address& where, std::string_view key, const fs::path& path) {
  struct stat found {};
  if (::lstat(where.name.sun_path, &found) != 0)
    return {};
  if (!S_ISSOCK(found.st_mode))
    return fail(errc::invalid_argument,
                path.string() + " exists and is not a socket: choose another " + std::string(key));
  if (answers(where))
    return fail(errc::busy, "another process listens on " + path.string() + ": choose another " + std::string(key));
  if (::unlink(where.name.sun_path) != 0 && errno != ENOENT)
    return tl::unexpected<error>(system_error(errno, "remove the socket of an earlier node, " + path.string()));
  return {};
}

} // namespace

result<local_listener> local_listener::open(std::string_view key, const fs::path& path) {
  const auto where = address_of(path);
  if (!where)
    return tl::unexpected<error>(where.error());
  if (auto cleared = clear_place(*where, key, path); !cleared)
    return tl::unexpected<error>(cleared.error());
  auto made = new_socket();
  if (!made)
    return tl::unexpected<error>(made.error());
  // The mode is set before the socket has a name, so that other users can never open it.
  if (::fchmod(made->get(), 0600) != 0 || ::bind(made->get(), of(where->name), sizeof where->name) != 0 ||
      ::listen(made->get(), backlog) != 0)
    return tl::unexpected<error>(system_error(errno, "listen on " + path.string()));
  struct stat own {};
  if (::lstat(where->name.sun_path, &own) != 0)
    return tl::unexpected<error>(system_error(errno, "look at " + path.string()));
  return local_listener(std::move(*made), socket_file(path, own.st_dev, own.st_ino));
}

bool socket_file::is_there() const noexcept {
  struct stat found {};
  return !path_.empty() && ::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == number_;
}

local_listener::local_listener(local_listener&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), file_(std::exchange(other.file_, {})) {}

local_listener& local_listener::operator=(local_listener&& other) noexcept {
  if (this != &other) {
    remove();
    descriptor_ = std::move(other.descriptor_);
    file_ = std::exchange(other.file_, {});
  }
  return *this;
}

local_listener::~local_listener() {
  remove();
}

void local_listener::remove() noexcept {
  if (file_.is_there())
    ::unlink(file_.path().c_str());
  file_ = {};
}

result<unique_descriptor> connect_local(const fs::path& path, const char* name) {
  std::error_code ignored;
  const auto socket = fs::is_directory(path, ignored) ? path / name : path;
  const auto where = address_of(socket);
  if (!where)
    return fail(errc::unreachable, where.error().text);
  auto made = new_socket();
  if (!made)
    return made;
  if (::connect(made->get(), of(where->name), sizeof where->name) == 0)
    return made;
  switch (errno) {
  case ENOENT:
    return fail(errc::unreachable,
                "there is no socket at " + socket.string() + ": is the node running, and does its config open one?");
  case ECONNREFUSED:
    return fail(errc::unreachable, "connection refused by " + socket.string() + ": its node has ended");
  case EACCES:
  case EPERM:
    return fail(errc::unreachable,
                "no permission to open " + socket.string() + ": only the user of the node and root may");
  case EAGAIN:
    return fail(errc::unreachable, "the node at " + socket.string() + " has more connections waiting than it accepts");
  default:
    return fail(errc::unreachable, system_error(errno, "connect to " + socket.string()).text);
  }
}

result<local_peer> peer_of(int descriptor) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return tl::unexpected<error>(system_error(errno, "identify the process that connects"));
  return local_peer{who.uid, who.pid};
}

} // namespace troupe
