#include "http/slots/refusals.hpp"

#include <array>

namespace troupe::http::slots {

void refusals::note(std::string_view what, std::span<const std::uint8_t> codes) {
  std::array<std::uint64_t, errc_count> counts{};
  auto first = errc::ok;
  std::uint64_t refused = 0;
  for (const auto x : codes) {
    const auto code = errc_from_wire(x);
    if (code == errc::ok)
      continue;
    if (refused++ == 0)
      first = code;
    ++counts[static_cast<std::size_t>(code)];
  }
  if (refused == 0)
    return;
  for (std::size_t i = 0; counter_ && i < counts.size(); ++i)
    if (counts[i] > 0)
      counter_(static_cast<errc>(i), counts[i]);
  write(what, refused, first);
}

void refusals::note(std::string_view what, std::uint64_t count, errc why) {
  if (count == 0)
    return;
  if (counter_)
    counter_(why, count);
  write(what, count, why);
}

void refusals::write(std::string_view what, std::uint64_t count, errc first) {
  std::uint64_t since = 0;
  {
    std::lock_guard guard(mutex_);
    unlogged_ += count;
    const auto now = timestamp::clock::now();
    if (now < quiet_until_)
      return;
    quiet_until_ = later(now, log_interval);
    since = std::exchange(unlogged_, 0);
  }
  log_->warn("refused {} pages since the last such line, {} of them now: {}, the first with error {}", since, count,
             what, to_string(first));
}

} // namespace troupe::http::slots
