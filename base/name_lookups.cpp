#include "base/name_lookups.hpp"

#include "base/tcp_connect.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace troupe {

name_lookups::name_lookups(std::uint32_t threads) : shared_(std::make_shared<shared>()) {
  shared_->free = threads;
}

result<name_lookups::addresses> name_lookups::ask(question what, duration limit,
                                                  const std::function<bool()>& cancelled) {
  if (cancelled && cancelled())
    return fail(errc::cancelled, "cancelled");
  if (limit <= duration::zero())
    return fail(errc::timeout, "timed out");
  const auto until = later(std::chrono::steady_clock::now(), limit);
  auto& all = *shared_;
  const auto found = std::make_shared<std::optional<result<addresses>>>();
  std::unique_lock held(all.mutex);
  if (auto waited = wait(all, held, until, cancelled, [&] { return all.free > 0; }); !waited)
    return tl::unexpected<error>(std::move(waited.error()));
  --all.free;
  held.unlock();
  auto thread = start_thread(thread_name("troupe-getaddr"), "the thread that resolves a name",
                             [kept = shared_, found, what = std::move(what)] {
                               auto answer = what();
                               const std::lock_guard guard(kept->mutex);
                               *found = std::move(answer);
                               ++kept->free;
                               kept->changed.notify_all();
                             });
  held.lock();
  if (!thread) {
    ++all.free;
    all.changed.notify_all();
    return tl::unexpected<error>(std::move(thread.error()));
  }
  thread->detach();
  if (auto waited = wait(all, held, until, cancelled, [&] { return found->has_value(); }); !waited)
    return tl::unexpected<error>(std::move(waited.error()));
  return std::move(**found);
}

result<void> name_lookups::wait(shared& all, std::unique_lock<std::mutex>& held, timestamp until,
                                const std::function<bool()>& cancelled, const std::function<bool()>& is_over) {
  constexpr auto look_again = std::chrono::milliseconds(100);
  while (!is_over()) {
    if (cancelled && cancelled())
      return fail(errc::cancelled, "cancelled");
    const auto now = std::chrono::steady_clock::now();
    if (now >= until)
      return fail(errc::timeout, "timed out");
    // A time that far away would overflow in the library.
    all.changed.wait_until(held, std::min(until, now + (cancelled ? duration(look_again) : std::chrono::hours(1))));
  }
  return {};
}

} // namespace troupe
