#include "actors/node/io_worker/extent_wish.hpp"

namespace troupe {

namespace {

constexpr duration extent_retry = std::chrono::seconds(1);
constexpr duration extent_soon = std::chrono::milliseconds(2);
constexpr duration extent_patience = std::chrono::milliseconds(100);

} // namespace

void extent_wish::added() noexcept {
  requested_ = false;
  on_its_way_ = false;
  next_ = timestamp::min();
}

void extent_wish::refused(bool on_its_way, timestamp now) noexcept {
  requested_ = false;
  // The wait is bounded, because a host that is short of memory may announce an extent for ever.
  if (on_its_way && !on_its_way_)
    due_ = now + extent_patience;
  on_its_way_ = on_its_way;
  next_ = now + (on_its_way ? extent_soon : extent_retry);
}

bool extent_wish::request_or_wait(timestamp now) noexcept {
  if (!may_request(now) && !(on_its_way_ && now < due_))
    return false;
  requested_ = may_request(now);
  return true;
}

} // namespace troupe
