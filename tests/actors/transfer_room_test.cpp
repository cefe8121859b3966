#include "tests/actors/coordinator_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace transfer_room_test {

using namespace troupe;
using namespace troupe::test;

/// Coordinators with a window of fewer pages than their tasks have.

namespace {

struct room_world : coordinator_world {
  coordinator_binding few(std::uint32_t window, owner_id owner = 77) const {
    auto out = binding(owner);
    out.window_pages = window;
    return out;
  }

  template <class Coordinator>
  transfer_actor spawn_with(std::uint32_t window) {
    auto out = spawn_coordinator<Coordinator>();
    REQUIRE(ask(out, bind_atom_v, few(window)).code() == errc::ok);
    return out;
  }
};

/// Plays registry, io worker and copy engine in an order drawn at random, keeping an eye on what counts towards the
/// window: a page from the request for its frame on, until its pin has ended.
class peers {
public:
  peers(room_world& world, std::uint64_t seed, std::uint32_t window) : world_(world), random_(seed), window_(window) {}

  /// One in so many batches is refused because the io worker has enough to do; 0: none.
  void refuse_one_in(std::uint32_t n) { refuse_ = n; }
  /// Pages in the window, now and at the most.
  std::size_t in_window() const { return in_window_; }
  std::size_t most() const { return most_; }

  /// The number of successful copies of each page.
  const std::map<key_digest, int>& moved() const { return moved_; }

  /// Answers one request; false if there is none.
  bool step() {
    collect();
    if (waiting_.empty())
      return false;
    const auto at = waiting_.begin() + static_cast<std::ptrdiff_t>(random_() % waiting_.size());
    const auto x = *at;
    waiting_.erase(at);
    answer(x);
    world_.run();
    return true;
  }

  std::size_t waiting() {
    collect();
    return waiting_.size();
  }

private:
  enum class what { locate, reserve, release, commit, abort, fetch, place, fill, unpin, gather, scatter };
  struct request {
    what kind;
    received from;
  };

  template <class... Ts>
  void collect_one(probe& where, what kind) {
    for (auto& x : where.take<Ts...>()) {
      if (kind == what::fetch || kind == what::place)
        in_window_ += x.template get<frame_request>(1).pages.size();
      if (kind == what::unpin)
        leave(x.template get<pin_number>(1)); // when it is sent
      waiting_.push_back({kind, std::move(x)});
    }
  }

  void collect() {
    // First what makes room: it may have been sent before what fills it.
    collect_one<unpin_atom, pin_number>(world_.worker, what::unpin);
    collect_one<locate_request>(world_.shard, what::locate);
    collect_one<reserve_request>(world_.shard, what::reserve);
    collect_one<release_request>(world_.shard, what::release);
    collect_one<commit_atom, finish_request>(world_.shard, what::commit);
    collect_one<abort_atom, finish_request>(world_.shard, what::abort);
    collect_one<fetch_atom, frame_request>(world_.worker, what::fetch);
    collect_one<place_atom, frame_request>(world_.worker, what::place);
    collect_one<fill_atom, fill_request>(world_.worker, what::fill);
    collect_one<gather_atom, copy_order>(world_.copier, what::gather);
    collect_one<scatter_atom, copy_order>(world_.copier, what::scatter);
    CHECK(in_window_ <= window_);
    most_ = std::max(most_, in_window_);
  }

  void leave(pin_number pin) {
    in_window_ -= world_.frames.pages_of(pin);
    world_.frames.end(pin);
  }

  void give(const request& x) {
    if (refuse_ == 0 || random_() % refuse_ != 0)
      return world_.give(x.from);
    in_window_ -= x.from.get<frame_request>(1).pages.size();
    world_.worker.reply_error(x.from, errc::limit_exceeded);
  }

  void answer(const request& x) {
    switch (x.kind) {
    case what::locate:
      return world_.locate(x.from);
    case what::reserve:
      return world_.grant(x.from);
    case what::release:
      return world_.reply(world_.shard, x.from);
    case what::commit:
    case what::abort:
      return world_.finish(x.from);
    case what::fetch:
    case what::place:
      return give(x);
    case what::unpin:
      return world_.reply(world_.worker, x.from);
    case what::fill: {
      const auto& filled = x.from.get<fill_request>(1);
      leave(filled.pin);
      return world_.reply(world_.worker, x.from, io_reply{filled.gathered});
    }
    case what::gather:
    case what::scatter:
      for (const auto& item : x.from.get<copy_order>(1).items)
        ++moved_[item.key];
      return world_.copy(x.from);
    }
  }

  room_world& world_;
  std::mt19937_64 random_;
  std::size_t window_;
  std::size_t in_window_ = 0;
  std::size_t most_ = 0;
  std::vector<request> waiting_;
  std::map<key_digest, int> moved_;
  std::uint32_t refuse_ = 0;
};

template <class Coordinator>
void check_all_end_well(std::uint64_t seed, std::uint32_t window, std::uint32_t refuse_one_in) {
  INFO("seed " << seed << ", a window of " << window << ", refusing one in " << refuse_one_in);
  room_world w;
  const auto coordinator = w.spawn_with<Coordinator>(window);
  peers others(w, seed, window);
  others.refuse_one_in(refuse_one_in);
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> tasks;
  std::size_t pages = 0;
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto count = static_cast<std::uint32_t>(1 + random() % 12);
    tasks.emplace_back(w.begin(coordinator, test_task(count, 100 * i, std::chrono::hours(1))), count);
    pages += count;
    for (auto some = random() % 4; some > 0; --some)
      others.step();
  }
  // When all batches were refused, the timer retries. That is bounded: each round has a chance to be accepted.
  for (int rounds = 0; rounds < 10'000 && (others.step() || w.pending_timeouts() > 0); ++rounds)
    if (others.waiting() == 0)
      w.advance(std::chrono::milliseconds(100));
  for (const auto& [number, count] : tasks)
    CHECK(w.results(number) == std::vector(count, errc::ok));
  CHECK(others.in_window() == 0);
  CHECK(w.frames.open_pins() == 0);
  CHECK(others.moved().size() == pages);
  if (refuse_one_in == 0)
    for (const auto& [moved_key, times] : others.moved())
      CHECK(times == 1);
}

} // namespace

TEST_CASE("window: tasks larger than the window all end, release each pin once and never exceed it",
          "[transfer_room]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (const std::uint32_t window : {1U, 2U, 5U})
      for (const std::uint32_t refuse : {0U, 3U}) {
        check_all_end_well<load_coordinator>(seed, window, refuse);
        check_all_end_well<save_coordinator>(seed, window, refuse);
      }
}

TEST_CASE_METHOD(room_world, "window: it is used up, by the oldest task first", "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(3);
  const auto first = begin(load, test_task(5, 0, std::chrono::hours(1)));
  const auto second = begin(load, test_task(4, 100, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  std::vector<key_digest> order;
  for (int rounds = 0; rounds < 3; ++rounds) {
    auto fetches = worker.take<fetch_atom, frame_request>();
    std::size_t pages = 0;
    for (const auto& x : fetches)
      pages += x.get<frame_request>(1).pages.size();
    CHECK(pages == 3);
    advance(10 * ms);
    for (const auto& x : fetches)
      give(x);
    for (const auto& x : copier.take<scatter_atom, copy_order>()) {
      for (const auto& item : x.get<copy_order>(1).items)
        order.push_back(item.key);
      copy(x);
    }
  }
  std::vector<key_digest> expected;
  for (const auto& task : {test_task(5), test_task(4, 100)})
    expected.insert(expected.end(), task.keys.begin(), task.keys.end());
  CHECK(order == expected);
  CHECK(results(first) == std::vector(5, errc::ok));
  const auto done = client().answer_to(second).value<transfer_result>();
  CHECK(results_of(done) == std::vector(4, errc::ok));
  // Its last pages waited for the round in which its first one was fetched.
  CHECK(done.timing.window_wait >= std::chrono::milliseconds(10));
  CHECK(done.timing.io >= std::chrono::milliseconds(20));
}

TEST_CASE_METHOD(room_world, "window: a load that waits for room is answered at its deadline and not fetched later",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto holds_all = begin(load, test_task(2, 0, 1000 * ms));
  const auto waits = begin(load, test_task(3, 100, 500 * ms));
  const auto patient = begin(load, test_task(2, 200, std::chrono::hours(1)));
  const auto locates = shard.take<locate_request>();
  for (const auto& x : locates)
    locate(x);
  const auto hanging = worker.take_one<fetch_atom, frame_request>();
  advance(700 * ms);
  CHECK(results(waits) == std::vector(3, errc::timeout));
  // No frame is pinned for it, so its lease is released at once.
  const auto released = shard.take_one<release_request>();
  CHECK(released.get<release_request>(0).lease == locates[1].get<locate_request>(0).lease);
  reply(shard, released);
  advance(600 * ms);
  CHECK(results(holds_all) == std::vector(2, errc::timeout));
  // It has its part of the window until the fetch has ended.
  advance(std::chrono::minutes(1));
  CHECK(worker.take<fetch_atom, frame_request>().empty());
  give(hanging);
  const auto next = worker.take_one<fetch_atom, frame_request>();
  CHECK(next.get<frame_request>(1).pages.size() == 2);
  give(next);
  const auto scattering = copier.take_one<scatter_atom, copy_order>();
  CHECK(scattering.get<copy_order>(1).items[0].key == key(200));
  copy(scattering);
  CHECK(results(patient) == std::vector(2, errc::ok));
}

TEST_CASE_METHOD(room_world, "window: a save that waits for room until its deadline releases its slots",
                 "[transfer_room]") {
  const auto save = spawn_with<save_coordinator>(2);
  const auto holds_all = begin(save, test_task(2, 0, std::chrono::hours(1)));
  const auto waits = begin(save, test_task(3, 100, 500 * ms));
  const auto reserves = shard.take<reserve_request>();
  grant(reserves[0]);
  reply(shard, reserves[1], reserve_reply{locations(reserves[1].get<reserve_request>(0).keys, 50)});
  give(worker.take_one<place_atom, frame_request>());
  copy(copier.take_one<gather_atom, copy_order>());
  const auto hanging = worker.take_one<fill_atom, fill_request>();
  advance(700 * ms);
  CHECK(results(waits) == std::vector(3, errc::timeout));
  const auto aborted = shard.take_one<abort_atom, finish_request>();
  CHECK(aborted.get<finish_request>(1).ticket == reserves[1].get<reserve_request>(0).ticket);
  std::set<slot_number> slots;
  for (const auto& x : aborted.get<finish_request>(1).pages)
    slots.insert(x.where.slot);
  CHECK(slots == std::set<slot_number>{50, 51, 52});
  finish(aborted);
  fill(hanging);
  CHECK(worker.take<place_atom, frame_request>().empty());
  CHECK(copier.take<gather_atom, copy_order>().empty());
  finish(shard.take_one<commit_atom, finish_request>());
  CHECK(results(holds_all) == std::vector(2, errc::ok));
}

TEST_CASE_METHOD(room_world, "window: a request that the node refuses for now is retried until the deadline",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto number = begin(load, test_task(3, 0, 1000 * ms));
  const auto other = begin(load, test_task(1, 100, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  std::size_t tries = 0;
  for (int i = 0; i < 12; ++i) {
    const auto fetches = worker.take<fetch_atom, frame_request>();
    CHECK(fetches.size() <= 1); // never more than the node has room for
    for (const auto& x : fetches) {
      worker.reply_error(x, errc::limit_exceeded);
      ++tries;
    }
    run();
    CHECK(worker.take<fetch_atom, frame_request>().empty()); // not at once
    advance(100 * ms);
  }
  CHECK(tries >= 8);
  CHECK(results(number) == std::vector(3, errc::timeout));
  reply(shard, shard.take_one<release_request>());
  const auto taken = worker.take<fetch_atom, frame_request>();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].get<frame_request>(1).pages.size() == 1);
  give(taken[0]);
  copy(copier.take_one<scatter_atom, copy_order>());
  CHECK(results(other) == std::vector{errc::ok});
}

TEST_CASE_METHOD(room_world, "window: pages in flight to a lost node do not count for the next node",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto filling = begin(load, test_task(1, 0, std::chrono::hours(1)));
  const auto fetching = begin(load, test_task(1, 100, std::chrono::hours(1)));
  const auto waiting = begin(load, test_task(3, 200, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  auto fetches = worker.take<fetch_atom, frame_request>();
  REQUIRE(fetches.size() == 2);
  give(fetches[0]);
  const auto scattering = copier.take_one<scatter_atom, copy_order>();
  REQUIRE(ask(load, bind_atom_v, few(2, 78)).code() == errc::ok);
  CHECK(results(fetching) == std::vector{errc::unreachable});
  CHECK(results(waiting) == std::vector(3, errc::unreachable));
  CHECK_FALSE(client().answer_to(filling).came);

  peers others(*this, 1, 2);
  const auto next = begin(load, test_task(9, 300, std::chrono::hours(1)));
  others.step();
  give(fetches[1]);
  copy(scattering);
  CHECK(results(filling) == std::vector{errc::ok});
  while (others.step()) {
  }
  CHECK(results(next) == std::vector(9, errc::ok));
  CHECK(others.most() == 2);
}

} // namespace transfer_room_test
