#include "tests/unit/transfer_loader.hpp"

namespace transfer_load_files_test {

/// Pages that are read from the slab file of a node with shared storage.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

node_binding sharing(std::uint32_t window = 8) {
  auto out = test_binding(window);
  out.shares_slab = true;
  return out;
}

struct file_loader : loader {
  explicit file_loader(std::uint32_t window = 8) : loader(sharing(window)) {}

  /// All pages are there; those marked are in the slab.
  void located(const load_locate& x, std::vector<std::uint8_t> in_slab, timestamp now = t0) {
    state.on_locate(x.call, locate_reply{locations(x.request.keys), std::move(in_slab)}, now);
  }
  void read(const load_read& x, std::vector<errc> what, timestamp now = t0) {
    read_reply out;
    for (const auto code : what)
      out.results.items.push_back(static_cast<std::uint8_t>(code));
    state.on_read(x.call, out, now);
  }
  /// Completes everything that is requested over the network.
  void by_wire(timestamp now = t0) {
    for (auto all = take<load_fetch>(); !all.empty(); all = take<load_fetch>())
      for (const auto& x : all) {
        fetched(x, now);
        for (const auto& y : take<load_scatter>())
          scattered(y, now);
      }
  }
};

} // namespace

TEST_CASE("load from files: pages in the slab are read there, and others come over the network", "[load_state]") {
  file_loader s;
  const auto work = test_task(4);
  REQUIRE(s.state.start(work, t0));
  const auto locate = s.one<load_locate>();
  CHECK(locate.request.report_in_slab);
  s.located(locate, {1, 0, 1, 1});
  const auto read = s.one<load_read>();
  REQUIRE(read.items.size() == 3);
  CHECK(read.items[0] == read_item{work.keys[0], {0, 7}, 100, 0});
  CHECK(read.items[1] == read_item{work.keys[2], {2, 7}, 102, 0});
  CHECK(read.patience > duration::zero());
  CHECK(read.patience <= work.deadline);
  const auto fetch = s.one<load_fetch>();
  REQUIRE(fetch.request.pages.size() == 1);
  CHECK(fetch.request.pages[0].key == work.keys[1]);
  s.fetched(fetch);
  s.scattered(s.one<load_scatter>());
  // The lease is kept while a page is read under it.
  CHECK(s.take<load_release>().empty());
  CHECK(s.take<task_finished>().empty());
  s.read(read, {errc::ok, errc::ok, errc::ok});
  const auto done = s.one<task_finished>().result;
  CHECK(results_of(done) == std::vector(4, errc::ok));
  CHECK(done.from_files == 3);
  CHECK(done.bytes == 4 * test_page_bytes);
  CHECK(done.files_stale + done.files_damaged + done.files_failed == 0);
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load from files: invalid pages are requested from the node one by one and counted", "[load_state]") {
  file_loader s;
  const auto work = test_task(5);
  REQUIRE(s.state.start(work, t0));
  s.located(s.one<load_locate>(), {1, 1, 1, 1, 1});
  s.read(s.one<load_read>(), {errc::identity_mismatch, errc::ok, errc::corrupt, errc::io_error, errc::timeout});
  // A page that may be valid in the memory of the node is not unpublished.
  CHECK(s.take<load_invalidate>().empty());
  const auto fetch = s.one<load_fetch>();
  REQUIRE(fetch.request.pages.size() == 4);
  CHECK(fetch.request.pages[0].key == work.keys[0]);
  CHECK(fetch.request.pages[3].key == work.keys[4]);
  // The node finds that one of them is missing and another one is bad.
  s.fetched(fetch, t0, {errc::stale, errc::ok, errc::ok, errc::ok});
  const auto scatter = s.one<load_scatter>();
  s.state.on_scatter(scatter.call, copy_reply{codes({errc::corrupt, errc::ok, errc::ok}), {}}, t0);
  s.state.on_invalidate(s.one<load_invalidate>().call, finish_reply{}, t0);
  const auto done = s.one<task_finished>().result;
  CHECK(results_of(done) == std::vector{errc::stale, errc::ok, errc::corrupt, errc::ok, errc::ok});
  CHECK(done.from_files == 1);
  CHECK(done.files_stale == 1);
  CHECK(done.files_damaged == 1);
  CHECK(done.files_failed == 2);
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load from files: an unreadable file is not tried again for a while", "[load_state]") {
  file_loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  s.located(s.one<load_locate>(), {1, 1});
  const bool as_a_whole = GENERATE(true, false);
  if (as_a_whole)
    s.state.on_read(s.one<load_read>().call, fail(errc::internal, "gone"), t0);
  else
    s.read(s.one<load_read>(), {errc::unsupported, errc::unsupported});
  s.by_wire();
  const auto done = s.one<task_finished>().result;
  CHECK(results_of(done) == std::vector(2, errc::ok));
  CHECK(done.files_failed == 2);
  s.release_all();
  REQUIRE(s.state.start(test_task(2), t0 + 9000 * ms));
  const auto locate = s.one<load_locate>();
  CHECK_FALSE(locate.request.report_in_slab);
  s.loader::located(locate, t0 + 9000 * ms);
  s.by_wire(t0 + 9000 * ms);
  s.release_all();
  REQUIRE(s.state.start(test_task(2), t0 + 11'000 * ms));
  CHECK(s.one<load_locate>().request.report_in_slab);
}

TEST_CASE("load from files: two orders run at once, the oldest task first", "[load_state]") {
  file_loader s(64);
  REQUIRE(s.state.start(test_task(64), t0));
  REQUIRE(s.state.start(test_task(20, 1000), t0));
  const auto locates = s.take<load_locate>();
  REQUIRE(locates.size() == 2);
  s.located(locates[0], std::vector<std::uint8_t>(64, 1));
  s.located(locates[1], std::vector<std::uint8_t>(20, 1));
  auto reads = s.take<load_read>();
  REQUIRE(reads.size() == 2);
  std::size_t left = 84;
  while (left > 0) {
    REQUIRE_FALSE(reads.empty());
    CHECK(reads.size() <= 2);
    const auto x = reads.front();
    reads.erase(reads.begin());
    CHECK(x.items.size() <= 32);
    left -= x.items.size();
    s.read(x, std::vector(x.items.size(), errc::ok));
    for (const auto& more : s.take<load_read>())
      reads.push_back(more);
  }
  CHECK(s.take<task_finished>().size() == 2);
  CHECK(s.take<load_fetch>().empty());
  s.release_all();
  s.check_quiesced(64);
}

TEST_CASE("load from files: a task waits past its deadline only for readers that may write its blocks",
          "[load_state]") {
  file_loader s;
  REQUIRE(s.state.start(test_task(40), t0));
  s.located(s.one<load_locate>(), std::vector<std::uint8_t>(40, 1));
  auto reads = s.take<load_read>();
  REQUIRE(reads.size() >= 2);
  const auto late = t0 + 1100 * ms;
  s.state.on_tick(late);
  CHECK(s.take<task_finished>().empty());
  s.read(reads[0], std::vector(reads[0].items.size(), errc::ok), late);
  CHECK(s.take<load_read>().empty());
  s.read(reads[1], std::vector(reads[1].items.size(), errc::timeout), late);
  const auto done = s.one<task_finished>().result;
  const auto got = results_of(done);
  CHECK(std::ranges::count(got, errc::ok) == static_cast<std::ptrdiff_t>(reads[0].items.size()));
  CHECK(std::ranges::count(got, errc::timeout) == static_cast<std::ptrdiff_t>(40 - reads[0].items.size()));
  CHECK(s.take<load_fetch>().empty());
  s.release_all(late);
  s.check_quiesced(8);
}

TEST_CASE("load from files: cancelled pages are neither read nor fetched", "[load_state]") {
  file_loader s;
  REQUIRE(s.state.start(tagged(9, test_task(40)), t0));
  s.located(s.one<load_locate>(), std::vector<std::uint8_t>(40, 1));
  auto reads = s.take<load_read>();
  REQUIRE(reads.size() == 2);
  const std::vector<std::uint64_t> tags{9};
  s.state.cancel(tags, t0);
  s.read(reads[0], std::vector(reads[0].items.size(), errc::corrupt));
  s.read(reads[1], std::vector(reads[1].items.size(), errc::ok));
  const auto got = results_of(s.one<task_finished>().result);
  CHECK(std::ranges::count(got, errc::ok) == static_cast<std::ptrdiff_t>(reads[1].items.size()));
  CHECK(std::ranges::count(got, errc::cancelled) == static_cast<std::ptrdiff_t>(40 - reads[1].items.size()));
  CHECK(s.take<load_read>().empty());
  CHECK(s.take<load_fetch>().empty());
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load from files: when the node is lost, blocks belong to the task until the reader is done with them",
          "[load_state]") {
  file_loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  s.located(s.one<load_locate>(), {1, 0});
  const auto read = s.one<load_read>();
  s.state.unbind(errc::unreachable);
  CHECK(s.take<task_finished>().empty());
  // It is bound to another run of the node with another file: results of the old one belong to the old task.
  s.state.bind(sharing());
  REQUIRE(s.state.start(test_task(1, 50), t0));
  s.located(s.one<load_locate>(), {1});
  const auto other = s.one<load_read>();
  s.read(read, {errc::io_error});
  const auto ended = s.one<task_finished>().result;
  CHECK(results_of(ended) == std::vector(2, errc::unreachable));
  s.read(other, {errc::ok});
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok});
  s.release_all();
  s.take<load_fetch>();
  s.check_quiesced(8);
}

TEST_CASE("load from files: a node that does not report pages in the slab is fetched from", "[load_state]") {
  file_loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  s.loader::located(s.one<load_locate>());
  CHECK(s.take<load_read>().empty());
  s.by_wire();
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  // Without shared storage the request does not ask which pages are in the slab.
  loader plain;
  REQUIRE(plain.state.start(test_task(2), t0));
  const auto locate = plain.one<load_locate>();
  CHECK_FALSE(locate.request.report_in_slab);
  plain.state.on_locate(locate.call, locate_reply{locations(locate.request.keys), {std::vector<std::uint8_t>{1, 1}}},
                        t0);
  CHECK(plain.take<load_read>().empty());
}

} // namespace transfer_load_files_test
