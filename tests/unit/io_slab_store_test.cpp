#include "io/page.hpp"
#include "io/slab/slab_store.hpp"
#include "tests/catch.hpp"
#include "tests/io_faults/fault_engine.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace io_slab_store_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;

namespace {

constexpr std::uint64_t slots = 6;
constexpr std::uint64_t slot_size = 2 * page_alignment;

slab_spec spec_in(const scratch_directory& scratch) {
  return {scratch / "slab", {3, 4}, "small", 2, slot_size, slots};
}

/// A store with a scripted engine.
struct store_with_faults {
  store_with_faults() {
    auto slab = slab_file::open(spec_in(scratch), false);
    REQUIRE(slab);
    auto made = std::make_unique<fault_engine>(log.sink());
    engine = made.get();
    store = slab_store::make(std::move(*slab), std::move(made)).value();
    buffer = store->add_buffer({memory.data(), memory.size()}).value();
  }

  std::span<std::byte> page(std::size_t n) { return {memory.data() + n * slot_size, slot_size}; }

  page_request request(operation op, slot_ref where, std::size_t n, std::uint64_t tag) {
    return {op, where, page(n).data(), slot_size, buffer, tag, timestamp::max()};
  }

  scratch_directory scratch;
  aligned_buffer memory{4 * slot_size};
  completion_log log;
  fault_engine* engine = nullptr;
  std::unique_ptr<page_store> store;
  std::uint32_t buffer = 0;
};

} // namespace

TEST_CASE("slab store: a slab store moves each page between its slot and memory, for any generation",
          "[io][slab_store]") {
  store_with_faults w;
  std::ranges::fill(w.page(0), std::byte{0x11});
  std::ranges::fill(w.page(1), std::byte{0x22});
  const std::vector writes{w.request(operation::write, {5, 1}, 0, 1), w.request(operation::write, {2, 7}, 1, 2)};
  w.store->submit(writes);
  const std::vector reads{w.request(operation::read, {2, 9}, 2, 3), w.request(operation::read, {5, 1}, 3, 4)};
  w.store->submit(reads);
  for (const auto& x : w.log.wait_for(4))
    CHECK(x.status == errc::ok);
  CHECK(std::ranges::equal(w.page(2), w.page(1)));
  CHECK(std::ranges::equal(w.page(3), w.page(0)));
  // And nowhere else: slot s lies at s times its size.
  std::ifstream file(w.scratch / "slab", std::ios::binary);
  std::string bytes(slots * slot_size, '\0');
  REQUIRE(file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())));
  for (std::uint64_t slot = 0; slot < slots; ++slot) {
    const char expected = slot == 5 ? '\x11' : slot == 2 ? '\x22' : '\0';
    INFO(slot);
    CHECK(bytes.substr(slot * slot_size, slot_size) == std::string(slot_size, expected));
  }
}

TEST_CASE("slab store: a slab store forwards engine completions by tag and ends with its engine", "[io][slab_store]") {
  store_with_faults w;
  w.engine->set_plan([](const request&, std::uint64_t n) {
    fault out;
    out.held = n == 1;
    out.status = n == 0 ? errc::io_error : errc::ok;
    return out;
  });
  const std::vector writes{w.request(operation::write, {0, 1}, 0, 70), w.request(operation::write, {1, 1}, 1, 71)};
  w.store->submit(writes);
  CHECK(w.log.wait_for_tag(70).status == errc::io_error);
  CHECK(w.log.counts().count(71) == 0);
  w.store->stop();
  w.log.wait_for_tag(71);
  w.store->submit(std::vector{w.request(operation::read, {0, 1}, 0, 72)});
  CHECK(w.log.wait_for_tag(72).status == errc::shutting_down);
}

TEST_CASE("slab store: a slab store reports its traits and the loss of its file", "[io][slab_store]") {
  store_with_faults w;
  const auto& traits = w.store->traits();
  CHECK(traits.slots == slots);
  CHECK(traits.slot_bytes == slot_size);
  CHECK(traits.alignment == page_alignment);
  CHECK_FALSE(traits.direct);
  CHECK(traits.incarnation != 0);
  CHECK(traits.place == (w.scratch / "slab").string());
  CHECK(w.store->health());
  std::filesystem::remove(w.scratch / "slab");
  const auto gone = w.store->health();
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == errc::slab_damaged);
  CHECK(missing(gone.error().text, {"slab", "deleted"}).empty());
}

TEST_CASE("slab store: opening a slab that is in use waits up to the given time", "[io][slab_store]") {
  const scratch_directory scratch;
  completion_log log;
  slab_store_options options;
  options.slab = spec_in(scratch);
  options.direct = false;
  options.engine.kind = engine_kind::threads;
  options.engine.threads = 1;
  auto first = open_slab_store(options, log.sink());
  REQUIRE(first);
  CHECK(open_slab_store(options, log.sink()).error().code == errc::busy);
  options.patience = std::chrono::minutes(1);
  std::thread waiting([&] {
    const auto second = open_slab_store(options, log.sink());
    CHECK(second);
  });
  first->reset();
  waiting.join();
}

} // namespace io_slab_store_test
