#include "store/rocksdb_store.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store_support.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace store_contract_test {

// The promises of a store about its answers to commits.

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;

TEST_CASE("store contract: any store answers each batch once, in order", "[store][contract]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  answer_log answers;
  const auto store = open_store(options_for(directory.path(), level));
  std::uint64_t bytes = 0;
  for (std::uint64_t n = 0; n < 50; ++n) {
    write_batch batch;
    if (n % 5 != 0) // an empty one is answered as well
      batch.put(page_number(n));
    if (n % 7 == 0)
      batch.erase_page(namespace_number(1), key_number(n / 2), 0);
    bytes += batch.bytes();
    REQUIRE(store->commit(std::move(batch), answers.expect(n)));
  }
  const auto all = answers.wait_for(50);
  for (std::uint64_t n = 0; n < 50; ++n)
    CHECK(all[n] == std::pair(n, errc::ok));
  REQUIRE(store->close());
  const auto stats = store->stats();
  CHECK(answers.all().size() == 50);
  CHECK(stats.batches == 50);
  CHECK(stats.records == 48);
  CHECK(stats.bytes == bytes);
  CHECK(stats.queued_batches == 0);
  CHECK(stats.queued_bytes == 0);
  CHECK_FALSE(stats.failure.has_value());
}

TEST_CASE("store contract: any store takes ownership of an accepted batch", "[store][contract]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  answer_log answers;
  const auto store = open_store(options_for(directory.path(), level));
  write_batch batch;
  batch.erase_page(namespace_number(1), key_number(1), 0);
  REQUIRE(store->commit(std::move(batch), answers.expect(1)));
  CHECK(batch.empty());
  CHECK(batch.bytes() == 0);
  CHECK_FALSE(batch.must_sync());
  answers.wait_for(1);
}

TEST_CASE("store contract: any closed store refuses batches with a reason", "[store][contract]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  answer_log answers;
  const auto store = open_store(options_for(directory.path(), level));
  REQUIRE(store->close());
  REQUIRE(store->close());
  write_batch batch;
  batch.put(page_number(1));
  const auto refused = store->commit(std::move(batch), answers.expect(1));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::shutting_down);
  CHECK(batch.records() == 1);
  CHECK(answers.all().empty());
  CHECK(store->stats().refused == 1);
  loaded nothing;
  CHECK(store->load(nothing).error().code == errc::shutting_down);
}

TEST_CASE("store contract: any store can be used by many threads", "[store][contract]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t batches = 100;
  std::array<answer_log, threads> answers;
  const auto store = open_store(options_for(directory.path(), level));
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < batches; ++i) {
        write_batch batch;
        batch.put(page_number(t * batches + i));
        while (!store->commit(std::move(batch), answers[t].expect(i)))
          std::this_thread::yield();
        (void)store->stats();
      }
      answers[t].wait_for(batches);
    });
  for (auto& worker : workers)
    worker.join();
  for (auto& log : answers) {
    const auto all = log.all();
    REQUIRE(all.size() == batches);
    for (std::uint64_t i = 0; i < batches; ++i)
      CHECK(all[i] == std::pair(i, errc::ok));
  }
  CHECK(store->stats().records == threads * batches);
}

TEST_CASE("store contract: any store has an identity with a secret", "[store][contract]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  const auto store = open_store(options_for(directory.path(), level));
  CHECK(store->identity().run == 1);
  CHECK(store->identity().secret != node_identity{}.secret);
}

} // namespace store_contract_test
