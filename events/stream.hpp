#pragma once

#include "base/clock.hpp"
#include "events/batch_log.hpp"
#include "events/page_record.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::events {

/// A stream: the events of one topic.
struct stream {
  std::string topic;
  event_form form = event_form::map;
  batch_log log;
  /// Changes that are not in a batch yet.
  std::vector<page_event> pending{};
  /// Since when the oldest of them waits, and when the last batch was made.
  timestamp pending_since{};
  timestamp last_batch{};
  /// Those whose pages it is about.
  std::size_t namespaces = 0;
};

} // namespace troupe::events
