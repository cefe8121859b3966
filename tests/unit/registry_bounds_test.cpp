// The leases that outside callers may hold, and the leases of others that they can end.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

namespace registry_bounds_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ticket alice{1, 1};
constexpr ticket bob{2, 1};
constexpr lease_bounds half{100, whole_share / 2, 0};

struct bounded : one_registry {
  explicit bounded(std::uint64_t count) : keys(some_keys(1, count)) { save(keys); }

  keys_t first(std::size_t n) const { return {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n)}; }
  keys_t part(std::size_t begin, std::size_t n) const {
    return {keys.begin() + static_cast<std::ptrdiff_t>(begin), keys.begin() + static_cast<std::ptrdiff_t>(begin + n)};
  }

  errc locate_as(ticket lease, const keys_t& what, const lease_bounds& bounds, std::int64_t now = 0,
                 std::int64_t seconds = 10) {
    const auto x = state.locate({ns, 0, lease, std::chrono::seconds(seconds), what, bounds}, at(now));
    CHECK(state.check_invariants() == "");
    return x ? errc::ok : x.error().code;
  }

  errc release_as(ticket lease, std::int64_t now = 0) {
    const auto x = state.release({ns, lease, 0, 0, true}, at(now));
    CHECK(state.check_invariants() == "");
    return x ? errc::ok : x.error().code;
  }

  std::uint32_t leases_of(std::size_t i) { return state.look_up({ns, keys[i]}, at(0)).value().leases; }

  keys_t keys;
};

} // namespace

TEST_CASE("registry bounds: one caller leases at most its share of the keys", "[registry]") {
  bounded r(20);
  CHECK(r.locate_as(alice, r.first(10), half) == errc::ok);
  // Several leases of one caller, and a repeated one, count together.
  CHECK(r.locate_as({1, 2}, r.part(10, 1), half) == errc::limit_exceeded);
  CHECK(r.locate_as(alice, r.part(10, 1), half) == errc::limit_exceeded);
  CHECK(r.leases_of(10) == 0);
  CHECK(r.leases_of(0) == 1);
  // A key that it holds already does not count again.
  CHECK(r.locate_as({1, 2}, r.first(10), half) == errc::ok);
  // Nothing of a refused lease is left: it cannot be renewed.
  CHECK_FALSE(r.state.renew({r.ns, {1, 3}, std::chrono::seconds(1)}, at(0)));
  // Other callers have their own share, and requests for local clients have no bound.
  CHECK(r.locate_as(bob, r.part(10, 10), half) == errc::ok);
  CHECK(r.locate_as({3, 1}, r.keys, {}) == errc::ok);
  // Given back is given back: by release, and by time.
  CHECK(r.release_as(alice) == errc::ok);
  CHECK(r.locate_as({1, 4}, r.part(10, 1), half) == errc::limit_exceeded);
  CHECK(r.release_as({1, 2}) == errc::ok);
  CHECK(r.locate_as({1, 4}, r.part(10, 10), half, 0, 1) == errc::ok);
  CHECK(r.locate_as({1, 5}, r.first(1), half) == errc::limit_exceeded);
  r.state.tick(at(2));
  CHECK(r.locate_as({1, 5}, r.first(10), half, 2) == errc::ok);
}

TEST_CASE("registry bounds: a match beyond the share of the caller leases nothing", "[registry]") {
  bounded r(20);
  const auto match = [&](ticket lease, std::size_t n) {
    return r.state.match({r.ns, lease, std::chrono::seconds(5), r.first(n), half}, at(0));
  };
  CHECK(match(alice, 11).error().code == errc::limit_exceeded);
  CHECK(r.leases_of(0) == 0);
  CHECK(r.state.stats().leases == 0);
  CHECK(match(alice, 10).value().matched == 10);
  CHECK(r.state.check_invariants() == "");
}

TEST_CASE("registry bounds: read-only callers have one common share", "[registry]") {
  bounded r(20);
  constexpr lease_bounds reader{100, whole_share, whole_share / 4};
  CHECK(r.locate_as(alice, r.first(3), reader) == errc::ok);
  CHECK(r.locate_as(bob, r.part(3, 2), reader) == errc::ok);
  CHECK(r.locate_as({3, 1}, r.part(5, 1), reader) == errc::limit_exceeded);
  // Keys that several of them hold count once.
  CHECK(r.locate_as({3, 1}, r.first(5), reader) == errc::ok);
  CHECK(r.release_as(alice) == errc::ok);
  CHECK(r.locate_as({3, 2}, r.part(5, 1), reader) == errc::limit_exceeded);
  CHECK(r.release_as({3, 1}) == errc::ok);
  CHECK(r.locate_as({3, 2}, r.part(5, 3), reader) == errc::ok);
  // Writers are none of them.
  CHECK(r.locate_as({4, 1}, r.part(8, 10), half) == errc::ok);
}

TEST_CASE("registry bounds: locations that readers received count with their leases until they expire", "[registry]") {
  bounded r(20);
  constexpr std::uint32_t quarter = whole_share / 4;
  const auto protect = [&](const keys_t& what, std::int64_t now) {
    const auto x = r.state.protect({r.ns, 0, false, std::chrono::seconds(10), what, quarter}, at(now));
    CHECK(r.state.check_invariants() == "");
    return x ? errc::ok : x.error().code;
  };
  CHECK(protect(r.first(4), 0) == errc::ok);
  CHECK(protect(r.first(4), 1) == errc::ok);
  CHECK(protect(r.part(4, 2), 1) == errc::limit_exceeded);
  CHECK(r.locate_as(alice, r.part(4, 1), {100, whole_share, quarter}, 1, 100) == errc::ok);
  CHECK(protect(r.part(5, 1), 1) == errc::limit_exceeded);
  CHECK(r.locate_as(bob, r.part(5, 1), {100, whole_share, quarter}, 1) == errc::limit_exceeded);
  // A key that is requested again counts from the second time on.
  CHECK(protect(r.part(5, 1), 10) == errc::limit_exceeded);
  CHECK(protect(r.part(5, 4), 12) == errc::ok);
  CHECK(protect(r.part(9, 1), 12) == errc::limit_exceeded);
  // Without a bound the request is granted.
  CHECK(r.state.protect({r.ns, 0, false, std::chrono::seconds(10), r.keys}, at(12)).has_value());
}

TEST_CASE("registry bounds: the share is a part of the capacity of the namespace, even while it is empty",
          "[registry]") {
  one_registry r;
  must(r.state.add_rank(r.ns, 0, 40));
  const auto keys = some_keys(1, 24);
  r.save(keys);
  const auto locate = [&](std::size_t n) {
    const keys_t some(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n));
    return r.state.locate({r.ns, 0, alice, std::chrono::seconds(5), some, half}, at(0)).has_value();
  };
  CHECK_FALSE(locate(21));
  CHECK(locate(20));
}

TEST_CASE("registry bounds: the number of leases of one caller is bounded", "[registry]") {
  bounded r(20);
  constexpr lease_bounds two{2, whole_share, 0};
  CHECK(r.locate_as({1, 1}, r.first(1), two) == errc::ok);
  CHECK(r.locate_as({1, 2}, r.first(1), two) == errc::ok);
  CHECK(r.locate_as({1, 3}, r.first(1), two) == errc::limit_exceeded);
  CHECK(r.locate_as({1, 2}, r.first(2), two) == errc::ok);
  CHECK(r.locate_as({2, 1}, r.first(1), two) == errc::ok);
  CHECK(r.release_as({1, 1}) == errc::ok);
  CHECK(r.locate_as({1, 3}, r.first(1), two) == errc::ok);
}

TEST_CASE("registry bounds: a strict release distinguishes a repeated one from one of an unknown lease", "[registry]") {
  bounded r(4);
  CHECK(r.locate_as(alice, r.first(1), half) == errc::ok);
  CHECK(r.release_as(bob) == errc::not_found);
  CHECK(r.leases_of(0) == 1);
  CHECK(r.release_as(alice) == errc::ok);
  // The answer was lost, and the request is repeated.
  CHECK(r.release_as(alice) == errc::ok);
  CHECK(r.release_as(bob) == errc::not_found);
}

TEST_CASE("registry bounds: pages written under another ticket cannot be finished, even when they are published",
          "[registry]") {
  one_registry r;
  const auto keys = some_keys(1, 2);
  const auto pages = one_registry::pages(keys, r.reserve(alice, keys));
  const auto finish = [&](const ticket& by) {
    return codes(r.state.commit({r.ns, 0, by, pages, true}, at(0)).value());
  };
  CHECK(finish(bob) == std::vector<errc>{errc::not_owner, errc::not_owner});
  CHECK(r.state.abort({r.ns, 0, bob, {}, true}, at(0)).error().code == errc::not_found);
  CHECK(finish(alice) == std::vector<errc>{errc::ok, errc::ok});
  CHECK(finish(alice) == std::vector<errc>{errc::ok, errc::ok});
  CHECK(finish(bob) == std::vector<errc>{errc::not_owner, errc::not_owner});
  // Nothing is left of it, and the caller that had it gets the same answer.
  CHECK(r.state.abort({r.ns, 0, alice, {}, true}, at(0)).has_value());
}

TEST_CASE("registry bounds: a lookup can trim what it added beyond a length, and nothing that the lease held before",
          "[registry]") {
  bounded r(20);
  const auto match = [&](const keys_t& what) {
    return r.state.match({r.ns, alice, std::chrono::seconds(5), what, half}, at(0)).value();
  };
  const auto trim = [&](std::uint32_t keep, std::uint32_t uses) {
    CHECK(r.state.release({r.ns, alice, keep, uses}, at(0)).has_value());
    CHECK(r.state.check_invariants() == "");
  };
  const auto held = [&] {
    std::string out;
    for (std::size_t i = 0; i < 12; ++i)
      out += r.leases_of(i) > 0 ? '1' : '0';
    return out;
  };
  const auto first = match(r.first(4));
  CHECK(first.uses == 1);
  trim(3, 1);
  CHECK(held() == "111000000000");
  // The request is repeated: two of its first three keys were held before and stay in any case.
  const auto second = match(r.part(1, 5));
  CHECK(second.matched == 5);
  CHECK(second.uses == 2);
  trim(3, 2);
  CHECK(held() == "111100000000");
  trim(3, 2);
  CHECK(held() == "111100000000");
  // Repeating does not make it more.
  trim(3, match(r.part(1, 5)).uses);
  CHECK(held() == "111100000000");
  trim(0, match(r.part(1, 5)).uses);
  CHECK(held() == "111100000000");
  // Keys that were matched again since stay leased.
  const auto third = match(r.part(6, 2));
  match(r.part(6, 3));
  trim(0, third.uses);
  CHECK(held() == "111100111000");
  // A lease without keys ends when it is trimmed.
  CHECK(r.release_as(alice) == errc::ok);
  trim(0, match(r.first(2)).uses);
  CHECK(r.state.stats().leases == 0);
}

} // namespace registry_bounds_test
