#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace troupe {

/// Numbers for a device's events in this process. A message names the event to wait for by its number. Messages are
/// untrusted: a number that is not in the table is refused, whereas an address would be followed.
///
/// All functions may be called by several threads at once.
class device_event_table {
public:
  /// Returns a number for the event (`cudaEvent_t`), never 0 and never reused: the number of a removed event never
  /// names another one.
  std::uint64_t add(void* event);

  /// The event of that number. Error: `invalid_argument` if there is none.
  result<void*> find(std::uint64_t number) const;

  /// Makes the number invalid; an unknown one is ignored. Work that has begun may still wait for the event: it may be
  /// recorded anew, but must not be destroyed while a copy engine with this table runs.
  void remove(std::uint64_t number);

  /// The number of events.
  std::size_t size() const;

private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, void*> events_;
  std::uint64_t last_ = 0;
};

} // namespace troupe
