#include "store/epoch_file.hpp"

#include "base/hex.hpp"
#include "base/parse_number.hpp"
#include "base/unique_descriptor.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::store {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view file_name = "epoch";
constexpr std::string_view epoch_title = "troupe epoch\n";
constexpr std::size_t digits = 16;
constexpr std::size_t file_bytes = epoch_title.size() + digits + 1;

tl::unexpected<error> failed(int code, const char* verb, const fs::path& path) {
  return tl::unexpected(system_error(code, std::string("cannot ") + verb + " '" + path.string() + "'"));
}

unique_descriptor open_file(const fs::path& path, int flags) noexcept {
  return unique_descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0600));
}

std::string text_of(incarnation_number epoch) {
  std::string out(epoch_title);
  append_hex(out, epoch);
  return out + "\n";
}

result<void> write_whole(const fs::path& path, const std::string& text) {
  const auto out = open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!out)
    return failed(errno, "make", path);
  // One call is enough: a file of some thirty bytes is written completely or not at all.
  errno = 0;
  if (::write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return failed(errno != 0 ? errno : ENOSPC, "write", path);
  if (::fsync(out.get()) != 0)
    return failed(errno, "sync", path);
  return {};
}

} // namespace

result<std::optional<incarnation_number>> read_epoch(const fs::path& data_directory) {
  const auto path = data_directory / file_name;
  const auto in = open_file(path, O_RDONLY | O_NOFOLLOW);
  if (!in && errno == ENOENT)
    return std::nullopt;
  if (!in)
    return failed(errno, "open", path);
  std::array<char, file_bytes + 1> bytes{};
  const auto got = ::read(in.get(), bytes.data(), bytes.size());
  if (got < 0)
    return failed(errno, "read", path);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  if (text.size() != file_bytes || !text.starts_with(epoch_title) || !text.ends_with('\n'))
    return std::nullopt;
  const auto epoch = parse_number<incarnation_number>(text.substr(epoch_title.size(), digits), 16);
  return epoch == incarnation_number{0} ? std::nullopt : epoch;
}

result<void> write_epoch(const fs::path& data_directory, incarnation_number epoch, const write_gate& gate) {
  const auto path = data_directory / file_name;
  const auto check = [&] { return gate.check("write '" + path.string() + "'"); };
  if (auto may = check(); !may)
    return may;
  const fs::path temporary = path.string() + ".new";
  if (auto written = write_whole(temporary, text_of(epoch)); !written)
    return written;
  // Another node's index may depend on the epoch that would be replaced here.
  if (auto may = check(); !may)
    return may;
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return failed(errno, "rename the new", path);
  const auto directory = open_file(data_directory, O_RDONLY | O_DIRECTORY);
  if (!directory || ::fsync(directory.get()) != 0)
    return failed(errno, "sync the directory of", path);
  return {};
}

} // namespace troupe::store
