#include "actors/node/io_worker/prefetch_queue.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::size_t prefetch_queue::add(const lease_of_shard& by, std::uint32_t first, std::span<const page_ref> pages) {
  const auto room = std::min(pages.size(), waiting_max_ - waiting_);
  if (room == 0)
    return pages.size();
  const auto x = wishes_.try_emplace(by).first;
  if (x->second.waiting.empty()) {
    x->second.turn = ++last_turn_;
    by_turn_.emplace(x->second.turn, x);
  }
  for (std::size_t i = 0; i < room; ++i)
    x->second.waiting.push_back({first + static_cast<std::uint32_t>(i), pages[i]});
  waiting_ += room;
  return pages.size() - room;
}

const page_ref& prefetch_queue::front() const {
  return by_turn_.begin()->second->second.waiting.front().page;
}

prefetch_queue::item prefetch_queue::take_front(wishes::iterator x) {
  const auto out = x->second.waiting.front();
  x->second.waiting.pop_front();
  --waiting_;
  if (x->second.waiting.empty())
    by_turn_.erase(x->second.turn);
  return out;
}

void prefetch_queue::skip() {
  const auto x = by_turn_.begin()->second;
  take_front(x);
  settle(x);
}

void prefetch_queue::begin(frame_number f) {
  const auto x = by_turn_.begin()->second;
  const auto taken = take_front(x);
  x->second.brought.emplace(taken.place, f);
  frames_.emplace(f, brought_page{x->first, taken.place});
}

void prefetch_queue::settle(wishes::iterator x) {
  if (x->second.waiting.empty() && x->second.brought.empty())
    wishes_.erase(x);
}

bool prefetch_queue::remove(frame_number f) {
  const auto found = frames_.find(f);
  if (found == frames_.end())
    return false;
  const auto x = wishes_.find(found->second.by);
  x->second.brought.erase({found->second.place, f});
  frames_.erase(found);
  settle(x);
  return true;
}

void prefetch_queue::moved(frame_number from, frame_number to) {
  auto node = frames_.extract(from);
  if (node.empty())
    return;
  const auto& [by, place] = node.mapped();
  auto& brought = wishes_.find(by)->second.brought;
  brought.erase({place, from});
  brought.emplace(place, to);
  node.key() = to;
  frames_.insert(std::move(node));
}

std::size_t prefetch_queue::cut(wishes::iterator x, std::uint32_t keep) {
  auto& w = x->second;
  const auto before = w.waiting.size();
  std::erase_if(w.waiting, [&](const item& i) { return i.place >= keep; });
  const auto cut = before - w.waiting.size();
  waiting_ -= cut;
  if (before > 0 && w.waiting.empty())
    by_turn_.erase(w.turn);
  for (auto i = w.brought.lower_bound({keep, 0}); i != w.brought.end(); i = w.brought.erase(i))
    frames_.erase(i->second);
  settle(x);
  return cut;
}

std::size_t prefetch_queue::end(const lease_of_shard& by, std::uint32_t keep) {
  const auto found = wishes_.find(by);
  return found == wishes_.end() ? 0 : cut(found, keep);
}

std::size_t prefetch_queue::end_owner(owner_id owner) {
  std::size_t out = 0;
  for (auto i = wishes_.begin(); i != wishes_.end();) {
    const auto x = i++;
    if (x->first.lease.owner == owner)
      out += cut(x, 0);
  }
  return out;
}

std::size_t prefetch_queue::end_all() {
  const auto out = waiting_;
  wishes_.clear();
  by_turn_.clear();
  frames_.clear();
  waiting_ = 0;
  return out;
}

std::string prefetch_queue::check() const {
  std::size_t waiting = 0;
  std::size_t brought = 0;
  std::size_t with_turn = 0;
  for (const auto& [by, w] : wishes_) {
    waiting += w.waiting.size();
    brought += w.brought.size();
    with_turn += w.waiting.empty() ? 0 : 1;
    if (w.waiting.empty() && w.brought.empty())
      return "an empty entry is kept";
    if (!w.waiting.empty() && !by_turn_.contains(w.turn))
      return "an entry waits and has no turn";
    for (const auto& [place, f] : w.brought)
      if (const auto i = frames_.find(f); i == frames_.end() || i->second.by != by || i->second.place != place)
        return "frame " + std::to_string(f) + " is not recorded as read for its lease";
  }
  if (waiting != waiting_ || brought != frames_.size() || with_turn != by_turn_.size())
    return "the counts of promoted pages are wrong";
  return {};
}

} // namespace troupe
