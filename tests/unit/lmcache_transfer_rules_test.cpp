#include "lmcache/open_requests.hpp"
#include "lmcache/server_rules.hpp"
#include "lmcache/transfer_rules.hpp"
#include "tests/catch.hpp"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lmcache_transfer_rules_test {

/// Stores and retrieves of one worker; the test acts as coordinators and lanes.

using namespace troupe;
using namespace troupe::lmcache;
using protocol::operation;

namespace {

constexpr timestamp t0{std::chrono::hours(1)};
constexpr transfer_rules::terms how{4, 4, 8, std::chrono::minutes(1)};

struct worker_world {
  server_rules registrations;
  open_requests requests;
  transfer_rules rules{registrations, requests};
  std::vector<transfer_rules::effect> effects;
  change_number of = 0;

  worker_world() {
    server_rules::registration wanted;
    wanted.name = {1, 1};
    wanted.process = 1;
    of = registrations.enroll(std::move(wanted), t0);
    registrations.prepared(of, t0);
    registrations.take_outbox();
    REQUIRE(registrations.is_current(of));
  }

  transfer_rules::request_ptr make(operation what, std::uint32_t chunks, bool tensors = false) {
    incoming x;
    x.what = what;
    x.client = 1;
    x.instance = 1;
    x.carries_tensors = tensors;
    x.chunks.request = "r";
    x.chunks.worker = 0;
    x.chunks.end = chunks;
    x.chunks.keys.resize(chunks);
    const auto out = std::make_shared<const incoming>(std::move(x));
    requests.add(out, t0);
    return out;
  }
  /// A worker with one group is about to copy.
  void prepare(const transfer_rules::request_ptr& x, const transfer_rules::terms& its = how) {
    rules.prepare(x, of, {its}, {{0, x->chunks.end}}, t0);
  }
  template <class T>
  std::vector<T> take() {
    for (auto& x : rules.take_outbox())
      effects.push_back(std::move(x));
    std::vector<T> out;
    std::erase_if(effects, [&](auto& x) {
      if (auto* y = std::get_if<T>(&x)) {
        out.push_back(std::move(*y));
        return true;
      }
      return false;
    });
    return out;
  }
  template <class T>
  T one() {
    auto all = take<T>();
    REQUIRE(all.size() == 1);
    return std::move(all.front());
  }
  /// The coordinator has frames for all pages of a part.
  void offer(const transfer_rules::start& x, order_number number, timestamp now = t0) {
    std::vector<transfer_rules::placed_page> pages;
    for (std::uint32_t i = 0; i < x.chunks.count; ++i)
      pages.push_back({x.chunks.first + i, {}, 4096U * (x.chunks.first + i)});
    rules.order(x.part, number, std::move(pages), now);
  }
  void end(const transfer_rules::start& x, errc code, timestamp now = t0) {
    rules.part_done(x.part, std::vector<errc>(x.chunks.count, code), now);
  }
  /// A worker has frames that it is to write to.
  transfer_rules::start prepare_store(std::uint32_t chunks) {
    prepare(make(operation::prepare_store, chunks));
    auto out = one<transfer_rules::start>();
    offer(out, 1);
    CHECK(one<transfer_rules::prepared>().pages.size() == chunks);
    return out;
  }
};

} // namespace

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: a store of a worker is sealed at its commit and done when it is published",
                 "[lmcache]") {
  const auto part = prepare_store(3);
  CHECK(rules.may_touch(of));
  const auto commit = make(operation::commit_store, 3);
  rules.commit(commit, of, t0);
  const auto wanted = one<transfer_rules::check>();
  CHECK(wanted.seal);
  CHECK(take<transfer_rules::end_order>().empty());
  // Once more, and it is not the first's to answer.
  const auto again = make(operation::commit_store, 3);
  rules.commit(again, of, t0);
  CHECK(one<transfer_rules::refuse>().request == again);
  rules.checked(wanted.job, std::vector<errc>(3, errc::ok), t0);
  CHECK(one<transfer_rules::end_order>().codes == std::vector<errc>(3, errc::ok));
  CHECK(take<transfer_rules::done>().empty());
  end(part, errc::ok);
  CHECK(one<transfer_rules::done>().request == commit);
  CHECK(rules.jobs() == 0);
  CHECK(registrations.drained());
}

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: a store that is committed too late or with tensors publishes no page",
                 "[lmcache]") {
  const bool too_late = GENERATE(true, false);
  const auto part = prepare_store(2);
  if (too_late)
    end(part, errc::timeout);
  rules.commit(make(operation::commit_store, 2, !too_late), of, t0);
  CHECK(take<transfer_rules::check>().empty());
  CHECK(one<transfer_rules::end_order>().codes == std::vector<errc>(2, errc::cancelled));
  CHECK(one<transfer_rules::refuse>().request->what == operation::commit_store);
  CHECK(rules.jobs() == 0);
}

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: a worker receives verified chunks only, and all of them or none",
                 "[lmcache]") {
  const auto request = make(operation::prepare_retrieve, 6);
  prepare(request);
  const auto first = one<transfer_rules::start>();
  CHECK(first.chunks.count == 4);
  offer(first, 1);
  const auto second = one<transfer_rules::start>();
  CHECK(second.chunks.count == 2);
  SECTION("one is damaged") {
    offer(second, 2);
    const auto wanted = one<transfer_rules::check>();
    CHECK_FALSE(wanted.seal);
    CHECK(wanted.pages.size() == 6);
    std::vector<errc> codes(6, errc::ok);
    codes[5] = errc::corrupt;
    rules.checked(wanted.job, codes, t0);
    const auto ends = take<transfer_rules::end_order>();
    REQUIRE(ends.size() == 2);
    CHECK(ends[0].codes == std::vector<errc>(4, errc::cancelled));
    CHECK(ends[1].codes == std::vector<errc>{errc::cancelled, errc::corrupt});
    CHECK(take<transfer_rules::refuse>().empty());
    end(first, errc::cancelled);
    end(second, errc::corrupt);
  }
  SECTION("some are missing") {
    end(second, errc::not_found);
    CHECK(one<transfer_rules::end_order>().order == 1);
    end(first, errc::cancelled);
  }
  CHECK(one<transfer_rules::refuse>().request == request);
  CHECK(rules.jobs() == 0);
  CHECK(registrations.drained());
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: a worker that holds frames gets no more than there is room for",
                 "[lmcache]") {
  prepare(make(operation::prepare_retrieve, 9));
  CHECK(one<transfer_rules::refuse>().request->chunks.end == 9);
  // A store gets frames for its first chunks.
  prepare(make(operation::prepare_store, 9));
  offer(one<transfer_rules::start>(), 1);
  offer(one<transfer_rules::start>(), 2);
  CHECK(one<transfer_rules::prepared>().pages.size() == 8);
  prepare(make(operation::prepare_store, 1));
  CHECK(one<transfer_rules::refuse>().request->chunks.end == 1);
}

TEST_CASE_METHOD(
    worker_world,
    "lmcache transfer rules: requests beyond the number of one worker are refused, and so are tasks of no key",
    "[lmcache]") {
  auto none = how;
  none.keys_max = 0;
  SECTION("copies by the node") {
    rules.copy(make(operation::store, 2), of, none, {{0, 2}}, t0);
    one<transfer_rules::refuse>();
    for (std::size_t i = 0; i < transfer_rules::options{}.copies_max; ++i)
      rules.copy(make(operation::store, 1), of, how, {{0, 1}}, t0);
    CHECK(take<transfer_rules::refuse>().empty());
    rules.copy(make(operation::store, 1), of, how, {{0, 1}}, t0);
    one<transfer_rules::refuse>();
  }
  SECTION("stores that the worker has not committed") {
    auto wide = how;
    wide.window_pages = 1000;
    const auto prepare_one = [&](std::size_t number) {
      auto x = *make(operation::prepare_store, 1);
      x.chunks.request = "r" + std::to_string(number);
      const auto wanted = std::make_shared<const incoming>(std::move(x));
      requests.add(wanted, t0);
      prepare(wanted, wide);
    };
    for (std::size_t i = 0; i < transfer_rules::options{}.jobs_max; ++i)
      prepare_one(i);
    CHECK(take<transfer_rules::refuse>().empty());
    prepare_one(transfer_rules::options{}.jobs_max);
    one<transfer_rules::refuse>();
  }
  SECTION("frames for the worker") {
    prepare(make(operation::prepare_store, 2), none);
    one<transfer_rules::refuse>();
    CHECK(take<transfer_rules::start>().empty());
  }
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: copies by the node take nothing of what a worker may hold",
                 "[lmcache]") {
  rules.copy(make(operation::store, 4), of, how, {{0, 4}}, t0);
  one<transfer_rules::start>();
  prepare(make(operation::prepare_retrieve, 8));
  CHECK(take<transfer_rules::refuse>().empty());
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: a store waits once for room, however long it is", "[lmcache]") {
  prepare(make(operation::prepare_store, 8));
  const auto first = one<transfer_rules::start>();
  CHECK(first.chunks.count == 4);
  SECTION("for all frames of its first part in vain") {
    end(first, errc::full, t0 + transfer_rules::place_patience);
    CHECK(take<transfer_rules::start>().empty());
    one<transfer_rules::refuse>();
    CHECK(rules.jobs() == 0);
  }
  SECTION("and gets what there is") {
    rules.order(first.part, 1, {{0, {}, 0}}, t0 + transfer_rules::place_patience);
    CHECK(take<transfer_rules::start>().empty());
    CHECK(one<transfer_rules::prepared>().pages.size() == 1);
  }
  SECTION("and goes on if there is room in time") {
    offer(first, 1, t0 + transfer_rules::place_patience - std::chrono::milliseconds(1));
    CHECK(one<transfer_rules::start>().chunks.count == 4);
  }
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: requests past their deadline leave nothing behind",
                 "[lmcache]") {
  SECTION("a preparation past its deadline is abandoned and freed when it is refused") {
    const auto request = make(operation::prepare_store, 2);
    prepare(request);
    const auto part = one<transfer_rules::start>();
    const auto later = t0 + std::chrono::seconds(31);
    REQUIRE(requests.take_late(later).size() == 1);
    rules.late(request, later);
    CHECK(one<transfer_rules::cancel>().parts == std::vector<part_number>{part.part});
    offer(part, 7, later);
    CHECK(one<transfer_rules::end_order>().codes == std::vector<errc>(2, errc::cancelled));
    CHECK(rules.jobs() == 1);
    end(part, errc::cancelled, later);
  }
  SECTION("only the preparation of the request that is late") {
    prepare(make(operation::prepare_store, 2));
    const auto other = one<transfer_rules::start>();
    const auto request = make(operation::prepare_store, 3);
    prepare(request);
    const auto part = one<transfer_rules::start>();
    rules.late(request, t0);
    CHECK(one<transfer_rules::cancel>().parts == std::vector<part_number>{part.part});
    end(part, errc::cancelled);
    CHECK(rules.jobs() == 1);
    rules.ended(of, t0);
    end(other, errc::cancelled);
  }
  SECTION("frames for an answered request are released") {
    prepare(make(operation::prepare_store, 2));
    const auto part = one<transfer_rules::start>();
    const auto later = t0 + std::chrono::seconds(31);
    offer(part, 7, later);
    CHECK(take<transfer_rules::prepared>().empty());
    CHECK(one<transfer_rules::end_order>().order == 7);
    end(part, errc::cancelled, later);
  }
  SECTION("copies by the node have the remaining time, and a retrieve is answered after its task") {
    const auto request = make(operation::retrieve, 2);
    rules.copy(request, of, how, {{0, 2}}, t0 + std::chrono::minutes(1));
    const auto part = one<transfer_rules::start>();
    CHECK(part.deadline == std::chrono::minutes(3));
    CHECK(requests.take_late(t0 + std::chrono::minutes(5)).empty());
    end(part, errc::timeout, t0 + std::chrono::minutes(5));
    CHECK(one<transfer_rules::refuse>().request == request);
  }
  SECTION("copies whose deadline passes before their turn are refused") {
    rules.copy(make(operation::store, 2), of, how, {{0, 2}}, t0 + std::chrono::minutes(4));
    CHECK(take<transfer_rules::start>().empty());
    CHECK(take<transfer_rules::refuse>().size() == 1);
  }
  CHECK(rules.jobs() == 0);
  CHECK(registrations.drained());
}

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: a worker counts as started from its first prepare until it commits",
                 "[lmcache]") {
  CHECK_FALSE(rules.has_begun(of));
  prepare(make(operation::prepare_store, 2));
  CHECK(rules.has_begun(of));
  CHECK_FALSE(rules.may_touch(of));
  const auto part = one<transfer_rules::start>();
  offer(part, 1);
  CHECK(rules.has_begun(of));
  rules.commit(make(operation::commit_store, 2), of, t0);
  CHECK_FALSE(rules.has_begun(of));
  // Copies by the node do not involve the worker.
  rules.copy(make(operation::store, 2), of, how, {{0, 2}}, t0);
  CHECK_FALSE(rules.has_begun(of));
}

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: blocks that the node copies are not released before their task has ended",
                 "[lmcache]") {
  const auto what = GENERATE(operation::store, operation::retrieve);
  const auto request = make(what, 2);
  rules.copy(request, of, how, {{0, 2}}, t0);
  const auto part = one<transfer_rules::start>();
  const auto much_later = t0 + std::chrono::hours(1);
  CHECK(requests.take_late(much_later).empty());
  end(part, errc::timeout, much_later);
  CHECK(one<transfer_rules::refuse>().request == request);
}

TEST_CASE_METHOD(worker_world,
                 "lmcache transfer rules: copies of a registration that has ended are cancelled and refused",
                 "[lmcache]") {
  std::vector<transfer_rules::start> parts;
  for (int i = 0; i < 6; ++i)
    rules.copy(make(operation::store, 2), of, how, {{0, 1}, {1, 1}}, t0);
  parts = take<transfer_rules::start>();
  CHECK(parts.size() == 8);
  registrations.client_disconnected(1, t0);
  rules.ended(of, t0);
  // Those that have not had their turn.
  CHECK(take<transfer_rules::refuse>().size() == 2);
  CHECK(take<transfer_rules::cancel>().size() == 4);
  for (const auto& x : parts)
    end(x, errc::cancelled);
  CHECK(take<transfer_rules::refuse>().size() == 4);
  CHECK(take<transfer_rules::start>().empty());
  CHECK(rules.jobs() == 0);
  CHECK(registrations.drained());
}

TEST_CASE_METHOD(
    worker_world,
    "lmcache transfer rules: requests whose memory a worker may access are listed when its attachment ends",
    "[lmcache]") {
  prepare_store(2);
  registrations.client_disconnected(1, t0);
  rules.ended(of, t0);
  CHECK(take<transfer_rules::end_order>().empty());
  CHECK(rules.forget(of) == std::set{transfer_rules::name_of(*make(operation::commit_store, 2))});
  CHECK(take<transfer_rules::end_order>().size() == 1);
  CHECK(rules.jobs() == 0);
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: a job has pages of all groups, and fails as a whole",
                 "[lmcache]") {
  const auto request = make(operation::prepare_retrieve, 3);
  rules.prepare(request, of, {how, how}, {{0, 3, 0}, {2, 1, 1}}, t0);
  const auto first = one<transfer_rules::start>();
  CHECK(first.chunks == transfer_rules::chunk_run{0, 3, 0});
  offer(first, 1);
  const auto second = one<transfer_rules::start>();
  CHECK(second.chunks == transfer_rules::chunk_run{2, 1, 1});
  SECTION("all are verified together") {
    offer(second, 2);
    const auto wanted = one<transfer_rules::check>();
    REQUIRE(wanted.pages.size() == 4);
    CHECK(wanted.pages[0].group == 0);
    CHECK(wanted.pages[3].group == 1);
    const bool is_sound = GENERATE(true, false);
    auto codes = std::vector<errc>(4, errc::ok);
    codes.back() = is_sound ? errc::ok : errc::corrupt;
    rules.checked(wanted.job, codes, t0);
    CHECK(take<transfer_rules::prepared>().size() == (is_sound ? 1U : 0U));
    CHECK(take<transfer_rules::end_order>().size() == (is_sound ? 0U : 2U));
  }
  SECTION("a page of one group is missing") {
    end(second, errc::not_found);
    CHECK(one<transfer_rules::cancel>().group == 0);
    CHECK(one<transfer_rules::end_order>().order == 1);
    end(first, errc::cancelled);
    CHECK(one<transfer_rules::refuse>().request == request);
    CHECK(rules.jobs() == 0);
  }
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: a retrieve that fills the room of each group begins",
                 "[lmcache]") {
  auto three = how;
  three.window_pages = 3;
  auto one_page = how;
  one_page.window_pages = 1;
  rules.prepare(make(operation::prepare_retrieve, 3), of, {three, one_page}, {{0, 3, 0}, {2, 1, 1}}, t0);
  CHECK(take<transfer_rules::refuse>().empty());
  CHECK(one<transfer_rules::start>().chunks == transfer_rules::chunk_run{0, 3, 0});
}

TEST_CASE_METHOD(worker_world, "lmcache transfer rules: each group has a limit of pages of its own", "[lmcache]") {
  auto narrow = how;
  narrow.window_pages = 1;
  rules.prepare(make(operation::prepare_retrieve, 3), of, {how, narrow}, {{0, 3, 0}, {1, 2, 1}}, t0);
  one<transfer_rules::refuse>();
  // A store takes what there is.
  rules.prepare(make(operation::prepare_store, 3), of, {narrow, how}, {{0, 3, 0}, {1, 2, 1}}, t0);
  offer(one<transfer_rules::start>(), 1);
  const auto second = one<transfer_rules::start>();
  CHECK(second.chunks == transfer_rules::chunk_run{1, 2, 1});
  offer(second, 2);
  CHECK(one<transfer_rules::prepared>().pages.size() == 3);
}

} // namespace lmcache_transfer_rules_test
