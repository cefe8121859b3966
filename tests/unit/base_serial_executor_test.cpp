#include "base/serial_executor.hpp"
#include "tests/catch.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace base_serial_executor_test {

using namespace troupe;

namespace {

using at_end = serial_executor::at_end;

constexpr duration far_away = std::chrono::hours(1);
constexpr duration soon = std::chrono::milliseconds(1);

std::unique_ptr<serial_executor> started(std::size_t limit = serial_executor::usual_limit) {
  return serial_executor::start(thread_name("troupe-test"), "the thread of a test", limit).value();
}

std::string name_of_this_thread() {
  std::array<char, thread_name::limit> out{};
  ::pthread_getname_np(::pthread_self(), out.data(), out.size());
  return out.data();
}

/// Keeps the executor's thread in a task until `open`.
class held_thread {
public:
  explicit held_thread(serial_executor& of) {
    std::promise<void> entered;
    auto is_in = entered.get_future();
    REQUIRE(of.post([&entered, opened = opened_.get_future().share()] {
      entered.set_value();
      opened.wait();
    }));
    is_in.wait();
  }
  void open() { opened_.set_value(); }

private:
  std::promise<void> opened_;
};

/// Ends the executor in another thread; returns once it is ending.
std::thread ending(serial_executor& x) {
  std::thread out([&x] { x.end(); });
  while (!x.is_ending())
    std::this_thread::yield();
  return out;
}

} // namespace

TEST_CASE("serial executor: tasks run in the order of their posting, in one named thread", "[base][serial_executor]") {
  std::vector<int> ran;
  std::vector<std::thread::id> threads;
  std::string name;
  const auto x = started();
  for (int i = 0; i < 100; ++i)
    REQUIRE(x->post([&, i] {
      ran.push_back(i);
      threads.push_back(std::this_thread::get_id());
      name = name_of_this_thread();
    }));
  x->end();
  REQUIRE(ran.size() == 100);
  for (int i = 0; i < 100; ++i)
    CHECK(ran[i] == i);
  for (const auto& each : threads)
    CHECK(each == threads.front());
  CHECK(threads.front() != std::this_thread::get_id());
  CHECK(name == "troupe-test");
}

TEST_CASE("serial executor: the end runs or drops each waiting task, as it was posted", "[base][serial_executor]") {
  std::vector<std::string> ran;
  const auto x = started();
  held_thread first(*x);
  const auto owned = std::make_shared<int>(0);
  REQUIRE(x->post([&] { ran.emplace_back("a"); }));
  REQUIRE(x->post([&ran, owned] { ran.emplace_back("b"); }, at_end::drop));
  REQUIRE(x->post([&] { ran.emplace_back("c"); }));
  auto ender = ending(*x);
  CHECK(x->post([&] { ran.emplace_back("d"); }).error().code == errc::shutting_down);
  CHECK(x->repeat(soon, soon, [] { return true; }).error().code == errc::shutting_down);
  first.open();
  ender.join();
  CHECK(ran == std::vector<std::string>{"a", "c"});
  CHECK(owned.use_count() == 1);
  x->end(); // a second time
}

TEST_CASE("serial executor: a task that may be dropped runs where the executor goes on", "[base][serial_executor]") {
  std::promise<void> ran;
  const auto x = started();
  REQUIRE(x->post([&] { ran.set_value(); }, at_end::drop));
  ran.get_future().wait();
}

TEST_CASE("serial executor: no more tasks wait than the limit allows", "[base][serial_executor]") {
  int ran = 0;
  const auto x = started(2);
  held_thread first(*x);
  REQUIRE(x->post([&] { ++ran; }));
  REQUIRE(x->post([&] { ++ran; }));
  const auto owned = std::make_shared<int>(0);
  const auto refused = x->post([&ran, owned] { ++ran; });
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(owned.use_count() == 1);
  first.open();
  x->end();
  CHECK(ran == 2);
}

TEST_CASE("serial executor: a repeated task runs until it returns false", "[base][serial_executor]") {
  int runs = 0;
  std::promise<void> over;
  const auto owned = std::make_shared<int>(0);
  const auto x = started();
  REQUIRE(x->repeat(duration::zero(), soon, [&, owned] {
    if (++runs < 3)
      return true;
    over.set_value();
    return false;
  }));
  over.get_future().wait();
  // A task that is posted now runs after the last repetition has been destroyed.
  std::promise<void> posted;
  REQUIRE(x->post([&] { posted.set_value(); }));
  posted.get_future().wait();
  CHECK(runs == 3);
  CHECK(owned.use_count() == 1);
}

TEST_CASE("serial executor: posted tasks do not wait for a repeated one, which is dropped at the end",
          "[base][serial_executor]") {
  int runs = 0;
  std::promise<void> posted;
  const auto owned = std::make_shared<int>(0);
  {
    const auto x = started();
    REQUIRE(x->repeat(far_away, far_away, [&runs, owned] {
      ++runs;
      return true;
    }));
    REQUIRE(x->post([&] { posted.set_value(); }));
    posted.get_future().wait();
  }
  CHECK(runs == 0);
  CHECK(owned.use_count() == 1);
}

TEST_CASE("serial executor: a running task sees the end, and is waited for", "[base][serial_executor]") {
  bool seen = false;
  std::promise<void> entered;
  const auto x = started();
  serial_executor& executor = *x;
  REQUIRE(x->repeat(duration::zero(), soon, [&] {
    entered.set_value();
    while (!executor.is_ending())
      std::this_thread::yield();
    seen = true;
    return true;
  }));
  entered.get_future().wait();
  x->end();
  CHECK(seen);
}

TEST_CASE("serial executor: a task may post", "[base][serial_executor]") {
  std::promise<void> inner;
  const auto x = started();
  serial_executor& executor = *x;
  REQUIRE(x->post([&] { static_cast<void>(executor.post([&] { inner.set_value(); })); }));
  inner.get_future().wait();
}

TEST_CASE("serial executor: a thread that cannot be had is an error", "[base][serial_executor]") {
  pthread_attr_t usual;
  REQUIRE(::pthread_getattr_default_np(&usual) == 0);
  pthread_attr_t huge;
  REQUIRE(::pthread_attr_init(&huge) == 0);
  // No address space has room for this stack.
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 47U) == 0);
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  const auto refused = serial_executor::start(thread_name("troupe-test"), "the thread of a test");
  REQUIRE(::pthread_setattr_default_np(&usual) == 0);
  ::pthread_attr_destroy(&huge);
  ::pthread_attr_destroy(&usual);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::io_error);
  CHECK(refused.error().text.find("cannot start the thread of a test") == 0);
}

} // namespace base_serial_executor_test
