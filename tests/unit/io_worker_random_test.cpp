#include "actors/node/io_worker/io_worker_state.hpp"
#include "io/slab/beyond_slab.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

/// The rules of the io worker under random clients, a random slab and random deaths, with bytes. A fetched page must
/// equal the filled one while it is pinned, although other clients overwrite their own frames.

namespace io_worker_random_test {

namespace {

using namespace troupe;

constexpr std::uint64_t slot_bytes = 4096;
constexpr std::uint32_t slots = 24;
constexpr std::uint32_t frames_per_extent = 5;

/// The first bytes of a page: its slot and generation.
using mark = std::uint64_t;

constexpr mark garbage = ~mark{0};

constexpr mark mark_of(const slot_ref& x) noexcept {
  return (mark{x.slot} << 32U) | x.generation;
}

class world {
public:
  world(std::uint32_t seed, io_worker_options rules)
      : random_(seed), state_(rules), slab_slots_(static_cast<slot_number>(rules.slab_slots())),
        memory_only_(rules.memory_only), arena_(3 * extent_bytes), slab_(slots, garbage), pages_(slots) {
    for (slot_number slot = 0; slot < slots; ++slot)
      pages_[slot] = {{slot, 1}, status::free};
  }

  void step() {
    switch (draw(16)) {
    case 0:
    case 1:
    case 2:
      ask(false);
      break;
    case 3:
    case 4:
    case 5:
      ask(true);
      break;
    case 6:
    case 7:
      end_a_fill();
      break;
    case 8:
      end_a_read();
      break;
    case 9:
      give_slot_back();
      break;
    case 10:
      if (draw(6) == 0)
        die();
      else
        corrupt_memory();
      break;
    case 14:
      look_up();
      break;
    case 15:
      end_lookup();
      break;
    case 11:
      now_ += std::chrono::milliseconds(draw(400));
      state_.tick(now_);
      break;
    default:
      if (draw(3) == 0)
        empty();
      else
        move_bytes();
      break;
    }
    flush();
  }

  /// All that began ends.
  void end() {
    state_.drain(now_);
    flush();
    for (int i = 0; i < 2000 && !idle(); ++i) {
      for (int k = 0; k < 4; ++k)
        move_bytes();
      if (!fills_.empty())
        end_a_fill();
      if (!reads_.empty())
        end_a_read();
      for (const auto owner : std::exchange(dying_, {}))
        state_.owner_quiesced(owner, now_);
      now_ += std::chrono::milliseconds(100);
      state_.tick(now_);
      flush();
    }
    CHECK(idle());
    CHECK(state_.stats().pinned_frames == 0);
    CHECK(state_.stats().orphaned_frames == 0);
  }

  std::uint64_t pages_read() const noexcept { return pages_read_; }
  std::uint64_t from_slab() const { return state_.stats().read_pages; }
  std::uint64_t orphans() const noexcept { return orphans_; }
  io_stats stats() const { return state_.stats(); }

private:
  static constexpr std::uint64_t extent_bytes = frames_per_extent * slot_bytes + 512;

  enum class status : std::uint8_t { free, reserved, stored, fencing };
  struct slot_page {
    slot_ref where;
    status is = status::free;
  };
  struct asked {
    owner_id owner = 0;
    bool fetch = false;
    std::vector<page_ref> pages;
  };
  struct pinned {
    owner_id owner = 0;
    pin_number pin = 0;
    std::vector<page_ref> pages;
    std::vector<page_frame> frames;
  };

  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  bool idle() const {
    return asked_.empty() && fills_.empty() && reads_.empty() && fencing_.empty() && state_.quiesced() &&
           dying_.empty();
  }

  mark& at(std::uint64_t offset) { return *reinterpret_cast<mark*>(arena_.data() + offset); }

  static page_ref page_of(const slot_ref& x) { return {key_digest{x.slot, x.generation}, x}; }

  owner_id any_client() { return first_client_ + draw(3); }

  void ask(bool fetch) {
    asked x{any_client(), fetch, {}};
    const auto wanted = fetch ? status::stored : status::free;
    std::vector<slot_number> found;
    // As an allocator does, slots beyond the slab are granted only as far as there is memory.
    auto room = io::pages_beyond_slab(state_.frames().lasting(), slab_slots_);
    for (auto slot = slab_slots_; slot < slots; ++slot)
      room -= room > 0 && pages_[slot].is != status::free ? 1 : 0;
    for (slot_number slot = 0; slot < slots; ++slot) {
      const bool beyond = slot >= slab_slots_ && !memory_only_;
      if (pages_[slot].is != wanted || (!fetch && beyond && room == 0))
        continue;
      found.push_back(slot);
      room -= !fetch && beyond ? 1 : 0;
    }
    std::shuffle(found.begin(), found.end(), random_);
    found.resize(std::min<std::size_t>(found.size(), 1 + draw(4)));
    for (const auto slot : found) {
      if (!fetch)
        pages_[slot].is = status::reserved;
      x.pages.push_back(page_of(pages_[slot].where));
    }
    if (fetch && draw(20) == 0 && pages_[0].where.generation > 1)
      x.pages.push_back(page_of({0, pages_[0].where.generation - 1})); // an older generation
    frame_request work;
    work.pages.items = x.pages;
    work.patience = std::chrono::milliseconds(1 + draw(3000));
    const auto id = fetch ? state_.fetch(x.owner, work, now_) : state_.place(x.owner, work, now_);
    if (!id) {
      CHECK(id.error().code == errc::limit_exceeded);
      if (!fetch)
        for (const auto& page : x.pages)
          start_fence(page.where.slot);
      return;
    }
    asked_.emplace(*id, std::move(x));
  }

  void start_fence(slot_number slot) {
    pages_[slot].is = status::fencing;
    fencing_[state_.fence(std::array{pages_[slot].where}, now_)].push_back(slot);
  }

  void give_slot_back() {
    const auto slot = draw(slots);
    if (pages_[slot].is == status::reserved || pages_[slot].is == status::stored)
      start_fence(slot);
  }

  /// A shard reports the pages of a lookup.
  void look_up() {
    prefetch_request x{draw(2), {any_client(), ++last_lookup_}, draw(3), {}};
    for (slot_number slot = 0; slot < slots; ++slot)
      if (pages_[slot].is == status::stored && draw(3) == 0)
        x.pages.items.push_back(page_of(pages_[slot].where));
    state_.prefetch(x, now_);
    lookups_.push_back(x);
  }

  void end_lookup() {
    if (lookups_.empty())
      return;
    std::swap(lookups_[draw(static_cast<std::uint32_t>(lookups_.size()))], lookups_.back());
    const auto x = std::move(lookups_.back());
    if (draw(4) != 0)
      lookups_.pop_back();
    state_.end_prefetch({x.shard, x.lease, draw(3) == 0 ? draw(6) : 0}, now_);
  }

  void end_a_fill() {
    if (fills_.empty())
      return;
    std::swap(fills_[draw(static_cast<std::uint32_t>(fills_.size()))], fills_.back());
    const auto x = std::move(fills_.back());
    fills_.pop_back();
    fill_request work{x.pin, {}, std::chrono::seconds(1)};
    for (std::size_t i = 0; i < x.pages.size(); ++i) {
      const bool gathered = x.frames[i].code() == errc::ok && draw(8) != 0;
      if (gathered)
        at(x.frames[i].offset) = mark_of(x.pages[i].where);
      work.gathered.items.push_back(static_cast<std::uint8_t>(gathered ? errc::ok : errc::cancelled));
    }
    const auto id = state_.fill(x.owner, work, now_);
    REQUIRE(id);
    filling_.emplace(*id, x);
  }

  void end_a_read() {
    if (reads_.empty())
      return;
    std::swap(reads_[draw(static_cast<std::uint32_t>(reads_.size()))], reads_.back());
    const auto x = std::move(reads_.back());
    reads_.pop_back();
    check_bytes(x);
    REQUIRE(state_.unpin(x.owner, x.pin, now_));
  }

  void check_bytes(const pinned& x) {
    for (std::size_t i = 0; i < x.pages.size(); ++i)
      if (x.frames[i].code() == errc::ok) {
        ++pages_read_;
        REQUIRE(at(x.frames[i].offset) == mark_of(x.pages[i].where));
      }
  }

  /// Clients overwrite the frames that they have to fill, even when the slots were reassigned.
  void corrupt_memory() {
    for (const auto& x : fills_)
      for (const auto& f : x.frames)
        if (f.code() == errc::ok)
          at(f.offset) = garbage;
    orphans_ += state_.stats().orphaned_frames;
  }

  void die() {
    const auto owner = first_client_++;
    state_.owner_died(owner, now_);
    for (auto i = asked_.begin(); i != asked_.end();)
      i = i->second.owner == owner ? (forget(i->second), asked_.erase(i)) : std::next(i);
    const auto mine = [&](const pinned& x) { return x.owner == owner; };
    for (const auto& x : fills_)
      if (mine(x))
        for (const auto& page : x.pages)
          give_back(page);
    // A disconnected client continues to read and fill until it is quiesced.
    late_fills_.clear();
    std::copy_if(fills_.begin(), fills_.end(), std::back_inserter(late_fills_), mine);
    for (const auto& x : late_fills_)
      for (const auto& f : x.frames)
        if (f.code() == errc::ok)
          at(f.offset) = garbage;
    std::erase_if(fills_, mine);
    std::erase_if(reads_, mine);
    if (draw(2) == 0) {
      state_.owner_quiesced(owner, now_);
    } else {
      dying_.push_back(owner);
    }
  }

  void forget(const asked& x) {
    if (!x.fetch)
      for (const auto& page : x.pages)
        give_back(page);
  }

  void give_back(const page_ref& page) {
    auto& slot = pages_[page.where.slot];
    if (slot.where == page.where && slot.is == status::reserved)
      start_fence(page.where.slot);
  }

  void move_bytes() {
    if (!dying_.empty() && draw(10) == 0) {
      state_.owner_quiesced(dying_.front(), now_);
      dying_.erase(dying_.begin());
    }
    if (!checks_.empty() && draw(2) == 0) {
      std::swap(checks_[draw(static_cast<std::uint32_t>(checks_.size()))], checks_.back());
      const auto x = checks_.back();
      checks_.pop_back();
      const bool sound = at(x.offset) == mark_of(x.page.where);
      state_.checked(x.number, sound ? errc::ok : errc::corrupt, now_);
      return;
    }
    if (requests_.empty())
      return;
    std::swap(requests_[draw(static_cast<std::uint32_t>(requests_.size()))], requests_.back());
    const auto x = requests_.back();
    requests_.pop_back();
    auto& bytes = *reinterpret_cast<mark*>(x.data);
    const bool fails = draw(12) == 0;
    if (x.op == io::operation::write) {
      // Torn, if it fails.
      slab_[x.where.slot] = fails ? garbage : bytes;
    } else {
      bytes = fails ? garbage : slab_[x.where.slot];
      // A page that is being read must be in the slab.
      if (!fails && pages_[x.where.slot].where == x.where && pages_[x.where.slot].is == status::stored)
        REQUIRE(bytes == mark_of(x.where));
    }
    state_.complete(std::array{io::completion{x.tag, fails ? errc::io_error : errc::ok, 0}}, now_);
  }

  /// Starts the release of an extent, or continues it.
  void empty() {
    if (!state_.emptying())
      static_cast<void>(state_.begin_emptying(draw(4) == 0, std::chrono::milliseconds(draw(8000)), now_));
    if (memory_only_)
      give_slot_back(); // as shards do, where there are as many slots as frames
    state_.empty_some(now_);
  }

  /// The extent is no longer used here, and its next owner writes to it.
  void take_back(const io_worker_state::emptying_end& x) {
    if (x.code != errc::ok)
      return;
    const auto inside = [&](std::uint64_t offset) {
      return offset >= x.memory.offset && offset < x.memory.offset + extent_bytes;
    };
    for (const auto* all : {&fills_, &reads_})
      for (const auto& pin : *all)
        for (const auto& f : pin.frames)
          REQUIRE_FALSE((f.code() == errc::ok && inside(f.offset)));
    for (const auto& r : requests_)
      REQUIRE_FALSE(inside(static_cast<std::uint64_t>(r.data - arena_.data())));
    for (const auto& c : checks_)
      REQUIRE_FALSE(inside(c.offset));
    std::ranges::fill(x.memory.bytes, std::byte{0xee});
    arena_free_.push_back(x.memory.number);
  }

  void flush() {
    request_extents();
    // The slots of the listed pages are released.
    for (auto gone = state_.take_dropped(); !gone.empty(); gone = state_.take_dropped()) {
      for (const auto& page : gone)
        if (auto& slot = pages_[page.where.slot];
            slot.where == page.where && (slot.is == status::reserved || slot.is == status::stored))
          start_fence(page.where.slot);
      request_extents();
    }
    hand_on();
  }

  void request_extents() {
    while (state_.wants_extent()) {
      if (arena_free_.empty() || draw(3) == 0) {
        state_.no_extent(draw(3) == 0, now_);
        continue;
      }
      const auto number = arena_free_.back();
      arena_free_.pop_back();
      const auto offset = number * extent_bytes;
      state_.add_extent({number, offset, std::span(arena_).subspan(offset, extent_bytes), number}, now_);
    }
  }

  void hand_on() {
    for (auto& x : state_.take_requests()) {
      // Two transfers of one slot at once would race in the kernel.
      REQUIRE(x.where.slot < slab_slots_);
      REQUIRE(std::none_of(requests_.begin(), requests_.end(),
                           [&](const auto& y) { return y.where.slot == x.where.slot; }));
      requests_.push_back(x);
    }
    for (auto& x : state_.take_checks())
      checks_.push_back(x);
    for (auto& x : state_.take_frames())
      take(x);
    for (auto& x : state_.take_fills())
      take(x);
    for (const auto id : state_.take_fenced())
      for (const auto slot : std::exchange(fencing_[id], {})) {
        // Nothing touches it, and the next page may come.
        for (const auto& x : requests_)
          REQUIRE(x.where.slot != slot);
        ++pages_[slot].where.generation;
        pages_[slot].is = status::free;
      }
    std::erase_if(fencing_, [](const auto& x) { return x.second.empty(); });
    if (const auto ended = state_.take_emptying_end())
      take_back(*ended);
    REQUIRE(state_.take_damaged().empty());
    const auto bad = state_.check();
    REQUIRE(bad == "");
  }

  void take(io_worker_state::answered_frames& x) {
    auto node = asked_.extract(x.request);
    if (node.empty()) {
      CHECK(x.refused == errc::expired);
      return;
    }
    auto& work = node.mapped();
    pinned got{work.owner, x.reply.pin, work.pages, x.reply.frames.items};
    REQUIRE(got.frames.size() == got.pages.size());
    if (work.fetch) {
      for (std::size_t i = 0; i < got.pages.size(); ++i)
        if (const auto& page = pages_[got.pages[i].where.slot];
            got.pages[i].where.slot >= slab_slots_ && page.where == got.pages[i].where && page.is == status::stored &&
            got.frames[i].code() != errc::full)
          CHECK(got.frames[i].code() == errc::ok);
      check_bytes(got);
      if (got.pin != 0)
        reads_.push_back(std::move(got));
      return;
    }
    for (std::size_t i = 0; i < got.pages.size(); ++i)
      if (got.frames[i].code() != errc::ok)
        give_back(got.pages[i]);
    if (got.pin != 0)
      fills_.push_back(std::move(got));
  }

  void take(io_worker_state::answered_fill& x) {
    auto node = filling_.extract(x.request);
    REQUIRE(!node.empty());
    const auto& work = node.mapped();
    for (std::size_t i = 0; i < work.pages.size(); ++i) {
      auto& slot = pages_[work.pages[i].where.slot];
      const bool mine = slot.where == work.pages[i].where && slot.is == status::reserved;
      if (x.reply.results[i] == static_cast<std::uint8_t>(errc::ok) && mine)
        slot.is = status::stored;
      else
        give_back(work.pages[i]);
    }
  }

  std::mt19937 random_;
  io_worker_state state_;
  slot_number slab_slots_;
  bool memory_only_;
  timestamp now_{std::chrono::hours(1)};
  alignas(8) std::vector<std::byte> arena_;
  std::vector<std::uint32_t> arena_free_{2, 1, 0};
  std::vector<mark> slab_;
  std::vector<slot_page> pages_;
  owner_id first_client_ = 1;
  std::map<io_worker_state::request_id, asked> asked_;
  std::map<io_worker_state::request_id, pinned> filling_;
  std::vector<pinned> fills_;
  std::vector<pinned> late_fills_;
  std::vector<pinned> reads_;
  std::map<io_worker_state::fence_id, std::vector<slot_number>> fencing_;
  std::vector<owner_id> dying_;
  std::vector<prefetch_request> lookups_;
  std::uint64_t last_lookup_ = 0;
  std::vector<io::page_request> requests_;
  std::vector<io_worker_state::page_check> checks_;
  std::uint64_t pages_read_ = 0;
  std::uint64_t orphans_ = 0;
};

} // namespace

TEST_CASE("io worker: random clients, transfers, fences and deaths give right bytes, and every request ends",
          "[io_worker_state]") {
  const auto seed = GENERATE(range(1U, 37U));
  io_worker_options rules;
  rules.slots = slots;
  rules.slot_bytes = slot_bytes;
  rules.deadline_max = std::chrono::seconds(2);
  rules.batch_pages_max = 8;
  rules.pinned_bytes_max = 8 * slot_bytes;
  rules.waiting_max = 4;
  rules.reads_max = 3;
  rules.writes_max = 4;
  rules.write_through = seed % 4 == 1;
  rules.memory_only = seed % 4 == 2;
  rules.write_eagerly = seed % 4 != 3;
  // In a part of the runs nine slots are beyond the slab.
  const bool beyond = seed > 24 && !rules.write_through && !rules.memory_only;
  rules.memory_slots = beyond ? 9 : 0;
  rules.second_hit = seed > 12 && seed < 31 && !rules.write_through && !rules.memory_only;
  rules.prefetch_pages_max = seed % 3 == 0 ? 0 : seed % 5;
  rules.commit_time = std::chrono::milliseconds(seed % 2 == 0 ? 0 : 300);
  rules.prefetch_reads_max = 2;
  rules.prefetch_waiting_max = 12;
  CAPTURE(seed);
  world x(seed, rules);
  for (int i = 0; i < 8000; ++i)
    x.step();
  x.end();
  CHECK(x.pages_read() > 350);
  CHECK(x.orphans() > 0);
  CHECK(x.stats().returned_extents > 0);
  CHECK((x.stats().dropped_pages > 0) == (rules.second_hit || beyond));
  CHECK((x.stats().prefetch_hits > 0) == (!rules.memory_only && rules.prefetch_pages_max > 0));
  CHECK((x.from_slab() > (rules.write_eagerly && !rules.second_hit ? 50U : 10U)) == !rules.memory_only);
}

} // namespace io_worker_random_test
