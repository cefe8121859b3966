#include "tests/unit/link_harness.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace link_state_test {

namespace {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

constexpr auto owner = harness_owner;
constexpr auto start = harness_start;
const auto slot = harness_slot;

} // namespace

TEST_CASE("link state: it finds the node, attaches, and answers waiting callers", "[link_state]") {
  harness d;
  d.state.wait_attached(1, start + 1s);
  CHECK(d.ended(1) == errc::internal);
  d.attach();
  CHECK(d.state.owner() == owner);
  CHECK(d.ended(1) == errc::ok);
  d.state.wait_attached(2, start);
  CHECK(d.ended(2) == errc::ok);
  CHECK(d.state.next_event() == timestamp::max());
}

TEST_CASE("link state: a wait ends at its deadline with the last error, and not before", "[link_state]") {
  harness d;
  d.state.wait_attached(1, start + 300ms);
  d.state.bind(2, {0}, start + 200ms);
  d.state.wait_attached(3, timestamp::max());
  CHECK(d.state.next_event() == start + 200ms);
  d.state.on_time(start + 199ms);
  CHECK(d.ended(2) == errc::internal);
  d.state.on_time(start + 200ms);
  CHECK(d.ended(2) == errc::unreachable);
  CHECK(d.state.next_event() == start + 300ms);
  d.state.on_time(start + 1h);
  CHECK(d.ended(1) == errc::unreachable);
  CHECK(d.ended(3) == errc::internal);
  CHECK(d.state.next_event() == timestamp::max());
}

TEST_CASE("link state: pauses double between their bounds, and there is one attempt at a time", "[link_state]") {
  harness d;
  auto now = start;
  duration before{};
  for (int i = 0; i < 8; ++i) {
    const auto number = d.take_one<link_seek>().number;
    d.state.on_found(number - 1); // of the try before, late
    d.state.on_not_found(number - 1, {errc::unsupported, "a web server"}, now);
    CHECK(d.state.next_event() == timestamp::max());
    d.state.on_not_found(number, {errc::unreachable, "connection refused"}, now);
    const auto pause = d.state.next_event() - now;
    const auto step = std::min<duration>(1600ms, 200ms * (1 << i));
    CHECK(pause >= step / 2);
    CHECK(pause <= step);
    // Unexpected events change nothing: answers to expired attempts, early ticks and repeated ones.
    d.state.on_found(number);
    d.state.on_not_found(number, {errc::unreachable, "again"}, now);
    CHECK_FALSE(d.state.on_attached(number, harness::offer()));
    d.state.on_not_attached(number, {errc::busy, "again"}, now);
    d.state.on_node_lost(now);
    d.state.on_time(now + pause - 1ns);
    CHECK(d.take<link_seek>().empty());
    now += pause;
    d.state.on_time(now);
    d.state.on_time(now);
    before = pause;
  }
  CHECK(before >= 800ms);
  CHECK(d.take<link_seek>().size() == 1);
  CHECK(d.take<link_attach>().empty());
}

TEST_CASE("link state: a success resets the pause, and attaching alone counts only with nothing to bind",
          "[link_state]") {
  const bool binds = GENERATE(false, true);
  harness d;
  if (binds)
    d.state.bind(1, {0, 1}, timestamp::max());
  auto now = start;
  duration pause{};
  for (int i = 0; i < 6; ++i) {
    d.attach();
    d.take<link_bind_lookup>();
    d.take<link_map>();
    d.state.on_node_lost(now);
    pause = d.state.next_event() - now;
    now += pause;
    d.state.on_time(now);
  }
  if (binds)
    CHECK(pause >= 800ms);
  else
    CHECK(pause <= 200ms);
}

TEST_CASE("link state: copy engines are bound first, then coordinators with their own stream and window",
          "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  const auto epoch = d.take_one<link_bind_lookup>().epoch;
  const auto maps = d.take<link_map>();
  REQUIRE(maps.size() == 2);
  CHECK(d.take<link_bind_transfer>().empty());
  for (const auto& x : maps) {
    d.state.on_mapped(epoch, x.rank, {}, harness_start);
    const auto both = d.take<link_bind_transfer>();
    REQUIRE(both.size() == 2);
    CHECK((!both[0].save && both[1].save));
    CHECK((both[0].rank == x.rank && both[1].rank == x.rank));
    CHECK(both[0].ticket_stream == 1 + 2 * x.rank);
    CHECK(both[1].ticket_stream == 2 + 2 * x.rank);
    // A remainder below a whole page is not used.
    CHECK(both[0].window_pages == 2);
    CHECK(both[1].window_pages == 3);
    d.state.on_bound(epoch, {}, harness_start);
    d.state.on_bound(epoch, {}, harness_start);
  }
  CHECK(d.ended(1) == errc::internal);
  d.state.wait_attached(2, timestamp::max());
  CHECK(d.ended(2) == errc::internal);
  d.state.on_bound(epoch, {}, harness_start); // the lookup coordinator, as the last
  CHECK(d.ended(1) == errc::ok);
  CHECK(d.ended(2) == errc::ok);
}

TEST_CASE("link state: a client that saves nothing has its window for loads", "[link_state]") {
  harness d(true, false, true);
  const auto windows = [&](std::uint64_t pinned_bytes) {
    auto offer = harness::offer();
    offer.pinned_bytes = pinned_bytes;
    d.attach(offer);
    const auto map = d.take<link_map>().front();
    d.state.on_mapped(map.epoch, map.rank, {}, harness_start);
    const auto both = d.take<link_bind_transfer>();
    REQUIRE(both.size() == 2);
    CHECK((!both[0].save && both[1].save));
    return std::pair(both[0].window_pages, both[1].window_pages);
  };
  d.state.bind(1, {0}, timestamp::max());
  // No direction is without a page, and both together are what the node allows.
  SECTION("of five pages") {
    CHECK(windows(64 * slot) == std::pair(4U, 1U));
  }
  SECTION("of two pages") {
    CHECK(windows(2 * slot) == std::pair(1U, 1U));
  }
}

TEST_CASE("link state: a window is no larger than the node allows", "[link_state]") {
  harness d;
  d.state.bind(1, {0}, timestamp::max());
  auto narrow = harness::offer();
  narrow.pinned_bytes = 3 * slot - 4096;
  d.attach(narrow);
  const auto map = d.take_one<link_map>();
  d.state.on_mapped(map.epoch, map.rank, {}, harness_start);
  const auto both = d.take<link_bind_transfer>();
  REQUIRE(both.size() == 2);
  CHECK(both[0].window_pages == 1);
  CHECK(both[1].window_pages == 1);
}

TEST_CASE("link state: components are bound again when the node comes back", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  d.bind_all();
  CHECK(d.ended(1) == errc::ok);
  d.state.on_node_lost(start);
  CHECK(d.take_one<link_part>().owner == owner);
  CHECK(d.take<link_unbind>().size() == 1);
  CHECK(d.state.owner() == 0);
  d.state.on_time(d.state.next_event());
  d.attach(harness::offer(owner + 1));
  d.state.wait_attached(2, timestamp::max());
  CHECK(d.ended(2) == errc::internal);
  d.bind_all();
  CHECK(d.ended(2) == errc::ok);
  CHECK(d.state.owner() == owner + 1);
}

TEST_CASE("link state: answers of an earlier bind are ignored", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  d.attach();
  const auto old = d.take_one<link_bind_lookup>().epoch;
  d.take<link_map>();
  const bool by_loss = GENERATE(false, true);
  if (by_loss)
    d.state.on_node_lost(start);
  else
    d.state.bind(2, {0, 1}, timestamp::max());
  d.state.on_mapped(old, 0, {}, harness_start);
  d.state.on_mapped(old, 0, fail(errc::identity_mismatch, "late"), harness_start);
  for (int i = 0; i < 5; ++i)
    d.state.on_bound(old, {}, harness_start);
  d.state.on_bound(old, fail(errc::internal, "late"), harness_start);
  CHECK(d.take<link_map>().empty());
  CHECK(d.take<link_bind_transfer>().empty());
  CHECK_FALSE(d.state.refused());
  CHECK(d.ended(1) == errc::internal);
  if (by_loss)
    d.state.on_time(d.state.next_event());
  d.attach(harness::offer(owner + 1));
  d.bind_all();
  CHECK(d.ended(1) == errc::ok);
}

TEST_CASE("link state: permanent errors are final", "[link_state]") {
  harness d;
  auto expected = errc::unsupported;
  bool knows_us = false;
  d.state.wait_attached(1, timestamp::max());
  d.state.bind(2, {0, 1}, timestamp::max());
  SECTION("no node of this version") {
    d.state.on_not_found(d.take_one<link_seek>().number, {expected, "a web server"}, start);
  }
  SECTION("the node speaks another protocol") {
    d.state.on_not_attached(d.find(), {expected, "protocol 9"}, start);
  }
  SECTION("no such namespace") {
    expected = errc::unknown_namespace;
    d.state.on_not_attached(d.find(), {expected, "it has: other"}, start);
  }
  SECTION("a namespace that cannot be made") {
    expected = errc::invalid_argument;
    d.state.on_not_attached(d.find(), {expected, "its pages are larger than an extent"}, start);
  }
  SECTION("an invalid offer") {
    expected = errc::invalid_argument;
    auto strange = harness::offer();
    knows_us = true;
    SECTION("without a page size") {
      strange.geometry = {};
    }
    SECTION("without an identity") {
      strange.ns_id = {};
    }
    SECTION("without an owner id") {
      strange.owner = 0;
      knows_us = false;
    }
    d.attach(strange);
  }
  SECTION("the node has no such rank") {
    expected = errc::out_of_range;
    knows_us = true;
    auto one = harness::offer();
    one.ranks = {0};
    d.attach(one);
  }
  SECTION("a window of less than a page each way") {
    expected = errc::limit_exceeded;
    knows_us = true;
    auto narrow = harness::offer();
    narrow.pinned_bytes = 2 * slot - 4096;
    d.attach(narrow);
    CHECK(d.take<link_map>().empty());
    CHECK(d.take<link_bind_transfer>().empty());
  }
  SECTION("memory that cannot be mapped, or a coordinator that cannot be bound") {
    expected = errc::identity_mismatch;
    knows_us = true;
    d.attach();
    const auto epoch = d.take_one<link_bind_lookup>().epoch;
    const result<void> refusal = fail(expected, "said the actor");
    if (GENERATE(false, true)) {
      d.state.on_bound(epoch, refusal, harness_start);
    } else {
      d.state.on_mapped(epoch, 0, refusal, harness_start);
    }
  }
  CHECK(d.state.refused());
  CHECK(d.ended(1) == expected);
  CHECK(d.ended(2) == expected);
  d.state.wait_attached(3, timestamp::max());
  d.state.bind(4, {0}, timestamp::max());
  CHECK(d.ended(3) == expected);
  CHECK(d.ended(4) == expected);
  CHECK(d.state.owner() == 0);
  std::size_t notified = 0;
  for (const auto& x : d.take<link_part>())
    notified += x.owner == owner ? 1 : 0;
  CHECK(notified == (knows_us ? 1 : 0));
  d.state.on_time(start + 24h);
  d.state.on_node_lost(start + 24h);
  CHECK(d.take<link_seek>().empty());
  CHECK(d.state.next_event() == timestamp::max());
}

TEST_CASE("link state: other errors are transient and the client retries", "[link_state]") {
  harness d;
  d.state.bind(1, {0, 1}, timestamp::max());
  SECTION("too many clients") {
    d.state.on_not_attached(d.find(), {errc::limit_exceeded, "64 clients"}, start);
    CHECK(d.take_one<link_part>().owner == 0);
  }
  SECTION("a caller whose deadline passes gets a timeout") {
    d.state.wait_attached(2, start + 1s);
    const auto code = GENERATE(errc::limit_exceeded, errc::busy, errc::full, errc::no_space, errc::internal);
    d.state.on_not_attached(d.find(), {code, "64 clients"}, start);
    d.take<link_part>();
    d.state.on_time(start + 1s);
    d.collect();
    const auto said = d.take_one<link_answer>();
    CHECK(said.wait == 2);
    REQUIRE_FALSE(said.outcome);
    CHECK(said.outcome.error().code == errc::timeout);
    CHECK(said.outcome.error().text == to_string(error{code, "64 clients"}));
    d.take<link_seek>();
    d.state.on_not_found(2, {errc::unreachable, "gone"}, start + 1s);
  }
  SECTION("disconnected while the actors of the client were being bound") {
    d.attach();
    d.state.on_node_lost(start);
    CHECK(d.take_one<link_part>().owner == owner);
    CHECK(d.take<link_unbind>().size() == 1);
  }
  SECTION("disconnected while it was answering") {
    d.find();
    d.state.on_node_lost(start);
    CHECK(d.take_one<link_part>().owner == 0);
  }
  CHECK(d.ended(1) == errc::internal);
  d.state.on_time(d.state.next_event());
  d.take<link_bind_lookup>();
  d.take<link_map>();
  d.attach();
  d.bind_all();
  CHECK(d.ended(1) == errc::ok);
}

TEST_CASE("link state: a node that comes back with another identity is left and refused", "[link_state]") {
  harness d;
  d.attach();
  d.state.on_node_lost(start);
  d.take<link_part>();
  d.state.on_time(d.state.next_event());
  auto other = harness::offer(owner + 1);
  other.ns_id = {5, 7};
  d.state.wait_attached(1, timestamp::max());
  d.attach(other);
  CHECK(d.ended(1) == errc::identity_mismatch);
  CHECK(d.take_one<link_part>().owner == owner + 1);
  CHECK(d.state.owner() == 0);
}

TEST_CASE("link state: a node in this process is not searched for twice", "[link_state]") {
  harness d(false);
  d.state.wait_attached(1, timestamp::max());
  auto expected = errc::unreachable;
  SECTION("it dies") {
    d.attach();
    CHECK(d.ended(1) == errc::ok);
    d.state.wait_attached(2, timestamp::max());
    CHECK(d.ended(2) == errc::ok);
    d.state.on_node_lost(start);
  }
  SECTION("it refuses") {
    expected = errc::limit_exceeded;
    d.state.on_not_attached(d.find(), {expected, "64 clients"}, start);
    CHECK(d.ended(1) == expected);
  }
  CHECK(d.state.refused());
  d.state.wait_attached(3, timestamp::max());
  CHECK(d.ended(3) == expected);
  d.state.on_time(start + 1h);
  CHECK(d.take<link_seek>().empty());
}

TEST_CASE("link state: a resource shortage of the node is reported at once, and once for each reason", "[link_state]") {
  harness d;
  d.state.wait_attached(1, start + 1h);
  const auto fails = [&](error why, timestamp now) {
    d.state.on_not_attached(d.find(), why, now);
    std::size_t warnings = 0;
    for (const auto& x : d.take<link_news>())
      if (x.how == link_news::weight::warning) {
        ++warnings;
        CHECK(x.text.find(to_string(why)) != std::string::npos);
      }
    d.state.on_time(now + 10s);
    return warnings;
  };
  const error threads{errc::io_error, "cannot start the thread of an io engine"};
  CHECK(fails(threads, start) == 1);
  CHECK(fails(threads, start + 10s) == 0);
  CHECK(fails({errc::no_space, "the disk is full"}, start + 20s) == 1);
  CHECK(fails({errc::busy, "it is starting"}, start + 30s) == 0);
  // No caller was answered, and the attempts continue.
  CHECK(d.take<link_answer>().empty());
  d.attach();
  d.state.on_node_lost(start + 40s);
  d.take<link_news>();
  d.state.on_time(start + 50s);
  CHECK(fails(threads, start + 50s) == 1);
}

TEST_CASE("link state: shutdown answers every caller, unbinds the client and leaves the node", "[link_state]") {
  harness d;
  d.state.wait_attached(1, timestamp::max());
  d.state.bind(2, {0, 1}, timestamp::max());
  d.attach();
  d.state.end();
  CHECK(d.ended(1) == errc::shutting_down);
  CHECK(d.ended(2) == errc::shutting_down);
  CHECK(d.take_one<link_part>().owner == owner);
  CHECK(d.take<link_unbind>().size() == 1);
  CHECK(d.state.next_event() == timestamp::max());
  d.rest();
  CHECK(d.said(true) == std::vector{owner});
  CHECK(d.take<link_ended>().size() == 1);
  d.state.end();
  CHECK(d.take<link_ended>().empty());
}

TEST_CASE("link state: in any order of events every wait ends once and one attachment counts", "[link_state]") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return random() % n; };
    const auto code = [&] { return std::vector{errc::timeout, errc::unreachable, errc::busy}[below(3)]; };
    harness d(below(4) > 0);
    auto now = start;
    link_wait waits = 0;
    std::vector<link_effect> open; // requested and not answered
    owner_id last_owner = 0;
    std::set<owner_id> known; // by the node
    std::set<owner_id> quiesced;
    std::set<std::pair<owner_id, rank_number>> rested;
    std::map<owner_id, bool> silent; // one of its copy engines
    for (int i = 0; i < 300; ++i) {
      d.collect();
      for (auto& x : std::exchange(d.effects, {})) {
        if (const auto* a = std::get_if<link_answer>(&x)) {
          CHECK(d.answered.insert(a->wait).second);
        } else if (const auto* p = std::get_if<link_part>(&x)) {
          CHECK((p->owner == 0 || known.erase(p->owner) == 1));
        } else if (const auto* said = std::get_if<link_report_quiesced>(&x)) {
          CHECK(quiesced.insert(said->owner).second); // once, unless the delivery is unknown
          CHECK(known.count(said->owner) == 0);       // after its end
          CHECK_FALSE(silent[said->owner]);
          CHECK((said->to_left || d.state.owner() != 0 || !known.empty()));
          open.push_back(x);
        } else {
          open.push_back(std::move(x));
        }
      }
      CHECK(known.size() <= 1);
      CHECK((d.state.owner() == 0 ? known.empty() : known.count(d.state.owner()) == 1));
      now += std::chrono::milliseconds(below(100));
      switch (below(8)) {
      case 0:
        d.state.wait_attached(++waits, now + std::chrono::milliseconds(below(2000)));
        break;
      case 1:
        if (below(4) == 0)
          d.state.bind(++waits, {0, 1}, now + std::chrono::milliseconds(below(2000)));
        break;
      case 2:
        if (below(6) == 0)
          d.state.on_node_lost(now);
        break;
      case 3:
        d.state.on_time(now);
        break;
      default: {
        if (open.empty())
          break;
        const auto at = below(static_cast<std::uint32_t>(open.size()));
        const auto what = open[at];
        if (below(5) > 0) // else it is answered again later
          open.erase(open.begin() + at);
        const bool good = below(5) > 0;
        if (const auto* seek = std::get_if<link_seek>(&what)) {
          good ? d.state.on_found(seek->number) : d.state.on_not_found(seek->number, {code(), "x"}, now);
        } else if (const auto* attach = std::get_if<link_attach>(&what)) {
          if (!good)
            d.state.on_not_attached(attach->number, {code(), "x"}, now);
          else if (d.state.on_attached(attach->number, harness::offer(++last_owner)))
            known.insert(last_owner);
        } else if (const auto* lookup = std::get_if<link_bind_lookup>(&what)) {
          d.state.on_bound(lookup->epoch, {}, harness_start);
        } else if (const auto* resting = std::get_if<link_quiesce>(&what)) {
          // Answered once, as all requests to the client's own actors are.
          const auto key = std::pair(resting->owner, resting->rank);
          if (rested.insert(key).second) {
            silent.insert_or_assign(resting->owner, silent[resting->owner] || !good);
            d.state.on_quiesced(resting->owner, good ? result<void>{} : fail(code(), "x"));
          }
        } else if (const auto* word = std::get_if<link_report_quiesced>(&what)) {
          if (!good)
            quiesced.erase(word->owner);
          d.state.on_quiesced_reported(word->owner, good ? result<void>{} : fail(code(), "x"), now);
        } else if (const auto* map = std::get_if<link_map>(&what)) {
          d.state.on_mapped(map->epoch, map->rank, {}, harness_start);
        } else if (const auto* transfer = std::get_if<link_bind_transfer>(&what)) {
          d.state.on_bound(transfer->epoch, {}, harness_start);
        }
      }
      }
    }
    d.state.on_time(now + 1h);
    d.collect();
    for (const auto& x : d.take<link_answer>())
      CHECK(d.answered.insert(x.wait).second);
    CHECK(d.answered.size() == waits);
  }
}

} // namespace link_state_test
