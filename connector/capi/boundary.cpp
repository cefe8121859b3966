#include "connector/capi/boundary.hpp"

#include "base/utf8.hpp"

#include <mutex>
#include <pthread.h>

namespace troupe::capi {

namespace {

// The header repeats the numbers of `errc`.
static_assert(errc_count == TROUPE_NO_MEMORY + 1, "a new code of errc needs its name in troupe.h");
template <errc Code, troupe_code Number>
constexpr bool same_number = static_cast<int>(Code) == static_cast<int>(Number);
static_assert(same_number<errc::ok, TROUPE_OK> && same_number<errc::not_found, TROUPE_NOT_FOUND> &&
              same_number<errc::exists, TROUPE_EXISTS> &&
              same_number<errc::invalid_argument, TROUPE_INVALID_ARGUMENT> &&
              same_number<errc::identity_mismatch, TROUPE_IDENTITY_MISMATCH> &&
              same_number<errc::corrupt, TROUPE_CORRUPT> && same_number<errc::timeout, TROUPE_TIMEOUT> &&
              same_number<errc::unreachable, TROUPE_UNREACHABLE> &&
              same_number<errc::shutting_down, TROUPE_SHUTTING_DOWN> &&
              same_number<errc::unsupported, TROUPE_UNSUPPORTED> && same_number<errc::internal, TROUPE_INTERNAL> &&
              same_number<errc::device_error, TROUPE_DEVICE_ERROR> && same_number<errc::no_memory, TROUPE_NO_MEMORY>);

std::atomic<std::uint64_t> forks{0};

/// The length of the text that fits, without a partial character.
std::size_t whole_characters(std::string_view text, std::size_t room) {
  if (text.size() <= room)
    return text.size();
  while (room > 0 && continues_character(text[room]))
    --room;
  return room;
}

} // namespace

std::int32_t report(const error& what, troupe_error* to) noexcept {
  // An error with the code ok is a defect, and reported as one.
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
    return fail(errc::unsupported, "the handle was made before this process was forked, and its threads exist only in "
                                   "the parent; connect again here");
  if (closed())
    return fail(errc::shutting_down, "the handle has been shut down");
  return {};
}

} // namespace troupe::capi
