#include "connector/capi/boundary.hpp"

#include <mutex>
#include <pthread.h>

namespace troupe::capi {

namespace {

std::atomic<std::uint64_t> forks{0};

/// As much of the text as fits, without half a character.
std::size_t whole_characters(std::string_view text, std::size_t room) {
  if (text.size() <= room)
    return text.size();
  while (room > 0 && (static_cast<unsigned char>(text[room]) & 0xc0U) == 0x80U)
    --room;
  return room;
}

} // namespace

std::int32_t report(const error& what, troupe_error* to) noexcept {
  // A defect that calls itself "ok" is none the less one.
  const auto code = what.code == errc::ok ? errc::internal : what.code;
  const auto number = static_cast<std::int32_t>(code);
  constexpr std::size_t before_text = offsetof(troupe_error, text);
  if (to == nullptr || to->size <= before_text)
    return number;
  const auto room = std::min<std::size_t>(to->size, sizeof(troupe_error)) - before_text - 1;
  const auto length = whole_characters(what.text, room);
  to->code = number;
  std::memcpy(to->text, what.text.data(), length);
  to->text[length] = '\0';
  return number;
}

std::uint64_t fork_generation() noexcept {
  return forks.load(std::memory_order_relaxed);
}

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }); });
}

result<void> handle::check() const {
  if (!is_of_this_process())
    return fail(errc::unsupported, "the handle was made before this process was forked, and its threads are in the "
                                   "other one: connect again here");
  if (closed())
    return fail(errc::shutting_down, "the handle has been shut down");
  return {};
}

} // namespace troupe::capi
