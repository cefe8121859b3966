#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <string_view>
#include <sys/types.h>

/// Unix sockets, by which processes of one host find each other.

namespace troupe {

/// The names of a node's sockets in its `data_dir`, where its config does not say others: of clients that attach, and
/// of HTTP.
inline constexpr const char* actors_socket_name = "troupe.sock";
inline constexpr const char* http_socket_name = "http.sock";

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

private:
  local_listener(unique_descriptor descriptor, std::filesystem::path path, dev_t device, ino_t number)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), device_(device), number_(number) {}

  void remove() noexcept;

  unique_descriptor descriptor_;
  std::filesystem::path path_;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

/// Connects to a Unix socket; a directory stands for the node that has it as its `data_dir`, and for the socket of this
/// name there. The error says whether there is no such file, nobody listens, or only others may.
result<unique_descriptor> connect_local(const std::filesystem::path& path, const char* name = actors_socket_name);

/// Who is on the other side of a connected Unix socket.
result<uid_t> peer_user(int descriptor);

} // namespace troupe
