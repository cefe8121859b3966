#include "io/claims/claim_rules.hpp"
#include "tests/catch.hpp"

#include <map>

namespace io_claim_rules_test {

using namespace troupe;
using namespace troupe::io;
using std::chrono::milliseconds;
using std::chrono::seconds;
using kind = claim_step::kind;

namespace {

constexpr duration lease = seconds(10);
constexpr duration wait = claim_rules::wait_of(lease);

/// The claims of one directory, with a simulated clock.
struct claims {
  std::map<claim_number, std::pair<claim_record, std::uint64_t>> files;
  std::uint64_t writes = 0;
  timestamp now{seconds(1000)};

  claim_sighting look() const {
    if (files.empty())
      return {};
    const auto& [number, x] = *files.rbegin();
    return {number, x.second, x.first};
  }

  void put(claim_number number, const claim_record& what) { files[number] = {what, ++writes}; }

  /// The next step of these rules, at its time.
  kind step(claim_rules& x) {
    const auto what = x.next();
    now = std::max(now, what.at);
    const auto begun = now;
    now += milliseconds(1);
    if (what.what == kind::look)
      x.looked(begun, now, look());
    if (what.what == kind::make) {
      const bool there = files.contains(what.number);
      if (!there)
        put(what.number, what.record);
      x.made(begun, now, there ? result<void>(fail(errc::exists, "there")) : result<void>());
    }
    if (what.what == kind::write) {
      put(what.number, what.record);
      x.written(begun, now, {});
    }
    if (what.what == kind::remove_below) {
      std::erase_if(files, [&](const auto& y) { return y.first < what.number; });
      x.removed(begun, now);
    }
    return what.what;
  }

  void until(claim_rules& x, claim_state wanted) {
    for (int steps = 0; x.state() != wanted; ++steps) {
      REQUIRE(steps < 200);
      REQUIRE(x.next().what != kind::end);
      step(x);
    }
  }
};

claim_options as(std::string name, incarnation_number number, claim_kind what = claim_kind::owner) {
  return {std::move(name), number, what, lease};
}

} // namespace

TEST_CASE("claim rules: a node that finds no claim gets one at once and renews it four times per lease", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  CHECK(a.number() == 1);
  CHECK(c.now - timestamp(seconds(1000)) < milliseconds(10));
  CHECK(a.may_write(c.now));
  while (a.next().what != kind::write)
    c.step(a);
  const auto renewed = a.next().at;
  CHECK(renewed - c.now > lease / 5);
  c.step(a);
  c.step(a);
  CHECK(a.valid_until() == renewed + lease);
  CHECK(c.files.at(1).first.phase == claim_phase::holding);
}

TEST_CASE("claim rules: a live node keeps its directory, and the refusal names it", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  claim_rules b(as("b", 2), c.now);
  claim_rules adopter(as("c", 3, claim_kind::adopter), c.now);
  while (b.state() == claim_state::watching) {
    auto* const first = a.next().at < b.next().at ? &a : &b;
    c.step(adopter.next().at < first->next().at ? adopter : *first);
  }
  CHECK(b.state() == claim_state::refused);
  REQUIRE(b.other());
  CHECK(b.other()->holder == "a");
  CHECK(adopter.state() == claim_state::watching);
  CHECK(c.files.size() == 1);
}

TEST_CASE("claim rules: an unchanged claim is taken over after twice the time that its holder may write", "[claims]") {
  claims c;
  claim_rules dead(as("dead", 1), c.now);
  c.until(dead, claim_state::holding);
  const auto valid = dead.valid_until();
  claim_rules b(as("b", 2), c.now);
  const auto begun = c.now;
  c.until(b, claim_state::waiting);
  CHECK(c.now - begun >= wait);
  CHECK(b.number() == 2);
  const auto made = c.now;
  CHECK(c.files.at(2).first.phase == claim_phase::waiting);
  CHECK_FALSE(b.may_write(c.now));
  c.until(b, claim_state::holding);
  CHECK(c.now - made >= wait);
  CHECK(c.now > valid);
  CHECK(b.may_write(c.now));
  // Lower claims are removed after a while, so that their number stays bounded.
  const auto held = c.now;
  while (c.files.size() > 1)
    c.step(b);
  CHECK(c.now - held >= wait);
  CHECK(c.now - held < wait + lease);
  CHECK(c.files.contains(2));
}

TEST_CASE(
    "claim rules: a node that could not look waits again, since the holder may not have been able to renew either",
    "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  claim_rules b(as("b", 2, claim_kind::adopter), c.now);
  c.step(b);
  const auto begun = c.now;
  SECTION("looks fail") {
    while (c.now - begun < 3 * lease) {
      REQUIRE(b.next().what == kind::look);
      c.now = std::max(c.now, b.next().at);
      b.looked(c.now, c.now, fail(errc::io_error, "unreachable"));
    }
  }
  SECTION("a look takes long and finds no change") {
    c.now = b.next().at;
    b.looked(c.now, c.now + 3 * lease, c.look());
    c.now += 3 * lease;
  }
  SECTION("no looks happen") {
    c.now += 3 * lease;
  }
  const auto back = c.now;
  // Of the two the adopter is faster now.
  c.step(b);
  c.step(b);
  CHECK(b.state() == claim_state::watching);
  CHECK(b.next().what == kind::look);
  CHECK(c.now - back < lease);
  SECTION("a live holder renews its claim and keeps it") {
    while (c.now - back < 2 * wait)
      c.step(a.next().at <= b.next().at ? a : b);
    CHECK(a.may_write(c.now));
    CHECK(c.files.size() == 1);
  }
  SECTION("a dead holder loses its claim a while later") {
    c.until(b, claim_state::waiting);
    CHECK(c.now - back >= wait);
    CHECK(c.now - back < wait + lease);
  }
}

TEST_CASE("claim rules: a holder that was frozen may not write and finds the higher claim when it renews", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  claim_rules b(as("b", 2), c.now);
  c.until(b, claim_state::holding);
  CHECK_FALSE(a.may_write(c.now));
  // Its claim may have been removed meanwhile.
  SECTION("its claim exists") {
    c.until(a, claim_state::lost);
    REQUIRE(a.other());
    CHECK(a.other()->holder == "b");
  }
  SECTION("its claim was removed") {
    a.written(c.now, c.now, fail(errc::not_found, "gone"));
    CHECK(a.state() == claim_state::lost);
  }
  CHECK(a.next().what == kind::end);
  CHECK_FALSE(a.may_write(timestamp{}));
  CHECK_FALSE(a.release());
}

TEST_CASE("claim rules: a renewal that began before a higher claim counts from its beginning only", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  while (a.next().what != kind::write)
    c.step(a);
  const auto begun = a.next().at;
  // The write takes nearly a lease.
  a.written(begun, begun + lease - milliseconds(1), {});
  a.looked(begun + lease - milliseconds(1), begun + lease + milliseconds(5), c.look());
  CHECK(a.valid_until() == begun + lease);
  CHECK_FALSE(a.may_write(begun + lease + milliseconds(5)));
}

TEST_CASE("claim rules: a holder that renewed too late may write again if no other node took over", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  while (a.next().what != kind::write)
    c.step(a);
  a.written(c.now, c.now, fail(errc::io_error, "unreachable"));
  CHECK(a.trouble());
  CHECK(a.may_write(c.now));
  c.now += 2 * lease;
  CHECK_FALSE(a.may_write(c.now));
  while (a.next().what != kind::look)
    c.step(a);
  c.step(a);
  CHECK(a.may_write(c.now));
  CHECK_FALSE(a.trouble());
  // A look that fails counts for nothing: the renewal begins with a write again.
  while (a.next().what != kind::look)
    c.step(a);
  const auto valid = a.valid_until();
  a.looked(c.now, c.now, fail(errc::io_error, "unreachable"));
  CHECK(a.next().what == kind::write);
  CHECK(a.valid_until() == valid);
}

TEST_CASE("claim rules: a released claim is taken at once by its owner and watched by other nodes", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  const auto last = a.release();
  REQUIRE(last);
  CHECK(a.state() == claim_state::released);
  c.put(last->number, last->record);
  const auto begun = c.now;
  SECTION("by its owner") {
    claim_rules b(as("a", 2), c.now);
    c.until(b, claim_state::holding);
    CHECK(c.now - begun < milliseconds(10));
    CHECK(b.number() == 2);
  }
  SECTION("by an adopter") {
    claim_rules b(as("b", 2, claim_kind::adopter), c.now);
    c.until(b, claim_state::holding);
    CHECK(c.now - begun >= wait);
    CHECK(c.now - begun < 2 * wait);
  }
}

TEST_CASE("claim rules: a returning owner takes its directory back from an adopter at once", "[claims]") {
  claims c;
  claim_rules dead(as("a", 1), c.now);
  c.until(dead, claim_state::holding);
  claim_rules adopter(as("b", 2, claim_kind::adopter), c.now);
  SECTION("the adopter holds the claim") {
    c.until(adopter, claim_state::holding);
    const auto begun = c.now;
    claim_rules back(as("a", 3), c.now);
    c.until(back, claim_state::holding);
    CHECK(c.now - begun < milliseconds(10));
  }
  SECTION("the adopter still waits for the holder before it") {
    c.until(adopter, claim_state::waiting);
    const auto begun = c.now;
    claim_rules back(as("a", 3), c.now);
    c.until(back, claim_state::holding);
    CHECK(c.now - begun >= wait);
    CHECK(c.now - begun < wait + lease);
  }
  c.until(adopter, claim_state::lost);
}

TEST_CASE("claim rules: of two adopters one takes over and the other continues to watch", "[claims]") {
  claims c;
  claim_rules dead(as("a", 1), c.now);
  c.until(dead, claim_state::holding);
  claim_rules x(as("x", 2, claim_kind::adopter), c.now);
  claim_rules y(as("y", 3, claim_kind::adopter), c.now);
  while (x.next().what != kind::make || y.next().what != kind::make)
    c.step(x.next().what == kind::make ? y : x);
  c.step(x);
  c.step(y);
  CHECK(x.state() == claim_state::waiting);
  CHECK(y.state() == claim_state::watching);
  while (x.state() != claim_state::holding)
    c.step(x.next().at <= y.next().at ? x : y);
  CHECK(y.state() == claim_state::watching);
  // The adopter dies too: another one follows and does not wait for a holder that cannot write.
  const auto begun = c.now;
  c.until(y, claim_state::holding);
  CHECK(y.number() == 3);
  CHECK(c.now - begun < 2 * wait);
}

TEST_CASE("claim rules: a waiting claim records the longest lease of the claims before it", "[claims]") {
  claims c;
  auto slow = as("slow", 1);
  slow.lease = 4 * lease;
  claim_rules dead(slow, c.now);
  c.until(dead, claim_state::holding);
  claim_rules b(as("b", 2), c.now);
  c.until(b, claim_state::waiting);
  // From its first record on, as it may be the last one, and from each later one.
  CHECK(c.files.at(2).first.lease == 4 * lease);
  const auto counter = c.files.at(2).first.counter;
  for (int i = 0; i < 100 && c.files.at(2).first.counter == counter; ++i)
    c.step(b);
  CHECK(c.files.at(2).first.lease == 4 * lease);
  c.until(b, claim_state::holding);
  CHECK(c.files.at(2).first.lease == lease);
}

TEST_CASE("claim rules: an unreadable claim is waited for like one with the longest lease", "[claims]") {
  claims c;
  claim_rules b(as("b", 2), c.now);
  const auto begun = c.now;
  const claim_sighting half{7, 1, std::nullopt};
  while (b.next().what == kind::look) {
    c.now = std::max(c.now, b.next().at);
    b.looked(c.now, c.now, half);
  }
  CHECK(b.next().what == kind::make);
  CHECK(b.next().number == 8);
  CHECK(c.now - begun >= claim_rules::wait_of(longest_claim_lease));
}

TEST_CASE("claim rules: a directory without claims is not adopted", "[claims]") {
  claims c;
  claim_rules b(as("b", 2, claim_kind::adopter), c.now);
  c.step(b);
  CHECK(b.state() == claim_state::refused);
  CHECK(c.files.empty());
}

TEST_CASE("claim rules: a claim with the own number of another run means the claim is lost", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.until(a, claim_state::holding);
  while (a.next().what != kind::look)
    c.step(a);
  c.put(1, {"b", 2, claim_kind::owner, claim_phase::holding, lease, 1});
  c.step(a);
  CHECK(a.state() == claim_state::lost);
}

TEST_CASE("claim rules: nodes of another cluster do not touch a directory", "[claims]") {
  claims c;
  auto theirs = as("a", 1);
  theirs.cluster = "theirs";
  claim_rules dead(theirs, c.now);
  c.until(dead, claim_state::holding);
  claim_rules b(as("b", 2, claim_kind::adopter), c.now);
  c.step(b);
  CHECK(b.state() == claim_state::refused);
  CHECK(c.files.size() == 1);
}

TEST_CASE("claim rules: a renewal that completes after its lease has expired makes no holder", "[claims]") {
  claims c;
  claim_rules a(as("a", 1), c.now);
  c.step(a);
  c.step(a);
  REQUIRE(a.next().what == kind::write);
  const auto begun = c.now;
  c.put(1, a.next().record);
  a.written(begun, begun + milliseconds(1), {});
  const auto seen = c.look();
  // Another one could have taken over in that time, and opened what lies there.
  const auto answered = begun + lease;
  a.looked(begun + milliseconds(1), answered, seen);
  CHECK(a.state() == claim_state::waiting);
  CHECK_FALSE(a.may_write(answered));
  CHECK(a.next().what == kind::write);
  c.now = answered;
  c.until(a, claim_state::holding);
  CHECK(a.may_write(c.now));
}

} // namespace io_claim_rules_test
