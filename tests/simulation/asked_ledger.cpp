#include "tests/simulation/asked_ledger.hpp"

#include "tests/simulation/slot_text.hpp"

#include <algorithm>

namespace troupe::simulation {

void asked_ledger::begin() {
  fetches_.clear();
  waiting_.clear();
  leases_.clear();
  ending_.clear();
  foreseen_.clear();
  asked_.clear();
  fetched_.clear();
}

void asked_ledger::fetches(rank_number rank, message_name by, std::span<const page_ref> pages) {
  for (const auto& x : pages) {
    const page_name page{rank, x.where};
    fetches_[by].push_back(page);
    ++waiting_[page];
    asked_.insert(page);
  }
}

void asked_ledger::fetched(message_name by, const frame_reply* reply) {
  const auto asked = fetches_.extract(by);
  if (asked.empty())
    return;
  const auto& pages = asked.mapped();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    drop(waiting_, pages[i]);
    if (reply != nullptr && i < reply->frames.size() && reply->frames[i].code() == errc::ok)
      fetched_.insert(pages[i]);
  }
}

void asked_ledger::notified(rank_number rank, const prefetch_request& x) {
  auto& lease = leases_[{rank, x.shard, x.lease}];
  for (std::size_t i = 0; i < x.pages.size(); ++i) {
    lease.emplace(x.first + i, x.pages[i].where);
    ++foreseen_[{rank, x.pages[i].where}];
    asked_.insert({rank, x.pages[i].where});
  }
}

void asked_ledger::ends(rank_number rank, message_name by, const prefetch_end& x) {
  const auto found = leases_.find({rank, x.shard, x.lease});
  if (found == leases_.end())
    return;
  auto& lease = found->second;
  for (auto i = lease.lower_bound(x.keep); i != lease.end(); i = lease.erase(i))
    ending_[by].emplace_back(rank, i->second);
  if (lease.empty())
    leases_.erase(found);
}

void asked_ledger::ended(message_name by) {
  const auto over = ending_.extract(by);
  if (!over.empty())
    for (const auto& page : over.mapped())
      drop(foreseen_, page);
}

std::string asked_ledger::may_transfer(rank_number rank, const io::page_request& x) const {
  if (x.where.slot >= world_.p.slots)
    return text_of(rank, x.where) + " is moved to or from the disk, which has no place for it";
  if (x.op == io::operation::read)
    return has_no_waiter(rank, x.where) && is_unforeseen(rank, x.where)
               ? text_of(rank, x.where) + " is read without a request under a valid lease"
               : "";
  return world_.p.memory.second_hit && !asked_.contains({rank, x.where})
             ? text_of(rank, x.where) + " is written without a request since it was saved"
             : "";
}

std::string asked_ledger::may_drop(rank_number rank, slot_ref where) const {
  // A page beyond the disk may lose its place if its rank loses memory.
  const bool displaced = where.slot >= world_.p.slots && world_.p.memory_moves();
  if (displaced)
    return ""; // a fetch that is under way finds no page; frames that are pinned are checked elsewhere
  if (!world_.p.memory.second_hit)
    return text_of(rank, where) + " is dropped although it has a place";
  return fetched_.contains({rank, where}) ? text_of(rank, where) + " is dropped while it is fetched" : "";
}

} // namespace troupe::simulation
