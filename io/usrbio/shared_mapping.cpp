#include "io/usrbio/shared_mapping.hpp"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <sys/stat.h>

namespace troupe::io::usrbio {

namespace {

/// A line of /proc/self/maps.
struct area {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;
  ino_t inode = 0;
  std::string path;
};

std::optional<area> parse(const std::string& line) {
  area out;
  std::uint64_t inode = 0;
  int at = 0;
  // begin-end flags offset device inode path
  if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %" SCNu64 " %n", &out.begin, &out.end,
                  &out.offset, &inode, &at) < 4)
    return std::nullopt;
  out.inode = static_cast<ino_t>(inode);
  if (at > 0)
    out.path = line.substr(static_cast<std::size_t>(at));
  return out;
}

constexpr std::string_view directory = "/dev/shm/";

} // namespace

// The kernel splits a mapping where parts are locked, bound to a node or advised about. The parts are adjacent, and
// each continues in the file where the previous one ends.
std::optional<shared_mapping> shared_mapping_of(std::span<const std::byte> memory) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto end = begin + memory.size();
  std::ifstream lines("/proc/self/maps");
  std::optional<area> first;
  auto reached = begin;
  for (std::string line; reached < end && std::getline(lines, line);) {
    const auto x = parse(line);
    if (!x || x->end <= reached)
      continue;
    if (x->begin > reached || !x->path.starts_with(directory))
      return std::nullopt;
    if (!first)
      first = x;
    else if (x->inode != first->inode || x->begin - x->offset != first->begin - first->offset)
      return std::nullopt;
    reached = x->end;
  }
  if (!first || reached < end)
    return std::nullopt;
  struct stat status {};
  // A deleted file has another name here, and a file that replaced it has another inode.
  if (::stat(first->path.c_str(), &status) != 0 || status.st_ino != first->inode)
    return std::nullopt;
  shared_mapping out;
  out.path = first->path;
  out.device = status.st_dev;
  out.inode = status.st_ino;
  out.bytes = static_cast<std::uint64_t>(status.st_size);
  out.base = reinterpret_cast<std::byte*>(first->begin - first->offset);
  return out;
}

bool make_private(const void* memory) {
  const auto found = shared_mapping_of({static_cast<const std::byte*>(memory), 1});
  if (!found)
    return true;
  struct stat status {};
  constexpr mode_t others = S_IRWXG | S_IRWXO;
  if (::stat(found->path.c_str(), &status) != 0 || (status.st_mode & others) == 0)
    return true;
  return ::chmod(found->path.c_str(), status.st_mode & S_IRWXU) == 0;
}

} // namespace troupe::io::usrbio
