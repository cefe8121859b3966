#include "tests/catch.hpp"
#include "workload/runner/tally.hpp"

#include <cmath>

namespace runner_tally_test {

using namespace troupe;
using namespace troupe::replay;

namespace {

timestamp at(int milliseconds) {
  return timestamp{} + std::chrono::milliseconds(milliseconds);
}

load_ended some_load(std::uint64_t right, std::uint64_t wrong, std::uint64_t missing) {
  load_ended out;
  out.began = at(10);
  out.ended = at(20);
  out.right = right;
  out.wrong = wrong;
  out.missing = missing;
  return out;
}

} // namespace

TEST_CASE("tally: each request is issued once and in order until the last one or a cancellation", "[runner]") {
  tally sums(0, 3, 100, true);
  CHECK(sums.next() == 0U);
  CHECK(sums.next() == 1U);
  SECTION("all") {
    CHECK(sums.next() == 2U);
  }
  SECTION("cancelled") {
    sums.note(run_abandoned{{errc::unreachable, "first"}});
    sums.abandon({errc::cancelled, "second"});
    REQUIRE(sums.abandoned().has_value());
    CHECK(sums.abandoned()->text == "first");
  }
  CHECK_FALSE(sums.next().has_value());
  CHECK_FALSE(sums.next().has_value());
}

TEST_CASE("tally: failures of the warm-up count although its transfers do not", "[runner]") {
  tally before(0, 2, 100, true);
  CHECK(before.next() == 0U);
  CHECK(before.next() == 1U);
  CHECK_FALSE(before.next().has_value());
  auto load = some_load(3, 1, 2);
  load.first_wrong = "in front";
  load.codes = {{errc::corrupt, 2}};
  before.note(transfer_began{transfer_kind::load, at(10)});
  before.note(load);
  before.note(request_ended{6, 4});
  tally sums(2, 3, 100, true);
  sums.begin_after(before);
  CHECK(sums.next() == 2U);
  CHECK_FALSE(sums.next().has_value());
  sums.note(request_ended{5, 1});
  const auto report = sums.report(at(40));
  CHECK(report.requests == 1);
  CHECK(report.blocks == 5);
  CHECK(report.loaded_pages == 0);
  CHECK(report.verify_failures == 1);
  CHECK(report.load_failures == 2);
  CHECK(report.load_failure_codes == failure_codes{{errc::corrupt, 2}});
  CHECK(sums.first_wrong() == "in front");

  before.abandon({errc::cancelled, "no more"});
  tally after(2, 3, 100, true);
  after.begin_after(before);
  CHECK_FALSE(after.next().has_value());
}

TEST_CASE("tally: time in which loads and saves overlap counts once in their combined bandwidth", "[runner]") {
  tally sums(0, 1, 1000, false);
  sums.note(transfer_began{transfer_kind::load, at(10)});
  sums.note(transfer_began{transfer_kind::save, at(15)});
  sums.note(some_load(3, 0, 0)); // until 20
  save_ended save;
  save.began = at(15);
  save.ended = at(25);
  save.written = 3;
  sums.note(save);
  const auto report = sums.report(at(40));
  CHECK(std::abs(report.load_gbps - 3000 / 10e6) < 1e-9);
  CHECK(std::abs(report.save_gbps - 3000 / 10e6) < 1e-9);
  CHECK(std::abs(report.together_gbps - 6000 / 15e6) < 1e-9);
}

TEST_CASE("tally: a report is the sum of the players' notes", "[runner]") {
  tally sums(0, 2, 100, true);
  sums.note(lookup_ended{std::chrono::microseconds(7)});
  sums.note(transfer_began{transfer_kind::load, at(10)});
  auto load = some_load(3, 1, 2);
  load.first_wrong = "this one";
  load.bytes = 400;
  load.from_disk = 1;
  load.timing.io = std::chrono::milliseconds(4);
  sums.note(load);
  load.first_wrong = "a later one";
  sums.note(load);
  sums.note(blocks_produced{std::chrono::milliseconds(2), 5});
  sums.note(transfer_began{transfer_kind::save, at(30)});
  save_ended save;
  save.began = at(30);
  save.ended = at(31);
  save.written = 4;
  save.failures = 1;
  save.codes = {{errc::full, 1}};
  sums.note(save);
  CHECK_FALSE(sums.slab_damaged());
  save.slab_damaged = true;
  sums.note(save);
  sums.note(request_ended{6, 4});

  const auto now = sums.progress(std::chrono::seconds(1));
  CHECK(now.requests == 2);
  CHECK(now.requests_done == 1);
  CHECK(now.failures == 2 + 4 + 2);
  const auto report = sums.report(at(40));
  CHECK(report.compared);
  CHECK(report.requests == 1);
  CHECK(report.blocks == 6);
  CHECK(report.hit_blocks == 4);
  CHECK(report.loaded_from_disk == 2);
  CHECK(report.loaded_pages == 8);
  CHECK(report.loaded_bytes == 800);
  CHECK(report.verify_failures == 2);
  CHECK(report.load_failures == 4);
  CHECK(report.saved_pages == 8);
  CHECK(report.save_failure_codes == failure_codes{{errc::full, 2}});
  CHECK(report.saved_bytes == 800);
  CHECK(report.save_failures == 2);
  CHECK(report.lookup_us.max == 7);
  CHECK(report.load_us.max == 10'000);
  CHECK(std::abs(report.load_gbps - 800 / 1e9 / 0.010) < 1e-12);
  CHECK(sums.first_wrong() == "this one");
  CHECK(sums.slab_damaged());
  CHECK(sums.phases().bytes(phase::compare) == 800);
  CHECK(sums.phases().time(phase::read) == std::chrono::milliseconds(8));
  CHECK(sums.phases().bytes(phase::produce) == 500);
}

} // namespace runner_tally_test
