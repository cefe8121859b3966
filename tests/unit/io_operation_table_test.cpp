#include "io/engine/operation_table.hpp"
#include "tests/catch.hpp"

#include <deque>
#include <map>
#include <random>
#include <set>

namespace io_operation_table_test {

using namespace troupe;
using namespace troupe::io;
using namespace std::chrono_literals;

namespace {

constexpr timestamp zero{};

request waiting_request(std::uint64_t tag, timestamp deadline = timestamp::max()) {
  request out;
  out.tag = tag;
  out.deadline = deadline;
  return out;
}

} // namespace

TEST_CASE("operation table: requests start in the order of arrival", "[io][operation_table]") {
  operation_table table;
  for (std::uint64_t tag = 0; tag < 5; ++tag)
    table.add(waiting_request(tag));
  CHECK(table.waiting() == 5);
  for (std::uint64_t tag = 0; tag < 5; ++tag)
    CHECK(table.at(table.start_next()).what.tag == tag);
  CHECK(table.running() == 5);
  CHECK(table.start_next() == operation_table::none);
}

TEST_CASE("operation table: a handle matches only the current use of a running row", "[io][operation_table]") {
  operation_table table;
  const auto i = table.add(waiting_request(1));
  CHECK(table.find_running(table.handle_of(i)) == nullptr); // it waits and is unknown to the kernel
  table.start_next();
  const auto first = table.handle_of(i);
  REQUIRE(table.find_running(first) != nullptr);
  CHECK(table.find_running(first)->what.tag == 1);
  CHECK(table.find_running(first + (1ULL << 32U)) == nullptr); // a generation that is yet to come
  CHECK(table.find_running(first + 1) == nullptr);             // a row that does not exist
  table.remove(i);
  CHECK(table.find_running(first) == nullptr);
  REQUIRE(table.add(waiting_request(2)) == i); // the row is reused
  table.start_next();
  CHECK(table.find_running(first) == nullptr);
  CHECK(table.handle_of(i) != first);
  CHECK(table.handle_of(i) >> 62U == 0);
}

TEST_CASE("operation table: deadlines are reported in order and only once", "[io][operation_table]") {
  operation_table table;
  table.add(waiting_request(30, zero + 30ms));
  table.add(waiting_request(10, zero + 10ms));
  table.add(waiting_request(0));
  table.add(waiting_request(20, zero + 20ms));
  CHECK(table.next_deadline() == zero + 10ms);
  CHECK(table.take_expired(zero + 9ms) == operation_table::none);
  CHECK(table.at(table.take_expired(zero + 20ms)).what.tag == 10);
  CHECK(table.at(table.take_expired(zero + 20ms)).what.tag == 20);
  CHECK(table.take_expired(zero + 20ms) == operation_table::none);
  const auto last = table.take_expired(zero + 1h);
  CHECK(table.at(last).what.tag == 30);
  CHECK_FALSE(table.next_deadline().has_value());
  table.set_deadline(last, zero + 2h);
  table.set_deadline(last, zero + 3h); // replaces
  CHECK(table.next_deadline() == zero + 3h);
  table.remove(last);
  CHECK_FALSE(table.next_deadline().has_value());
  CHECK(table.waiting() == 3);
}

TEST_CASE("operation table: bytes are counted while their request runs", "[io][operation_table]") {
  constexpr auto serial = operation_table::queue_name::serial;
  operation_table table;
  for (const std::uint64_t length : {10, 20, 30})
    table.add({.length = length}, serial);
  table.add({.length = 40});
  const auto first = table.start_next(serial);
  table.start_next(serial);
  table.start_next();
  CHECK(table.running_bytes(serial) == 30);
  table.remove(first);
  CHECK(table.running_bytes(serial) == 20);
  table.remove(2); // still waits
  CHECK(table.running_bytes(serial) == 20);
}

TEST_CASE("operation table: the table behaves like a simple model", "[io][operation_table]") {
  const auto seed = GENERATE(range(1, 21));
  INFO("seed " << seed);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  operation_table table;
  std::map<std::uint64_t, operation_table::index> rows; // by tag
  std::deque<std::uint64_t> waiting;
  std::set<std::uint64_t> running;
  std::set<std::pair<timestamp, std::uint64_t>> alarms;
  std::uint64_t next_tag = 0;
  timestamp now = zero;

  const auto forget_alarm = [&](std::uint64_t tag) {
    std::erase_if(alarms, [&](const auto& a) { return a.second == tag; });
  };
  const auto remove = [&](std::uint64_t tag) {
    table.remove(rows.at(tag));
    rows.erase(tag);
    std::erase(waiting, tag);
    running.erase(tag);
    forget_alarm(tag);
  };

  for (int step = 0; step < 2000; ++step) {
    const auto choice = random() % 10;
    if (choice < 4) {
      const auto deadline = random() % 4 == 0 ? timestamp::max() : now + std::chrono::milliseconds(random() % 50);
      rows[next_tag] = table.add(waiting_request(next_tag, deadline));
      waiting.push_back(next_tag);
      if (deadline != timestamp::max())
        alarms.emplace(deadline, next_tag);
      ++next_tag;
    } else if (choice < 7) {
      const auto i = table.start_next();
      REQUIRE((i == operation_table::none) == waiting.empty());
      if (i != operation_table::none) {
        REQUIRE(table.at(i).what.tag == waiting.front());
        running.insert(waiting.front());
        waiting.pop_front();
      }
    } else if (choice < 9) {
      if (!rows.empty()) // one at random, waiting or running
        remove(std::next(rows.begin(), static_cast<std::ptrdiff_t>(random() % rows.size()))->first);
    } else {
      now += 5ms;
      for (auto i = table.take_expired(now); i != operation_table::none; i = table.take_expired(now)) {
        REQUIRE_FALSE(alarms.empty());
        REQUIRE(alarms.begin()->first == table.at(i).what.deadline);
        REQUIRE(alarms.erase({table.at(i).what.deadline, table.at(i).what.tag}) == 1);
      }
      REQUIRE((alarms.empty() || alarms.begin()->first > now));
    }
    const auto& agrees = [&] {
      for (const auto& [tag, i] : rows)
        if (table.at(i).what.tag != tag || (table.find_running(table.handle_of(i)) != nullptr) != running.contains(tag))
          return false;
      return table.waiting() == waiting.size() && table.running() == running.size() && table.empty() == rows.empty() &&
             table.next_deadline().has_value() == !alarms.empty() &&
             (alarms.empty() || *table.next_deadline() == alarms.begin()->first);
    };
    REQUIRE(agrees());
  }
}

TEST_CASE("operation table: queues have separate order and counts", "[io][operation_table]") {
  using queue_name = operation_table::queue_name;
  operation_table table;
  const auto first = table.add(waiting_request(1), queue_name::serial);
  table.add(waiting_request(2));
  table.add(waiting_request(3), queue_name::serial);
  table.add(waiting_request(4));
  CHECK(table.waiting() == 2);
  CHECK(table.waiting(queue_name::serial) == 2);
  CHECK(table.at(table.start_next()).what.tag == 2);
  CHECK(table.start_next(queue_name::serial) == first);
  CHECK(table.running() == 1);
  CHECK(table.running(queue_name::serial) == 1);
  CHECK(table.at(table.start_next()).what.tag == 4);
  CHECK(table.start_next() == operation_table::none);
  table.remove(first);
  CHECK(table.running(queue_name::serial) == 0);
  CHECK(table.waiting(queue_name::serial) == 1);
  const auto reused = table.add(waiting_request(5)); // a row may change its queue
  CHECK(reused == first);
  CHECK(table.start_next() == reused);
  CHECK(table.running() == 3);
  const auto last = table.start_next(queue_name::serial);
  CHECK(table.at(last).what.tag == 3);
  table.for_each([&](operation_table::index i, const operation_table::row&) { table.remove(i); });
  CHECK(table.empty());
  CHECK(table.running() == 0);
  CHECK(table.running(queue_name::serial) == 0);
}

} // namespace io_operation_table_test
