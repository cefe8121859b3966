#include "tests/lmcache_transfers/node_model.hpp"

#include <algorithm>

namespace troupe::lmcache_transfers {

namespace {

location notified(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

} // namespace

reserve_reply node_model::reserve(const reserve_request& x, timestamp now) {
  reserve_reply out;
  for (const auto& key : x.keys.items) {
    auto known = index_.find(key);
    if (known != index_.end() && known->second.reserved && known->second.until <= now) {
      index_.erase(known);
      known = index_.end();
    }
    if (known != index_.end()) {
      const auto& who = known->second.reserved;
      out.results.items.push_back(!who               ? notified(errc::exists)
                                  : *who == x.ticket ? notified(errc::ok, known->second.where)
                                                     : notified(errc::busy));
      continue;
    }
    const slot_ref where{0, ++last_generation_};
    index_[key] = {where, x.ticket, later(now, x.expires_in), std::nullopt};
    out.results.items.push_back(notified(errc::ok, where));
  }
  return out;
}

finish_reply node_model::commit(const finish_request& x, timestamp now) {
  finish_reply out;
  for (const auto& page : x.pages.items) {
    const auto known = index_.find(page.key);
    const bool is_there = known != index_.end() && known->second.where == page.where;
    const bool again = is_there && !known->second.reserved;
    const bool may = is_there && known->second.reserved == x.ticket && known->second.until > now && known->second.at;
    if (may)
      known->second.reserved.reset();
    out.results.items.push_back(static_cast<std::uint8_t>(may || again ? errc::ok : errc::expired));
  }
  return out;
}

void node_model::abort(const finish_request& x) {
  for (const auto& page : x.pages.items)
    if (const auto known = index_.find(page.key);
        known != index_.end() && known->second.where == page.where && known->second.reserved == x.ticket)
      index_.erase(known);
}

locate_reply node_model::locate(const locate_request& x) const {
  locate_reply out;
  for (const auto& key : x.keys.items) {
    const auto known = index_.find(key);
    const bool is_there = known != index_.end() && !known->second.reserved;
    out.locations.items.push_back(is_there ? notified(errc::ok, known->second.where) : notified(errc::not_found));
  }
  return out;
}

void node_model::invalidate(const invalidate_request& x) {
  for (const auto& page : x.pages.items)
    if (const auto known = index_.find(page.key); known != index_.end() && known->second.where == page.where)
      index_.erase(known);
}

// A frame is free when nothing is pinned there, and no page lies there.
std::optional<std::size_t> node_model::free_frame() const {
  for (std::size_t i = 0; i < frames_.size(); ++i)
    if (frames_[i].pins == 0 && std::ranges::none_of(index_, [i](const auto& x) { return x.second.at == i; }))
      return i;
  return std::nullopt;
}

frame_reply node_model::place(owner_id owner, const frame_request& x) {
  frame_reply out;
  pin made{owner, {}, x.pages.items, true};
  for (std::size_t i = 0; i < x.pages.size(); ++i) {
    const auto at = free_frame();
    made.frames.push_back(at);
    if (!at) {
      out.frames.items.push_back({0, static_cast<std::uint32_t>(errc::full), 0});
      continue;
    }
    frames_[*at].pins = 1;
    out.frames.items.push_back({*at * frame_bytes, 0, 0});
    out.pin = last_pin_ + 1;
  }
  if (out.pin != 0)
    pins_[++last_pin_] = std::move(made);
  return out;
}

frame_reply node_model::fetch(owner_id owner, const frame_request& x) {
  frame_reply out;
  pin made{owner, {}, x.pages.items, false};
  for (const auto& page : x.pages.items) {
    const auto known = index_.find(page.key);
    const bool is_there = known != index_.end() && known->second.where == page.where && known->second.at;
    made.frames.push_back(is_there ? known->second.at : std::nullopt);
    if (!is_there) {
      out.frames.items.push_back({0, static_cast<std::uint32_t>(errc::stale), 0});
      continue;
    }
    ++frames_[*known->second.at].pins;
    out.frames.items.push_back({*known->second.at * frame_bytes, 0, 0});
    out.pin = last_pin_ + 1;
  }
  if (out.pin != 0)
    pins_[++last_pin_] = std::move(made);
  return out;
}

void node_model::end(std::map<pin_number, pin>::iterator x) {
  for (const auto& at : x->second.frames)
    if (at)
      --frames_[*at].pins;
  pins_.erase(x);
}

io_reply node_model::fill(const fill_request& x) {
  io_reply out;
  const auto known = pins_.find(x.pin);
  for (std::size_t i = 0; i < x.gathered.size(); ++i) {
    auto code = static_cast<errc>(x.gathered[i]);
    if (known == pins_.end() || i >= known->second.pages.size() || !known->second.frames[i])
      code = errc::internal;
    if (code == errc::ok) {
      const auto& page = known->second.pages[i];
      const auto there = index_.find(page.key);
      if (there != index_.end() && there->second.where == page.where)
        there->second.at = known->second.frames[i];
      else
        code = errc::expired;
    }
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  }
  if (known != pins_.end())
    end(known);
  return out;
}

void node_model::unpin(pin_number x) {
  if (const auto known = pins_.find(x); known != pins_.end())
    end(known);
}

void node_model::leave(owner_id owner) {
  std::erase_if(index_, [owner](const auto& x) { return x.second.reserved && x.second.reserved->owner == owner; });
}

void node_model::rest(owner_id owner) {
  for (auto i = pins_.begin(); i != pins_.end();)
    if (auto at = i++; at->second.owner == owner)
      end(at);
}

void node_model::drop_oldest_pin() {
  if (!pins_.empty())
    end(pins_.begin());
}

bool node_model::is_pinned(owner_id owner, std::uint64_t offset) const {
  return std::ranges::any_of(pins_, [&](const auto& x) {
    return x.second.owner == owner && std::ranges::count(x.second.frames, std::optional(offset / frame_bytes)) > 0;
  });
}

std::size_t node_model::pins_of(owner_id owner) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(pins_, [owner](const auto& x) { return x.second.owner == owner; }));
}

match_reply node_model::match(const match_request& x) {
  match_reply out;
  for (const auto& key : x.keys.items) {
    const bool found = has(key);
    out.found.items.push_back(found ? 1 : 0);
    out.matched += found ? 1 : 0;
    if (found)
      leases_[x.lease].insert(key);
  }
  return out;
}

void node_model::release(const release_request& x) {
  const auto known = leases_.find(x.lease);
  if (known == leases_.end())
    return;
  std::erase_if(known->second, [&](const key_digest& key) {
    return std::ranges::find(x.retained.items, key) == x.retained.items.end();
  });
  if (known->second.empty())
    leases_.erase(known);
}

std::set<key_digest> node_model::held(const ticket& lease) const {
  const auto known = leases_.find(lease);
  return known == leases_.end() ? std::set<key_digest>{} : known->second;
}

bool node_model::is_held(const key_digest& key) const {
  return std::ranges::any_of(leases_, [&](const auto& x) { return x.second.contains(key); });
}

bool node_model::has(const key_digest& key) const {
  const auto known = index_.find(key);
  return known != index_.end() && !known->second.reserved;
}

bool node_model::evict(const key_digest& key) {
  const auto known = index_.find(key);
  if (known == index_.end() || known->second.reserved || !known->second.at || is_held(key) ||
      frames_[*known->second.at].pins > 0)
    return false;
  index_.erase(known);
  return true;
}

bool node_model::damage(const key_digest& key) {
  const auto known = index_.find(key);
  if (known == index_.end() || known->second.reserved || !known->second.at || frames_[*known->second.at].pins > 0)
    return false;
  ++frames_[*known->second.at].holds;
  return true;
}

} // namespace troupe::lmcache_transfers
