#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <sys/types.h>
#include <utility>

/// Unix sockets, by which processes of one host find each other.

namespace troupe {

/// The names of a node's sockets in its `data_dir`, where its config does not say others: of clients that attach, and
/// of HTTP.
inline constexpr const char* actors_socket_name = "troupe.sock";
inline constexpr const char* http_socket_name = "http.sock";

/// The file of a socket that was bound: says later whether it is still there. Plain value; any thread.
class socket_file {
public:
  socket_file() = default;
  socket_file(std::filesystem::path path, dev_t device, ino_t number)
      : path_(std::move(path)), device_(device), number_(number) {}

  /// Empty if there is none.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Whether that file, and no other, is found at the path. False after it was removed or replaced: then nobody can
  /// connect to the socket any more. May wait for the file system.
  bool is_there() const noexcept;

private:
  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

/// A Unix socket that listens, as a file that only this user can open. Removes the file when it ends, if it is still
/// its own.
class local_listener {
public:
  /// Replaces the socket of a node that is dead. Paths may be longer than the system's 107 bytes, names may not.
  /// `key` is where in the config the path stands, as in "actors.socket": errors name it.
  ///
  /// Errors: `busy` (somebody listens there), `io_error`, `invalid_argument` (something else is there).
  static result<local_listener> open(std::string_view key, const std::filesystem::path& path);

  local_listener(local_listener&& other) noexcept;
  local_listener& operator=(local_listener&& other) noexcept;
  ~local_listener();

  int descriptor() const noexcept { return descriptor_.get(); }
  /// Gives the descriptor away; the file is still removed at the end.
  unique_descriptor take() noexcept { return std::move(descriptor_); }
  const socket_file& file() const noexcept { return file_; }

private:
  local_listener(unique_descriptor descriptor, socket_file file)
      : descriptor_(std::move(descriptor)), file_(std::move(file)) {}

  void remove() noexcept;

  unique_descriptor descriptor_;
  socket_file file_;
};

/// Connects to a Unix socket; a directory stands for the node that has it as its `data_dir`, and for the socket of this
/// name there. The error says whether there is no such file, nobody listens, or only others may.
result<unique_descriptor> connect_local(const std::filesystem::path& path, const char* name = actors_socket_name);

/// Who is on the other side of a connected Unix socket: the process that connected, as the kernel recorded it then.
struct local_peer {
  uid_t user = 0;
  /// Its number in the process namespace of the caller; 0 where it is not visible there.
  std::int32_t process = 0;
};
result<local_peer> peer_of(int descriptor);

} // namespace troupe
