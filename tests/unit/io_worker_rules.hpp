#pragma once

#include "actors/node/io_worker/io_worker_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

/// The rules of an io worker with memory of the test. The test carries out all effects.

namespace troupe::test::io_worker_rules {

inline constexpr timestamp t0{std::chrono::hours(1)};
inline constexpr std::chrono::milliseconds ms{1};
inline constexpr std::uint64_t slot_bytes = 8192;
inline constexpr auto patience = std::chrono::seconds(1);

using codes = std::vector<errc>;

/// A state with extents of four frames.
struct worker {
  static io_worker_options rules() {
    io_worker_options out;
    out.slots = 16;
    out.slot_bytes = slot_bytes;
    out.deadline_max = std::chrono::seconds(10);
    out.batch_pages_max = 8;
    out.pinned_bytes_max = 12 * slot_bytes;
    out.waiting_max = 3;
    return out;
  }

  explicit worker(const io_worker_options& options = rules(), std::size_t extents = 1)
      : state(options), extents_left(extents) {}

  static constexpr std::uint64_t extent_bytes = 4 * slot_bytes;

  io_worker_state state;
  std::size_t extents_left;
  bool on_its_way = false;
  std::vector<std::vector<std::byte>> memory{};
  timestamp now = t0;
  std::vector<io_worker_state::answered_frames> frames{};
  std::vector<io_worker_state::answered_fill> fills{};
  std::vector<io_worker_state::fence_id> fenced{};
  std::vector<io::page_request> requests{};
  std::vector<io_worker_state::page_check> checks{};
  std::vector<damaged_page> damaged{};
  std::vector<page_ref> dropped{};
  std::vector<io_worker_state::emptying_end> emptied{};

  static page_ref page(slot_number slot, generation_number generation = 1) {
    return {key_digest{slot, generation}, {slot, generation}};
  }
  static frame_request request(std::vector<page_ref> pages, duration limit = patience) {
    frame_request out;
    out.pages.items = std::move(pages);
    out.patience = limit;
    return out;
  }

  /// Does what the actor does after each call.
  void flush() {
    while (state.wants_extent()) {
      if (extents_left == 0) {
        state.no_extent(on_its_way, now);
        continue;
      }
      --extents_left;
      const auto number = static_cast<std::uint32_t>(memory.size());
      auto& bytes = memory.emplace_back(extent_bytes);
      state.add_extent({number, number * extent_bytes, bytes, number}, now);
    }
    const auto move_to = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
    move_to(frames, state.take_frames());
    move_to(fills, state.take_fills());
    move_to(fenced, state.take_fenced());
    move_to(requests, state.take_requests());
    move_to(checks, state.take_checks());
    move_to(damaged, state.take_damaged());
    move_to(dropped, state.take_dropped());
    if (const auto ended = state.take_emptying_end())
      emptied.push_back(*ended);
    REQUIRE(state.check() == "");
  }

  io_worker_state::request_id place(std::vector<page_ref> pages, owner_id owner = 1, duration limit = patience) {
    const auto id = state.place(owner, request(std::move(pages), limit), now);
    REQUIRE(id);
    flush();
    return *id;
  }
  io_worker_state::request_id fetch(std::vector<page_ref> pages, owner_id owner = 1, duration limit = patience) {
    const auto id = state.fetch(owner, request(std::move(pages), limit), now);
    REQUIRE(id);
    flush();
    return *id;
  }

  bool answered(io_worker_state::request_id id) const {
    return std::any_of(frames.begin(), frames.end(), [&](const auto& x) { return x.request == id; });
  }

  frame_reply reply(io_worker_state::request_id id) {
    const auto i = std::find_if(frames.begin(), frames.end(), [&](const auto& x) { return x.request == id; });
    REQUIRE(i != frames.end());
    REQUIRE(i->refused == errc::ok);
    auto out = std::move(i->reply);
    frames.erase(i);
    return out;
  }
  static codes codes_of(const frame_reply& x) {
    codes out;
    for (const auto& f : x.frames)
      out.push_back(f.code());
    return out;
  }

  /// Reports for each page of the pin that it was gathered, or why not.
  codes fill(pin_number pin, const codes& said, owner_id owner = 1) {
    fill_request work{pin, {}, patience};
    for (const auto code : said)
      work.gathered.items.push_back(static_cast<std::uint8_t>(code));
    const auto id = state.fill(owner, work, now);
    REQUIRE(id);
    flush();
    return filled(*id);
  }
  /// Empty if that is not answered.
  codes filled(io_worker_state::request_id id) {
    const auto i = std::find_if(fills.begin(), fills.end(), [&](const auto& x) { return x.request == id; });
    codes out;
    if (i == fills.end())
      return out;
    for (const auto code : i->reply.results)
      out.push_back(static_cast<errc>(code));
    fills.erase(i);
    return out;
  }

  void unpin(pin_number pin, owner_id owner = 1) {
    REQUIRE(state.unpin(owner, pin, now));
    flush();
  }

  io_worker_state::fence_id fence(std::vector<slot_ref> slots) {
    const auto id = state.fence(slots, now);
    flush();
    return id;
  }
  bool is_fenced(io_worker_state::fence_id id) const {
    return std::find(fenced.begin(), fenced.end(), id) != fenced.end();
  }

  void pass_checks(errc verdict = errc::ok) {
    for (const auto& x : std::exchange(checks, {}))
      state.checked(x.number, verdict, now);
    flush();
  }
  void complete(errc status = errc::ok) {
    for (const auto& x : std::exchange(requests, {}))
      state.complete(std::array{io::completion{x.tag, status, 0}}, now);
    flush();
  }
  /// Everything that is to be written is.
  void write_all() {
    while (!checks.empty() || !requests.empty()) {
      pass_checks();
      complete();
    }
  }

  /// Pages that are filled; whether they are to be written is up to the rules.
  void save(std::vector<page_ref> pages) {
    const codes all(pages.size(), errc::ok);
    const auto pin = reply(place(std::move(pages))).pin;
    REQUIRE(fill(pin, all) == all);
  }
  /// Fetches a page that is in memory, and is done with it.
  void load(const page_ref& page) {
    const auto got = reply(fetch({page}));
    REQUIRE(codes_of(got) == codes{errc::ok});
    REQUIRE(got.frames[0].promoted == 0);
    unpin(got.pin);
  }

  /// Pages that are in memory and in the slab.
  void store(std::vector<page_ref> pages) {
    save(std::move(pages));
    write_all();
  }

  /// A lookup of this client has found these pages, and its lease has that number.
  void look_up(std::vector<page_ref> pages, std::uint64_t lease = 1, owner_id owner = 1, std::uint32_t first = 0) {
    prefetch_request x{0, {owner, lease}, first, {}};
    x.pages.items = std::move(pages);
    state.prefetch(x, now);
    flush();
  }
  void end_lookup(std::uint64_t lease = 1, owner_id owner = 1, std::uint32_t keep = 0) {
    state.end_prefetch({0, {owner, lease}, keep}, now);
    flush();
  }

  void pass_time(duration x) {
    now += x;
    state.tick(now);
    flush();
  }
};

} // namespace troupe::test::io_worker_rules
