#pragma once

#include "events/page_book.hpp"
#include "events/page_record.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::events {

/// The media that events name, as vLLM names its own tiers.
inline constexpr const char* medium_memory = "CPU";
inline constexpr const char* medium_disk = "STORAGE";

/// Events in the order in which a batch lists them. Only the order of events of one page has a meaning, so others are
/// arranged: removals first; stored pages with their parents before them and their children right behind them, so that
/// a run of pages becomes one event.
std::vector<const page_event*> arranged(std::span<const page_event> events);

struct batch_head {
  /// Seconds since 1970.
  double time = 0;
  /// Begins with `AllBlocksCleared`.
  bool cleared = false;
  event_form form = event_form::map;
};

/// The MessagePack of a batch as vLLM 0.32 encodes it: an array of time, events and data-parallel rank. In arrays, the
/// fields of events have the order of vLLM's class. Pages without tokens are stored events with an empty list of them.
std::string batch_text(const batch_head& head, std::span<const page_event> events, const page_book& book);

} // namespace troupe::events
