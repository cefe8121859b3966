#include "gpu/fair_pool.hpp"
#include "tests/catch.hpp"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace gpu_fair_pool_test {

using namespace troupe;

namespace {

struct thing {
  int size = 0;
  std::atomic<int> users{0};
};
using pool = fair_pool<thing>;

result<std::unique_ptr<thing>> made() {
  return std::make_unique<thing>();
}

result<void> nothing(thing&) {
  return {};
}

void await_waiters(const pool& things, std::size_t count) {
  while (things.waiting() != count)
    std::this_thread::yield();
}

} // namespace

TEST_CASE("fair pool: those that wait are served in the order in which they came", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(1, made, nothing));
  std::vector<int> order;
  std::vector<std::thread> threads;
  {
    const auto held = things.take();
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const auto mine = things.take();
        order.push_back(i);
      });
      await_waiters(things, threads.size());
    }
    CHECK(order.empty());
  }
  for (auto& x : threads)
    x.join();
  CHECK(order == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("fair pool: a caller that always has work does not keep another one waiting", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(1, made, nothing));
  for (int i = 0; i < 100; ++i) {
    bool served = false;
    auto held = std::make_unique<pool::holder>(things.take());
    std::thread other([&] {
      const auto mine = things.take();
      served = true;
    });
    await_waiters(things, 1);
    held.reset();
    // Asked for at once again, long before the other thread runs.
    held = std::make_unique<pool::holder>(things.take());
    CHECK(served);
    held.reset();
    other.join();
  }
}

TEST_CASE("fair pool: a thing has one user at a time, and all are used", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(3, made, nothing));
  std::atomic<int> shared{0};
  std::atomic<int> at_once{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        if (t == 0 && round % 50 == 0) {
          const auto alone = things.with_all(3, made, [&](thing& x) {
            shared += x.users.load();
            return result<void>{};
          });
          shared += alone ? 0 : 1;
          continue;
        }
        const auto held = things.take();
        shared += held->users.fetch_add(1);
        const auto now = ++at_once;
        for (auto known = most.load(); known < now && !most.compare_exchange_weak(known, now);) {
        }
        std::this_thread::yield();
        --at_once;
        --held->users;
      }
    });
  for (auto& x : threads)
    x.join();
  CHECK(shared == 0);
  CHECK(most <= 3);
}

TEST_CASE("fair pool: a change waits for holders, and callers that come later wait for it", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(2, made, nothing));
  std::atomic<bool> changed{false};
  auto held = std::make_unique<pool::holder>(things.take());
  auto change = std::async(std::launch::async, [&] {
    return things.with_all(2, made, [&](thing& x) {
      x.size = 7;
      changed = true;
      return result<void>{};
    });
  });
  await_waiters(things, 1);
  auto later = std::async(std::launch::async, [&] { return things.take()->size; });
  await_waiters(things, 2);
  CHECK_FALSE(changed);
  held.reset();
  CHECK(change.get().has_value());
  CHECK(later.get() == 7);
}

TEST_CASE("fair pool: two changes at once, and callers beside them, all end", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(2, made, nothing));
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t round = 0; round < 50; ++round)
        if (t < 3)
          done += things.with_all(2 + round % 3, made, nothing) ? 1 : 0;
        else
          done += things.take()->size == 0 ? 1 : 0;
    });
  for (auto& x : threads)
    x.join();
  CHECK(done == 300);
}

TEST_CASE("fair pool: after an error all things are free again, and there is nothing new", "[gpu_rules]") {
  pool things;
  REQUIRE(things.with_all(1, made, nothing));
  int made_now = 0;
  const auto second_fails = [&]() -> result<std::unique_ptr<thing>> {
    if (made_now++ > 0)
      return fail(errc::limit_exceeded, "memory is short");
    return std::make_unique<thing>();
  };
  int changed = 0;
  const auto count = [&](thing&) {
    ++changed;
    return result<void>{};
  };
  const auto done = things.with_all(3, second_fails, count);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::limit_exceeded);
  CHECK(changed == 0);
  // The new one is made, and refuses what the others have.
  int asked = 0;
  const auto new_one_refuses = [&](thing&) -> result<void> {
    if (asked++ == 0)
      return {};
    return fail(errc::limit_exceeded, "memory is short");
  };
  CHECK_FALSE(things.with_all(2, made, new_one_refuses));
  CHECK(asked == 2);
  CHECK(things.with_all(0, made, count).has_value());
  CHECK(changed == 1);
  CHECK(things.take()->size == 0);
  CHECK(things.with_all(2, made, count).has_value());
  CHECK(changed == 3);
}

} // namespace gpu_fair_pool_test
