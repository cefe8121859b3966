#include "base/descriptors.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <sys/resource.h>
#include <utility>

namespace troupe {

namespace {

/// The store opens up to 512 files; the others are for slab files, actors, logs and short-lived files.
constexpr std::uint64_t kept_for_the_node = 512 + 128;
/// The minimum, however low the limit is.
constexpr std::uint64_t least_connections = 16;
/// A higher limit would cost memory in programs that iterate over all descriptors.
constexpr std::uint64_t enough_descriptors = std::uint64_t{1} << 20U;

std::atomic<std::uint64_t> set_aside{0};

} // namespace

std::uint32_t connections_within(std::uint64_t limit, std::uint64_t open, std::uint32_t spare,
                                 std::uint32_t wanted) noexcept {
  const auto taken = open + kept_for_the_node + spare;
  const auto room = std::max(limit > taken ? limit - taken : 0, least_connections);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, room));
}

result<descriptor_limit> raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return tl::unexpected(system_error(errno, "the limit of open files"));
  const auto reachable = std::min<rlim_t>(limit.rlim_max, enough_descriptors);
  if (limit.rlim_cur >= reachable)
    return descriptor_limit{limit.rlim_cur, limit.rlim_cur};
  const auto before = std::exchange(limit.rlim_cur, reachable);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return tl::unexpected(system_error(errno, "raising the limit of open files"));
  return descriptor_limit{before, limit.rlim_cur};
}

std::uint64_t open_descriptors() {
  std::error_code failure;
  const std::filesystem::directory_iterator all{"/proc/self/fd", failure};
  return failure ? 0 : static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

descriptors_set_aside::descriptors_set_aside(std::uint32_t count) noexcept : count_(count) {
  set_aside.fetch_add(count, std::memory_order_relaxed);
}

descriptors_set_aside::descriptors_set_aside(descriptors_set_aside&& other) noexcept
    : count_(std::exchange(other.count_, 0)) {}

descriptors_set_aside& descriptors_set_aside::operator=(descriptors_set_aside&& other) noexcept {
  std::swap(count_, other.count_);
  return *this;
}

descriptors_set_aside::~descriptors_set_aside() {
  set_aside.fetch_sub(count_, std::memory_order_relaxed);
}

std::uint64_t set_aside_descriptors() noexcept {
  return set_aside.load(std::memory_order_relaxed);
}

} // namespace troupe
