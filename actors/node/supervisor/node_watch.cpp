#include "actors/node/supervisor/node_watch.hpp"

namespace troupe {

std::vector<std::string> node_watch::look(std::uint64_t dropped, timestamp now) {
  std::vector<std::string> changes;
  const auto limit = memory_->limit();
  note(trouble::memory_full, !memory_->has_room(1),
       std::to_string(memory_->used()) + " of " + std::to_string(limit) +
           " bytes of memory are in use, and the rest is kept for leases: new keys only take the places of old ones; "
           "raise registry.memory_bytes",
       changes);
  if (dropped > dropped_)
    last_drop_ = now;
  dropped_ = dropped;
  note(trouble::log_dropped, last_drop_ != timestamp{} && now - last_drop_ < log_memory,
       std::to_string(dropped) + " lines of the log were dropped since the start, the last within the last minute: "
                                 "nobody reads it fast enough, or it cannot be written",
       changes);
  if (gate_)
    note(trouble::claim_late, !gate_->is_shut() && !gate_->is_open(),
         "this node's claim on its data directory could not be renewed in time (storage.claim_lease): nothing is "
         "written "
         "there until it is; see whether the file system answers",
         changes);
  return changes;
}

void node_watch::note(trouble what, bool is_so, std::string text, std::vector<std::string>& changes) {
  if (is_so) {
    if (condition_->begins(what, 0, text))
      changes.push_back(std::move(text));
  } else if (condition_->ends(what, 0)) {
    changes.push_back("no longer: " + std::string(to_string(what)));
  }
}

} // namespace troupe
