#include "actors/node/remote/remote_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace remote_state_test {

using namespace troupe;

namespace {

constexpr std::uint64_t frame_size = 8192;
constexpr timestamp start{std::chrono::seconds(100)};

remote_offer offer_of(std::uint64_t frames) {
  remote_offer out;
  out.address.items = {1};
  out.key.items = {2};
  out.base = 4096;
  out.bytes = frames * frame_size;
  out.frame_bytes = frame_size;
  out.proof.items.assign(32, 7);
  return out;
}

frame_request request_of(std::uint32_t first, std::uint32_t count) {
  frame_request out;
  for (std::uint32_t i = first; i < first + count; ++i)
    out.pages.items.push_back({{{i + 1}}, {i, 1}});
  return out;
}

frame_reply reply_of(pin_number pin, std::uint64_t first, std::size_t count) {
  frame_reply out{pin, {}};
  for (std::size_t i = 0; i < count; ++i)
    out.frames.items.push_back({(first + i) * frame_size, 0, 0});
  return out;
}

struct harness {
  explicit harness(std::uint64_t frames = 4, std::uint64_t window = 1U << 20U)
      : state({frame_size, 4096, window, std::chrono::seconds(1)}) {
    REQUIRE(state.bind(offer_of(frames), start));
    CHECK(take<remote_probe>().offer.bytes == frames * frame_size);
    state.on_probed({});
    CHECK(take<remote_answer_bind>().outcome);
  }

  /// The next effect, which must be of this kind.
  template <class Effect>
  Effect take() {
    collect();
    REQUIRE(!effects.empty());
    REQUIRE(std::holds_alternative<Effect>(effects.front()));
    auto out = std::get<Effect>(std::move(effects.front()));
    effects.pop_front();
    return out;
  }

  bool nothing_more() {
    collect();
    return effects.empty();
  }

  void collect() {
    for (auto& x : state.take_outbox())
      effects.push_back(std::move(x));
    CHECK(state.check().empty());
  }

  /// Starts a fetch up to the transfer of its pages.
  remote_job begin_fetch(std::uint32_t pages, pin_number pin, std::uint64_t from = 10) {
    const auto job = state.fetch(request_of(0, pages));
    REQUIRE(job);
    CHECK(take<remote_ask>().fetch);
    state.on_frames(*job, reply_of(pin, from, pages), start);
    return *job;
  }

  /// The pin of a place.
  pin_number begin_place(std::uint32_t pages, pin_number pin, std::uint64_t from = 10) {
    const auto job = state.place(request_of(0, pages));
    REQUIRE(job);
    CHECK_FALSE(take<remote_ask>().fetch);
    state.on_frames(*job, reply_of(pin, from, pages), start);
    const auto notified = take<remote_answer_frames>();
    REQUIRE(notified.reply);
    return notified.reply->pin;
  }

  remote_state state;
  std::deque<remote_effect> effects;
};

} // namespace

TEST_CASE("remote state: bytes that pages have less than slots are not counted as sent") {
  harness d;
  const auto job = d.begin_fetch(2, 77);
  d.state.on_shortened(job, 100);
  d.state.on_shortened(job + 1, 100); // another one, which has ended
  d.state.on_moved(job, {}, start);
  CHECK(d.state.take_counts().put_bytes == 2 * frame_size - 100);
}

TEST_CASE("remote state: no more bytes move than a frame of the arena for encoded pages has") {
  harness d;
  constexpr std::uint64_t encoded = 4096;
  const auto is_encoded = static_cast<std::uint16_t>(frame_size::encoded);
  const auto reply = [&] {
    auto out = reply_of(77, 10, 2);
    out.frames.items[1].size = is_encoded;
    return out;
  };
  const bool fetch = GENERATE(true, false);
  auto asked = request_of(0, 2);
  asked.sizes.items = {0, 1};
  const auto job = fetch ? d.state.fetch(asked) : d.state.place(asked);
  REQUIRE(job);
  CHECK(d.take<remote_ask>().request.sizes == asked.sizes);
  d.state.on_frames(*job, reply(), start);
  if (fetch) {
    const auto order = d.take<remote_order>();
    CHECK(order.pages[0].bytes == frame_size);
    CHECK(order.pages[1].bytes == encoded);
    d.state.on_moved(*job, {}, start);
    CHECK(d.take<remote_unpin>().pin == 77);
    // The client's own frame is a whole one.
    CHECK(d.take<remote_answer_frames>().reply->frames[1].size == 0);
    return;
  }
  const auto placed = d.take<remote_answer_frames>();
  REQUIRE(placed.reply);
  CHECK(placed.reply->frames[0].size == 0);
  CHECK(placed.reply->frames[1].size == is_encoded);
  const auto fill = d.state.fill({placed.reply->pin, std::vector<std::uint8_t>(2, 0), {}}, start);
  REQUIRE(fill);
  const auto order = d.take<remote_order>();
  CHECK(order.pages[0].bytes == frame_size);
  CHECK(order.pages[1].bytes == encoded);
  d.state.on_moved(*fill, {}, start);
  const auto check = d.take<remote_check>();
  CHECK(check.order.items[0].bytes == frame_size);
  CHECK(check.order.items[1].bytes == encoded);
  d.state.on_checked(*fill, io_reply{std::vector<std::uint8_t>(2, 0)});
  CHECK(d.state.take_counts().got_bytes == frame_size + encoded);
}

TEST_CASE("remote state: a fetch is answered when its pages are in the memory of the client, and not before") {
  harness d;
  const auto job = d.begin_fetch(2, 77);
  const auto order = d.take<remote_order>();
  CHECK(order.direction == io::remote_direction::put);
  CHECK(order.pages ==
        std::vector<remote_order::page>{{10 * frame_size, 0, frame_size}, {11 * frame_size, frame_size, frame_size}});
  CHECK(d.nothing_more());
  CHECK(d.state.free_frames() == 2);
  d.state.on_moved(job, {}, start);
  CHECK(d.take<remote_unpin>().pin == 77);
  const auto notified = d.take<remote_answer_frames>();
  REQUIRE(notified.reply);
  CHECK(notified.reply->frames[1].offset == frame_size);
  const auto counts = d.state.take_counts();
  CHECK(counts.put_pages == 2);
  CHECK(counts.put_bytes == 2 * frame_size);
  CHECK(counts.got_pages + counts.put_failures + counts.got_failures + counts.lost == 0);
  CHECK(d.state.take_counts().put_pages == 0);
  CHECK(d.nothing_more());
  // The client holds the frames until it unpins them once.
  CHECK(d.state.free_frames() == 2);
  CHECK(d.state.unpin(notified.reply->pin + 1).error().code == errc::not_found);
  CHECK(d.state.unpin(notified.reply->pin));
  CHECK(d.state.free_frames() == 4);
  CHECK(d.state.unpin(notified.reply->pin).error().code == errc::not_found);
}

TEST_CASE("remote state: a save is read from the client, checked here, and filled with the result") {
  harness d;
  const auto pin = d.begin_place(3, 55);
  const auto job = d.state.fill({pin, {{0, 0, static_cast<std::uint8_t>(errc::cancelled)}}, {}}, start);
  REQUIRE(job);
  const auto order = d.take<remote_order>();
  CHECK(order.direction == io::remote_direction::get);
  REQUIRE(order.pages.size() == 2);
  d.state.on_moved(*job, {}, start);
  const auto check = d.take<remote_check>();
  REQUIRE(check.order.items.size() == 2);
  CHECK(check.order.items[1].offset == 11 * frame_size);
  d.state.on_checked(*job, io_reply{{{0, static_cast<std::uint8_t>(errc::corrupt)}}});
  const auto fill = d.take<remote_fill>();
  CHECK(fill.request.pin == 55);
  CHECK(fill.request.gathered.items == std::vector<std::uint8_t>{0, static_cast<std::uint8_t>(errc::corrupt),
                                                                 static_cast<std::uint8_t>(errc::cancelled)});
  CHECK(d.state.free_frames() == 1);
  d.state.on_filled(*job, io_reply{fill.request.gathered});
  CHECK(d.take<remote_answer_fill>().reply);
  // One of the two pages was invalid; the third one was never to be transferred.
  const auto counts = d.state.take_counts();
  CHECK(counts.got_pages == 1);
  CHECK(counts.got_bytes == frame_size);
  CHECK(counts.got_failures == 1);
  CHECK(counts.put_pages + counts.put_failures == 0);
  CHECK(d.state.free_frames() == 4);
  CHECK(d.state.fill({pin, {}, {}}, start).error().code == errc::not_found);
}

TEST_CASE("remote state: a client fills the places of its saves alone, and none of the pages that it fetched") {
  harness d;
  const auto job = d.state.fetch(request_of(0, 2));
  REQUIRE(job);
  d.take<remote_ask>();
  d.state.on_frames(*job, reply_of(9, 10, 2), start);
  d.take<remote_order>();
  d.state.on_moved(*job, {}, start);
  d.take<remote_unpin>();
  const auto fetched = d.take<remote_answer_frames>().reply->pin;
  CHECK(d.state.fill({fetched, {}, {}}, start).error().code == errc::not_found);
  CHECK(d.nothing_more());
  CHECK(d.state.free_frames() == 2);
  CHECK(d.state.unpin(fetched));
  CHECK(d.state.free_frames() == 4);
}

TEST_CASE("remote state: pages without a frame in the arena need no frame of the client") {
  harness d;
  const auto job = d.state.fetch(request_of(0, 3));
  REQUIRE(job);
  d.take<remote_ask>();
  auto reply = reply_of(9, 10, 3);
  reply.frames.items[1].status = static_cast<std::uint32_t>(errc::stale);
  d.state.on_frames(*job, reply, start);
  CHECK(d.take<remote_order>().pages.size() == 2);
  CHECK(d.state.free_frames() == 2);
  d.state.on_moved(*job, {}, start);
  d.take<remote_unpin>();
  CHECK(d.take<remote_answer_frames>().reply->frames[1].code() == errc::stale);
  // None at all: answered at once.
  const auto second = d.state.fetch(request_of(0, 1));
  d.take<remote_ask>();
  reply = {0, {{{0, static_cast<std::uint32_t>(errc::not_found), 0}}}};
  d.state.on_frames(*second, reply, start);
  CHECK(d.take<remote_answer_frames>().reply->pin == 0);
  CHECK(d.state.free_frames() == 2);
}

TEST_CASE("remote state: transfers in progress are limited to the window, and a larger one goes alone") {
  harness d(8, 2 * frame_size);
  const auto large = d.begin_fetch(3, 1);
  CHECK(d.take<remote_order>().job == large);
  const auto second = d.begin_fetch(2, 2);
  const auto third = d.begin_fetch(1, 3);
  CHECK(d.nothing_more());
  d.state.on_moved(large, {}, start);
  d.take<remote_unpin>();
  d.take<remote_answer_frames>();
  CHECK(d.take<remote_order>().job == second);
  CHECK(d.nothing_more());
  d.state.on_moved(second, {}, start);
  d.take<remote_unpin>();
  d.take<remote_answer_frames>();
  CHECK(d.take<remote_order>().job == third);
  CHECK(d.state.bytes_under_way() == frame_size);
}

TEST_CASE("remote state: a request for more frames than the client has free waits") {
  harness d(3);
  d.begin_fetch(2, 1);
  CHECK(d.state.place(request_of(0, 2)).error().code == errc::limit_exceeded);
  CHECK(d.state.place(request_of(0, 1)));
}

TEST_CASE("remote state: invalid memory is refused, and so are a second offer and a request without one") {
  remote_state state({frame_size, 4096, 1U << 20U, std::chrono::seconds(1)});
  const auto is_early = [&] {
    const auto why = state.fetch(request_of(0, 1)).error();
    return why.code == errc::unreachable && why.text == "this client has not offered memory for pages yet";
  };
  CHECK(is_early());
  auto bad = offer_of(4);
  const auto refused = [&] { return state.bind(bad, start).error().code; };
  bad.frame_bytes = 4096;
  CHECK(refused() == errc::invalid_argument);
  bad = offer_of(1);
  CHECK(refused() == errc::invalid_argument);
  bad = offer_of(4);
  bad.base = ~std::uint64_t{0};
  CHECK(refused() == errc::invalid_argument);
  bad = offer_of(4);
  bad.proof.items.clear();
  CHECK(refused() == errc::invalid_argument);
  bad = offer_of(4);
  bad.key.items.resize(1U << 20U);
  CHECK(refused() == errc::invalid_argument);
  CHECK(state.bind(offer_of(4), start));
  CHECK(is_early()); // not seen yet
  CHECK(state.bind(offer_of(4), start).error().code == errc::exists);
}

TEST_CASE("remote state: memory that is not reached in time is an error, and the peer is closed") {
  remote_state state({frame_size, 4096, 1U << 20U, std::chrono::seconds(1)});
  REQUIRE(state.bind(offer_of(4), start));
  state.take_outbox();
  CHECK(state.needs_ticks());
  state.tick(start + std::chrono::milliseconds(999), 0);
  CHECK(state.take_outbox().empty());
  state.tick(start + std::chrono::seconds(1), 0);
  const auto effects = state.take_outbox();
  REQUIRE(effects.size() == 2);
  CHECK(std::get<remote_answer_bind>(effects[0]).outcome.error().code == errc::unreachable);
  CHECK(std::holds_alternative<remote_close>(effects[1]));
}

TEST_CASE("remote state: a client behind a slow connection is not lost as long as bytes move") {
  harness d(8, 2 * frame_size);
  d.begin_fetch(2, 1);
  d.take<remote_order>();
  std::uint64_t moved = 0;
  auto at = start;
  for (int i = 0; i < 20; ++i)
    d.state.tick(at += std::chrono::milliseconds(500), ++moved);
  CHECK(d.nothing_more());
  d.state.tick(at + std::chrono::milliseconds(999), moved);
  CHECK(d.nothing_more());
  d.state.tick(at + std::chrono::seconds(1), moved);
  CHECK(d.take<remote_lost>().why.code == errc::unreachable);
}

TEST_CASE("remote state: time in which nothing is to be moved is no stall") {
  harness d;
  const auto job = d.state.fetch(request_of(0, 1));
  REQUIRE(job);
  d.take<remote_ask>();
  const auto later = start + std::chrono::seconds(10);
  d.state.on_frames(*job, reply_of(1, 10, 1), later);
  d.take<remote_order>();
  d.state.tick(later + std::chrono::milliseconds(999), 0);
  CHECK(d.nothing_more());
  d.state.tick(later + std::chrono::seconds(1), 0);
  CHECK(d.take<remote_lost>().why.code == errc::unreachable);
}

TEST_CASE("remote state: a stalled client is lost, and every request is answered when the peer is closed") {
  harness d(8, 2 * frame_size);
  const auto moving = d.begin_fetch(2, 1);
  d.take<remote_order>();
  const auto waiting = d.begin_fetch(1, 2);
  const auto pin = d.begin_place(1, 3);
  const auto saving = d.state.fill({pin, {{0}}, {}}, start);
  REQUIRE(saving);
  const auto asking = d.state.fetch(request_of(0, 1));
  d.take<remote_ask>();
  d.state.tick(start + std::chrono::seconds(1), 0);
  CHECK(d.take<remote_lost>().why.code == errc::unreachable);
  CHECK(d.take<remote_unpin>().pin == 2);
  CHECK(d.take<remote_answer_frames>().job == waiting);
  // The io worker takes back the frame: nothing has moved into it.
  const auto fill = d.take<remote_fill>();
  CHECK(fill.request.gathered[0] == static_cast<std::uint8_t>(errc::unreachable));
  d.take<remote_close>();
  CHECK(d.nothing_more());
  const auto refused = d.state.fetch(request_of(0, 1)).error();
  CHECK(refused.code == errc::unreachable);
  CHECK(refused.text.starts_with("no bytes move to or from the memory of the client"));
  // The frame that is being read stays pinned until the transport has released it.
  d.state.end();
  CHECK(d.nothing_more());
  d.state.on_moved(moving, fail(errc::unreachable, "closed"), start);
  const auto counts = d.state.take_counts();
  CHECK(counts.lost == 1);
  CHECK(counts.put_failures == 3);
  CHECK(counts.got_failures == 1);
  CHECK(counts.put_pages + counts.got_pages == 0);
  CHECK(d.take<remote_unpin>().pin == 1);
  CHECK(d.take<remote_answer_frames>().reply.error().code == errc::unreachable);
  d.state.on_closed();
  CHECK(d.nothing_more());
  d.state.on_filled(*saving, io_reply{{{0}}});
  CHECK(d.take<remote_answer_fill>().job == *saving);
  CHECK(d.nothing_more());
  d.state.on_frames(*asking, reply_of(4, 20, 1), start);
  CHECK(d.take<remote_unpin>().pin == 4);
  CHECK(d.take<remote_answer_frames>().job == *asking);
  d.take<remote_quiesced>();
  CHECK(d.nothing_more());
}

TEST_CASE("remote state: an ended attachment is quiesced when the peer is closed, and at once without memory") {
  remote_state empty({frame_size, 4096, 1U << 20U, std::chrono::seconds(1)});
  empty.end();
  const auto effects = empty.take_outbox();
  REQUIRE(effects.size() == 1);
  CHECK(std::holds_alternative<remote_quiesced>(effects[0]));
  CHECK(empty.bind(offer_of(4), start).error().code == errc::unreachable);

  harness d;
  d.state.end();
  d.take<remote_close>();
  CHECK(d.nothing_more());
  d.state.on_closed();
  d.take<remote_quiesced>();
  d.state.end();
  d.state.on_lost({errc::unreachable, "late"});
  CHECK(d.nothing_more());
}

/// Properties for any order of events: no frame of the client is written while the client uses it, every request is
/// answered once, every pin of a fetch ends once, and everything is quiesced in the end.
TEST_CASE("remote state: any order of events keeps one owner per frame and answers every request") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    harness d(6, 3 * frame_size);
    const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
    std::map<remote_job, remote_ask> asked;
    std::map<remote_job, remote_order> moving;
    std::map<remote_job, remote_check> checking;
    std::map<remote_job, remote_fill> filling;
    std::map<remote_job, bool> waiting; // a fetch, or a place or fill
    std::map<pin_number, std::pair<bool, std::set<std::uint64_t>>> pins;
    std::set<pin_number> arena;
    pin_number next_arena = 0;
    bool closing = false;
    bool quiesced = false;
    bool ended = false;
    auto now = start;
    const auto collect = [&] {
      d.collect();
      for (; !d.effects.empty(); d.effects.pop_front()) {
        const auto& effect = d.effects.front();
        if (const auto* x = std::get_if<remote_ask>(&effect))
          asked[x->job] = *x;
        else if (const auto* x1 = std::get_if<remote_order>(&effect)) {
          for (const auto& page : x1->pages)
            for (const auto& [pin, held] : pins)
              CHECK_FALSE(held.second.contains(page.there));
          moving[x1->job] = *x1;
        } else if (const auto* x2 = std::get_if<remote_check>(&effect))
          checking[x2->job] = *x2;
        else if (const auto* x3 = std::get_if<remote_fill>(&effect)) {
          CHECK(arena.erase(x3->request.pin) == 1);
          filling[x3->job] = *x3;
        } else if (const auto* x4 = std::get_if<remote_unpin>(&effect))
          CHECK(arena.erase(x4->pin) == 1);
        else if (const auto* x5 = std::get_if<remote_answer_frames>(&effect)) {
          REQUIRE(waiting.contains(x5->job));
          const bool fetch = waiting.extract(x5->job).mapped();
          if (x5->reply && x5->reply->pin != 0)
            for (const auto& f : x5->reply->frames.items)
              pins[x5->reply->pin].first = fetch, pins[x5->reply->pin].second.insert(f.offset);
        } else if (const auto* x6 = std::get_if<remote_answer_fill>(&effect))
          CHECK(waiting.erase(x6->job) == 1);
        else if (std::holds_alternative<remote_close>(effect))
          closing = true;
        else if (std::holds_alternative<remote_quiesced>(effect)) {
          CHECK_FALSE(std::exchange(quiesced, true));
          CHECK(moving.empty());
        }
      }
    };
    const auto outcome = [&] { return chance(1) ? result<void>(fail(errc::unreachable, "broken")) : result<void>(); };
    for (int step = 0; step < 200; ++step) {
      now += std::chrono::milliseconds(1);
      if (step == 150)
        ended = true, d.state.end();
      if (!ended && chance(50)) {
        const bool fetch = chance(50);
        const auto pages = random() % 3 + 1;
        const auto begun = fetch ? d.state.fetch(request_of(0, static_cast<std::uint32_t>(pages)))
                                 : d.state.place(request_of(0, static_cast<std::uint32_t>(pages)));
        if (begun)
          waiting[*begun] = fetch;
      }
      if (!pins.empty() && chance(40)) {
        const auto pin = *pins.begin();
        pins.erase(pins.begin());
        if (pin.second.first) {
          CHECK(d.state.unpin(pin.first));
        } else if (const auto begun =
                       d.state.fill({pin.first, {std::vector<std::uint8_t>(pin.second.second.size(), 0)}, {}}, now))
          waiting[*begun] = false;
      }
      collect();
      if (!asked.empty() && chance(50)) {
        const auto x = asked.extract(asked.begin()).mapped();
        arena.insert(++next_arena);
        d.state.on_frames(x.job, reply_of(next_arena, 100, x.request.pages.size()), now);
      }
      collect();
      if (!moving.empty() && (chance(50) || closing)) {
        const auto x = moving.extract(moving.begin()).mapped();
        d.state.on_moved(x.job, closing ? result<void>(fail(errc::unreachable, "closed")) : outcome(), now);
      } else if (closing && moving.empty() && chance(30))
        d.state.on_closed();
      collect();
      if (!checking.empty() && chance(50)) {
        const auto x = checking.extract(checking.begin()).mapped();
        d.state.on_checked(x.job, io_reply{{std::vector<std::uint8_t>(x.order.items.size(), 0)}});
      }
      collect();
      if (!filling.empty() && chance(50)) {
        const auto x = filling.extract(filling.begin()).mapped();
        d.state.on_filled(x.job, io_reply{x.request.gathered});
      }
      collect();
    }
    while (!asked.empty() || !moving.empty() || !checking.empty() || !filling.empty()) {
      for (const auto& [job, x] : std::exchange(asked, {}))
        d.state.on_frames(job, fail(errc::unreachable, "gone"), now);
      for (const auto& [job, x] : std::exchange(moving, {}))
        d.state.on_moved(job, fail(errc::unreachable, "closed"), now);
      for (const auto& [job, x] : std::exchange(checking, {}))
        d.state.on_checked(job, fail(errc::unreachable, "gone"));
      for (const auto& [job, x] : std::exchange(filling, {}))
        d.state.on_filled(job, fail(errc::unreachable, "gone"));
      collect();
    }
    d.state.on_closed();
    collect();
    CHECK(waiting.empty());
    CHECK(quiesced);
  }
}

} // namespace remote_state_test
