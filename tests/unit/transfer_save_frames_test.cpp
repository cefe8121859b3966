#include "tests/unit/transfer_saver.hpp"

#include <algorithm>
#include <vector>

/// Frames for encoded pages, from the side of the client that saves.

namespace transfer_save_frames_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

constexpr auto whole = static_cast<std::uint8_t>(frame_size::whole);
constexpr auto encoded = static_cast<std::uint8_t>(frame_size::encoded);

coordinator_options options(bool encoded_frames = true) {
  auto out = test_options(4);
  out.encoded_frames = encoded_frames;
  return out;
}

/// Starts a task whose pages have slots.
save_place begin(saver& s, std::uint32_t pages, std::uint64_t first = 0) {
  s.places_at_once = false;
  REQUIRE(s.state.start(test_task(pages, first), t0));
  s.grant(s.one<save_reserve>(), t0, static_cast<std::uint32_t>(first));
  return s.one<save_place>();
}

/// Answers a place as it was asked.
save_gather place(saver& s, const save_place& x) {
  auto reply = s.worker.give(x.request.pages.size());
  for (std::size_t i = 0; i < x.request.sizes.size(); ++i)
    reply.frames.items[i].size = x.request.sizes[i];
  s.state.on_place(x.call, reply, t0);
  return s.one<save_gather>();
}

/// The pages with these positions have no encoding.
void gather(saver& s, const save_gather& x, const std::vector<std::size_t>& raw) {
  copy_reply reply{same_codes(x.order.items.size()), 2 * ms, {}};
  reply.encoded.items.assign(x.order.items.size(), 1);
  for (const auto i : raw) {
    reply.encoded.items[i] = 0;
    if (x.order.items[i].in_encoded_frame())
      reply.results.items[i] = static_cast<std::uint8_t>(errc::unsupported);
  }
  s.state.on_gather(x.call, reply, t0);
}

void finish(saver& s, std::size_t pages) {
  s.committed(s.one<save_commit>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector(pages, errc::ok));
}

/// Saves pages that were all encoded: from now on, frames for encoded pages are requested.
void learn(saver& s) {
  const auto x = begin(s, 4, 100);
  CHECK(x.request.sizes.empty());
  gather(s, place(s, x), {});
  s.filled(s.one<save_fill>());
  finish(s, 4);
}

} // namespace

TEST_CASE("save: frames for encoded pages are requested once nearly all pages were encoded", "[save_state]") {
  saver s(test_binding(), options());
  learn(s);
  const auto x = begin(s, 4);
  CHECK(x.request.sizes == packed<std::uint8_t>{std::vector(4, encoded)});
  const auto order = place(s, x);
  CHECK(std::ranges::all_of(order.order.items, &copy_item::in_encoded_frame));
  gather(s, order, {});
  s.filled(s.one<save_fill>());
  finish(s, 4);
  s.check_quiesced(8);
}

TEST_CASE("save: frames for encoded pages are requested at once where pages are expected to have an encoding",
          "[save_state]") {
  auto how = options();
  how.expects_encoding = true;
  saver s(test_binding(), how);
  const auto x = begin(s, 4);
  CHECK(x.request.sizes == packed<std::uint8_t>{std::vector(4, encoded)});
  gather(s, place(s, x), {0, 1, 2, 3});
  s.filled(s.one<save_fill>());
  CHECK(s.one<save_place>().request.sizes.empty());
}

TEST_CASE("save: without encoding, whole frames are requested", "[save_state]") {
  saver s(test_binding(), options(false));
  const auto x = begin(s, 4);
  gather(s, place(s, x), {});
  s.filled(s.one<save_fill>());
  finish(s, 4);
  CHECK(begin(s, 4, 20).request.sizes.empty());
}

TEST_CASE("save: a page without an encoding is placed again, in a whole frame", "[save_state]") {
  auto how = options();
  how.batch_pages = 8;
  saver s(test_binding(32), how);
  learn(s);
  gather(s, place(s, begin(s, 8)), {2});
  const auto fill = s.one<save_fill>();
  CHECK(fill.request.gathered[1] == 0);
  CHECK(fill.request.gathered[2] != 0);
  // Not before its frame has been given back: the slot can have one only.
  CHECK(s.take<save_place>().empty());
  CHECK(s.take<save_abort>().empty());
  s.filled(fill);
  const auto commit = s.one<save_commit>();
  CHECK(commit.request.pages.size() == 7);
  s.committed(commit);
  const auto again = s.one<save_place>();
  REQUIRE(again.request.pages.size() == 1);
  CHECK(again.request.pages[0].key == key(2));
  CHECK((again.request.sizes.empty() || again.request.sizes[0] == whole));
  const auto second = place(s, again);
  CHECK(second.order.items[0].frame == copy_item::as_it_is);
  gather(s, second, {0});
  s.filled(s.one<save_fill>());
  finish(s, 8);
  s.check_quiesced(32);
  // It says nothing about the next pages.
  CHECK(begin(s, 4, 40).request.sizes == packed<std::uint8_t>{std::vector(4, encoded)});
}

TEST_CASE("save: where few pages have an encoding, whole frames are requested again", "[save_state]") {
  saver s(test_binding(), options());
  learn(s);
  gather(s, place(s, begin(s, 4)), {0, 1, 2, 3});
  s.filled(s.one<save_fill>());
  const auto again = s.one<save_place>();
  CHECK(again.request.pages.size() == 4);
  CHECK(again.request.sizes.empty());
  gather(s, place(s, again), {0, 1, 2, 3});
  s.filled(s.one<save_fill>());
  finish(s, 4);
  CHECK(begin(s, 4, 30).request.sizes.empty());
}

TEST_CASE("save: a page that waits for another frame ends with its task", "[save_state]") {
  saver s(test_binding(), options());
  learn(s);
  gather(s, place(s, begin(s, 2)), {0, 1});
  const auto fill = s.one<save_fill>();
  SECTION("at the deadline") {
    s.state.on_tick(t0 + std::chrono::seconds(1));
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::timeout));
    s.filled(fill, t0 + std::chrono::seconds(1));
  }
  SECTION("when the worker does not answer") {
    s.state.on_fill(fill.call, no_answer(), t0);
  }
  // Its slots are given back.
  const auto abort = s.one<save_abort>();
  CHECK(abort.request.pages.size() == 2);
  CHECK(s.take<save_place>().empty());
  s.aborted(abort);
  CHECK(s.state.open_tasks() == 0);
  CHECK(s.state.calls_under_way() == 0);
}

TEST_CASE("save: unsupported pages in whole frames fail as before", "[save_state]") {
  saver s(test_binding(), options());
  const auto x = place(s, begin(s, 1));
  s.state.on_gather(x.call, copy_reply{same_codes(1, errc::unsupported), 2 * ms, {}}, t0);
  s.filled(s.one<save_fill>());
  s.aborted(s.one<save_abort>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::unsupported});
  s.check_quiesced(8);
}

} // namespace transfer_save_frames_test
