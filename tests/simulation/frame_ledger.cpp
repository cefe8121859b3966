#include "tests/simulation/frame_ledger.hpp"

#include "io/page.hpp"
#include "tests/simulation/slot_text.hpp"

#include <algorithm>

namespace troupe::simulation {

namespace {

/// Messages inside the node pass between the check of a page and its write. What was corrupted earlier must be found.
constexpr auto check_takes = std::chrono::seconds(1);

} // namespace

frame_ledger::frame_ledger(environment& world, const std::vector<std::unique_ptr<disk>>& disks,
                           std::uint64_t slot_bytes)
    : world_(world), disks_(disks), slot_bytes_(slot_bytes) {}

void frame_ledger::begin(std::span<std::byte> memory, std::function<duration()> paused) {
  paused_ = std::move(paused);
  memory_ = memory;
  loans_.clear();
  frames_.clear();
  ranks_.assign(world_.p.ranks, {});
  known_.clear();
}

void frame_ledger::wrong(const std::string& property, rank_number rank, std::uint64_t offset,
                         const std::string& why) const {
  world_.fail(property, "rank " + std::to_string(rank) + ", frame at " + std::to_string(offset) + ": " + why);
}

// -- arena ------------------------------------------------------------------------------------------------------------

void frame_ledger::assigned(rank_number rank, std::uint64_t offset, std::uint64_t bytes) {
  loans_.push_back({rank, offset, bytes});
}

void frame_ledger::taken_back(rank_number rank, std::uint64_t offset, std::uint64_t bytes) {
  for (auto at = offset; at + slot_bytes_ <= offset + bytes; at += slot_bytes_) {
    seek(rank, at);
    const auto found = frames_.find(at);
    if (found != frames_.end() && !found->second.holders.empty())
      wrong("frames", rank, at, "its extent is taken back while a client has it pinned");
    if (found != frames_.end() && only_there(rank, found->second))
      wrong("dirty", rank, at,
            "its extent is taken back, and " + text_of(found->second.page.where) + " was in it, and is not on disk");
    for (const auto& d : disks_)
      if (d->uses(this->bytes(at)))
        wrong("frames", rank, at, "its extent is taken back while it is transferred");
  }
  const auto inside = [&](std::uint64_t at) { return at >= offset && at < offset + bytes; };
  std::erase_if(loans_, [&](const loan& x) { return x.offset == offset; });
  std::erase_if(frames_, [&](const auto& x) { return inside(x.first); });
  std::erase_if(ranks_[rank].where, [&](const auto& x) { return inside(x.second); });
}

bool frame_ledger::holds(rank_number rank, std::uint64_t offset, const page_ref& page) const {
  const io::page_identity is{world_.p.ns.id(), page.key, rank, page.where, world_.p.ns.geometry.page_bytes()};
  return io::verify_page(bytes(offset), is) == errc::ok;
}

bool frame_ledger::moved(rank_number rank, const page_ref& page, std::uint64_t to) {
  auto& r = ranks_[rank];
  const auto known = r.where.find(page.where);
  if (!r.may_move || !in_loan(rank, to).empty() || disks_[rank]->uses(bytes(to)))
    return false;
  if (!holds(rank, to, page) && !may_be_gone(rank, page.where) && !world_.p.bytes_at_risk())
    return false;
  frame now;
  now.is = content::read;
  if (known != r.where.end()) {
    auto& before = at(known->second);
    if (!before.holders.empty() || disks_[rank]->uses(bytes(known->second)) || before.is == content::placed)
      return false;
    now.is = before.is;
    now.corrupted = before.corrupted;
    now.corrupted_early = before.corrupted_early;
  } else if (!disks_[rank]->written(page.where) && !may_be_gone(rank, page.where)) {
    return false; // it was nowhere
  }
  seek(rank, to);
  auto& there = at(to);
  if (!there.holders.empty() || only_there(rank, there))
    return false;
  if (known != r.where.end())
    at(known->second) = {};
  if (const auto old = r.where.find(there.page.where); old != r.where.end() && old->second == to)
    r.where.erase(old);
  now.page = page;
  there = std::move(now);
  r.where[page.where] = to;
  world_.count("page was moved");
  return true;
}

void frame_ledger::seek(rank_number rank, std::uint64_t offset) {
  const auto found = frames_.find(offset); // also a page that may be lost: it may still be written
  if (!ranks_[rank].may_move || found == frames_.end() || found->second.is != content::filled ||
      disks_[rank]->written(found->second.page.where) || !seeking_.insert(offset).second)
    return;
  const auto page = found->second.page;
  for (bool found_it = false; const auto& x : loans_)
    for (auto to = x.offset; !found_it && x.rank == rank && to + slot_bytes_ <= x.offset + x.bytes; to += slot_bytes_) {
      const auto there = frames_.find(to);
      // The page there must have been moved as well, and is verified on the way.
      const bool taken = placing_.contains(to) || (there != frames_.end() && !there->second.holders.empty());
      found_it = to != offset && !taken && holds(rank, to, page) && moved(rank, page, to);
    }
  seeking_.erase(offset);
}

void frame_ledger::notice_moves(std::uint64_t offset) {
  for (const auto& x : loans_) {
    if (offset < x.offset || offset + slot_bytes_ > x.offset + x.bytes)
      continue;
    for (const auto& [where, at] : ranks_[x.rank].where)
      if (at != offset && only_there(x.rank, frames_.at(at)) && holds(x.rank, offset, frames_.at(at).page)) {
        moved(x.rank, page_ref(frames_.at(at).page), offset);
        return;
      }
  }
}

void frame_ledger::corrupted(std::uint64_t offset) {
  auto& f = at(offset);
  f.corrupted = world_.now() - paused_();
  f.corrupted_early |= f.is == content::placed;
  for (auto& r : ranks_)
    if (const auto found = r.where.find(f.page.where); found != r.where.end() && found->second == offset)
      r.damaged.insert(f.page.where);
}

std::string frame_ledger::in_loan(rank_number rank, std::uint64_t offset) const {
  for (const auto& x : loans_)
    if (offset >= x.offset && offset + slot_bytes_ <= x.offset + x.bytes) {
      if (x.rank != rank)
        return "it is in an extent that rank " + std::to_string(x.rank) + " was assigned";
      return (offset - x.offset) % slot_bytes_ == 0 ? "" : "no frame begins there";
    }
  return "it is in no assigned extent";
}

// -- io workers -------------------------------------------------------------------------------------------------------

bool frame_ledger::may_be_gone(rank_number rank, const slot_ref& where) const {
  const auto& r = ranks_[rank];
  return up_to(r.fencing, where) || r.damaged.contains(where);
}

bool frame_ledger::was_fenced(rank_number rank, const slot_ref& where, moment asked) const {
  const auto& r = ranks_[rank];
  return up_to(r.fenced, where) && r.fenced_at.at(where.slot) < asked;
}

std::pair<std::string, std::string> frame_ledger::may_take(rank_number rank, std::uint64_t offset,
                                                           const page_ref& page) const {
  if (auto bad = in_loan(rank, offset); !bad.empty())
    return {"frames", bad};
  const auto f = frames_.find(offset);
  if (f != frames_.end()) {
    const auto& old = f->second;
    for (const auto& x : old.holders)
      return {"frames",
              "it is given to " + text_of(page.where) + " while a client has it pinned for " + text_of(x.page.where)};
    if (old.is == content::filled && old.page.where != page.where && !may_be_gone(rank, old.page.where) &&
        !disks_[rank]->written(old.page.where))
      return {"dirty", "it is given to " + text_of(page.where) + ", and " + text_of(old.page.where) +
                           " was in it, and is not on disk"};
  }
  if (disks_[rank]->uses(bytes(offset)))
    return {"frames", "it is given to " + text_of(page.where) + " while the disk transfers it"};
  const auto& r = ranks_[rank];
  if (const auto other = r.where.find(page.where); other != r.where.end() && other->second != offset) {
    const auto& twin = frames_.at(other->second);
    if (!may_be_gone(rank, page.where) && !twin.holders.empty())
      return {"flights", text_of(page.where) + " lies in another frame already, which a client has pinned"};
    if (twin.is == content::filled && !may_be_gone(rank, page.where) && !disks_[rank]->written(page.where))
      return {"flights", text_of(page.where) + " lies in another frame already, and is not on disk"};
  }
  return {};
}

void frame_ledger::take(rank_number rank, std::uint64_t offset, const page_ref& page, content as) {
  seek(rank, offset);
  if (const auto [property, why] = may_take(rank, offset, page); !why.empty())
    wrong(property, rank, offset, why);
  auto& r = ranks_[rank];
  auto& f = at(offset);
  if (f.is != content::none) {
    if (f.page.where != page.where)
      left_memory(f.page);
    if (const auto old = r.where.find(f.page.where); old != r.where.end() && old->second == offset)
      r.where.erase(old);
  }
  f.is = as;
  f.page = page;
  f.corrupted.reset();
  f.corrupted_early = false;
  r.where[page.where] = offset;
}

void frame_ledger::check_reply(rank_number rank, const frame_request& x, const frame_reply& reply) const {
  if (reply.frames.size() != x.pages.size())
    world_.fail("answers", "rank " + std::to_string(rank) + ": frames for another number of pages");
  const bool any =
      std::any_of(reply.frames.begin(), reply.frames.end(), [](const page_frame& f) { return f.code() == errc::ok; });
  if (any != (reply.pin != 0))
    world_.fail("pins", "rank " + std::to_string(rank) + ": a pin of nothing, or frames without a pin");
  if (any && ranks_[rank].pins.contains(reply.pin))
    world_.fail("pins", "rank " + std::to_string(rank) + ": two pins have the same number");
}

void frame_ledger::add_pin(rank_number rank, owner_id owner, bool fetch, const frame_request& x,
                           const frame_reply& reply) {
  auto& r = ranks_[rank];
  if (reply.pin == 0 || r.resting.contains(owner))
    return;
  pin out{owner, fetch, {}, x.pages.items};
  for (std::size_t i = 0; i < reply.frames.size(); ++i) {
    if (reply.frames[i].code() != errc::ok) {
      out.offsets.emplace_back();
      continue;
    }
    const auto offset = reply.frames[i].offset;
    out.offsets.emplace_back(offset);
    at(offset).holders.push_back({reply.pin, owner, fetch, x.pages[i]});
    if (++r.pinned[owner] * slot_bytes_ > world_.p.pinned_pages * slot_bytes_)
      wrong("pins", rank, offset, "a client has more memory pinned than it may");
  }
  r.pins.emplace(reply.pin, std::move(out));
}

void frame_ledger::trace_reply(rank_number rank, const frame_request& x, const frame_reply& reply) const {
  if (!world_.verbose())
    return;
  for (std::size_t i = 0; i < std::min(reply.frames.size(), x.pages.size()); ++i)
    world_.trace("frame", {rank},
                 text_of(rank, x.pages[i].where) + ": " + std::string(to_string(reply.frames[i].code())) + " at " +
                     std::to_string(reply.frames[i].offset) + ", pin " + std::to_string(reply.pin));
}

void frame_ledger::placed(rank_number rank, owner_id owner, moment asked, const frame_request& x,
                          const frame_reply& reply) {
  check_reply(rank, x, reply);
  trace_reply(rank, x, reply);
  for (const auto& f : reply.frames)
    if (f.code() == errc::ok)
      placing_.insert(f.offset);
  for (std::size_t i = 0; i < std::min(reply.frames.size(), x.pages.size()); ++i) {
    const auto& f = reply.frames[i];
    world_.count("place", f.code());
    if (f.code() != errc::ok)
      continue;
    if (was_fenced(rank, x.pages[i].where, asked))
      wrong("fence", rank, f.offset, text_of(x.pages[i].where) + " is placed after its slot was fenced");
    take(rank, f.offset, x.pages[i], content::placed);
  }
  placing_.clear();
  if (!world_.failed())
    add_pin(rank, owner, false, x, reply);
}

void frame_ledger::fetched(rank_number rank, owner_id owner, moment asked, const frame_request& x,
                           const frame_reply& reply) {
  check_reply(rank, x, reply);
  trace_reply(rank, x, reply);
  for (std::size_t i = 0; i < std::min(reply.frames.size(), x.pages.size()); ++i) {
    const auto& f = reply.frames[i];
    if (f.code() != errc::ok) {
      world_.count("fetch", f.code());
      continue;
    }
    world_.count(f.promoted != 0 ? "fetch: from disk" : "fetch: in memory");
    const auto where = x.pages[i].where;
    if (was_fenced(rank, where, asked))
      wrong("fence", rank, f.offset, text_of(where) + " is returned to a reader after its slot was fenced");
    if (auto bad = in_loan(rank, f.offset); !bad.empty())
      wrong("frames", rank, f.offset, "it is returned to a reader, and " + bad);
    const auto place = ranks_[rank].where.find(where);
    const bool elsewhere = place == ranks_[rank].where.end() || place->second != f.offset;
    if (elsewhere)
      moved(rank, x.pages[i], f.offset);
    if (const auto found = ranks_[rank].where.find(where);
        found != ranks_[rank].where.end() && found->second != f.offset)
      wrong("flights", rank, f.offset,
            "it is returned to a reader of " + text_of(where) + ", which is in the frame at " +
                std::to_string(found->second));
    const auto known = frames_.find(f.offset);
    if (known == frames_.end() || known->second.page.where != where ||
        (known->second.is != content::filled && known->second.is != content::read))
      wrong("frames", rank, f.offset,
            "it is returned to a reader of " + text_of(where) + ", and has not got that page");
    if (world_.failed())
      return;
    if (disks_[rank]->reads_into(bytes(f.offset)))
      wrong("frames", rank, f.offset,
            text_of(where) + " is returned to a reader while it is being read into its frame");
    const io::page_identity is{world_.p.ns.id(), x.pages[i].key, rank, where, world_.p.ns.geometry.page_bytes()};
    if (!world_.p.bytes_at_risk() && io::verify_page(bytes(f.offset), is) != errc::ok)
      wrong("frames", rank, f.offset, text_of(where) + " is returned to a reader, and the frame holds something else");
  }
  add_pin(rank, owner, true, x, reply);
}

std::optional<frame_ledger::pin> frame_ledger::end_pin(rank_number rank, owner_id owner, pin_number number,
                                                       bool fetch) {
  auto& r = ranks_[rank];
  const auto found = r.pins.find(number);
  const bool right = found != r.pins.end() && found->second.owner == owner && found->second.fetch == fetch;
  r.ending[{owner, number}].push_back(right);
  if (!right)
    return std::nullopt;
  auto out = std::move(found->second);
  r.pins.erase(found);
  let_go(rank, number, out);
  return out;
}

void frame_ledger::let_go(rank_number rank, pin_number number, const pin& x) {
  auto& r = ranks_[rank];
  for (const auto& offset : x.offsets)
    if (offset) {
      auto& f = at(*offset);
      std::erase_if(f.holders, [&](const holder& h) { return h.pin == number; });
      if (up_to(r.fenced, f.page.where) && f.holders.empty())
        world_.count("orphaned frame is free");
      if (--r.pinned[x.owner] == 0)
        r.pinned.erase(x.owner);
    }
}

void frame_ledger::answered(rank_number rank, owner_id owner, pin_number number, bool ok, const char* what) {
  auto& r = ranks_[rank];
  const auto found = r.ending.find({owner, number});
  if (found == r.ending.end())
    return;
  const bool right = found->second.front();
  found->second.pop_front();
  if (found->second.empty())
    r.ending.erase(found);
  if (right != ok)
    world_.fail("pins", "rank " + std::to_string(rank) + ": a client says " + what + " of pin " +
                            std::to_string(number) +
                            (right ? ", which it has, and is refused" : ", which it does not have, without an error"));
}

void frame_ledger::fills(rank_number rank, owner_id owner, const fill_request& x) {
  auto ended = end_pin(rank, owner, x.pin, false);
  if (!ended)
    return;
  for (std::size_t i = 0; i < ended->offsets.size(); ++i) {
    const auto& offset = ended->offsets[i];
    if (!offset)
      continue;
    auto& f = at(*offset);
    const bool gathered = i < x.gathered.size() && x.gathered[i] == 0;
    if (f.page.where == ended->pages[i].where && f.is == content::placed)
      f.is = gathered ? content::filled : content::none;
    if (f.corrupted && gathered && f.page.where == ended->pages[i].where && holds(rank, *offset, f.page)) {
      f.corrupted.reset(); // the corrupted page has been overwritten by a gather since
      f.corrupted_early = false;
    }
    if (gathered && disks_[rank]->damaged())
      ranks_[rank].damaged.insert(f.page.where); // it may be refused
  }
  ended->ended = ++now_;
  ranks_[rank].filling[x.pin] = std::move(*ended);
}

void frame_ledger::filled(rank_number rank, owner_id owner, const fill_request& x,
                          const std::optional<io_reply>& reply) {
  answered(rank, owner, x.pin, reply.has_value(), "fill");
  auto node = ranks_[rank].filling.extract(x.pin);
  if (node.empty() || !reply)
    return;
  const auto& ended = node.mapped();
  for (std::size_t i = 0; i < ended.offsets.size(); ++i) {
    const auto code = i < reply->results.size() ? static_cast<errc>(reply->results[i]) : errc::internal;
    if (!ended.offsets[i])
      continue;
    const auto where = ended.pages[i].where;
    const bool gathered = i < x.gathered.size() && x.gathered[i] == 0;
    if (gathered)
      world_.count("fill", code);
    // The answer waits for the last page of the fill; another's slot may have been given back, and written, meanwhile.
    const bool still_there = !up_to(ranks_[rank].fenced, where);
    if (code == errc::ok && gathered && world_.p.memory.kind == tier::strict && still_there &&
        !disks_[rank]->written(where))
      wrong("commits", rank, *ended.offsets[i], text_of(where) + " is said to be stored, and is not on disk");
    if (code == errc::ok && was_fenced(rank, where, ended.ended))
      wrong("fills", rank, *ended.offsets[i], text_of(where) + " is said to be stored after its slot was fenced");
    if (code != errc::ok)
      ranks_[rank].damaged.insert(where);
  }
}

void frame_ledger::unpins(rank_number rank, owner_id owner, pin_number number) {
  end_pin(rank, owner, number, true);
}

void frame_ledger::unpinned(rank_number rank, owner_id owner, pin_number number, bool ok) {
  answered(rank, owner, number, ok, "unpin");
}

void frame_ledger::rests(rank_number rank, owner_id owner) {
  ranks_[rank].resting.insert(owner);
  auto& pins = ranks_[rank].pins;
  for (auto i = pins.begin(); i != pins.end();) {
    if (i->second.owner != owner) {
      ++i;
      continue;
    }
    world_.count("pin: ended with its client");
    let_go(rank, i->first, i->second);
    i = pins.erase(i);
  }
}

void frame_ledger::drops(rank_number rank, slot_ref where) {
  auto& r = ranks_[rank];
  const auto found = r.where.find(where);
  if (found != r.where.end() && !at(found->second).holders.empty())
    wrong("frames", rank, found->second, text_of(where) + " is dropped while a client has it pinned");
  r.damaged.insert(where);
}

void frame_ledger::fences(rank_number rank, std::span<const slot_ref> slots) {
  for (const auto& x : slots) {
    auto& least = ranks_[rank].fencing[x.slot];
    least = std::max(least, x.generation);
    if (const auto found = ranks_[rank].where.find(x);
        found != ranks_[rank].where.end() && !at(found->second).holders.empty())
      world_.count("fence: of a page that a client has pinned");
  }
}

void frame_ledger::fenced(rank_number rank, std::span<const slot_ref> slots) {
  for (const auto& x : slots) {
    auto& least = ranks_[rank].fenced[x.slot];
    least = std::max(least, x.generation);
    ranks_[rank].fenced_at[x.slot] = ++now_;
  }
}

void frame_ledger::lost(rank_number rank, slot_ref where) {
  if (disks_[rank]->damaged())
    ranks_[rank].damaged.insert(where);
  else
    world_.fail("dirty", text_of(rank, where) + " is said to be lost with its disk, which is sound");
}

// -- disks ------------------------------------------------------------------------------------------------------------

void frame_ledger::transfers(rank_number rank, const io::page_request& x) {
  const auto offset = static_cast<std::uint64_t>(x.data - memory_.data());
  if (x.data < memory_.data() || offset + slot_bytes_ > memory_.size() || x.length != slot_bytes_)
    return world_.fail("frames", "rank " + std::to_string(rank) + ": a transfer of what is no frame");
  if (auto bad = in_loan(rank, offset); !bad.empty())
    return wrong("frames", rank, offset, "the disk transfers it, and " + bad);
  if (x.op == io::operation::read) {
    // The key is not part of the message; the receiver of the frame checks it.
    page_ref page;
    page.where = x.where;
    take(rank, offset, page, content::read);
    return;
  }
  if (const auto lies = ranks_[rank].where.find(x.where); lies != ranks_[rank].where.end() && lies->second != offset)
    moved(rank, page_ref(frames_.at(lies->second).page), offset);
  const auto known = frames_.find(offset);
  if (known == frames_.end() || known->second.page.where != x.where || known->second.is != content::filled)
    return wrong("frames", rank, offset, text_of(x.where) + " is written from there, and does not lie in it");
  const auto& f = known->second;
  const io::page_identity is{world_.p.ns.id(), f.page.key, rank, x.where, world_.p.ns.geometry.page_bytes()};
  const bool long_ago = f.corrupted && world_.now() - paused_() - *f.corrupted > check_takes;
  if ((f.corrupted_early || long_ago) && io::verify_page(bytes(offset), is) != errc::ok)
    wrong("checks", rank, offset, text_of(x.where) + " is written, and was corrupted long before");
}

// -- clients ----------------------------------------------------------------------------------------------------------

std::string frame_ledger::copies(rank_number rank, const copy_order& order, bool scatter) const {
  for (const auto& item : order.items) {
    const auto found = frames_.find(item.frame_offset);
    const auto name = "the frame at " + std::to_string(item.frame_offset) + " for " + text_of(rank, item.where);
    if (found == frames_.end() ||
        std::none_of(found->second.holders.begin(), found->second.holders.end(), [&](const holder& x) {
          return x.owner == order.owner && x.fetch == scatter && x.page.where == item.where && x.page.key == item.key;
        }))
      return std::string(scatter ? "scatters out of " : "gathers into ") + name + ", which it has not pinned for that";
    const auto at = memory_.subspan(item.frame_offset, slot_bytes_);
    if (scatter ? disks_[rank]->reads_into(at) : disks_[rank]->uses(at))
      return "moves bytes in " + name + ", which the disk transfers";
  }
  return {};
}

std::string frame_ledger::late_copy(rank_number rank, owner_id owner, std::uint64_t offset) const {
  if (!knows(owner))
    return {};
  const auto found = frames_.find(offset);
  if (found != frames_.end() && std::any_of(found->second.holders.begin(), found->second.holders.end(),
                                            [&](const holder& x) { return x.owner == owner; }))
    return {};
  return "rank " + std::to_string(rank) + ", frame at " + std::to_string(offset) +
         ": the device of a killed process still writes there without a pin";
}

std::string frame_ledger::stored(rank_number rank, slot_ref where) const {
  if (disks_[rank]->written(where) || may_be_gone(rank, where))
    return {};
  if (world_.p.memory.kind == tier::strict)
    return "its write has not ended well";
  const auto found = ranks_[rank].where.find(where);
  const bool there = found != ranks_[rank].where.end() && frames_.at(found->second).is == content::filled;
  return there ? "" : "it is neither in memory nor on disk";
}

std::optional<std::pair<pin_number, owner_id>> frame_ledger::any_pin(rank_number rank, bool fetch,
                                                                     std::uint64_t random) const {
  std::vector<std::pair<pin_number, owner_id>> all;
  for (const auto& [number, x] : ranks_[rank].pins)
    if (x.fetch == fetch)
      all.emplace_back(number, x.owner);
  return all.empty() ? std::nullopt : std::optional(all[random % all.size()]);
}

std::optional<owner_id> frame_ledger::owner_of(rank_number rank, pin_number number) const {
  const auto found = ranks_[rank].pins.find(number);
  return found == ranks_[rank].pins.end() ? std::nullopt : std::optional(found->second.owner);
}

std::vector<std::pair<pin_number, owner_id>> frame_ledger::pins_on(rank_number rank, slot_ref where) const {
  std::vector<std::pair<pin_number, owner_id>> out;
  const auto found = ranks_[rank].where.find(where);
  if (found != ranks_[rank].where.end())
    for (const auto& x : frames_.at(found->second).holders)
      if (x.fetch)
        out.emplace_back(x.pin, x.owner);
  return out;
}

std::optional<std::uint64_t> frame_ledger::pinned_frame(rank_number rank) const {
  for (const auto& [number, x] : ranks_[rank].pins)
    for (const auto& offset : x.offsets)
      if (offset)
        return offset;
  return std::nullopt;
}

std::optional<std::uint64_t> frame_ledger::idle_frame(rank_number rank) const {
  if (ranks_[rank].may_move)
    return std::nullopt; // a page may have been moved there
  for (const auto& x : loans_)
    for (auto offset = x.offset; x.rank == rank && offset + slot_bytes_ <= x.offset + x.bytes; offset += slot_bytes_) {
      const auto found = frames_.find(offset);
      if ((found == frames_.end() || found->second.is == content::none || found->second.is == content::read) &&
          (found == frames_.end() || found->second.holders.empty()) && !disks_[rank]->uses(bytes(offset)))
        return offset;
    }
  return std::nullopt;
}

std::optional<page_ref> frame_ledger::any_unwritten(rank_number rank) const {
  for (const auto& [where, offset] : ranks_[rank].where)
    if (const auto& f = frames_.at(offset); f.is == content::filled && !disks_[rank]->written(where))
      return f.page;
  return std::nullopt;
}

std::optional<std::uint64_t> frame_ledger::unwritten_frame(std::uint64_t random) const {
  std::vector<std::uint64_t> all;
  for (const auto& x : loans_)
    for (auto i = frames_.lower_bound(x.offset); i != frames_.end() && i->first < x.offset + x.bytes; ++i)
      if ((i->second.is == content::filled || i->second.is == content::placed) &&
          !may_be_gone(x.rank, i->second.page.where) && !disks_[x.rank]->written(i->second.page.where))
        all.push_back(i->first);
  return all.empty() ? std::nullopt : std::optional(all[random % all.size()]);
}

std::optional<slot_ref> frame_ledger::unwritten_page(rank_number rank, std::uint64_t random) const {
  std::vector<slot_ref> all;
  for (const auto& [where, at] : ranks_[rank].where)
    if (only_there(rank, frames_.at(at)))
      all.push_back(where);
  return all.empty() ? std::nullopt : std::optional(all[random % all.size()]);
}

std::string frame_ledger::quiesced() const {
  for (rank_number rank = 0; rank < ranks_.size(); ++rank)
    for (const auto& [number, x] : ranks_[rank].pins)
      return "rank " + std::to_string(rank) + ": pin " + std::to_string(number) +
             (x.fetch ? " of pages that were fetched" : " of pages that were to be gathered") + " has not ended";
  return {};
}

} // namespace troupe::simulation
