#include "io/memory/arena_pool.hpp"

#include "base/log.hpp"
#include "base/processors.hpp"
#include "base/threads.hpp"
#include "io/memory/arena_name.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace troupe::io {

namespace {

/// The pause before a failed allocation is tried again.
constexpr auto host_pause = std::chrono::seconds(1);

} // namespace

std::uint32_t arena_pool::default_threads() noexcept {
  return std::clamp(usable_processors() / 4, 1U, 8U);
}

arena_pool::arena_pool(std::shared_ptr<arena> memory, std::uint32_t threads) : memory_(std::move(memory)) {
  facts_ = {memory_->bytes().size(), memory_->extent_bytes(), encode(memory_->name())};
  counts_.extents = facts_.bytes / facts_.extent_bytes;
  assigned_.resize(counts_.extents);
  for (std::uint32_t number = 0; number < counts_.extents; ++number) {
    fresh_.push_back(number);
    free_list_.expect(memory_->numa_node_of(number));
  }
  const auto most = std::min<std::uint64_t>(std::max(threads, 1U), counts_.extents);
  for (std::uint64_t i = 0; i < most; ++i) {
    try {
      threads_.emplace_back(named(thread_name("troupe-arena"), [this](const std::stop_token& stop) { provide(stop); }));
    } catch (const std::system_error&) {
      if (threads_.empty())
        throw;
      break; // the threads that started provide all of it
    }
  }
}

arena_pool::~arena_pool() {
  for (auto& x : threads_)
    x.request_stop();
}

void arena_pool::provide(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  bool refused = false;
  while (!fresh_.empty() && !stop.stop_requested()) {
    const auto number = fresh_.front();
    fresh_.pop_front();
    lock.unlock();
    const auto expected = memory_->numa_node_of(number);
    const auto provided = memory_->provide(number);
    const auto node = memory_->numa_node_of(number);
    lock.lock();
    free_list_.host_is_short(!provided);
    if (provided) {
      refused_ -= std::exchange(refused, false) ? 1U : 0U;
      free_list_.arrive(number, expected, node);
      ++counts_.ready;
      continue;
    }
    fresh_.push_front(number);
    refused_ += std::exchange(refused, true) ? 0U : 1U;
    refusal_ = provided.error().text;
    if (counts_.failed++ == 0)
      log::get("io")->warn("memory allocation failed: {}; retrying every second", provided.error().text);
    wake_.wait_for(lock, stop, host_pause, [] { return false; });
  }
  refused_ -= refused ? 1U : 0U;
}

result<extent> arena_pool::assign(std::optional<numa_node> wish) {
  const std::lock_guard lock(mutex_);
  const auto number = free_list_.take(wish);
  if (!number) {
    if (free_list_.expected() > 0)
      return fail(errc::busy, "the memory of the arena is still being allocated");
    return fail(errc::full, "all " + std::to_string(counts_.extents) + " extents of the arena are assigned");
  }
  assigned_[*number] = true;
  ++counts_.assigned;
  const auto offset = *number * facts_.extent_bytes;
  return extent{*number, offset, memory_->bytes().subspan(offset, facts_.extent_bytes)};
}

bool arena_pool::take_back(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (number >= assigned_.size() || !assigned_[number])
    return false;
  assigned_[number] = false;
  --counts_.assigned;
  free_list_.come_back(number, memory_->numa_node_of(number));
  return true;
}

std::uint32_t arena_pool::available() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(counts_.extents - counts_.assigned);
}

std::string arena_pool::refusal() const {
  const std::lock_guard lock(mutex_);
  return refused_ > 0 ? refusal_ : std::string();
}

extent_counts arena_pool::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

} // namespace troupe::io
