#include "base/private_file.hpp"

#include "base/unique_descriptor.hpp"

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr std::size_t max_private_bytes = std::size_t{1024} * 1024;

} // namespace

result<std::string> read_private_file(const std::filesystem::path& file, std::string_view what,
                                      std::string_view secrets) {
  const auto name = std::string(what) + " \"" + file.string() + "\"";
  const unique_descriptor fd{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0)
    return tl::unexpected(system_error(errno, name));
  if (!S_ISREG(info.st_mode))
    return fail(errc::invalid_argument, name + " is not a file");
  if ((info.st_mode & S_IRWXO) != 0)
    return fail(errc::invalid_argument, name +
                                            " is accessible to all users of this machine: chmod o= it, and consider " +
                                            "its " + std::string(secrets) + " exposed");
  std::string text(max_private_bytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const auto n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return tl::unexpected(system_error(errno, name));
    if (n == 0)
      break;
    size += static_cast<std::size_t>(n);
  }
  if (size > max_private_bytes)
    return fail(errc::limit_exceeded, name + " has more than 1 MiB");
  text.resize(size);
  return text;
}

} // namespace troupe
