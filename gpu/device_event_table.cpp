#include "gpu/device_event_table.hpp"

#include <string>

namespace troupe {

std::uint64_t device_event_table::add(void* event) {
  std::lock_guard guard(mutex_);
  events_.emplace(++last_, event);
  return last_;
}

result<void*> device_event_table::find(std::uint64_t number) const {
  std::lock_guard guard(mutex_);
  const auto i = events_.find(number);
  if (i == events_.end())
    return fail(errc::invalid_argument, "there is no event " + std::to_string(number) + ", or no more");
  return i->second;
}

void device_event_table::remove(std::uint64_t number) {
  std::lock_guard guard(mutex_);
  events_.erase(number);
}

std::size_t device_event_table::size() const {
  std::lock_guard guard(mutex_);
  return events_.size();
}

} // namespace troupe
