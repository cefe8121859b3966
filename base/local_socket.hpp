#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <sys/types.h>
#include <utility>

/// Unix sockets, by which processes of one host connect to each other.

namespace troupe {

/// The default names of a node's sockets in its `data_dir`: for attaching clients, and for HTTP.
inline constexpr const char* actors_socket_name = "troupe.sock";
inline constexpr const char* http_socket_name = "http.sock";

/// The file of a bound socket, to check later whether it still exists. Plain value; any thread.
class socket_file {
public:
  socket_file() = default;
  socket_file(std::filesystem::path path, dev_t device, ino_t number)
      : path_(std::move(path)), device_(device), number_(number) {}

  /// Empty if there is no file.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Whether the path still leads to that file. False after it was removed or replaced: then no client can connect to
  /// the socket any more. May wait for the file system.
  bool is_there() const noexcept;

private:
  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

/// A listening Unix socket whose file only this user can open. The destructor removes the file unless it was replaced.
class local_listener {
public:
  /// Opens the socket; replaces the one of a dead node. Paths may be longer than the system's 107 bytes, names may not.
  /// `key` is the config key of the path for errors, as in "actors.socket".
  ///
  /// Errors: `busy` (a process listens there), `io_error`, `invalid_argument` (there is another kind of file).
  static result<local_listener> open(std::string_view key, const std::filesystem::path& path);

  local_listener(local_listener&& other) noexcept;
  local_listener& operator=(local_listener&& other) noexcept;
  ~local_listener();

  int descriptor() const noexcept { return descriptor_.get(); }
  /// Passes the descriptor to the caller; the destructor still removes the file.
  unique_descriptor take() noexcept { return std::move(descriptor_); }
  const socket_file& file() const noexcept { return file_; }

private:
  local_listener(unique_descriptor descriptor, socket_file file)
      : descriptor_(std::move(descriptor)), file_(std::move(file)) {}

  void remove() noexcept;

  unique_descriptor descriptor_;
  socket_file file_;
};

/// Connects to a Unix socket. A directory stands for the node whose `data_dir` it is, and for the socket of this name
/// in it. The error tells a missing file, a refused connection and missing permission apart.
result<unique_descriptor> connect_local(const std::filesystem::path& path, const char* name = actors_socket_name);

/// The process at the other end of a connected Unix socket, as the kernel recorded it at the connection.
struct local_peer {
  uid_t user = 0;
  /// The process number in the caller's process namespace; 0 where it is not visible there.
  std::int32_t process = 0;
};
result<local_peer> peer_of(int descriptor);

} // namespace troupe
