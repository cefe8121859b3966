#include "actors/node/io_worker/io_worker_state.hpp"
#include "codec/page_codec.hpp"
#include "io/page.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

/// The rules of the io worker with frames of two sizes, under clients whose pages have an encoding for a time, or have
/// none, or either, and under runs that end: a page has its bytes from the first to the last one whenever it is read,
/// wherever it lies and whatever lies beside it. In some runs the slab is sparse, and never occupies more than it may.

namespace io_worker_sizes_random_test {

namespace {

using namespace troupe;

constexpr std::uint64_t payload_bytes = 65536;
constexpr std::uint64_t slot_bytes = io::slot_bytes(payload_bytes);
constexpr std::uint32_t slots = 40;
constexpr std::uint32_t extents = 5;
/// Five whole frames, or six for encoded pages.
constexpr std::uint64_t extent_bytes = 5 * slot_bytes + 512;
constexpr std::uint32_t owners = 3;
constexpr namespace_id ns{1, 2};

enum class kind : std::uint8_t { encoded, raw, mixed };

/// What outlives a run: the slab, and which pages are stored.
struct lasting_state {
  enum class status : std::uint8_t { free, reserved, stored, fencing };
  struct slot_page {
    slot_ref where;
    status is = status::free;
    bool fits = false;
    bool in_slab = false;
  };

  lasting_state() {
    for (slot_number slot = 0; slot < slots; ++slot)
      pages[slot].where = {slot, 1};
  }

  std::vector<std::byte> slab = std::vector<std::byte>(slots * slot_bytes);
  std::vector<slot_page> pages = std::vector<slot_page>(slots);
  /// What each slot occupies on the disk.
  std::vector<std::uint64_t> occupied = std::vector<std::uint64_t>(slots);
};

class world {
public:
  using status = lasting_state::status;

  world(std::mt19937& random, lasting_state& lasting, const io_worker_options& rules)
      : random_(random), all_(lasting), memory_only_(rules.memory_only),
        slab_slots_(static_cast<slot_number>(rules.slab_slots())), state_(rules), arena_(extents * extent_bytes),
        sparse_(rules.sparse), room_(slab_slots_), granted_(slab_slots_ * 4 / 5) {
    if (!sparse_)
      return;
    state_.slab_found(std::span(lasting.occupied).first(slab_slots_), true);
    state_.slab_granted({granted_, {}});
    // As the allocator does when it knows the index.
    std::vector<slot_ref> free;
    for (slot_number slot = 0; slot < slab_slots_; ++slot)
      if (all_.pages[slot].is == status::free)
        free.push_back({slot, all_.pages[slot].where.generation - 1});
    fencing_[state_.fence(free, now_)] = {};
  }

  void step(kind of) {
    of_ = of;
    switch (draw(10)) {
    case 0:
    case 1:
    case 2:
      place();
      break;
    case 3:
    case 4:
      fetch();
      break;
    case 5:
      fill();
      break;
    case 6:
      unpin();
      break;
    case 7:
      if (draw(of == kind::mixed ? 8 : 3) == 0)
        give_back(draw(slots));
      break;
    case 8:
      now_ += std::chrono::milliseconds(draw(700));
      state_.tick(now_);
      if (draw(40) == 0 && !state_.emptying())
        static_cast<void>(state_.begin_emptying(draw(2) == 0, std::chrono::seconds(2), now_));
      break;
    default:
      move_bytes();
    }
    state_.empty_some(now_);
    if (draw(3) == 0)
      evict_beyond_room();
    flush();
  }

  /// All that began ends, and what is stored and in the slab remains.
  void end() {
    state_.drain(now_);
    flush();
    for (int i = 0; i < 3000 && !idle(); ++i) {
      while (!fills_.empty())
        fill();
      while (!reads_.empty())
        unpin();
      move_bytes();
      evict_beyond_room();
      now_ += std::chrono::milliseconds(100);
      state_.tick(now_);
      flush();
    }
    REQUIRE(idle());
    CHECK(state_.stats().pinned_frames == 0);
    for (auto& x : all_.pages)
      if (x.is != status::free && !(x.is == status::stored && x.in_slab)) {
        ++x.where.generation;
        x.is = status::free;
        x.in_slab = false;
      }
  }

  std::uint64_t pages_read = 0;
  std::uint64_t from_encoded_frames = 0;
  std::uint64_t placed_again = 0;
  /// Reads of more bytes than an encoded page has, and of a page for the second time.
  std::uint64_t whole_reads = 0;
  std::uint64_t short_reads = 0;
  std::uint64_t refused = 0;
  std::uint64_t trims = 0;
  std::uint64_t most_pages = 0;
  std::uint64_t most_frames = 0;
  std::array<std::uint64_t, 2> most_extents{};

private:
  struct pinned {
    owner_id owner = 0;
    bool fetch = false;
    pin_number pin = 0;
    std::vector<page_ref> pages;
    std::vector<page_frame> frames;
  };

  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  bool idle() const {
    return asked_.empty() && fills_.empty() && reads_.empty() && filling_.empty() && fencing_.empty() &&
           state_.quiesced();
  }

  static page_ref ref(const slot_ref& x) { return {key_digest{x.slot, x.generation}, x}; }
  static std::uint64_t mark_of(const slot_ref& x) { return (std::uint64_t{x.slot} << 32U) | x.generation; }
  static std::uint64_t stored_bytes(bool fits) {
    return fits ? codec::stored_bytes(page_encoding::bf16, payload_bytes) : payload_bytes;
  }
  std::span<std::byte> bytes_of(const page_frame& x) {
    const auto size = x.is_encoded() ? io::encoded_slot_bytes(payload_bytes) : slot_bytes;
    return std::span(arena_).subspan(x.offset, size);
  }

  void write(std::span<std::byte> frame, const slot_ref& where, bool fits) {
    const auto stored = stored_bytes(fits);
    io::seal_page(frame, {ns, ref(where).key, 0, where, payload_bytes},
                  {fits ? page_encoding::bf16 : page_encoding::raw, stored, {}});
    const auto mark = mark_of(where);
    for (const auto at : {std::uint64_t{0}, stored - sizeof mark})
      std::memcpy(frame.data() + io::page_header_bytes + at, &mark, sizeof mark);
  }
  bool is_whole(std::span<const std::byte> frame, const slot_ref& where, bool fits) {
    const auto stored = stored_bytes(fits);
    if (frame.size() < io::page_header_bytes + stored || io::sizes_of(frame).stored != stored)
      return false;
    for (const auto at : {std::uint64_t{0}, stored - sizeof(std::uint64_t)}) {
      std::uint64_t mark = 0;
      std::memcpy(&mark, frame.data() + io::page_header_bytes + at, sizeof mark);
      if (mark != mark_of(where))
        return false;
    }
    return true;
  }

  std::vector<slot_number> some(status wanted, std::uint32_t most) {
    std::vector<slot_number> out;
    for (slot_number slot = 0; slot < slots; ++slot)
      if (all_.pages[slot].is == wanted)
        out.push_back(slot);
    std::shuffle(out.begin(), out.end(), random_);
    out.resize(std::min<std::size_t>(out.size(), 1 + draw(most)));
    return out;
  }

  void ask(owner_id owner, bool fetch, const std::vector<slot_number>& which, const std::vector<std::uint8_t>& sizes) {
    if (which.empty())
      return;
    pinned x{owner, fetch, 0, {}, {}};
    for (const auto slot : which)
      x.pages.push_back(ref(all_.pages[slot].where));
    frame_request work;
    work.pages.items = x.pages;
    work.sizes.items = sizes;
    work.patience = std::chrono::milliseconds(1 + draw(4000));
    const auto id = fetch ? state_.fetch(owner, work, now_) : state_.place(owner, work, now_);
    if (id) {
      asked_.emplace(*id, std::move(x));
      return;
    }
    if (!fetch)
      for (const auto slot : which)
        give_back(slot);
  }

  void place() {
    // As an allocator does: there are no more pages than frames where they are in memory only.
    const auto used = std::ranges::count_if(all_.pages, [](const auto& x) { return x.is != status::free; });
    if (memory_only_ && static_cast<std::uint64_t>(used) + 4 >= state_.frames().lasting() && state_.frames().size() > 0)
      return give_back(draw(slots));
    auto which = some(status::free, 4);
    if (sparse_ && used_of_slab() + which.size() > room_) {
      give_back(draw(slab_slots_));
      std::erase_if(which, [&](slot_number slot) { return slot < slab_slots_; });
    }
    std::vector<std::uint8_t> sizes;
    for (const auto slot : which) {
      all_.pages[slot].is = status::reserved;
      all_.pages[slot].fits = of_ == kind::encoded || (of_ == kind::mixed && draw(3) != 0);
      // Clients do not know which pages have an encoding before they look.
      sizes.push_back(of_ != kind::raw && draw(5) != 0 ? 1 : 0);
    }
    ask(1 + draw(owners), false, which, draw(8) == 0 ? std::vector<std::uint8_t>{} : sizes);
  }
  void fetch() { ask(1 + draw(owners), true, some(status::stored, 4), {}); }

  std::uint64_t used_of_slab() const {
    const auto of_slab = std::span(all_.pages).first(slab_slots_);
    return static_cast<std::uint64_t>(
        std::ranges::count_if(of_slab, [](const auto& x) { return x.is != status::free; }));
  }
  /// As the shards do for the allocator.
  void evict_beyond_room() {
    if (!sparse_ || used_of_slab() <= room_)
      return;
    auto stored = some(status::stored, slots);
    std::erase_if(stored, [&](slot_number slot) { return slot >= slab_slots_; });
    if (!stored.empty())
      give_back(stored.front());
  }
  void note_request(const io::page_request& x) {
    if (!sparse_ || x.op == io::operation::read)
      return;
    // Nothing is written to a slot that is being trimmed.
    for (const auto& other : requests_)
      if (other.where.slot == x.where.slot && other.op != io::operation::read)
        REQUIRE((x.op != io::operation::trim && other.op != io::operation::trim));
    if (x.op == io::operation::write)
      all_.occupied[x.where.slot] = std::max(all_.occupied[x.where.slot], x.length);
    std::uint64_t sum = 0;
    for (const auto bytes : all_.occupied)
      sum += bytes;
    REQUIRE(sum <= granted_ * slot_bytes);
  }
  void trim(const io::page_request& x) {
    const auto& is = all_.pages[x.where.slot];
    if (is.in_slab && is.is != status::free)
      REQUIRE((is.fits && x.from >= io::encoded_slot_bytes(payload_bytes)));
    REQUIRE(x.from + x.length == slot_bytes);
    std::ranges::fill(std::span(all_.slab).subspan(x.where.slot * slot_bytes + x.from, x.length), std::byte{0});
    all_.occupied[x.where.slot] = std::min(all_.occupied[x.where.slot], x.from);
    ++trims;
  }

  pinned take_any(std::vector<pinned>& from) {
    std::swap(from[draw(static_cast<std::uint32_t>(from.size()))], from.back());
    auto out = std::move(from.back());
    from.pop_back();
    return out;
  }

  void fill() {
    if (fills_.empty())
      return;
    const auto x = take_any(fills_);
    fill_request work{x.pin, {}, std::chrono::seconds(1)};
    for (std::size_t i = 0; i < x.pages.size(); ++i) {
      auto code = x.frames[i].code();
      const bool fits = all_.pages[x.pages[i].where.slot].fits;
      if (code == errc::ok && x.frames[i].is_encoded() && !fits)
        code = errc::unsupported;
      else if (code == errc::ok && draw(10) == 0)
        code = errc::cancelled;
      if (code == errc::ok)
        write(bytes_of(x.frames[i]), x.pages[i].where, fits);
      work.gathered.items.push_back(static_cast<std::uint8_t>(code));
    }
    const auto id = state_.fill(x.owner, work, now_);
    REQUIRE(id);
    filling_.emplace(*id, x);
  }

  void unpin() {
    if (reads_.empty())
      return;
    const auto x = take_any(reads_);
    check_bytes(x);
    REQUIRE(state_.unpin(x.owner, x.pin, now_));
  }

  void check_bytes(const pinned& x) {
    for (std::size_t i = 0; i < x.pages.size(); ++i) {
      const auto& is = all_.pages[x.pages[i].where.slot];
      if (x.frames[i].code() != errc::ok || is.where != x.pages[i].where)
        continue;
      ++pages_read;
      from_encoded_frames += x.frames[i].is_encoded() ? 1 : 0;
      REQUIRE(is_whole(bytes_of(x.frames[i]), is.where, is.fits));
    }
  }

  void give_back(slot_number slot) {
    auto& x = all_.pages[slot];
    if (x.is != status::reserved && x.is != status::stored)
      return;
    x.is = status::fencing;
    x.in_slab = false;
    fencing_[state_.fence(std::array{x.where}, now_)].push_back(slot);
  }

  void move_bytes() {
    if (!checks_.empty() && draw(2) == 0) {
      const auto x = checks_.back();
      checks_.pop_back();
      const auto& is = all_.pages[x.page.where.slot];
      const auto frame = std::span(arena_).subspan(x.offset, x.bytes);
      if (is.where == x.page.where)
        REQUIRE(is_whole(frame, is.where, is.fits));
      state_.checked(x.number, errc::ok, now_);
      return;
    }
    if (requests_.empty())
      return;
    const auto x = requests_.back();
    requests_.pop_back();
    if (x.op == io::operation::trim) {
      const bool fails = draw(10) == 0;
      if (!fails)
        trim(x);
      return state_.complete(std::array{io::completion{x.tag, fails ? errc::io_error : errc::ok, 0}}, now_);
    }
    const auto place = std::span(all_.slab).subspan(x.where.slot * slot_bytes, x.length);
    auto& is = all_.pages[x.where.slot];
    if (x.op == io::operation::write) {
      std::memcpy(place.data(), x.data, x.length);
      is.in_slab = is.in_slab || is.where == x.where;
    } else {
      std::memcpy(x.data, place.data(), x.length);
      ++(x.length == slot_bytes ? whole_reads : short_reads);
    }
    state_.complete(std::array{io::completion{x.tag, errc::ok, 0}}, now_);
  }

  void flush() {
    while (state_.wants_extent()) {
      if (arena_free_.empty()) {
        state_.no_extent(false, now_);
        continue;
      }
      const auto n = arena_free_.back();
      arena_free_.pop_back();
      state_.add_extent({n, n * extent_bytes, std::span(arena_).subspan(n * extent_bytes, extent_bytes), n}, now_);
    }
    for (const auto& page : state_.take_dropped())
      if (all_.pages[page.where.slot].where == page.where)
        give_back(page.where.slot);
    for (auto& x : state_.take_requests()) {
      note_request(x);
      requests_.push_back(x);
    }
    if (const auto room = state_.take_changed_room())
      room_ = *room;
    most_pages = std::max(most_pages, used_of_slab());
    for (auto& x : state_.take_checks())
      checks_.push_back(x);
    for (auto& x : state_.take_frames())
      take(x);
    for (auto& x : state_.take_fills())
      take(x);
    for (const auto id : state_.take_fenced())
      for (const auto slot : std::exchange(fencing_[id], {})) {
        ++all_.pages[slot].where.generation;
        all_.pages[slot].is = status::free;
        all_.pages[slot].in_slab = false; // a write may have ended after the fence was requested
      }
    std::erase_if(fencing_, [](const auto& x) { return x.second.empty(); });
    if (const auto ended = state_.take_emptying_end(); ended && ended->code == errc::ok) {
      std::ranges::fill(ended->memory.bytes, std::byte{0xee});
      arena_free_.push_back(ended->memory.number);
    }
    REQUIRE(state_.take_damaged().empty());
    REQUIRE(state_.check() == "");
    const auto& frames = state_.frames();
    most_frames = std::max(most_frames, frames.size());
    for (const auto x : {frame_size::whole, frame_size::encoded})
      most_extents[static_cast<std::size_t>(x)] =
          std::max(most_extents[static_cast<std::size_t>(x)], frames.extents(x));
    // Every page finds a frame.
    REQUIRE((frames.extents(frame_size::encoded) == 0 || frames.extents(frame_size::whole) > 0));
  }

  void take(io_worker_state::answered_frames& answer) {
    auto node = asked_.extract(answer.request);
    REQUIRE(!node.empty());
    auto x = std::move(node.mapped());
    x.pin = answer.reply.pin;
    x.frames = answer.reply.frames.items;
    REQUIRE(x.frames.size() == x.pages.size());
    for (std::size_t i = 0; i < x.pages.size(); ++i) {
      refused += x.frames[i].code() == errc::full ? 1 : 0;
      if (x.frames[i].code() != errc::ok && !x.fetch)
        give_back(x.pages[i].where.slot);
    }
    if (x.fetch)
      check_bytes(x);
    if (x.pin != 0)
      (x.fetch ? reads_ : fills_).push_back(std::move(x));
  }

  void take(io_worker_state::answered_fill& answer) {
    auto node = filling_.extract(answer.request);
    REQUIRE(!node.empty());
    const auto& x = node.mapped();
    std::vector<slot_number> again;
    for (std::size_t i = 0; i < x.pages.size(); ++i) {
      const auto slot = x.pages[i].where.slot;
      auto& is = all_.pages[slot];
      if (is.where != x.pages[i].where || is.is != status::reserved)
        continue;
      const auto code = static_cast<errc>(answer.reply.results[i]);
      if (code == errc::unsupported && !state_.draining())
        again.push_back(slot);
      else if (code == errc::ok)
        is.is = status::stored;
      else
        give_back(slot);
    }
    placed_again += again.size();
    ask(x.owner, false, again, {});
  }

  std::mt19937& random_;
  lasting_state& all_;
  bool memory_only_;
  slot_number slab_slots_;
  kind of_ = kind::mixed;
  io_worker_state state_;
  timestamp now_{std::chrono::hours(1)};
  std::vector<std::byte> arena_;
  std::vector<std::uint32_t> arena_free_{4, 3, 2, 1, 0};
  bool sparse_;
  std::uint64_t room_;
  std::uint64_t granted_;
  std::map<io_worker_state::request_id, pinned> asked_;
  std::map<io_worker_state::request_id, pinned> filling_;
  std::vector<pinned> fills_;
  std::vector<pinned> reads_;
  std::map<io_worker_state::fence_id, std::vector<slot_number>> fencing_;
  std::vector<io::page_request> requests_;
  std::vector<io_worker_state::page_check> checks_;
};

io_worker_options rules_of(std::uint32_t seed) {
  io_worker_options out;
  out.slots = slots;
  out.slot_bytes = slot_bytes;
  out.encoded_bytes = io::encoded_slot_bytes(payload_bytes);
  out.deadline_max = std::chrono::seconds(5);
  out.batch_pages_max = 8;
  out.pinned_bytes_max = 12 * slot_bytes;
  out.waiting_max = 6;
  out.reads_max = 3;
  out.writes_max = 4;
  out.memory_only = seed % 5 == 1;
  out.write_eagerly = seed % 3 != 0;
  out.second_hit = seed % 7 == 2 && !out.memory_only;
  out.memory_slots = seed % 4 == 3 && !out.memory_only ? 12 : 0;
  out.sparse = seed % 2 == 0 && !out.memory_only;
  return out;
}

} // namespace

TEST_CASE("io worker: pages of two sizes are whole wherever they lie, and the sizes exchange extents",
          "[io_worker_state][encoding]") {
  const auto seed = GENERATE(range(1U, 25U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  lasting_state lasting;
  const auto rules = rules_of(seed);
  std::uint64_t short_reads = 0;
  std::uint64_t whole_reads = 0;
  std::uint64_t placed_again = 0;
  std::array<std::uint64_t, 2> most_extents{};
  for (int run = 0; run < 3; ++run) {
    const auto x = std::make_unique<world>(random, lasting, rules);
    for (const auto of : {kind::encoded, kind::raw, kind::encoded, kind::mixed})
      for (int i = 0; i < 1500; ++i)
        x->step(of);
    x->end();
    CHECK(x->pages_read > 100);
    CHECK(x->from_encoded_frames > 20);
    CHECK(x->most_frames > extents * 5);
    short_reads += x->short_reads;
    whole_reads += x->whole_reads;
    placed_again += x->placed_again;
    if (rules.sparse) {
      CHECK(x->trims > 20);
      CHECK(x->most_pages > rules.slab_slots() * 4 / 5);
    }
    for (std::size_t size = 0; size < most_extents.size(); ++size)
      most_extents[size] = std::max(most_extents[size], x->most_extents[size]);
  }
  CHECK(placed_again > 0);
  // Both sizes had most of the memory at times.
  CHECK(most_extents[0] >= 3);
  CHECK(most_extents[1] >= (rules.sparse ? 2 : 3));
  if (!rules.memory_only) {
    CHECK(short_reads > 20);
    CHECK(whole_reads > 20);
  }
}

} // namespace io_worker_sizes_random_test
