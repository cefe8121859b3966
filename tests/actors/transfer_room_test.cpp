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

/// Coordinators with fewer page buffers than their tasks have pages.

namespace {

/// Which page buffers are in use, as seen by the copy engine and the io worker.
class buffer_watch {
public:
  buffer_watch(std::uint64_t first, std::uint32_t count) : first_(first), count_(count) {}

  void take(std::uint64_t offset) {
    INFO("buffer at " << offset);
    CHECK(offset >= first_);
    CHECK((offset - first_) % test_slot_bytes == 0);
    CHECK((offset - first_) / test_slot_bytes < count_);
    CHECK(in_use_.insert(offset).second); // handed out twice
    most_ = std::max(most_, in_use_.size());
  }
  void give_back(std::uint64_t offset) { CHECK(in_use_.erase(offset) == 1); }

  std::size_t in_use() const { return in_use_.size(); }
  std::size_t most() const { return most_; }

private:
  std::uint64_t first_;
  std::uint32_t count_;
  std::set<std::uint64_t> in_use_;
  std::size_t most_ = 0;
};

struct room_world : coordinator_world {
  static constexpr std::uint64_t first_buffer = 5 * test_slot_bytes;

  coordinator_binding few(std::uint32_t buffers, owner_id owner = 77) const {
    auto out = binding(owner);
    out.buffer_offset = first_buffer;
    out.buffer_count = buffers;
    return out;
  }

  template <class Coordinator>
  transfer_actor spawn_with(std::uint32_t buffers) {
    auto out = spawn_coordinator<Coordinator>();
    REQUIRE(ask(out, bind_atom_v, few(buffers)).code() == errc::ok);
    return out;
  }
};

/// Plays registry, io worker and copy engine in an order drawn at random, keeping an eye on the buffers.
class peers {
public:
  peers(room_world& world, std::uint64_t seed, std::uint32_t buffers)
      : world_(world), random_(seed), watch_(room_world::first_buffer, buffers) {}

  buffer_watch& watch() { return watch_; }
  /// One in so many batches is refused because the io worker has enough to do; 0: none.
  void refuse_one_in(std::uint32_t n) { refuse_ = n; }

  /// How often each page was moved by the copy engine and got a good answer.
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
  enum class what { locate, reserve, release, commit, abort, read, write, gather, scatter };
  struct request {
    what kind;
    received from;
  };

  template <class... Ts>
  void collect_one(probe& where, what kind) {
    for (auto& x : where.take<Ts...>()) {
      if (kind == what::read)
        for (const auto& item : x.template get<io_batch>(1).items)
          watch_.take(item.buffer_offset);
      if (kind == what::gather)
        for (const auto& item : x.template get<copy_order>(1).items)
          watch_.take(item.buffer_offset);
      waiting_.push_back({kind, std::move(x)});
    }
  }

  void collect() {
    collect_one<locate_request>(world_.shard, what::locate);
    collect_one<reserve_request>(world_.shard, what::reserve);
    collect_one<release_request>(world_.shard, what::release);
    collect_one<commit_atom, finish_request>(world_.shard, what::commit);
    collect_one<abort_atom, finish_request>(world_.shard, what::abort);
    collect_one<read_atom, io_batch>(world_.worker, what::read);
    collect_one<write_atom, io_batch>(world_.worker, what::write);
    collect_one<gather_atom, copy_order>(world_.copier, what::gather);
    collect_one<scatter_atom, copy_order>(world_.copier, what::scatter);
  }

  bool refused(const request& x, const packed<io_item>& items) {
    if (refuse_ == 0 || random_() % refuse_ != 0)
      return false;
    for (const auto& item : items)
      watch_.give_back(item.buffer_offset);
    world_.worker.reply_error(x.from, errc::limit_exceeded);
    return true;
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
    case what::read:
      if (!refused(x, x.from.get<io_batch>(1).items))
        world_.transfer(x.from);
      return;
    case what::write:
      if (refused(x, x.from.get<io_batch>(1).items))
        return;
      // The buffer is free from the answer on.
      for (const auto& item : x.from.get<io_batch>(1).items)
        watch_.give_back(item.buffer_offset);
      return world_.transfer(x.from);
    case what::gather:
      for (const auto& item : x.from.get<copy_order>(1).items)
        ++moved_[item.key];
      return world_.copy(x.from);
    case what::scatter:
      for (const auto& item : x.from.get<copy_order>(1).items) {
        ++moved_[item.key];
        watch_.give_back(item.buffer_offset);
      }
      return world_.copy(x.from);
    }
  }

  room_world& world_;
  std::mt19937_64 random_;
  buffer_watch watch_;
  std::vector<request> waiting_;
  std::map<key_digest, int> moved_;
  std::uint32_t refuse_ = 0;
};

template <class Coordinator>
void check_all_end_well(std::uint64_t seed, std::uint32_t buffers, std::uint32_t refuse_one_in) {
  INFO("seed " << seed << ", " << buffers << " buffers, refusing one in " << refuse_one_in);
  room_world w;
  const auto coordinator = w.spawn_with<Coordinator>(buffers);
  peers others(w, seed, buffers);
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
  // Where all batches were refused, the timer asks again. That is bounded: each round has a chance to be taken.
  for (int rounds = 0; rounds < 10'000 && (others.step() || w.pending_timeouts() > 0); ++rounds)
    if (others.waiting() == 0)
      w.advance(std::chrono::milliseconds(100));
  for (const auto& [number, count] : tasks)
    CHECK(w.results(number) == std::vector(count, errc::ok));
  CHECK(others.watch().in_use() == 0);
  CHECK(others.moved().size() == pages);
  if (refuse_one_in == 0)
    for (const auto& [moved_key, times] : others.moved())
      CHECK(times == 1);
}

} // namespace

TEST_CASE("page buffers: tasks with more pages than there are buffers all end, and no buffer has two pages",
          "[transfer_room]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (const std::uint32_t buffers : {1U, 2U, 5U})
      for (const std::uint32_t refuse : {0U, 3U}) {
        check_all_end_well<load_coordinator>(seed, buffers, refuse);
        check_all_end_well<save_coordinator>(seed, buffers, refuse);
      }
}

TEST_CASE_METHOD(room_world, "page buffers: all are used, the oldest task first, then the next", "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(3);
  const auto first = begin(load, test_task(5, 0, std::chrono::hours(1)));
  const auto second = begin(load, test_task(4, 100, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  std::vector<key_digest> order;
  for (int rounds = 0; rounds < 3; ++rounds) {
    auto reads = worker.take<read_atom, io_batch>();
    std::size_t pages = 0;
    for (const auto& x : reads)
      pages += x.get<io_batch>(1).items.size();
    CHECK(pages == 3);
    advance(10 * ms);
    for (const auto& x : reads)
      transfer(x);
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
  // Its last pages waited for the round in which its first one was read.
  CHECK(done.timing.buffer_wait >= std::chrono::milliseconds(10));
  CHECK(done.timing.io >= std::chrono::milliseconds(20));
}

TEST_CASE_METHOD(room_world, "page buffers: the deadline of a load that waits for one answers it; it is not read later",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto holds_all = begin(load, test_task(2, 0, 1000 * ms));
  const auto waits = begin(load, test_task(3, 100, 500 * ms));
  const auto patient = begin(load, test_task(2, 200, std::chrono::hours(1)));
  const auto locates = shard.take<locate_request>();
  for (const auto& x : locates)
    locate(x);
  const auto hanging = worker.take_one<read_atom, io_batch>();
  advance(700 * ms);
  CHECK(results(waits) == std::vector(3, errc::timeout));
  // Nothing reads for it, so its lease goes back at once.
  const auto released = shard.take_one<release_request>();
  CHECK(released.get<release_request>(0).lease == locates[1].get<locate_request>(0).lease);
  reply(shard, released);
  advance(600 * ms);
  CHECK(results(holds_all) == std::vector(2, errc::timeout));
  // Its buffers are the kernel's until the read has ended.
  advance(std::chrono::minutes(1));
  CHECK(worker.take<read_atom, io_batch>().empty());
  transfer(hanging);
  const auto next = worker.take_one<read_atom, io_batch>();
  CHECK(next.get<io_batch>(1).items.size() == 2);
  transfer(next);
  const auto scattering = copier.take_one<scatter_atom, copy_order>();
  CHECK(scattering.get<copy_order>(1).items[0].key == key(200));
  copy(scattering);
  CHECK(results(patient) == std::vector(2, errc::ok));
}

TEST_CASE_METHOD(room_world, "page buffers: a save that waits for one until its deadline gives its slots back",
                 "[transfer_room]") {
  const auto save = spawn_with<save_coordinator>(2);
  const auto holds_all = begin(save, test_task(2, 0, std::chrono::hours(1)));
  const auto waits = begin(save, test_task(3, 100, 500 * ms));
  const auto reserves = shard.take<reserve_request>();
  grant(reserves[0]);
  reply(shard, reserves[1], reserve_reply{locations(reserves[1].get<reserve_request>(0).keys, 50)});
  copy(copier.take_one<gather_atom, copy_order>());
  const auto hanging = worker.take_one<write_atom, io_batch>();
  advance(700 * ms);
  CHECK(results(waits) == std::vector(3, errc::timeout));
  const auto aborted = shard.take_one<abort_atom, finish_request>();
  CHECK(aborted.get<finish_request>(1).ticket == reserves[1].get<reserve_request>(0).ticket);
  std::set<slot_number> slots;
  for (const auto& x : aborted.get<finish_request>(1).pages)
    slots.insert(x.where.slot);
  CHECK(slots == std::set<slot_number>{50, 51, 52});
  finish(aborted);
  transfer(hanging);
  CHECK(copier.take<gather_atom, copy_order>().empty());
  finish(shard.take_one<commit_atom, finish_request>());
  CHECK(results(holds_all) == std::vector(2, errc::ok));
}

TEST_CASE_METHOD(room_world, "page buffers: a node that takes nothing for now is asked again, until the deadline",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto number = begin(load, test_task(3, 0, 1000 * ms));
  const auto other = begin(load, test_task(1, 100, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  std::size_t tries = 0;
  for (int i = 0; i < 12; ++i) {
    const auto reads = worker.take<read_atom, io_batch>();
    CHECK(reads.size() <= 1); // never more than the node has room for
    for (const auto& x : reads) {
      worker.reply_error(x, errc::limit_exceeded);
      ++tries;
    }
    run();
    CHECK(worker.take<read_atom, io_batch>().empty()); // not at once
    advance(100 * ms);
  }
  CHECK(tries >= 8);
  CHECK(results(number) == std::vector(3, errc::timeout));
  reply(shard, shard.take_one<release_request>());
  const auto taken = worker.take<read_atom, io_batch>();
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].get<io_batch>(1).items.size() == 1);
  transfer(taken[0]);
  copy(copier.take_one<scatter_atom, copy_order>());
  CHECK(results(other) == std::vector{errc::ok});
}

TEST_CASE_METHOD(room_world, "page buffers: what a lost node still had of them does not come back to the next node",
                 "[transfer_room]") {
  const auto load = spawn_with<load_coordinator>(2);
  const auto filling = begin(load, test_task(1, 0, std::chrono::hours(1)));
  const auto reading = begin(load, test_task(1, 100, std::chrono::hours(1)));
  const auto waiting = begin(load, test_task(3, 200, std::chrono::hours(1)));
  for (const auto& x : shard.take<locate_request>())
    locate(x);
  auto reads = worker.take<read_atom, io_batch>();
  REQUIRE(reads.size() == 2);
  transfer(reads[0]);
  const auto scattering = copier.take_one<scatter_atom, copy_order>();
  REQUIRE(ask(load, bind_atom_v, few(2, 78)).code() == errc::ok);
  CHECK(results(reading) == std::vector{errc::unreachable});
  CHECK(results(waiting) == std::vector(3, errc::unreachable));
  CHECK_FALSE(client().answer_to(filling).came);

  peers others(*this, 1, 2);
  const auto next = begin(load, test_task(9, 300, std::chrono::hours(1)));
  others.step();
  transfer(reads[1]);
  copy(scattering);
  CHECK(results(filling) == std::vector{errc::ok});
  while (others.step()) {
  }
  CHECK(results(next) == std::vector(9, errc::ok));
  CHECK(others.watch().most() == 2);
}

} // namespace transfer_room_test
