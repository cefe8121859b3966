#include "actors/node/io_worker/io_worker_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace io_worker_state_test {

namespace {

using namespace troupe;

constexpr timestamp t0{std::chrono::hours(1)};
constexpr std::chrono::milliseconds ms{1};
constexpr std::uint64_t slot_bytes = 8192;

io_worker_options test_options() {
  io_worker_options out;
  out.slots = 16;
  out.slot_bytes = slot_bytes;
  out.alignment = 4096;
  out.deadline_max = std::chrono::seconds(10);
  out.batch_pages_max = 8;
  out.pages_in_flight_max = 12;
  out.segment_bytes_max = 64 * slot_bytes;
  out.segments_max = 3;
  return out;
}

/// A state with one open segment of 8 slots.
struct worker {
  explicit worker(const io_worker_options& options = test_options()) : state(options) {
    segment = state.add_segment(1, memory, 40);
  }

  io_worker_state state;
  std::vector<std::byte> memory = std::vector<std::byte>(8 * slot_bytes);
  std::uint64_t segment = 0;

  /// The state's memory is never touched, so that any buffer will do for a slot.
  static io_item item(slot_number slot, generation_number generation, std::uint64_t buffer = 0) {
    return {{slot, generation}, buffer * slot_bytes, slot_bytes};
  }

  io_batch batch(std::vector<io_item> items, duration deadline = std::chrono::seconds(1)) const {
    return {segment, deadline, std::move(items)};
  }

  io_worker_state::batch_id begin(std::vector<io_item> items, io::operation op = io::operation::write) {
    const auto id = state.begin(op, batch(std::move(items)), t0);
    REQUIRE(id);
    return *id;
  }

  void complete(std::uint64_t tag, errc status = errc::ok) {
    const std::array done{io::completion{tag, status, 0}};
    state.complete(done);
  }

  std::vector<errc> results(io_worker_state::batch_id id) {
    auto finished = state.take_finished();
    REQUIRE(finished.size() == 1);
    REQUIRE(finished[0].batch == id);
    std::vector<errc> out;
    for (const auto code : finished[0].reply.results)
      out.push_back(static_cast<errc>(code));
    return out;
  }
};

using fences = std::vector<io_worker_state::fence_id>;

} // namespace

TEST_CASE("io worker: a batch becomes requests, and is answered when the last has ended", "[io_worker_state]") {
  worker w;
  const auto op = GENERATE(io::operation::read, io::operation::write);
  const auto id = w.begin({w.item(3, 1, 0), w.item(9, 4, 5)}, op);
  const auto requests = w.state.take_requests();
  REQUIRE(requests.size() == 2);
  CHECK(w.state.take_requests().empty());
  CHECK(requests[0].op == op);
  CHECK(requests[0].where == slot_ref{3, 1});
  CHECK(requests[0].data == w.memory.data());
  CHECK(requests[0].length == slot_bytes);
  CHECK(requests[0].buffer == 40);
  CHECK(requests[0].deadline == t0 + std::chrono::seconds(1));
  CHECK(requests[1].where == slot_ref{9, 4});
  CHECK(requests[1].data == w.memory.data() + 5 * slot_bytes);
  CHECK(requests[0].tag != requests[1].tag);
  CHECK(w.state.in_flight() == 2);

  w.complete(requests[1].tag, errc::io_error);
  CHECK(w.state.take_finished().empty());
  w.complete(requests[0].tag);
  CHECK(w.results(id) == std::vector{errc::ok, errc::io_error});
  CHECK(w.state.in_flight() == 0);

  const auto stats = w.state.stats();
  const bool read = op == io::operation::read;
  CHECK(stats.read_pages == (read ? 1 : 0));
  CHECK(stats.read_bytes == (read ? slot_bytes : 0));
  CHECK(stats.written_pages == (read ? 0 : 1));
  CHECK(stats.written_bytes == (read ? 0 : slot_bytes));
  CHECK(stats.failed == 1);
  CHECK(stats.segment_bytes == 8 * slot_bytes);
}

TEST_CASE("io worker: an empty batch and one of which nothing is left end at once", "[io_worker_state]") {
  worker w;
  auto id = w.begin({});
  CHECK(w.results(id).empty());
  id = w.begin({w.item(16, 1), w.item(0, 0)});
  CHECK(w.results(id) == std::vector{errc::out_of_range, errc::stale});
  CHECK(w.state.take_requests().empty());
  CHECK(w.state.in_flight() == 0);
}

TEST_CASE("io worker: each item that may not be transferred has its own code and stays away from the engine",
          "[io_worker_state]") {
  worker w;
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const std::vector<std::pair<io_item, errc>> cases{
      {{{16, 1}, 0, slot_bytes}, errc::out_of_range},
      {{{0xffffffff, 1}, 0, slot_bytes}, errc::out_of_range},
      {{{1, 0}, 0, slot_bytes}, errc::stale},
      {{{1, 1}, 0, 0}, errc::invalid_argument},
      {{{1, 1}, 0, 100}, errc::invalid_argument},
      {{{1, 1}, 0, 2 * slot_bytes}, errc::invalid_argument},
      {{{1, 1}, 0, huge}, errc::invalid_argument},
      {{{1, 1}, 512, slot_bytes}, errc::invalid_argument},
      {{{1, 1}, 8 * slot_bytes, slot_bytes}, errc::out_of_range},
      {{{1, 1}, 8 * slot_bytes - 4096, slot_bytes}, errc::out_of_range},
      {{{1, 1}, huge - 4095, slot_bytes}, errc::out_of_range},
      {{{1, 1}, 0, 4096}, errc::ok},
      {{{1, 1}, 7 * slot_bytes, slot_bytes}, errc::ok},
  };
  for (const auto& [bad, code] : cases) {
    INFO("slot " << bad.where.slot << " offset " << bad.buffer_offset << " length " << bad.length);
    const auto id = w.begin({bad, w.item(2, 1)}, io::operation::read);
    const auto requests = w.state.take_requests();
    CHECK(requests.size() == (code == errc::ok ? 2 : 1));
    for (const auto& x : requests)
      w.complete(x.tag);
    CHECK(w.results(id) == std::vector{code, errc::ok});
  }
}

TEST_CASE("io worker: a batch is refused as a whole beyond its limits", "[io_worker_state]") {
  worker w;
  const auto refused = [&](const io_batch& x) {
    const auto id = w.state.begin(io::operation::write, x, t0);
    REQUIRE_FALSE(id);
    CHECK_FALSE(id.error().text.empty());
    CHECK(w.state.take_requests().empty());
    CHECK(w.state.take_finished().empty());
    return id.error().code;
  };
  CHECK(refused(w.batch(std::vector<io_item>(9, w.item(0, 1)))) == errc::limit_exceeded);
  CHECK(refused(w.batch({w.item(0, 1)}, duration::zero())) == errc::timeout);
  CHECK(refused(w.batch({w.item(0, 1)}, duration::min())) == errc::timeout);
  CHECK(refused({w.segment + 1, std::chrono::seconds(1), {}}) == errc::expired);
  CHECK(refused({0, std::chrono::seconds(1), {}}) == errc::expired);

  w.begin(std::vector<io_item>(8, w.item(0, 1)));
  const auto requests = w.state.take_requests();
  CHECK(refused(w.batch(std::vector<io_item>(5, w.item(1, 1)))) == errc::limit_exceeded);
  w.complete(requests[0].tag);
  w.begin(std::vector<io_item>(5, w.item(1, 1)));
}

TEST_CASE("io worker: no deadline is longer than the node allows", "[io_worker_state]") {
  worker w;
  REQUIRE(w.state.begin(io::operation::read, w.batch({w.item(0, 1)}, duration::max()), t0));
  CHECK(w.state.take_requests().at(0).deadline == t0 + std::chrono::seconds(10));
}

TEST_CASE("io worker: a completion that belongs to nothing, or comes twice, changes nothing", "[io_worker_state]") {
  worker w;
  const auto id = w.begin({w.item(0, 1), w.item(1, 1)});
  const auto requests = w.state.take_requests();
  w.complete(12345);
  w.complete(requests[0].tag, errc::timeout);
  w.complete(requests[0].tag);
  CHECK(w.state.in_flight() == 1);
  CHECK(w.state.take_finished().empty());
  w.complete(requests[1].tag);
  CHECK(w.results(id) == std::vector{errc::timeout, errc::ok});
  CHECK(w.state.stats().timed_out == 1);
  CHECK(w.state.stats().written_pages == 1);
}

TEST_CASE("io worker: a fence refuses the old generation for good", "[io_worker_state]") {
  worker w;
  CHECK(w.state.take_fenced().empty());
  const auto id = w.state.fence(std::vector<slot_ref>{{3, 6}});
  CHECK(w.state.take_fenced() == fences{id});
  CHECK(w.state.take_fenced().empty());
  const auto op = GENERATE(io::operation::read, io::operation::write);
  const auto batch = w.begin({w.item(3, 5), w.item(3, 6), w.item(3, 7), w.item(4, 1)}, op);
  const auto requests = w.state.take_requests();
  CHECK(requests.size() == 2);
  for (const auto& x : requests)
    w.complete(x.tag);
  CHECK(w.results(batch) == std::vector{errc::stale, errc::stale, errc::ok, errc::ok});
  CHECK(w.state.stats().fenced == 2);

  // An older fence that was late does not open the slot again.
  w.state.fence(std::vector<slot_ref>{{3, 2}});
  CHECK(w.results(w.begin({w.item(3, 5)}, op)) == std::vector{errc::stale});
}

TEST_CASE("io worker: a fence waits for reads and writes of the slot, and for no others", "[io_worker_state]") {
  worker w;
  const auto read = w.begin({w.item(3, 6), w.item(4, 1)}, io::operation::read);
  const auto write = w.begin({w.item(3, 6)}, io::operation::write);
  const auto requests = w.state.take_requests();
  REQUIRE(requests.size() == 3);
  const auto id = w.state.fence(std::vector<slot_ref>{{3, 6}});
  const auto other = w.state.fence(std::vector<slot_ref>{{5, 1}, {16, 1}, {0xffffffff, 1}});
  CHECK(w.state.take_fenced() == fences{other});
  w.complete(requests[1].tag); // slot 4
  CHECK(w.state.take_fenced().empty());
  w.complete(requests[0].tag, errc::cancelled);
  CHECK(w.state.take_fenced().empty());
  CHECK(w.results(read) == std::vector{errc::cancelled, errc::ok});
  w.complete(requests[2].tag);
  CHECK(w.state.take_fenced() == fences{id});
  CHECK(w.results(write) == std::vector{errc::ok});
}

TEST_CASE("io worker: several fences of a slot end together, each with its own slots", "[io_worker_state]") {
  worker w;
  w.begin({w.item(1, 1), w.item(2, 1), w.item(3, 1)});
  const auto requests = w.state.take_requests();
  const auto a = w.state.fence(std::vector<slot_ref>{{1, 1}, {2, 1}});
  const auto b = w.state.fence(std::vector<slot_ref>{{2, 1}});
  const auto c = w.state.fence(std::vector<slot_ref>{{2, 1}, {2, 1}, {3, 1}});
  w.complete(requests[1].tag);
  CHECK(w.state.take_fenced() == fences{b});
  w.complete(requests[0].tag);
  CHECK(w.state.take_fenced() == fences{a});
  w.complete(requests[2].tag);
  CHECK(w.state.take_fenced() == fences{c});
}

TEST_CASE("io worker: the next owner's transfers do not hold up a fence that has ended", "[io_worker_state]") {
  worker w;
  w.begin({w.item(1, 1)});
  const auto first = w.state.fence(std::vector<slot_ref>{{1, 1}});
  w.complete(w.state.take_requests().at(0).tag);
  CHECK(w.state.take_fenced() == fences{first});
  w.begin({w.item(1, 2)});
  const auto second = w.state.fence(std::vector<slot_ref>{{1, 2}});
  CHECK(w.state.take_fenced().empty());
  w.complete(w.state.take_requests().at(0).tag);
  CHECK(w.state.take_fenced() == fences{second});
}

TEST_CASE("io worker: a client has so much shared memory and no more", "[io_worker_state]") {
  worker w; // 8 slots of owner 1 already
  CHECK(w.state.may_open_segment(1, 56 * slot_bytes));
  const auto refused = [&](owner_id owner, std::uint64_t bytes) {
    const auto allowed = w.state.may_open_segment(owner, bytes);
    REQUIRE_FALSE(allowed);
    CHECK_FALSE(allowed.error().text.empty());
    return allowed.error().code;
  };
  CHECK(refused(1, 56 * slot_bytes + 1) == errc::limit_exceeded);
  CHECK(refused(1, ~std::uint64_t{0}) == errc::limit_exceeded);
  CHECK(refused(2, 65 * slot_bytes) == errc::limit_exceeded);
  CHECK(refused(2, 0) == errc::invalid_argument);
  CHECK(w.state.may_open_segment(2, 64 * slot_bytes));
  std::vector<std::byte> more(4096);
  w.state.add_segment(2, more, 41);
  const auto third = w.state.add_segment(3, more, 42);
  CHECK(refused(4, 4096) == errc::limit_exceeded);
  REQUIRE(w.state.close_segment(third));
  CHECK(w.state.take_idle_segments().size() == 1);
  CHECK(w.state.may_open_segment(4, 4096));
  w.state.drain();
  CHECK(refused(4, 4096) == errc::shutting_down);
}

TEST_CASE("io worker: a segment that is closed under way is let go when the last transfer has ended",
          "[io_worker_state]") {
  worker w;
  const auto id = w.begin({w.item(1, 1), w.item(2, 1)});
  const auto requests = w.state.take_requests();
  const bool by_death = GENERATE(false, true);
  if (by_death)
    w.state.owner_died(1);
  else
    REQUIRE(w.state.close_segment(w.segment));
  CHECK(w.state.close_segment(w.segment).error().code == errc::not_found);
  CHECK(w.state.take_idle_segments().empty());
  CHECK(w.state.begin(io::operation::read, w.batch({w.item(3, 1)}), t0).error().code == errc::expired);
  w.complete(requests[0].tag);
  CHECK(w.state.take_idle_segments().empty());
  CHECK(w.state.stats().segment_bytes == 8 * slot_bytes);
  w.complete(requests[1].tag);
  CHECK(w.results(id) == std::vector(2, errc::ok));
  const auto idle = w.state.take_idle_segments();
  REQUIRE(idle.size() == 1);
  CHECK(idle[0] == std::pair<std::uint64_t, std::uint32_t>{w.segment, 40});
  CHECK(w.state.take_idle_segments().empty());
  CHECK(w.state.stats().segment_bytes == 0);
  CHECK(w.state.close_segment(w.segment).error().code == errc::not_found);
}

TEST_CASE("io worker: the death of one client leaves the others their segments", "[io_worker_state]") {
  worker w;
  std::vector<std::byte> memory(slot_bytes);
  const auto other = w.state.add_segment(2, memory, 41);
  CHECK(other != w.segment);
  w.state.owner_died(1);
  w.state.owner_died(1);
  w.state.owner_died(99);
  CHECK(w.state.take_idle_segments().size() == 1);
  const auto id = w.state.begin(io::operation::write, {other, std::chrono::seconds(1), {{w.item(1, 1)}}}, t0);
  REQUIRE(id);
  const auto requests = w.state.take_requests();
  CHECK(requests.at(0).buffer == 41);
  w.complete(requests[0].tag);
  CHECK(w.results(*id) == std::vector{errc::ok});
}

TEST_CASE("io worker: a request of a client that is gone opens no segment", "[io_worker_state]") {
  worker w;
  w.state.owner_died(7); // its request to open a segment was overtaken by the news of its death
  const auto late = w.state.may_open_segment(7, slot_bytes);
  REQUIRE_FALSE(late);
  CHECK(late.error().code == errc::expired);
  CHECK(w.state.may_open_segment(8, slot_bytes));
  // The dead are forgotten in the end, the last ones last.
  for (owner_id owner = 100; owner < 100 + 1023; ++owner)
    w.state.owner_died(owner);
  CHECK_FALSE(w.state.may_open_segment(7, slot_bytes));
  w.state.owner_died(99);
  CHECK(w.state.may_open_segment(7, slot_bytes));
  CHECK_FALSE(w.state.may_open_segment(100, slot_bytes));
}

TEST_CASE("io worker: a drain refuses batches and lets those under way end", "[io_worker_state]") {
  worker w;
  const auto id = w.begin({w.item(1, 1)});
  w.state.drain();
  CHECK(w.state.draining());
  CHECK(w.state.begin(io::operation::read, w.batch({w.item(1, 1)}), t0).error().code == errc::shutting_down);
  CHECK(w.state.in_flight() == 1);
  w.complete(w.state.take_requests().at(0).tag);
  CHECK(w.results(id) == std::vector{errc::ok});
  CHECK(w.state.in_flight() == 0);
}

TEST_CASE("io worker: a damaged slab is read, not written", "[io_worker_state]") {
  worker w;
  w.state.slab_is_damaged();
  CHECK(w.state.damaged());
  CHECK(w.results(w.begin({w.item(1, 1)}, io::operation::write)) == std::vector{errc::slab_damaged});
  const auto id = w.begin({w.item(1, 1)}, io::operation::read);
  w.complete(w.state.take_requests().at(0).tag);
  CHECK(w.results(id) == std::vector{errc::ok});
}

TEST_CASE("io worker: an order for a segment of another run is refused", "[io_worker_state]") {
  auto options = test_options();
  options.first_segment = 1000;
  worker w(options);
  CHECK(w.segment == 1001);
  auto stale = w.batch({worker::item(0, 1)});
  stale.segment = 1;
  CHECK(w.state.begin(io::operation::write, stale, t0).error().code == errc::expired);
}

TEST_CASE("io worker: random batches, fences, deaths: all that began ends once, slots are at rest when fenced",
          "[io_worker_state]") {
  const auto seed = GENERATE(range(1U, 31U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](std::uint32_t most) { return std::uniform_int_distribution<std::uint32_t>(0, most)(random); };
  auto options = test_options();
  options.segments_max = 1000;
  worker w(options);
  std::vector<std::uint64_t> segments{w.segment};
  std::map<std::uint64_t, slot_ref> flying; // tag → what it touches
  std::map<io_worker_state::fence_id, std::vector<slot_ref>> fencing;
  std::map<slot_number, generation_number> fenced;
  std::set<io_worker_state::batch_id> open;
  std::vector<io_item> sent;
  const auto collect = [&] {
    for (const auto& x : w.state.take_finished())
      CHECK(open.erase(x.batch) == 1);
    for (const auto id : w.state.take_fenced()) {
      for (const auto& slot : fencing.at(id))
        for (const auto& [tag, busy] : flying)
          CHECK((busy.slot != slot.slot || busy.generation > slot.generation));
      fencing.erase(id);
    }
    w.state.take_idle_segments();
  };
  const auto begin = [&] {
    io_batch batch{segments[up_to(static_cast<std::uint32_t>(segments.size() - 1))], 1000 * ms, {}};
    for (auto n = up_to(4); n > 0; --n)
      batch.items.items.push_back(w.item(up_to(3), 1 + up_to(5), up_to(7)));
    const auto id = w.state.begin(up_to(1) == 0 ? io::operation::read : io::operation::write, batch, t0);
    if (!id)
      return;
    open.insert(*id);
    std::vector<slot_ref> expected;
    for (const auto& x : batch.items)
      if (x.where.generation > fenced[x.where.slot])
        expected.push_back(x.where);
    const auto requests = w.state.take_requests();
    REQUIRE(requests.size() == expected.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CHECK(requests[i].where == expected[i]);
      CHECK(flying.emplace(requests[i].tag, expected[i]).second);
    }
  };
  const auto complete_one = [&] {
    if (flying.empty())
      return;
    auto i = flying.begin();
    std::advance(i, up_to(static_cast<std::uint32_t>(flying.size() - 1)));
    const auto tag = i->first;
    flying.erase(i);
    w.complete(tag, up_to(3) == 0 ? errc::io_error : errc::ok);
  };
  for (int step = 0; step < 400; ++step) {
    switch (up_to(9)) {
    case 0: {
      std::vector<slot_ref> slots;
      for (auto n = up_to(3); n > 0; --n)
        slots.push_back({up_to(3), 1 + up_to(4)});
      for (const auto& x : slots)
        fenced[x.slot] = std::max(fenced[x.slot], x.generation);
      fencing.emplace(w.state.fence(slots), slots);
      break;
    }
    case 1:
      w.state.owner_died(1 + up_to(3));
      segments.push_back(w.state.add_segment(1 + up_to(3), w.memory, 50));
      break;
    case 2:
    case 3:
    case 4:
    case 5:
      begin();
      break;
    default:
      complete_one();
    }
    collect();
    CHECK(w.state.in_flight() == flying.size());
  }
  while (!flying.empty())
    complete_one();
  collect();
  CHECK(open.empty());
  CHECK(fencing.empty());
}

} // namespace io_worker_state_test
