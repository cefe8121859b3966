#include "actors/node/namespaces/namespaces_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace namespaces_state_test {

using namespace troupe;

namespace {

const error good{errc::ok, {}};

namespace_spec spec(const std::string& name) {
  namespace_spec out;
  out.name = name;
  out.model = "m";
  out.salt = name;
  return out;
}

/// A state over two shards with scripted answers, and allocators that are numbers.
struct harness {
  using state = namespaces_state;

  harness() {
    state::options how;
    how.max_slots = 100;
    how.make_allocator = [this](const rank_order&, const std::string&, bool) -> result<state::allocator_number> {
      if (no_memory)
        return fail(errc::no_memory, "no memory");
      alive.insert(++last_allocator);
      return last_allocator;
    };
    how.fresh = [this] { return ++last_incarnation; };
    rules.emplace(std::move(how));
  }

  /// The only order of this kind in the outbox; answers are noted.
  template <class T>
  T take_one() {
    take();
    std::optional<T> out;
    for (const auto& x : orders)
      if (const auto* one = std::get_if<T>(&x)) {
        REQUIRE_FALSE(out);
        out = *one;
      }
    orders.clear();
    REQUIRE(out);
    return *out;
  }

  void take() {
    for (auto& x : rules->take_outbox()) {
      if (const auto* done = std::get_if<state::answer>(&x))
        REQUIRE(answers.emplace(done->request, done->outcome.code).second);
      else if (const auto* ended = std::get_if<state::end_allocator>(&x))
        REQUIRE(alive.erase(ended->allocator) == 1);
      else if (!std::holds_alternative<state::note>(x))
        orders.push_back(std::move(x));
    }
  }

  /// Nothing if it waits.
  std::optional<errc> answer(state::request_number request) {
    take();
    const auto i = answers.find(request);
    return i == answers.end() ? std::nullopt : std::optional(i->second);
  }

  void say(state::order_number order, errc first = errc::ok, errc second = errc::ok) {
    const std::vector<error> outcomes{{first, {}}, {second, {}}};
    rules->notified(order, outcomes);
  }

  /// A namespace that is there.
  void make() {
    rules->add(++last_request, {ns, {}});
    say(take_one<state::report_namespace>().number);
    REQUIRE(answer(last_request) == errc::ok);
  }

  state::request_number ask_rank(std::uint32_t slots, rank_number rank = 0) {
    rules->register_rank(++last_request, {ns.id(), rank, slots});
    return last_request;
  }

  void register_rank(std::uint32_t slots, rank_number rank = 0) {
    const auto request = ask_rank(slots, rank);
    say(take_one<state::report_rank>().number);
    REQUIRE(answer(request) == errc::ok);
  }

  state::request_number ask_removal(bool force = true) {
    rules->remove(++last_request, {ns.id(), force});
    return last_request;
  }

  namespace_spec ns = spec("a");
  std::optional<state> rules;
  std::vector<state::effect> orders;
  std::map<state::request_number, errc> answers;
  std::set<state::allocator_number> alive;
  state::allocator_number last_allocator = 0;
  incarnation_number last_incarnation = 100;
  state::request_number last_request = 0;
  bool no_memory = false;
};

using state = namespaces_state;

} // namespace

TEST_CASE("namespaces: one exists when all shards have it", "[namespaces_state]") {
  harness w;
  w.rules->add(1, {w.ns, {}});
  const auto order = w.take_one<state::report_namespace>();
  CHECK(order.request.spec == w.ns);
  CHECK_FALSE(w.answer(1));
  SECTION("it can have ranks from then on") {
    w.say(order.number);
    CHECK(w.answer(1) == errc::ok);
    w.last_request = 1;
    w.register_rank(4);
  }
  SECTION("all shards refuse: the answer has their reason") {
    w.say(order.number, errc::limit_exceeded, errc::limit_exceeded);
    CHECK(w.answer(1) == errc::limit_exceeded);
    w.rules->register_rank(2, {w.ns.id(), 0, 4});
    CHECK(w.answer(2) == errc::unknown_namespace);
  }
  SECTION("some shards refuse: the others remove it before the answer") {
    w.say(order.number, errc::ok, errc::limit_exceeded);
    const auto back = w.take_one<state::order_removal>();
    CHECK(back.request.ns == w.ns.id());
    CHECK(back.request.force);
    CHECK_FALSE(w.answer(1));
    CHECK(w.rules->knows(w.ns.id()));
    w.rules->add(2, {w.ns, {}});
    CHECK(w.answer(2) == errc::busy);
    w.say(back.number, errc::ok, errc::unknown_namespace);
    CHECK(w.answer(1) == errc::limit_exceeded);
    CHECK_FALSE(w.rules->knows(w.ns.id()));
    w.rules->add(3, {w.ns, {}});
    w.say(w.take_one<state::report_namespace>().number);
    CHECK(w.answer(3) == errc::ok);
  }
  SECTION("some shards refuse: another request for the same namespace decides") {
    w.rules->add(2, {w.ns, {}});
    const auto second = w.take_one<state::report_namespace>();
    w.say(order.number, errc::ok, errc::limit_exceeded);
    CHECK(w.answer(1) == errc::limit_exceeded);
    CHECK(w.orders.empty());
    w.say(second.number);
    CHECK(w.answer(2) == errc::ok);
    CHECK(w.rules->knows(w.ns.id()));
  }
  SECTION("an existing one stays when it is registered again and refused") {
    w.say(order.number);
    CHECK(w.answer(1) == errc::ok);
    w.rules->add(2, {w.ns, {}});
    w.say(w.take_one<state::report_namespace>().number, errc::ok, errc::limit_exceeded);
    CHECK(w.answer(2) == errc::limit_exceeded);
    CHECK(w.orders.empty());
    CHECK(w.rules->knows(w.ns.id()));
  }
}

TEST_CASE("namespaces: a rank gets one allocator, of which all shards are notified", "[namespaces_state]") {
  harness w;
  w.make();
  const auto first = w.ask_rank(4);
  const auto order = w.take_one<state::report_rank>();
  CHECK(order.what.rank.slots == 4);
  CHECK(order.what.allocator == 1);
  CHECK(order.what.incarnation == 101);
  // A request for the same number shares the answer, and one for another number does not.
  const auto same = w.ask_rank(4);
  const auto other = w.ask_rank(5);
  CHECK(w.answer(other) == errc::busy);
  CHECK(w.orders.empty());
  w.say(order.number);
  CHECK(w.answer(first) == errc::ok);
  CHECK(w.answer(same) == errc::ok);
  CHECK(w.answer(w.ask_rank(4)) == errc::ok); // at once
  CHECK(w.alive.size() == 1);
  CHECK(w.rules->rank_of(1) == "rank 0 of namespace 'a'");
  CHECK(w.rules->rank_of(2).empty());
}

TEST_CASE("namespaces: an invalid rank is refused, and no allocator is left over", "[namespaces_state]") {
  harness w;
  w.make();
  CHECK(w.answer(w.ask_rank(0)) == errc::out_of_range);
  CHECK(w.answer(w.ask_rank(101)) == errc::out_of_range);
  w.no_memory = true;
  CHECK(w.answer(w.ask_rank(4)) == errc::no_memory);
  w.no_memory = false;
  const auto refused = w.ask_rank(4);
  w.say(w.take_one<state::report_rank>().number, errc::no_space, errc::no_space);
  CHECK(w.answer(refused) == errc::no_space);
  CHECK(w.alive.empty());
  w.register_rank(4);
}

TEST_CASE("namespaces: a rank that some shards know keeps its allocator, and all shards are notified again",
          "[namespaces_state]") {
  harness w;
  w.make();
  const auto refused = w.ask_rank(4);
  const auto order = w.take_one<state::report_rank>();
  w.say(order.number, errc::ok, errc::limit_exceeded);
  CHECK(w.answer(refused) == errc::limit_exceeded);
  CHECK(w.alive == std::set<state::allocator_number>{order.what.allocator});
  const auto again = w.ask_rank(4);
  const auto second = w.take_one<state::report_rank>();
  CHECK(second.what.allocator == order.what.allocator);
  CHECK(second.what.incarnation == order.what.incarnation);
  w.say(second.number);
  CHECK(w.answer(again) == errc::ok);
}

TEST_CASE("namespaces: an empty rank can change its number of slots", "[namespaces_state]") {
  harness w;
  w.make();
  w.register_rank(4);
  const auto request = w.ask_rank(6);
  const auto retire = w.take_one<state::order_retirement>();
  // Other changes are refused while it is being decided.
  CHECK(w.answer(w.ask_rank(6)) == errc::busy);
  CHECK(w.answer(w.ask_rank(4)) == errc::busy);
  CHECK(w.answer(w.ask_removal()) == errc::busy);
  const auto kept = [&](errc why) {
    // The old one stays, and all shards are notified.
    const auto notified = w.take_one<state::report_rank>();
    CHECK(notified.what.rank.slots == 4);
    CHECK(notified.what.allocator == 1);
    CHECK_FALSE(w.answer(request));
    w.say(notified.number);
    CHECK(w.answer(request) == why);
    CHECK(w.alive == std::set<state::allocator_number>{1});
    CHECK(w.answer(w.ask_rank(4)) == errc::ok);
  };
  SECTION("shards have no page of it and all slots are free") {
    w.say(retire.number);
    const auto count = w.take_one<state::count_slots>();
    CHECK(count.allocator == 1);
    allocator_stats slots;
    slots.total = slots.free = 4;
    w.rules->counted(count.number, slots);
    const auto notified = w.take_one<state::report_rank>();
    CHECK(notified.what.rank.slots == 6);
    CHECK(notified.what.allocator == 2);
    CHECK(notified.what.incarnation == 102);
    w.say(notified.number);
    CHECK(w.answer(request) == errc::ok);
    CHECK(w.alive == std::set<state::allocator_number>{2});
  }
  SECTION("a shard has a page: refused") {
    w.say(retire.number, errc::ok, errc::identity_mismatch);
    kept(errc::identity_mismatch);
  }
  SECTION("a slot is not free: accepted, but slots rest as long as the old ones may be in use") {
    w.say(retire.number);
    allocator_stats slots;
    slots.total = 4;
    slots.free = 3;
    w.rules->counted(w.take_one<state::count_slots>().number, slots);
    w.take();
    REQUIRE(w.orders.size() == 2);
    const auto rest = std::get<state::rest_allocator>(w.orders[0]);
    CHECK(rest.allocator == 2);
    const auto notified = std::get<state::report_rank>(w.orders[1]);
    CHECK(notified.what.allocator == 2);
    CHECK(notified.what.incarnation == 102);
    w.orders.clear();
    w.say(notified.number);
    CHECK(w.answer(request) == errc::ok);
    CHECK(w.alive == std::set<state::allocator_number>{2});
  }
  SECTION("all shards refuse at first: the next attempt gets the resting slots") {
    w.say(retire.number);
    allocator_stats slots;
    slots.total = 4;
    slots.free = 3;
    w.rules->counted(w.take_one<state::count_slots>().number, slots);
    w.take();
    REQUIRE(w.orders.size() == 2);
    const auto notified = std::get<state::report_rank>(w.orders[1]);
    w.orders.clear();
    w.say(notified.number, errc::limit_exceeded, errc::limit_exceeded);
    CHECK(w.answer(request) == errc::limit_exceeded);
    CHECK(w.alive == std::set<state::allocator_number>{2});
    const auto again = w.ask_rank(6);
    const auto second = w.take_one<state::report_rank>();
    CHECK(second.what.allocator == 2);
    CHECK(second.what.incarnation == notified.what.incarnation);
    w.say(second.number);
    CHECK(w.answer(again) == errc::ok);
  }
  SECTION("the allocator does not answer: refused") {
    w.say(retire.number);
    w.rules->counted(w.take_one<state::count_slots>().number, fail(errc::unreachable, "gone"));
    kept(errc::unreachable);
  }
}

TEST_CASE("namespaces: one is removed with its allocators when no shard has it any more", "[namespaces_state]") {
  harness w;
  w.make();
  w.register_rank(4, 0);
  w.register_rank(4, 1);
  const bool force = GENERATE(false, true);
  const auto first = w.ask_removal(force);
  const auto order = w.take_one<state::order_removal>();
  CHECK(order.request.force == force);
  const auto second = w.ask_removal();
  CHECK_FALSE(w.answer(second));
  CHECK(w.answer(w.ask_rank(4, 2)) == errc::busy);
  w.rules->add(++w.last_request, {w.ns, {}});
  CHECK(w.answer(w.last_request) == errc::busy);
  SECTION("a shard had removed it before") {
    w.say(order.number, errc::unknown_namespace, errc::ok);
    CHECK(w.answer(first) == errc::ok);
    CHECK(w.answer(second) == errc::ok);
    CHECK(w.alive.empty());
    CHECK(w.answer(w.ask_removal()) == errc::unknown_namespace);
  }
  SECTION("all shards refuse: it stays") {
    w.say(order.number, errc::busy, errc::busy);
    CHECK(w.answer(first) == errc::busy);
    CHECK(w.answer(second) == errc::busy);
    CHECK(w.alive.size() == 2);
    CHECK(w.answer(w.ask_rank(4, 0)) == errc::ok);
  }
}

TEST_CASE("namespaces: one that a shard has removed is removed from all, or can only be removed",
          "[namespaces_state]") {
  harness w;
  w.make();
  w.register_rank(4);
  const auto request = w.ask_removal(false);
  const auto order = w.take_one<state::order_removal>();
  CHECK_FALSE(order.request.force);
  w.say(order.number, errc::ok, errc::busy);
  CHECK_FALSE(w.answer(request));
  const auto again = w.take_one<state::order_removal>();
  CHECK(again.request.force);
  SECTION("by force") {
    w.say(again.number, errc::unknown_namespace, errc::ok);
    CHECK(w.answer(request) == errc::ok);
    CHECK(w.alive.empty());
    CHECK(w.answer(w.ask_removal()) == errc::unknown_namespace);
  }
  SECTION("the forced removal fails as well") {
    w.say(again.number, errc::unknown_namespace, errc::limit_exceeded);
    CHECK(w.answer(request) == errc::busy);
    CHECK(w.answer(w.ask_rank(4)) == errc::busy);
    CHECK(w.answer(w.ask_rank(4, 1)) == errc::busy);
    w.rules->add(++w.last_request, {w.ns, {}});
    CHECK(w.answer(w.last_request) == errc::busy);
    CHECK(w.alive.size() == 1);
    // The same holds when no shard accepts.
    const auto third = w.ask_removal(false);
    const auto last = w.take_one<state::order_removal>();
    CHECK(last.request.force);
    w.say(last.number, errc::limit_exceeded, errc::limit_exceeded);
    CHECK(w.answer(third) == errc::busy);
    CHECK(w.answer(w.ask_rank(4)) == errc::busy);
    const auto fourth = w.ask_removal(false);
    w.say(w.take_one<state::order_removal>().number, errc::unknown_namespace, errc::ok);
    CHECK(w.answer(fourth) == errc::ok);
    CHECK(w.alive.empty());
  }
}

TEST_CASE("namespaces: those in the config are not changed by requests", "[namespaces_state]") {
  harness w;
  w.rules->know_own(w.ns);
  w.rules->know({{w.ns.id(), 0, 8}, 77, 5});
  CHECK(w.answer(w.ask_removal()) == errc::not_owner);
  CHECK(w.answer(w.ask_rank(8)) == errc::ok);
  CHECK(w.answer(w.ask_rank(9)) == errc::identity_mismatch);
  CHECK(w.answer(w.ask_rank(8, 1)) == errc::out_of_range);
  CHECK(w.orders.empty());
}

TEST_CASE("namespaces: in any order of requests and answers each is answered once and no allocator is lost",
          "[namespaces_state]") {
  const auto seed = GENERATE(range(1U, 41U));
  std::mt19937 random(seed);
  harness w;
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto some = [&] {
    constexpr errc all[]{errc::ok, errc::ok, errc::ok, errc::busy, errc::no_space, errc::unknown_namespace};
    return all[below(6)];
  };
  const auto answer_one = [&] {
    w.take();
    if (w.orders.empty())
      return;
    const auto i = below(static_cast<std::uint32_t>(w.orders.size()));
    const auto order = w.orders[i];
    w.orders.erase(w.orders.begin() + i);
    if (const auto* count = std::get_if<state::count_slots>(&order)) {
      REQUIRE(w.alive.contains(count->allocator));
      allocator_stats slots;
      slots.total = 4;
      slots.free = 3 + below(2);
      return w.rules->counted(count->number, slots);
    }
    if (const auto* rank = std::get_if<state::report_rank>(&order))
      REQUIRE(w.alive.contains(rank->what.allocator));
    std::visit(
        [&](const auto& x) {
          if constexpr (requires { x.number; })
            w.say(x.number, some(), some());
        },
        order);
  };
  for (int step = 0; step < 400; ++step)
    switch (below(6)) {
    case 0:
      w.rules->add(++w.last_request, {w.ns, {}});
      break;
    case 1:
      w.ask_removal();
      break;
    case 2:
    case 3:
      w.ask_rank(1 + below(3), below(2));
      break;
    default:
      answer_one();
    }
  for (w.take(); !w.orders.empty(); w.take())
    answer_one();
  CHECK(w.answers.size() == w.last_request);
  // Two ranks at most are known; each has one allocator.
  std::size_t known = 0;
  for (const auto x : w.alive)
    known += w.rules->rank_of(x).empty() ? 0 : 1;
  CHECK(known == w.alive.size());
  CHECK(known <= 2);
}

} // namespace namespaces_state_test
