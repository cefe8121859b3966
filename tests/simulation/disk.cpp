#include "tests/simulation/disk.hpp"

#include "tests/simulation/slot_text.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

namespace troupe::simulation {

namespace {

constexpr std::uint64_t sector_bytes = 512;

} // namespace

disk::disk(environment& world, rank_number rank, std::uint64_t slot_bytes)
    : world_(world), random_(world.random.fork()), rank_(rank), slot_bytes_(slot_bytes),
      medium_(world.p.slots * slot_bytes), length_(medium_.size()), written_(world.p.slots), nothing_(slot_bytes) {}

disk::mishap disk::choose(io::operation op) {
  if (world_.winding_down)
    return mishap::none;
  const auto& f = world_.p.disk;
  if (random_.chance(f.hang))
    return mishap::hang;
  if (op == io::operation::read) {
    if (random_.chance(f.read_error))
      return mishap::error;
    return random_.chance(f.flipped_read) ? mishap::flipped : mishap::none;
  }
  if (random_.chance(f.write_error))
    return mishap::error;
  if (random_.chance(f.lost_write))
    return mishap::lost;
  return random_.chance(f.misdirected_write) ? mishap::misdirected : mishap::none;
}

void disk::check(const io::page_request& what, bool aside) {
  const auto where = what.where;
  for (const auto& [tag, t] : transfers_) {
    if (what.data < t.what.data + t.what.length && t.what.data < what.data + what.length)
      world_.fail("frames", "rank " + std::to_string(rank_) + ": a frame is in two transfers at a time, of " +
                                text_of(t.what.where) + " and of " + text_of(where));
    if (t.what.where.slot != where.slot || aside || t.aside)
      continue;
    if (t.what.where.generation != where.generation)
      world_.fail("transfers", "rank " + std::to_string(rank_) + ": " + text_of(where) + " is transferred while " +
                                   text_of(t.what.where) + " still is");
    else if (what.op == io::operation::write || t.what.op == io::operation::write)
      world_.fail("transfers", "rank " + std::to_string(rank_) + ": " + text_of(where) +
                                   " is written while it is read or written already");
    else
      world_.fail("flights", "rank " + std::to_string(rank_) + ": " + text_of(where) + " is read twice at a time");
  }
}

void disk::submit(const io::page_request& what, on_complete done, bool aside) {
  check(what, aside);
  const auto where = what.where;
  const bool write = what.op == io::operation::write;
  world_.trace(write ? "disk: write" : "disk: read", {rank_, where.slot, where.generation});
  transfer t{what, std::move(done), choose(what.op), aside, {}};
  auto takes = random_.skewed_time(std::chrono::microseconds(20), world_.p.disk_time);
  if (aside)
    takes = random_.time(std::chrono::microseconds(20), world_.p.io_deadline);
  // The engine cancels late transfers, and most disks release them then.
  if (world_.now() + takes > what.deadline)
    takes = what.deadline - world_.now() + random_.time(std::chrono::microseconds(1), std::chrono::milliseconds(2));
  if (t.wrong == mishap::hang)
    takes += random_.skewed_time(std::chrono::milliseconds(1), world_.p.hang_time);
  if (write)
    t.seen.resize(what.length);
  transfers_.emplace(what.tag, std::move(t));
  const auto ours = [this, tag = what.tag, epoch = epoch_](auto step) {
    return [this, tag, epoch, step] {
      if (epoch == epoch_)
        step(tag);
      else
        world_.schedule.idle();
    };
  };
  world_.schedule.after(random_.time(duration::zero(), takes),
                        ours([this](std::uint64_t tag) { touch(transfers_.at(tag), false); }));
  world_.schedule.after(takes, ours([this](std::uint64_t tag) { end(tag); }));
}

void disk::touch(transfer& t, bool second) {
  const auto half = t.what.length / 2;
  const auto begin = second ? half : 0;
  const auto bytes = second ? t.what.length - half : half;
  if (t.what.op == io::operation::write) {
    std::memcpy(t.seen.data() + begin, t.what.data + begin, bytes);
    return;
  }
  const auto from = offset_of(t) + begin;
  if (from < length_)
    std::memcpy(t.what.data + begin, medium_.data() + from, std::min(bytes, length_ - from));
}

void disk::end(std::uint64_t tag) {
  auto node = transfers_.extract(tag);
  auto& t = node.mapped();
  touch(t, true);
  const bool late = world_.now() >= t.what.deadline;
  auto status = errc::timeout;
  // A transfer that was cancelled may have been carried out nevertheless.
  if (!late || random_.one_in(2)) {
    const auto outcome = carry_out(t);
    status = late ? errc::timeout : outcome;
  } else if (t.what.op == io::operation::write && random_.one_in(2)) {
    store(t.seen, offset_of(t), true);
  }
  if (t.what.op == io::operation::write && status == errc::ok)
    written_[t.what.where.slot] = t.what.where.generation;
  world_.count(t.what.op == io::operation::write ? "disk write" : "disk read", status);
  world_.trace("disk: done", {rank_, t.what.where.slot, t.what.where.generation, static_cast<std::uint64_t>(status)});
  t.done({tag, status, 0});
}

errc disk::carry_out(transfer& t) {
  if (t.wrong == mishap::hang)
    world_.count("fault: slow transfer");
  if (t.what.op == io::operation::read)
    return read(t);
  switch (t.wrong) {
  case mishap::error:
    world_.count("fault: write error");
    store(t.seen, offset_of(t), true);
    return random_.one_in(2) ? errc::io_error : errc::no_space;
  case mishap::lost:
    world_.count("fault: lost write");
    return errc::ok;
  case mishap::misdirected:
    world_.count("fault: misdirected write");
    store(t.seen, random_.below(world_.p.slots) * slot_bytes_, false);
    return errc::ok;
  default:
    store(t.seen, offset_of(t), false);
    return errc::ok;
  }
}

errc disk::read(transfer& t) {
  if (t.wrong == mishap::error) {
    world_.count("fault: read error");
    return errc::io_error;
  }
  if (offset_of(t) + t.what.length > length_)
    return errc::slab_damaged;
  if (t.wrong == mishap::flipped) {
    world_.count("fault: flipped bit in a read");
    t.what.data[random_.below(t.what.length)] ^= std::byte{1} << random_.below(8);
  }
  return errc::ok;
}

void disk::store(std::span<const std::byte> bytes, std::uint64_t offset, bool torn) {
  for (std::uint64_t at = 0; at < bytes.size(); at += sector_bytes)
    if (!torn || random_.one_in(2))
      std::memcpy(medium_.data() + offset + at, bytes.data() + at, std::min(sector_bytes, bytes.size() - at));
  length_ = std::max(length_, offset + bytes.size());
}

void disk::crash() {
  ++epoch_;
  std::vector<std::uint64_t> tags;
  for (const auto& [tag, t] : transfers_)
    tags.push_back(tag);
  std::sort(tags.begin(), tags.end());
  for (const auto tag : tags) {
    auto& t = transfers_.at(tag);
    if (t.what.op == io::operation::read || random_.one_in(3))
      continue;
    touch(t, true);
    const bool torn = random_.one_in(2);
    store(t.seen, offset_of(t), torn);
    world_.count(torn ? "fault: torn write" : "fault: write outlives the node");
  }
  transfers_.clear();
  std::fill(written_.begin(), written_.end(), 0);
}

void disk::flip() {
  world_.count("fault: flipped bit on disk");
  medium_[random_.below(medium_.size())] ^= std::byte{1} << random_.below(8);
}

void disk::truncate() {
  world_.count("fault: truncated slab");
  length_ = random_.below(medium_.size());
  std::fill(medium_.begin() + static_cast<std::ptrdiff_t>(length_), medium_.end(), std::byte{});
  damaged_ = true;
}

void disk::replace() {
  std::fill(medium_.begin(), medium_.end(), std::byte{});
  length_ = medium_.size();
  damaged_ = false;
}

bool disk::uses(std::span<const std::byte> memory) const noexcept {
  for (const auto& [tag, t] : transfers_)
    if (memory.data() < t.what.data + t.what.length && t.what.data < memory.data() + memory.size())
      return true;
  return false;
}

bool disk::reads_into(std::span<const std::byte> memory) const noexcept {
  for (const auto& [tag, t] : transfers_)
    if (t.what.op == io::operation::read && memory.data() < t.what.data + t.what.length &&
        t.what.data < memory.data() + memory.size())
      return true;
  return false;
}

std::span<const std::byte> disk::content(slot_ref where) const noexcept {
  if (where.slot >= written_.size())
    return nothing_;
  return std::span(medium_).subspan(where.slot * slot_bytes_, slot_bytes_);
}

std::size_t disk::transfers_of(slot_ref where) const noexcept {
  std::size_t n = 0;
  for (const auto& [tag, t] : transfers_)
    n += !t.aside && t.what.where.slot == where.slot && t.what.where.generation <= where.generation ? 1 : 0;
  return n;
}

bool disk::is_promoted(slot_ref where) const noexcept {
  return std::any_of(transfers_.begin(), transfers_.end(), [&](const auto& x) {
    const auto& [tag, t] = x;
    return !t.aside && t.what.op == io::operation::read && t.what.where == where;
  });
}

std::size_t disk::in_flight() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(transfers_.begin(), transfers_.end(), [](const auto& x) { return !x.second.aside; }));
}

std::optional<slot_ref> disk::busiest_slot() const {
  std::map<slot_ref, std::size_t> transfers;
  for (const auto& [tag, t] : transfers_)
    if (!t.aside)
      ++transfers[t.what.where];
  const auto most = std::max_element(transfers.begin(), transfers.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == transfers.end() ? std::nullopt : std::optional(most->first);
}

} // namespace troupe::simulation
