#include "base/name_lookups.hpp"

#include "base/tcp_connect.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

result<name_lookups::addresses> name_lookups::ask(const std::string& name, question what, duration limit,
                                                  const std::function<bool()>& cancelled) {
  if (cancelled && cancelled())
    return fail(errc::cancelled, "cancelled");
  if (limit <= duration::zero())
    return fail(errc::timeout, "timed out");
  const auto until = later(std::chrono::steady_clock::now(), limit);
  auto& all = *shared_;
  std::unique_lock held(all.mutex);
  const auto may_join = [&] { return all.open.size() < threads_ || all.open.contains(name); };
  if (auto waited = wait(all, held, until, cancelled, may_join); !waited)
    return tl::unexpected<error>(std::move(waited.error()));
  const auto found = join(shared_, name, std::move(what));
  if (!found)
    return tl::unexpected<error>(found.error());
  if (auto waited = wait(all, held, until, cancelled, [&] { return (*found)->has_value(); }); !waited)
    return tl::unexpected<error>(std::move(waited.error()));
  return ***found;
}

result<name_lookups::lookup> name_lookups::join(const std::shared_ptr<shared>& all, const std::string& name,
                                                question what) {
  if (const auto open = all->open.find(name); open != all->open.end())
    return open->second;
  auto found = std::make_shared<std::optional<result<addresses>>>();
  auto thread = start_thread(thread_name("troupe-getaddr"), "the thread that resolves a name",
                             [all, name, found, what = std::move(what)] {
                               auto answer = what();
                               const std::lock_guard guard(all->mutex);
                               *found = std::move(answer);
                               all->open.erase(name);
                               all->changed.notify_all();
                             });
  if (!thread)
    return tl::unexpected<error>(std::move(thread.error()));
  thread->detach();
  all->open.emplace(name, found);
  return found;
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
