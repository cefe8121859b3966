#include "actors/node/supervisor/node_watch.hpp"

#include "base/size_text.hpp"

namespace troupe {

std::vector<std::string> node_watch::look(std::uint64_t dropped, timestamp now) {
  std::vector<std::string> changes;
  const auto limit = memory_->limit();
  note(trouble::memory_full, !memory_->has_room(1),
       size_text(memory_->used()) + " of " + size_text(limit) +
           " of memory are in use, and the rest is reserved for leases: new keys can only replace old ones; "
           "raise registry.memory_bytes",
       changes);
  if (dropped > dropped_)
    last_drop_ = now;
  dropped_ = dropped;
  note(trouble::log_dropped, last_drop_ != timestamp{} && now - last_drop_ < log_memory,
       std::to_string(dropped) + " lines of the log were dropped since the start, the last within the last minute: "
                                 "its reader is too slow, or it cannot be written",
       changes);
  note(trouble::claim_late, !gate_->is_shut() && !gate_->is_open(),
       "this node's claim on its data directory could not be renewed in time (storage.claim_lease): nothing is "
       "written there until it is; check whether the file system answers",
       changes);
  auto lack = lack_of_extents(now);
  const bool lacks = !lack.empty();
  note(trouble::memory_short, lacks, std::move(lack), changes);
  return changes;
}

std::string node_watch::lack_of_extents(timestamp now) {
  if (!extents_)
    return {};
  if (begun_ == timestamp{})
    begun_ = now;
  const auto counts = extents_->counts();
  const auto bytes = extents_->info().extent_bytes;
  const auto asked = " of the " + size_text(counts.extents * bytes) + " of memory.bytes";
  const auto effect = counts.ready == 0 ? "nothing can be saved, or loaded from a slab, until it does"
                                        : "fewer pages stay in memory than could";
  if (const auto why = extents_->refusal(); !why.empty())
    return "the host has provided " + size_text(counts.ready * bytes) + asked + ", and no more: " + why +
           "; the node retries every second, and " + effect;
  if (counts.ready == 0 && counts.extents > 0 && now - begun_ >= first_memory)
    return "the host has provided nothing" + asked + " since the start, and has not refused it either; " + effect;
  return {};
}

std::vector<std::string> node_watch::look(const places& of_clients) {
  std::vector<std::string> changes;
  const auto& x = of_clients;
  note(trouble::clients_full, x.disconnected > 0 && x.attached + x.disconnected >= x.most,
       "no new client can attach: " + std::to_string(x.disconnected) + " of " + std::to_string(x.most) +
           " places (io.max_clients) are taken by clients that have disconnected while their processes still run and "
           "may "
           "write to memory of the node; end these processes (" +
           x.processes + "), or raise io.max_clients",
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
