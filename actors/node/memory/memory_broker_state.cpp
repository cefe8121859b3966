#include "actors/node/memory/memory_broker_state.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// An extent without pages counts as older than all with pages.
constexpr auto unused = duration::max();

} // namespace

void memory_broker_state::add(holder x) {
  all_.try_emplace(x);
}

void memory_broker_state::remove(holder x, timestamp now) {
  const auto gone = all_.extract(x);
  if (gone.empty())
    return;
  end_service(gone.mapped().gives_for.value_or(0));
  std::erase(wishes_, x);
  for (auto& [who, other] : all_)
    if (other.gives_for == x)
      other.gives_for = 0;
  settle(now);
}

void memory_broker_state::notified(holder x, const report& what, timestamp now) {
  const auto found = all_.find(x);
  if (found == all_.end())
    return;
  auto& e = found->second;
  if (what.extents > e.said.extents)
    e.grown = now;
  e.said = what;
  if (what.wants) {
    e.wants_until = later(now, options_.wish_lasts);
    if (std::ranges::find(wishes_, x) == wishes_.end())
      wishes_.push_back(x);
  }
  settle(now);
}

duration memory_broker_state::age(const entry& x, timestamp now) const noexcept {
  // A whole extent can be given away without a page.
  if (x.said.free_bytes >= options_.extent_bytes || !x.said.oldest_use)
    return x.said.extents > 0 ? unused : duration::zero();
  return std::max(now - *x.said.oldest_use, duration::zero());
}

bool memory_broker_state::may_give(holder who, const entry& x, holder to, timestamp now) const noexcept {
  return who != to && x.said.extents > 0 && !x.gives_for && now >= x.refused_until;
}

memory_broker_state::holder memory_broker_state::choose_giver(holder to, timestamp now) const {
  const auto& needy = all_.at(to);
  const auto own = age(needy, now);
  const auto rested = [&](const entry& x) { return now >= later(x.grown, options_.keep_at_least); };
  const auto clearly_older = [&](duration x) {
    return x == unused ? own != unused
                       : own != unused && x / options_.age_ratio >= own && x - own >= options_.age_margin;
  };
  // Returns the oldest of those that may be asked.
  const auto oldest = [&](auto may_ask) {
    holder best = 0;
    for (const auto& [who, x] : all_)
      if (may_give(who, x, to, now) && may_ask(x) && (best == 0 || age(x, now) > age(all_.at(best), now)))
        best = who;
    return best;
  };
  auto out = oldest([&](const entry& x) { return rested(x) && clearly_older(age(x, now)); });
  if (out == 0 && destitute(needy))
    out = oldest([](const entry& x) { return x.said.extents > 1; });
  if (out == 0 && destitute(needy))
    out = oldest(rested);
  return out;
}

memory_broker_state::holder memory_broker_state::next_in_need(timestamp now) const {
  holder out = 0;
  for (const auto who : wishes_) {
    const auto& x = all_.at(who);
    if (x.served || !wants(x, now))
      continue;
    if (destitute(x))
      return who;
    if (out == 0)
      out = who;
  }
  return out;
}

void memory_broker_state::settle(timestamp now) {
  std::erase_if(wishes_, [&](holder x) { return !wants(all_.at(x), now); });
  const auto ask = [&](bool destitute_ones) {
    for (const auto who : wishes_) {
      auto& x = all_.at(who);
      if (x.served || destitute(x) != destitute_ones)
        continue;
      const auto giver = choose_giver(who, now);
      if (giver == 0)
        continue;
      all_.at(giver).gives_for = who;
      x.served = true;
      orders_.push_back({giver, destitute_ones});
    }
  };
  ask(true);
  ask(false);
}

void memory_broker_state::end_service(holder x) {
  if (const auto found = all_.find(x); found != all_.end())
    found->second.served = false;
}

void memory_broker_state::pass_on(extent_number extent, holder preferred, timestamp now) {
  auto to = preferred;
  if (const auto found = all_.find(to); found == all_.end() || !wants(found->second, now))
    to = next_in_need(now);
  if (to == 0) {
    returns_.push_back(extent);
    return;
  }
  auto& x = all_.at(to);
  x.served = true;
  // The rank reports again if this is not enough.
  x.said.wants = false;
  std::erase(wishes_, to);
  assignments_.push_back({to, extent});
}

void memory_broker_state::given_back(holder from, extent_number extent, timestamp now) {
  holder preferred = 0;
  if (const auto found = all_.find(from); found != all_.end()) {
    auto& x = found->second;
    preferred = x.gives_for.value_or(0);
    x.gives_for.reset();
    x.said.extents -= std::min<std::uint32_t>(x.said.extents, 1);
    x.said.free_bytes -= std::min(x.said.free_bytes, options_.extent_bytes);
  }
  end_service(preferred);
  pass_on(extent, preferred, now);
  settle(now);
}

void memory_broker_state::refused(holder from, timestamp now) {
  const auto found = all_.find(from);
  if (found == all_.end())
    return;
  auto& x = found->second;
  x.refused_until = later(now, options_.refusal_lasts);
  end_service(x.gives_for.value_or(0));
  x.gives_for.reset();
  settle(now);
}

void memory_broker_state::accepted(const assignment& x, bool taken, timestamp now) {
  end_service(x.to);
  if (!taken) {
    pass_on(x.extent, 0, now);
  } else {
    ++moved_;
    if (const auto found = all_.find(x.to); found != all_.end())
      found->second.grown = now;
  }
  settle(now);
}

std::string memory_broker_state::check() const {
  for (const auto& [who, x] : all_)
    if (x.gives_for && *x.gives_for != 0 && !all_.at(*x.gives_for).served)
      return "holder " + std::to_string(who) + " gives for one that is not being served";
  for (const auto who : wishes_)
    if (!all_.contains(who) || std::ranges::count(wishes_, who) != 1)
      return "holder " + std::to_string(who) + " has a wish but is unknown, or has two wishes";
  return {};
}

} // namespace troupe
