#include "actors/node/io_worker/slab_usage.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

/// The disk space of a sparse slab file, and the file system as a model.

namespace slab_usage_test {

namespace {

using namespace troupe;

constexpr std::uint64_t whole = 12288;
constexpr std::uint64_t encoded = 8192;

slab_usage::options options(std::uint64_t slots) {
  return {.slots = slots, .whole_bytes = whole, .encoded_bytes = encoded, .trims_max = 4};
}

/// Writes the page of the slot at once.
bool save(slab_usage& usage, slot_number slot, frame_size size) {
  usage.assign(slot, size);
  if (!usage.begin_write(slot))
    return false;
  usage.end_write(slot);
  return true;
}

std::size_t carry_out_trims(slab_usage& usage) {
  std::uint64_t tag = 1000;
  std::size_t done = 0;
  while (const auto x = usage.next_trim(tag)) {
    CHECK(usage.end_trim(tag++, true));
    ++done;
  }
  return done;
}

/// Three slots with encoded pages, in the space of two whole ones.
slab_usage full_of_encoded_pages() {
  slab_usage out(options(3));
  out.grant(2);
  for (slot_number slot = 0; slot < 3; ++slot)
    REQUIRE(save(out, slot, frame_size::encoded));
  carry_out_trims(out);
  return out;
}

} // namespace

TEST_CASE("slab usage: encoded pages leave room for more pages", "[slab_usage]") {
  slab_usage usage(options(1500));
  usage.grant(1000);
  CHECK(usage.room() == 1000);
  slot_number slot = 0;
  while (slot < usage.room()) {
    REQUIRE(save(usage, slot++, frame_size::encoded));
    carry_out_trims(usage);
    REQUIRE(usage.occupied_bytes() <= usage.granted_bytes());
  }
  // Three whole pages have the space of four and a half encoded ones; a little is kept for pages that are not encoded.
  CHECK(slot > 1480);
  CHECK(slot < 1500);
  CHECK(usage.check() == "");
}

TEST_CASE("slab usage: pages that cannot be encoded have all the space that was granted", "[slab_usage]") {
  slab_usage usage(options(1500));
  usage.grant(1000);
  for (slot_number slot = 0; slot < 1000; ++slot)
    REQUIRE(save(usage, slot, frame_size::whole));
  CHECK(usage.room() == 1000);
  CHECK(usage.occupied_bytes() == usage.granted_bytes());
  CHECK_FALSE(save(usage, 1000, frame_size::whole));
}

TEST_CASE("slab usage: the end of a slot is trimmed under an encoded page, once", "[slab_usage]") {
  slab_usage usage(options(10));
  usage.grant(5);
  usage.assign(3, frame_size::encoded);
  CHECK_FALSE(usage.next_trim(1));
  REQUIRE(usage.begin_write(3));
  CHECK_FALSE(usage.next_trim(1));
  usage.end_write(3);
  const auto end = usage.next_trim(1);
  REQUIRE(end);
  CHECK(end->slot == 3);
  CHECK(end->from == encoded);
  CHECK(end->bytes == whole - encoded);
  CHECK_FALSE(usage.next_trim(2));
  CHECK(usage.end_trim(1, true));
  CHECK_FALSE(usage.end_trim(1, true));
  usage.vacate(3);
  REQUIRE(save(usage, 3, frame_size::encoded));
  CHECK_FALSE(usage.next_trim(2));
  usage.vacate(3);
  REQUIRE(save(usage, 3, frame_size::whole));
  CHECK(usage.occupied_bytes() == whole);
  usage.vacate(3);
  REQUIRE(save(usage, 3, frame_size::encoded));
  CHECK(usage.occupied_bytes() == whole);
  CHECK(carry_out_trims(usage) == 1);
  CHECK(usage.occupied_bytes() == encoded);
}

TEST_CASE("slab usage: a write waits until free slots have been trimmed for it", "[slab_usage]") {
  auto usage = full_of_encoded_pages();
  CHECK(usage.occupied_bytes() == usage.granted_bytes());
  usage.vacate(0);
  usage.vacate(1);
  usage.assign(0, frame_size::whole);
  CHECK_FALSE(usage.begin_write(0));
  const auto freed = usage.next_trim(7);
  REQUIRE(freed);
  // Not the slot that has a page again.
  CHECK(freed->slot == 1);
  CHECK(freed->from == 0);
  CHECK(freed->bytes == whole);
  CHECK_FALSE(usage.next_trim(8));
  CHECK_FALSE(usage.begin_write(0));
  // The slot that is being trimmed may get a page, which is not written before that.
  usage.assign(1, frame_size::encoded);
  CHECK_FALSE(usage.begin_write(1));
  CHECK(usage.end_trim(7, true));
  CHECK(usage.begin_write(0));
  CHECK_FALSE(usage.begin_write(1));
  CHECK(usage.room() < 3);
  CHECK(usage.check() == "");
}

TEST_CASE("slab usage: a write that waits may find space that other writes give back", "[slab_usage]") {
  slab_usage usage(options(3));
  usage.grant(2);
  for (slot_number slot = 0; slot < 2; ++slot)
    REQUIRE(save(usage, slot, frame_size::whole));
  for (slot_number slot = 0; slot < 2; ++slot) {
    usage.vacate(slot);
    usage.assign(slot, frame_size::encoded);
  }
  usage.assign(2, frame_size::encoded);
  CHECK(usage.room() == 2);
  CHECK_FALSE(usage.begin_write(2));
  CHECK_FALSE(usage.next_trim(1));
  usage.take_change();
  for (slot_number slot = 0; slot < 2; ++slot)
    REQUIRE(save(usage, slot, frame_size::encoded));
  CHECK(carry_out_trims(usage) == 2);
  CHECK(usage.take_change());
  CHECK_FALSE(usage.take_change());
  CHECK(usage.begin_write(2));
  CHECK(usage.occupied_bytes() == usage.granted_bytes());
}

TEST_CASE("slab usage: a trim that fails leaves the slot as it was", "[slab_usage]") {
  auto usage = full_of_encoded_pages();
  usage.vacate(0);
  usage.vacate(1);
  usage.assign(0, frame_size::whole);
  REQUIRE_FALSE(usage.begin_write(0));
  REQUIRE(usage.next_trim(7));
  CHECK(usage.end_trim(7, false));
  CHECK(usage.occupied_bytes() == 3 * encoded);
  CHECK_FALSE(usage.begin_write(0));
  // It is not tried again and again, but later.
  CHECK_FALSE(usage.next_trim(8));
  usage.retry_trims();
  const auto again = usage.next_trim(8);
  REQUIRE(again);
  CHECK(again->slot == 1);
  CHECK(usage.end_trim(8, true));
  CHECK(usage.begin_write(0));
  CHECK(usage.check() == "");
}

TEST_CASE("slab usage: after a restart, slots count as used until they are vacated", "[slab_usage]") {
  const std::vector<std::uint64_t> occupied{whole, encoded, 0, 4096, encoded + 4096};
  slab_usage usage(options(8));
  usage.grant(4);
  usage.found(occupied, true);
  CHECK(usage.occupied_bytes() == 2 * whole + 2 * encoded);
  CHECK(usage.page_bytes() == usage.occupied_bytes());
  usage.vacate(0);
  CHECK(usage.page_bytes() == whole + 2 * encoded);
  CHECK(usage.occupied_bytes() == 2 * whole + 2 * encoded);
  slab_usage fresh(options(8));
  fresh.grant(4);
  fresh.found(occupied, false);
  CHECK(fresh.page_bytes() == 0);
  CHECK(fresh.room() == 4);
  CHECK(fresh.check() == "");
}

TEST_CASE("slab usage: the room is reported when it has changed, and when pages of an earlier run are known",
          "[slab_usage]") {
  slab_usage usage(options(8));
  usage.grant(4);
  usage.found(std::vector<std::uint64_t>{whole, encoded}, true);
  CHECK_FALSE(usage.take_changed_room());
  usage.vacate(0);
  CHECK_FALSE(usage.take_changed_room());
  usage.pages_are_known();
  CHECK(usage.take_changed_room() == usage.room());
  CHECK_FALSE(usage.take_changed_room());
  usage.grant(6);
  CHECK(usage.take_changed_room() == usage.room());
}

TEST_CASE("slab usage: slots that were granted occupy their space before they are written", "[slab_usage]") {
  slab_usage usage(options(6));
  const std::vector<io::slot_range> first{{0, 2}};
  usage.grant(2, first);
  CHECK(usage.occupied_bytes() == 2 * whole);
  // Slots without space of their own: the first of these finds none until that of a free one is freed.
  usage.assign(2, frame_size::encoded);
  CHECK_FALSE(usage.begin_write(2));
  CHECK(carry_out_trims(usage) == 1);
  CHECK(usage.take_change());
  CHECK(usage.begin_write(2));
  usage.end_write(2);
  CHECK(carry_out_trims(usage) == 1);
  const std::vector<io::slot_range> second{{3, 5}};
  usage.grant(4, second);
  CHECK(usage.occupied_bytes() == 3 * whole + encoded);
  REQUIRE(save(usage, 3, frame_size::encoded));
  CHECK(usage.occupied_bytes() == 3 * whole + encoded);
  carry_out_trims(usage);
  CHECK(usage.occupied_bytes() == 2 * whole + 2 * encoded);
  CHECK(usage.check() == "");
}

TEST_CASE("slab usage: a file that is not sparse admits everything", "[slab_usage]") {
  slab_usage usage({.slots = 8, .whole_bytes = whole});
  CHECK_FALSE(usage.enabled());
  CHECK(save(usage, 5, frame_size::whole));
  CHECK_FALSE(usage.next_trim(1));
}

namespace {

/// A file system with the slots of one file, an allocator, and pages that come and go: everything that the rules do not
/// decide, with the worst order that they allow.
class disk {
public:
  disk(std::uint64_t seed, std::uint64_t slots, std::uint64_t granted_max)
      : random_(seed), usage_(options(slots)), blocks_(slots), pages_(slots), granted_max_(granted_max) {
    grow();
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (i % 500 == 0)
        encoded_in_ten_ = static_cast<int>(random_() % 3) * 5;
      step();
      REQUIRE(usage_.check() == "");
      REQUIRE(occupied() <= granted_ * whole);
    }
  }

  /// All that waits is written in the end, provided that pages make room.
  void finish() {
    for (int rounds = 0; rounds < 10000 && !waiting_.empty(); ++rounds) {
      while (in_use() > usage_.room())
        evict();
      end_trims();
      end_writes();
      write();
    }
    REQUIRE(waiting_.empty());
  }

  std::size_t most() const noexcept { return most_; }

private:
  struct page {
    bool there = false;
    bool written = false;
    frame_size size = frame_size::whole;
  };

  std::uint64_t occupied() const {
    std::uint64_t sum = 0;
    for (const auto& x : blocks_)
      sum += x;
    return sum;
  }
  std::size_t in_use() const {
    return static_cast<std::size_t>(std::ranges::count_if(pages_, [](const page& x) { return x.there; }));
  }
  void step() {
    switch (random_() % 8) {
    case 0:
    case 1:
      return save();
    case 2:
      return write();
    case 3:
      return end_writes();
    case 4:
      return begin_trims();
    case 5:
      return end_trims();
    case 6:
      return in_use() > usage_.room() ? evict() : void();
    default:
      return random_() % 4 == 0 ? evict() : void();
    }
  }
  /// The file gets five more whole slots.
  void grow() {
    const std::vector<io::slot_range> given{{slots_, slots_ + 5}};
    std::fill_n(blocks_.begin() + static_cast<std::ptrdiff_t>(slots_), 5, whole);
    slots_ += 5;
    granted_ += 5;
    usage_.grant(granted_, given);
  }
  void save() {
    if (in_use() >= usage_.room())
      return granted_ < granted_max_ ? grow() : evict();
    std::vector<slot_number> free;
    for (slot_number slot = 0; slot < slots_; ++slot)
      if (!pages_[slot].there && !writes_.contains(slot))
        free.push_back(slot);
    if (free.empty()) {
      // Slots within the space that there is.
      slots_ = std::min<std::uint64_t>(std::max<std::uint64_t>(slots_, usage_.room()), pages_.size());
      return;
    }
    const auto slot = free[random_() % free.size()];
    const bool is_encoded = static_cast<int>(random_() % 10) < encoded_in_ten_;
    pages_[slot] = {true, false, is_encoded ? frame_size::encoded : frame_size::whole};
    usage_.assign(slot, pages_[slot].size);
    waiting_.push_back(slot);
    most_ = std::max(most_, in_use());
  }
  void write() {
    if (!usage_.take_change() && random_() % 4 != 0)
      return;
    for (std::size_t i = 0; i < waiting_.size();) {
      const auto slot = waiting_[i];
      if (!pages_[slot].there || pages_[slot].written) {
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (!usage_.begin_write(slot)) {
        ++i;
        continue;
      }
      REQUIRE_FALSE(writes_.contains(slot));
      for (const auto& [tag, x] : trims_)
        REQUIRE(x.slot != slot);
      pages_[slot].written = true;
      const auto bytes = pages_[slot].size == frame_size::encoded ? encoded : whole;
      blocks_[slot] = std::max(blocks_[slot], bytes);
      writes_[slot] = bytes;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    begin_trims();
  }
  void end_writes() {
    if (writes_.empty())
      return;
    const auto slot = writes_.begin()->first;
    writes_.erase(slot);
    usage_.end_write(slot);
  }
  void begin_trims() {
    while (const auto x = usage_.next_trim(++tag_)) {
      REQUIRE_FALSE(writes_.contains(x->slot));
      const auto& of = pages_[x->slot];
      // Bytes of a page that is there are never freed.
      if (of.there && of.written)
        REQUIRE((of.size == frame_size::encoded && x->from == encoded));
      trims_[tag_] = *x;
    }
  }
  void end_trims() {
    if (trims_.empty())
      return;
    auto i = trims_.begin();
    std::advance(i, static_cast<std::ptrdiff_t>(random_() % trims_.size()));
    const auto [tag, x] = *i;
    trims_.erase(i);
    const auto& of = pages_[x.slot];
    REQUIRE((!of.there || !of.written || (of.size == frame_size::encoded && x.from == encoded)));
    blocks_[x.slot] = std::min(blocks_[x.slot], x.from);
    REQUIRE(usage_.end_trim(tag, true));
  }
  void evict() {
    std::vector<slot_number> there;
    for (slot_number slot = 0; slot < pages_.size(); ++slot)
      if (pages_[slot].there)
        there.push_back(slot);
    if (there.empty())
      return;
    const auto slot = there[random_() % there.size()];
    pages_[slot].there = false;
    usage_.vacate(slot);
  }

  std::mt19937_64 random_;
  slab_usage usage_;
  std::vector<std::uint64_t> blocks_;
  std::vector<page> pages_;
  std::uint64_t granted_max_;
  /// Those that there are by now.
  std::uint64_t slots_ = 0;
  std::uint64_t granted_ = 0;
  std::vector<slot_number> waiting_;
  std::map<slot_number, std::uint64_t> writes_;
  std::map<std::uint64_t, slab_usage::trim> trims_;
  std::uint64_t tag_ = 0;
  int encoded_in_ten_ = 10;
  std::size_t most_ = 0;
};

} // namespace

TEST_CASE("slab usage: a file never occupies more than it was granted, whatever pages come", "[slab_usage][random]") {
  std::size_t most = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    disk d(seed, 45, 30);
    d.run(3000);
    d.finish();
    most = std::max(most, d.most());
  }
  CHECK(most > 40);
}

} // namespace slab_usage_test
