#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace troupe {

/// Numbers for events of a device, in this process. What has to wait for an event names it in a message, and a message
/// may carry anything: a number that is not in the table is refused, where an address would be followed.
///
/// All functions may be called by several threads at once.
class device_event_table {
public:
  /// A number for the event (`cudaEvent_t`), never 0 and never given out again: who names an event that was removed
  /// does not get another one.
  std::uint64_t add(void* event);

  /// The event of that number; invalid_argument if there is none.
  result<void*> find(std::uint64_t number) const;

  /// From now on the number means nothing; one that never did is ignored. Work that has begun may still be about to
  /// wait for the event: it may be recorded anew, but must not be destroyed while a copy engine with this table works.
  void remove(std::uint64_t number);

  /// Events that can be found.
  std::size_t size() const;

private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, void*> events_;
  std::uint64_t last_ = 0;
};

} // namespace troupe
