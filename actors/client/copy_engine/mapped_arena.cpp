#include "actors/client/copy_engine/mapped_arena.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

/// How much host memory is mapped ahead of its use: 128 MiB of page tables, which cannot be swapped out. Each mapping
/// has its own.
constexpr std::uint64_t ahead_most = std::uint64_t{64} << 30U;

} // namespace

mapped_arena::mapped_arena(const arena_info& info, std::shared_ptr<io::shared_memory> memory,
                           std::shared_ptr<page_mover> mover)
    : info_(info), memory_(std::move(memory)), mover_(std::move(mover)),
      extents_((info.bytes + info.extent_bytes - 1) / info.extent_bytes) {}

mapped_arena::~mapped_arena() {
  ahead_ = {};
  for (std::size_t i = 0; i < extents_.size(); ++i)
    if (extents_[i].device == extent::knowledge::prepared)
      mover_->forget(bytes_of(i));
}

bool mapped_arena::is(const arena_info& info) const noexcept {
  return info.bytes == info_.bytes && info.extent_bytes == info_.extent_bytes && info.name.items == info_.name.items;
}

std::span<std::byte> mapped_arena::bytes(std::uint64_t offset, std::uint64_t length) const noexcept {
  if (offset >= info_.bytes)
    return {};
  const auto extent_end = std::min(info_.bytes, (offset / info_.extent_bytes + 1) * info_.extent_bytes);
  return extent_end - offset < length ? std::span<std::byte>{} : memory_->bytes().subspan(offset, length);
}

std::span<std::byte> mapped_arena::bytes_of(std::size_t number) const noexcept {
  const auto begin = number * info_.extent_bytes;
  return memory_->bytes().subspan(begin, std::min(info_.extent_bytes, info_.bytes - begin));
}

result<void> mapped_arena::prepare(std::uint64_t offset) {
  const auto number = static_cast<std::size_t>(offset / info_.extent_bytes);
  auto& it = extents_[number];
  std::unique_lock guard(mutex_);
  if (it.device == extent::knowledge::under_way) {
    tried_.wait(guard, [&] { return it.device != extent::knowledge::under_way; });
    if (it.device == extent::knowledge::none)
      return tl::unexpected(it.failure.value());
  }
  if (it.device == extent::knowledge::prepared)
    return {};
  it.device = extent::knowledge::under_way;
  guard.unlock();
  auto done = mover_->prepare(bytes_of(number));
  guard.lock();
  it.device = done ? extent::knowledge::prepared : extent::knowledge::none;
  it.failure = done ? std::nullopt : std::optional(done.error());
  guard.unlock();
  tried_.notify_all();
  return done;
}

void mapped_arena::prepare_ahead() {
  if (!mover_->preparing_takes_time())
    return;
  try {
    ahead_ =
        std::jthread(named(thread_name("troupe-device"), [this](const std::stop_token& stop) { prepare_all(stop); }));
  } catch (const std::system_error& e) {
    log::get("copy_engine")
        ->warn("{}; the first requests register the node's memory with the device, and take longer",
               no_thread("the thread that registers memory with the device", e.code().value()).text);
  }
}

void mapped_arena::prepare_all(const std::stop_token& stop) {
  const bool delays_calls = mover_->preparing_delays_calls();
  for (std::size_t i = 0; i < extents_.size() && !stop.stop_requested(); ++i) {
    if (mover_->would_allocate(bytes_of(i)))
      continue;
    if (!delays_calls && (i + 1) * info_.extent_bytes > ahead_most)
      return;
    const auto began = std::chrono::steady_clock::now();
    if (!prepare(i * info_.extent_bytes))
      return;
    if (!delays_calls)
      continue;
    const auto rest = 4 * (std::chrono::steady_clock::now() - began);
    std::unique_lock guard(mutex_);
    stopped_.wait_for(guard, stop, rest, [] { return false; });
  }
}

} // namespace troupe
