#include "base/error.hpp"

#include <cerrno>
#include <system_error>

namespace troupe {

std::string_view to_string(errc code) noexcept {
  switch (code) {
  case errc::ok:
    return "ok";
  case errc::not_found:
    return "not_found";
  case errc::exists:
    return "exists";
  case errc::busy:
    return "busy";
  case errc::full:
    return "full";
  case errc::expired:
    return "expired";
  case errc::not_owner:
    return "not_owner";
  case errc::stale:
    return "stale";
  case errc::out_of_range:
    return "out_of_range";
  case errc::invalid_argument:
    return "invalid_argument";
  case errc::unknown_namespace:
    return "unknown_namespace";
  case errc::identity_mismatch:
    return "identity_mismatch";
  case errc::corrupt:
    return "corrupt";
  case errc::io_error:
    return "io_error";
  case errc::no_space:
    return "no_space";
  case errc::timeout:
    return "timeout";
  case errc::cancelled:
    return "cancelled";
  case errc::unreachable:
    return "unreachable";
  case errc::shutting_down:
    return "shutting_down";
  case errc::limit_exceeded:
    return "limit_exceeded";
  case errc::unsupported:
    return "unsupported";
  case errc::slab_damaged:
    return "slab_damaged";
  case errc::internal:
    return "internal";
  case errc::device_error:
    return "device_error";
  case errc::no_memory:
    return "no_memory";
  }
  return "unknown";
}

std::string to_string(const error& e) {
  std::string out(to_string(e.code));
  if (!e.text.empty())
    out.append(": ").append(e.text);
  return out;
}

error system_error(int errno_value, std::string_view what) {
  std::string text(what);
  text.append(": ").append(std::generic_category().message(errno_value));
  // Adds what the system's text leaves open: which limit it was, and how to raise it.
  if (errno_value == EDQUOT)
    text += " (the quota of this user, group or project on that file system)";
  else if (errno_value == EFBIG)
    text += " (the limit of this process: ulimit -f, LimitFSIZE=; or that of the file system)";
  else if (errno_value == EMFILE)
    text += " (raise the limit of open files, which is ulimit -n or LimitNOFILE of the service)";
  if (errno_value == ENOSPC || errno_value == EDQUOT)
    return {errc::no_space, std::move(text)};
  return {errno_value == ENOMEM ? errc::no_memory : errc::io_error, std::move(text)};
}

} // namespace troupe
