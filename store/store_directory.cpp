#include "store/store_directory.hpp"

#include "store/records.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace troupe::store {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view marker_name = "TROUPE";
constexpr std::string_view schema_title = "troupe metadata store\n";
/// Names the current manifest of the database: without it there is no database.
constexpr std::string_view current_name = "CURRENT";

std::string marker_text() {
  return std::string(schema_title) + "schema " + std::to_string(schema_version) + "\n";
}

std::string quoted(const fs::path& path) {
  return "'" + path.string() + "'";
}

tl::unexpected<error> failed(int code, const std::string& what) {
  return tl::unexpected(system_error(code, what));
}

result<void> sync_directory(const fs::path& path) {
  const unique_descriptor opened(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || ::fsync(opened.get()) != 0)
    return failed(errno, "cannot sync the directory " + quoted(path));
  return {};
}

// An entry of a directory becomes durable by a sync of its parent.
result<void> make_directories(const fs::path& path) {
  std::error_code code;
  if (fs::create_directories(path, code); code)
    return failed(code.value(), "cannot make the directory " + quoted(path) + " of the metadata store");
  return sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

result<std::string> read_marker(int marker, const fs::path& path) {
  std::array<char, 128> text{};
  const auto got = ::pread(marker, text.data(), text.size(), 0);
  if (got < 0)
    return failed(errno, "cannot read " + quoted(path / marker_name));
  return std::string(text.data(), static_cast<std::size_t>(got));
}

result<void> write_marker(int marker, const fs::path& path) {
  const auto text = marker_text();
  const auto written = ::pwrite(marker, text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size()))
    return failed(written < 0 ? errno : EIO, "cannot write " + quoted(path / marker_name));
  if (::fsync(marker) != 0)
    return failed(errno, "cannot sync " + quoted(path / marker_name));
  return sync_directory(path);
}

tl::unexpected<error> not_ours(const fs::path& path) {
  return fail(errc::identity_mismatch, quoted(path) + " has files in it but no metadata store of Troupe; name an empty "
                                                      "directory, or one that does not exist yet");
}

bool is_data_file(const fs::path& name) {
  const auto stem = name.stem().string();
  return (name.extension() == ".sst" || name.extension() == ".log") && !stem.empty() &&
         std::ranges::all_of(stem, [](char c) { return c >= '0' && c <= '9'; });
}

// A database without the name of its manifest would be created anew, and its files deleted as unknown.
result<void> check_files(const fs::path& path) {
  std::error_code code;
  if (fs::exists(path / current_name, code))
    return {};
  for (fs::directory_iterator at(path, code), end; !code && at != end; at.increment(code))
    if (is_data_file(at->path().filename()))
      return fail(errc::corrupt, quoted(path) + " has data but no file " + std::string(current_name) +
                                     "; delete the directory to start with an empty cache");
  if (code)
    return failed(code.value(), "cannot list the directory " + quoted(path));
  return {};
}

tl::unexpected<error> other_schema(const std::string& found, const fs::path& path) {
  if (!found.starts_with(schema_title))
    return not_ours(path);
  auto theirs = found.substr(schema_title.size());
  theirs.erase(std::min(theirs.find('\n'), theirs.size()));
  return fail(errc::identity_mismatch, "the metadata store in " + quoted(path) + " has " + theirs +
                                           ", this build reads and writes schema " + std::to_string(schema_version) +
                                           "; run the build that made it, or delete the directory to start with an "
                                           "empty cache");
}

result<void> judge_marker(int marker, const fs::path& path) {
  const auto found = read_marker(marker, path);
  if (!found)
    return tl::unexpected(found.error());
  if (*found == marker_text())
    return {};
  std::error_code code;
  // An earlier creation of the directory was interrupted.
  if (marker_text().starts_with(*found) && !fs::exists(path / current_name, code))
    return write_marker(marker, path);
  return other_schema(*found, path);
}

} // namespace

store_directory::store_directory(fs::path path, unique_descriptor marker) noexcept
    : path_(std::move(path)), marker_(std::move(marker)) {}

result<bool> store_directory::check(const fs::path& path) {
  std::error_code code;
  if (!fs::exists(path / marker_name, code) || !fs::exists(path / current_name, code))
    return false;
  const unique_descriptor marker(::open((path / marker_name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!marker)
    return failed(errno, "cannot open " + quoted(path / marker_name));
  const auto found = read_marker(marker.get(), path);
  if (!found)
    return tl::unexpected(found.error());
  if (*found != marker_text())
    return other_schema(*found, path);
  return true;
}

result<store_directory> store_directory::open(const fs::path& path) {
  std::error_code code;
  const auto full = fs::absolute(path, code).lexically_normal();
  if (code || path.empty())
    return fail(errc::invalid_argument, quoted(path) + " cannot be the directory of a metadata store");
  if (auto made = make_directories(full); !made)
    return tl::unexpected(std::move(made).error());
  if (!fs::exists(full / marker_name, code) && !code && !fs::is_empty(full, code) && !code)
    return not_ours(full);
  if (code)
    return failed(code.value(), "cannot read the directory " + quoted(full));
  unique_descriptor marker(::open((full / marker_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!marker)
    return failed(errno, "cannot open " + quoted(full / marker_name));
  if (::flock(marker.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return fail(errc::busy, "the metadata store in " + quoted(full) +
                                  " is open already; stop the node that uses it, or give this one another directory");
    return failed(errno, "cannot lock " + quoted(full / marker_name));
  }
  if (auto ours = judge_marker(marker.get(), full); !ours)
    return tl::unexpected(std::move(ours).error());
  if (auto sound = check_files(full); !sound)
    return tl::unexpected(std::move(sound).error());
  return store_directory(full, std::move(marker));
}

} // namespace troupe::store
