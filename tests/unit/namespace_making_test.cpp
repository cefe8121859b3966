#include "actors/node/namespaces/namespace_making.hpp"
#include "tests/catch.hpp"

#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

/// The rules for namespaces that clients create, over two shards and a stand-in that opens and closes namespaces.

namespace namespace_making_test {

using namespace troupe;

namespace {

namespace_spec spec(const std::string& name) {
  namespace_spec out;
  out.name = name;
  out.model = "m";
  out.salt = name;
  return out;
}

struct harness {
  using rules = namespace_making;

  harness()
      : state({[this](const namespace_spec&) -> result<void> {
          if (unfit)
            return fail(errc::invalid_argument, "too large a page");
          return {};
        }}) {}

  void take() {
    for (auto& x : state.take_outbox()) {
      if (const auto* done = std::get_if<rules::answer>(&x))
        REQUIRE(answers.emplace(done->request, done->outcome.code).second);
      else if (const auto* named = std::get_if<rules::served>(&x))
        named->is ? static_cast<void>(names.insert(named->ns)) : static_cast<void>(names.erase(named->ns));
      else if (const auto* kept = std::get_if<rules::keep_namespace>(&x))
        kept_open.insert(kept->ns);
      else if (!std::holds_alternative<rules::note>(x))
        orders.push_back(std::move(x));
    }
  }

  /// The only order there is.
  template <class T>
  T order() {
    take();
    REQUIRE(orders.size() == 1);
    REQUIRE(std::holds_alternative<T>(orders.front()));
    auto out = std::get<T>(orders.front());
    orders.clear();
    return out;
  }

  std::optional<errc> answer(rules::request_number request) {
    take();
    const auto i = answers.find(request);
    return i == answers.end() ? std::nullopt : std::optional(i->second);
  }

  void notified(rules::order_number number, errc first = errc::ok, errc second = errc::ok) {
    const std::vector<error> outcomes{{first, {}}, {second, {}}};
    state.notified(number, outcomes);
  }

  void make(rules::request_number request) { state.make(request, spec("a")); }

  /// It is served, for request 1.
  void serve() {
    make(1);
    notified(order<rules::report_namespace>().number);
    state.done(order<rules::open_namespace>().number, {});
    notified(order<rules::report_ranks>().number);
    REQUIRE(answer(1) == errc::ok);
  }

  bool nothing_left() {
    take();
    return orders.empty() && !state.knows(id);
  }

  const namespace_id id = spec("a").id();
  bool unfit = false;
  rules state;
  std::vector<rules::effect> orders;
  std::map<rules::request_number, errc> answers;
  std::set<namespace_id> names;
  std::set<namespace_id> kept_open;
};

using rules = namespace_making;

/// Completes an order with the result of `code`.
template <class Code>
void carry_out(harness& w, const rules::effect& order, Code code) {
  std::visit(
      [&](const auto& x) {
        using order_type = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<order_type, rules::report_namespace> ||
                      std::is_same_v<order_type, rules::report_ranks> ||
                      std::is_same_v<order_type, rules::order_removal>)
          w.notified(x.number, code(), code());
        else if constexpr (requires { x.number; })
          w.state.done(x.number, code() == errc::ok ? result<void>{} : result<void>(fail(errc::busy, "no")));
      },
      order);
}

} // namespace

TEST_CASE("namespace making: a namespace is checked, registered at shards, opened, then served with its ranks",
          "[namespaces]") {
  harness w;
  w.make(1);
  const auto tell = w.order<rules::report_namespace>();
  CHECK(tell.spec.name == "a");
  w.notified(tell.number);
  const auto open = w.order<rules::open_namespace>();
  CHECK_FALSE(w.state.serves(w.id));
  w.state.done(open.number, {});
  const auto ranks = w.order<rules::report_ranks>();
  CHECK_FALSE(w.answer(1));
  CHECK(w.names.empty());
  w.notified(ranks.number);
  CHECK(w.answer(1) == errc::ok);
  CHECK(w.state.serves(w.id));
  CHECK(w.names.contains(w.id));
  // A repeated request is answered at once.
  w.make(2);
  CHECK(w.answer(2) == errc::ok);
  CHECK(w.orders.empty());
}

TEST_CASE("namespace making: a namespace that cannot be stored here is refused before anything is done",
          "[namespaces]") {
  harness w;
  w.unfit = true;
  w.make(1);
  CHECK(w.answer(1) == errc::invalid_argument);
  CHECK(w.nothing_left());
}

TEST_CASE("namespace making: clients that create the same namespace share the work", "[namespaces]") {
  harness w;
  w.make(1);
  w.make(2);
  w.notified(w.order<rules::report_namespace>().number);
  w.make(3);
  w.state.done(w.order<rules::open_namespace>().number, {});
  w.make(4);
  w.notified(w.order<rules::report_ranks>().number);
  for (const rules::request_number request : {1U, 2U, 3U, 4U})
    CHECK(w.answer(request) == errc::ok);
}

TEST_CASE("namespace making: a failure at any step leaves nothing behind and is reported to every waiting client",
          "[namespaces]") {
  harness w;
  w.make(1);
  w.make(2);
  auto expected = errc::ok;
  SECTION("all shards refuse the name") {
    expected = errc::identity_mismatch;
    w.notified(w.order<rules::report_namespace>().number, expected, expected);
  }
  SECTION("one shard refuses it") {
    expected = errc::limit_exceeded;
    w.notified(w.order<rules::report_namespace>().number, errc::ok, expected);
    w.notified(w.order<rules::order_removal>().number, errc::ok, errc::unknown_namespace);
  }
  SECTION("it cannot be opened") {
    expected = errc::no_space;
    w.notified(w.order<rules::report_namespace>().number);
    w.state.done(w.order<rules::open_namespace>().number, fail(expected, "the disk is full"));
    w.make(3);
    CHECK(w.answer(3) == errc::busy);
    w.state.remove(4, w.id, true);
    CHECK(w.answer(4) == errc::busy);
    CHECK_FALSE(w.answer(1));
    w.notified(w.order<rules::order_removal>().number);
  }
  SECTION("a shard refuses a rank") {
    expected = errc::internal;
    w.notified(w.order<rules::report_namespace>().number);
    w.state.done(w.order<rules::open_namespace>().number, {});
    w.notified(w.order<rules::report_ranks>().number, expected, errc::ok);
    const auto remove = w.order<rules::order_removal>();
    CHECK(remove.force);
    w.notified(remove.number);
    // Files last: nothing tells of pages in them any more.
    w.state.done(w.order<rules::close_namespace>().number, {});
  }
  CHECK(w.answer(1) == expected);
  CHECK(w.answer(2) == expected);
  CHECK(w.nothing_left());
  CHECK(w.names.empty());
  // And it can be made after all.
  w.make(9);
  w.notified(w.order<rules::report_namespace>().number);
  w.state.done(w.order<rules::open_namespace>().number, {});
  w.notified(w.order<rules::report_ranks>().number);
  CHECK(w.answer(9) == errc::ok);
}

TEST_CASE("namespace making: a namespace is detached from clients, removed from shards, and closed, in this order",
          "[namespaces]") {
  harness w;
  w.serve();
  const bool force = GENERATE(false, true);
  w.state.remove(2, w.id, force);
  const auto leave = w.order<rules::leave_namespace>();
  CHECK(leave.force == force);
  w.make(3);
  CHECK(w.answer(3) == errc::busy);
  w.state.remove(4, w.id, false); // shares the answer
  w.state.done(leave.number, {});
  const auto remove = w.order<rules::order_removal>();
  CHECK(remove.force == force);
  CHECK(w.names.contains(w.id));
  w.notified(remove.number, errc::ok, errc::unknown_namespace);
  const auto close = w.order<rules::close_namespace>();
  CHECK(w.names.empty());
  CHECK_FALSE(w.answer(2));
  w.state.done(close.number, {});
  CHECK(w.answer(2) == errc::ok);
  CHECK(w.answer(4) == errc::ok);
  CHECK(w.nothing_left());
  w.state.remove(5, w.id, false);
  CHECK(w.answer(5) == errc::unknown_namespace);
}

TEST_CASE("namespace making: a namespace in use is not removed", "[namespaces]") {
  harness w;
  w.serve();
  w.state.remove(2, w.id, false);
  SECTION("a client") {
    w.state.done(w.order<rules::leave_namespace>().number, fail(errc::busy, "a client"));
  }
  SECTION("a holder of leases") {
    w.state.done(w.order<rules::leave_namespace>().number, {});
    w.notified(w.order<rules::order_removal>().number, errc::busy, errc::busy);
  }
  CHECK(w.answer(2) == errc::busy);
  CHECK(w.kept_open.contains(w.id));
  CHECK(w.state.serves(w.id));
  CHECK(w.names.contains(w.id));
  CHECK(w.orders.empty());
}

TEST_CASE("namespace making: a removal that some shards have started is forced on all", "[namespaces]") {
  harness w;
  w.serve();
  w.state.remove(2, w.id, false);
  w.state.done(w.order<rules::leave_namespace>().number, {});
  w.notified(w.order<rules::order_removal>().number, errc::ok, errc::busy);
  const auto again = w.order<rules::order_removal>();
  CHECK(again.force);
  w.notified(again.number, errc::unknown_namespace, errc::ok);
  w.state.done(w.order<rules::close_namespace>().number, fail(errc::io_error, "a file stays"));
  CHECK(w.answer(2) == errc::ok);
  CHECK(w.nothing_left());
}

TEST_CASE("namespace making: a namespace that only some shards have removed serves no one and can only be removed",
          "[namespaces]") {
  harness w;
  w.serve();
  const bool force = GENERATE(false, true);
  w.state.remove(2, w.id, force);
  w.state.done(w.order<rules::leave_namespace>().number, {});
  w.notified(w.order<rules::order_removal>().number, errc::ok, errc::limit_exceeded);
  if (!force)
    w.notified(w.order<rules::order_removal>().number, errc::unknown_namespace, errc::limit_exceeded);
  CHECK(w.answer(2) == errc::busy);
  CHECK_FALSE(w.state.serves(w.id));
  CHECK(w.kept_open.empty());
  w.make(3);
  CHECK(w.answer(3) == errc::busy);
  CHECK(w.orders.empty());
  // A removal finds it by its name.
  CHECK(w.names.contains(w.id));
  w.state.remove(4, w.id, false);
  auto again = w.order<rules::order_removal>();
  CHECK(again.force);
  SECTION("the removal succeeds") {
    w.notified(again.number, errc::unknown_namespace, errc::ok);
    w.state.done(w.order<rules::close_namespace>().number, {});
    CHECK(w.answer(4) == errc::ok);
    CHECK(w.names.empty());
    CHECK(w.nothing_left());
  }
  SECTION("the removal may fail again on all shards") {
    w.notified(again.number, errc::limit_exceeded, errc::limit_exceeded);
    CHECK(w.answer(4) == errc::busy);
    CHECK_FALSE(w.state.serves(w.id));
    w.state.remove(5, w.id, false);
    w.notified(w.order<rules::order_removal>().number, errc::unknown_namespace, errc::ok);
    w.state.done(w.order<rules::close_namespace>().number, {});
    CHECK(w.answer(5) == errc::ok);
    CHECK(w.nothing_left());
  }
}

TEST_CASE("namespace making: whatever the outcome of orders, each request is answered once and no order is forgotten",
          "[namespaces]") {
  const auto seed = GENERATE(range(1U, 9U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto one_in = [&](std::uint32_t n) { return random() % n == 0; };
  harness w;
  rules::request_number last = 0;
  const std::vector<std::string> names{"a", "b"};
  std::size_t good = 0;
  for (int i = 0; i < 2000; ++i) {
    w.unfit = one_in(20);
    const auto ns = spec(names[random() % names.size()]);
    if (one_in(3))
      w.state.make(++last, ns);
    else if (one_in(3))
      w.state.remove(++last, ns.id(), one_in(2));
    w.take();
    if (w.orders.empty() || one_in(3))
      continue;
    const auto at = random() % w.orders.size();
    const auto order = w.orders[at];
    w.orders.erase(w.orders.begin() + static_cast<std::ptrdiff_t>(at));
    carry_out(w, order, [&] { return one_in(4) ? errc::busy : errc::ok; });
  }
  w.unfit = false;
  for (w.take(); !w.orders.empty(); w.take()) {
    const auto order = w.orders.back();
    w.orders.pop_back();
    carry_out(w, order, [] { return errc::ok; });
  }
  for (rules::request_number request = 1; request <= last; ++request) {
    REQUIRE(w.answers.contains(request));
    good += w.answers.at(request) == errc::ok ? 1 : 0;
  }
  CHECK(good > 50);
  // Those that are partly removed can be removed.
  for (const auto& name : names)
    if (const auto id = spec(name).id(); w.state.knows(id) && !w.state.serves(id))
      w.state.remove(++last, id, false);
  for (w.take(); !w.orders.empty(); w.take()) {
    const auto order = w.orders.back();
    w.orders.pop_back();
    carry_out(w, order, [] { return errc::ok; });
  }
  for (const auto& name : names) {
    CHECK(w.names.contains(spec(name).id()) == w.state.serves(spec(name).id()));
    CHECK(w.state.knows(spec(name).id()) == w.state.serves(spec(name).id()));
  }
}

} // namespace namespace_making_test
