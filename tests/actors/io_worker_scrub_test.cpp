#include "tests/actors/io_worker_support.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace io_worker_scrub_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::byte ones{0x11};

/// Reads a page of its slab each second.
struct scrubbing_world : io_worker_world {
  static io_worker_options rules_of_scrub() {
    io_worker_options out;
    out.scrub.pace = std::make_shared<scrub_pace>(slot_size);
    return out;
  }

  scrubbing_world() : io_worker_world(rules_of_scrub()) { bind(); }

  void flip(const page_ref& what) const {
    const unique_descriptor file(::open(slab_path().c_str(), O_RDWR));
    const auto at = static_cast<off_t>(what.where.slot * slot_size + 5000);
    std::byte byte{};
    REQUIRE(::pread(file.get(), &byte, 1, at) == 1);
    byte = ~byte;
    REQUIRE(::pwrite(file.get(), &byte, 1, at) == 1);
  }

  /// The shard has these pages, all of them.
  void list(std::vector<page_ref> pages) {
    const auto asked = shard.take_one<list_pages_request>();
    const auto& x = asked.get<list_pages_request>(0);
    CHECK(x.ns == namespace_id{1, 2});
    CHECK(x.rank == 0);
    CHECK(x.from == 0);
    CHECK(x.most > 0);
    shard.reply(asked, caf::make_message(list_pages_reply{std::move(pages), 9, false}));
    run();
  }
};

} // namespace

TEST_CASE_METHOD(scrubbing_world,
                 "io worker: the scrub reads pages that were not requested and reports a corrupt one to its shard",
                 "[io_worker]") {
  save({page(1), page(2), page(3)}, ones);
  flip(page(2));
  list({page(1), page(2), page(3)});
  for (int i = 0; i < 4; ++i)
    advance(std::chrono::seconds(1));
  const auto notified = shard.take_one<invalidate_request>();
  const auto& x = notified.get<invalidate_request>(0);
  CHECK(x.ns == namespace_id{1, 2});
  CHECK(x.rank == 0);
  CHECK(x.pages.items == std::vector{page(2)});
  CHECK(x.reasons.items == std::vector{static_cast<std::uint8_t>(errc::corrupt)});
  CHECK(x.tier(0) == page_tier::disk);
  CHECK(stats().scrubbed_pages == 3);
  CHECK(stats().scrub_unsound_pages == 1);
  CHECK(stats().scrub_passes == 1);
  CHECK(stats().read_pages == 0);
  // Pages in memory keep their saved bytes, whatever happens to the slab.
  CHECK(holds(page(1), fetch({page(1)}).frames[0], ones));
}

TEST_CASE_METHOD(scrubbing_world, "io worker: the scrub retries after a shard has refused to list its pages",
                 "[io_worker]") {
  const auto asked = shard.take_one<list_pages_request>();
  shard.reply(asked, caf::make_message(caf::make_error(errc::busy, std::string("later"))));
  run();
  CHECK(shard.inbox_size() == 0);
  advance(std::chrono::seconds(11));
  list({});
  CHECK(stats().scrub_passes == 1);
}

TEST_CASE_METHOD(io_worker_world, "io worker: nothing is scrubbed when the scrub is off", "[io_worker]") {
  bind();
  save({page(1)}, ones);
  advance(std::chrono::minutes(5));
  CHECK(shard.inbox_size() == 0);
}

} // namespace io_worker_scrub_test
