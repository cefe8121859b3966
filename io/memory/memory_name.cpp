#include "io/memory/memory_name.hpp"

#include "base/hex.hpp"
#include "base/log.hpp"
#include "base/same_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <span>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "memory-name";
constexpr std::string_view prefix = "troupe-lmcache-";
constexpr std::size_t digits = 32;
constexpr std::size_t name_bytes = prefix.size() + digits;
constexpr mode_t private_file = S_IRUSR | S_IWUSR;

bool is_name(std::string_view text) {
  return text.size() == name_bytes && text.starts_with(prefix) &&
         text.find_first_not_of(hex_digits, prefix.size()) == std::string_view::npos;
}

std::string path_of(const std::string& name) {
  return "/" + name;
}

bool is_same(int a, int b) {
  struct stat one {};
  struct stat other {};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && is_same_file(one, other);
}

unique_descriptor open_name(const std::string& name) {
  return unique_descriptor(::shm_open(path_of(name).c_str(), O_RDWR | O_CLOEXEC, 0));
}

std::optional<std::string> name_in(const fs::path& file) {
  const unique_descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<char, name_bytes + 1> text{};
  if (!opened || ::read(opened.get(), text.data(), text.size()) != static_cast<ssize_t>(name_bytes))
    return std::nullopt;
  std::string out(text.data(), name_bytes);
  return is_name(out) ? std::optional(std::move(out)) : std::nullopt;
}

void remove_left_over(const std::string& name) {
  const auto opened = open_name(name);
  if (!opened)
    return;
  struct stat status {};
  if (::fstat(opened.get(), &status) != 0 || status.st_uid != ::geteuid())
    return;
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0)
    return log::get("node")->warn("/dev/shm/{} not removed: another node holds it, whose data_dir was copied here",
                                  name);
  ::shm_unlink(path_of(name).c_str());
}

result<std::string> drawn() {
  std::array<unsigned char, digits / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return tl::unexpected(system_error(errno, "cannot generate a name for memory"));
  std::string out(prefix);
  append_hex(out, std::as_bytes(std::span(bytes)));
  return out;
}

} // namespace

void remove_left_memory(const fs::path& directory) {
  if (const auto before = name_in(directory / file_name))
    remove_left_over(*before);
}

result<std::string> draw_memory_name(const fs::path& directory) {
  const auto file = directory / file_name;
  auto name = drawn();
  if (!name)
    return name;
  // The file is replaced as a whole: with half a name, the memory would never be removed.
  const auto next = file.string() + ".new";
  const unique_descriptor made(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, private_file));
  if (!made || ::write(made.get(), name->data(), name->size()) != static_cast<ssize_t>(name->size()) ||
      ::rename(next.c_str(), file.c_str()) != 0)
    return tl::unexpected(system_error(errno, "cannot write " + file.string()));
  return name;
}

result<held_memory_name> held_memory_name::hold(const std::string& name, int memory) {
  held_memory_name out;
  auto lock = open_name(name);
  if (!lock)
    return tl::unexpected(system_error(errno, "cannot open /dev/shm/" + name));
  if (!is_same(lock.get(), memory) || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(errc::busy, "/dev/shm/" + name + " was taken by another process while it was made");
  out.name_ = name;
  out.lock_ = std::move(lock);
  return out;
}

held_memory_name& held_memory_name::operator=(held_memory_name&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(lock_, other.lock_);
  return *this;
}

held_memory_name::~held_memory_name() {
  if (lock_ && is_there())
    ::shm_unlink(path_of(name_).c_str());
}

bool held_memory_name::is_there() const noexcept {
  if (!lock_)
    return true;
  struct stat named {};
  struct stat own {};
  std::array<char, sizeof "/dev/shm/" + name_bytes> path{};
  const auto end = std::copy_n("/dev/shm/", sizeof "/dev/shm/" - 1, path.begin());
  std::copy_n(name_.begin(), std::min(name_.size(), name_bytes), end);
  return ::stat(path.data(), &named) == 0 && ::fstat(lock_.get(), &own) == 0 && is_same_file(named, own);
}

} // namespace troupe::io
