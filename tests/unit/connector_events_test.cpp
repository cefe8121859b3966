#include "connector/groups/grouped_scheduler_state.hpp"
#include "connector/scheduler/event_log.hpp"
#include "tests/unit/connector_support.hpp"

#include <string>
#include <vector>

namespace connector_events_test {

using namespace troupe;
using namespace troupe::connector;
using namespace troupe::test;

using kind = cache_event::kind;

scheduler_options all_events(event_detail detail = event_detail::all) {
  auto out = hf3fs_options();
  out.events = detail;
  return out;
}

/// "kind first+pages", with the save where there is one.
std::string text_of(const std::vector<cache_event>& events) {
  static const char* const names[] = {"stored", "removed", "cleared", "disk", "saving", "unsaved"};
  std::string out;
  for (const auto& x : events) {
    out += out.empty() ? "" : ", ";
    out += names[static_cast<std::size_t>(x.what)];
    if (x.what == kind::all_cleared)
      continue;
    out += " " + std::to_string(x.first_page) + "+" + std::to_string(x.pages);
    if (x.save != 0)
      out += " of " + std::to_string(x.save);
    if (x.group != 0)
      out += " in " + std::to_string(x.group);
  }
  return out;
}

std::string taken(scheduler_harness& harness) {
  return text_of(harness.state.take_events());
}

TEST_CASE("connector events: a save is an event when it begins, and page by page when it has ended", "[connector]") {
  scheduler_harness harness(all_events());
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  CHECK(taken(harness) == "removed 0+6"); // a lookup has missed them
  const auto save = harness.run_new("r", blocks_from(0, 7), 0, 100).stores.at(0).id;
  const auto began = harness.state.take_events();
  CHECK(text_of(began) == "saving 0+6 of 1");
  CHECK(began.at(0).request == "r");
  CHECK(began.at(0).page_tokens == 16);
  harness.report({.stores = {{save, {1, 1, 0, 0, 1, 1}}}});
  const auto ended = harness.state.take_events();
  CHECK(text_of(ended) == "stored 0+2 of 1, stored 4+2 of 1, unsaved 2+2 of 1");
  CHECK(ended.at(1).parent == harness.state.find("r")->keys()[3]);
  CHECK(ended.at(1).keys.at(0) == harness.state.find("r")->keys()[4]);
}

TEST_CASE("connector events: a lookup says what is there, where, and what is not", "[connector]") {
  scheduler_harness harness(all_events());
  harness.ask("r", tokens_from(1, 100));
  harness.answer(5, {0, 0, 1, 1, 0});
  CHECK(taken(harness) == "stored 0+2, disk 2+2, stored 4+1, removed 5+1");
  // Looked up in parts, positions count from the request's beginning.
  auto options = all_events();
  options.lookup_keys_max = 2;
  scheduler_harness parts(options);
  parts.ask("r", tokens_from(1, 100));
  parts.answer(2);
  parts.answer(1);
  CHECK(taken(parts) == "stored 0+2, stored 2+1, removed 3+1");
}

TEST_CASE("connector events: a lookup that no request waits for says nothing", "[connector]") {
  scheduler_harness harness(all_events());
  harness.ask("r", tokens_from(1, 100));
  CHECK_FALSE(harness.finish("r"));
  harness.answer(3);
  CHECK(taken(harness).empty());
}

TEST_CASE("connector events: a lost node has nothing, once", "[connector]") {
  const auto lost = GENERATE(errc::unreachable, errc::shutting_down);
  scheduler_harness harness(all_events());
  const auto fail_one = [&](const char* id, errc why) {
    harness.ask(id, tokens_from(1, 100));
    harness.refuse(why);
    harness.ask(id, tokens_from(1, 100));
  };
  fail_one("a", lost);
  CHECK(taken(harness).empty()); // nothing was said before
  harness.ask("b", tokens_from(1, 100));
  harness.answer(6);
  CHECK(taken(harness) == "stored 0+6");
  fail_one("c", errc::timeout); // a slow node is no lost one
  CHECK(taken(harness).empty());
  fail_one("d", lost);
  CHECK(taken(harness) == "cleared");
  fail_one("e", lost);
  CHECK(taken(harness).empty());
}

TEST_CASE("connector events: after another attachment only what was found since then is there", "[connector]") {
  scheduler_harness harness(all_events());
  harness.ask("a", tokens_from(1, 100));
  harness.answer(6);
  CHECK(taken(harness) == "stored 0+6");
  harness.ask("b", tokens_from(1, 100));
  REQUIRE(harness.lookups.size() == 1);
  harness.late_answer(harness.lookups.front().lookup, 4, {8, 1}); // the owner was 7 before
  CHECK(taken(harness) == "cleared, stored 0+4, removed 4+2");
  harness.ask("c", tokens_from(1, 100));
  harness.late_answer(harness.lookups.back().lookup, 4, {8, 2});
  CHECK(taken(harness) == "stored 0+4, removed 4+2");
}

TEST_CASE("connector events: events are left out as the engine wants it", "[connector]") {
  const auto detail = GENERATE(event_detail::changes, event_detail::none);
  scheduler_harness harness(all_events(detail));
  const auto tokens = tokens_from(1, 100);
  harness.admit("r", tokens, blocks_from(0, 7));
  const auto save = harness.run_new("r", blocks_from(0, 7), 0, 100).stores.at(0).id;
  harness.report({.stores = {{save, {1, 1, 0, 0, 1, 1}}}});
  CHECK(taken(harness) == (detail == event_detail::none ? "" : "stored 0+2 of 1, stored 4+2 of 1"));
  harness.state.reset_cache();
  CHECK(taken(harness) == (detail == event_detail::none ? "" : "cleared"));
}

TEST_CASE("connector events: events that nothing takes become one, which says that nothing is there", "[connector]") {
  event_log log({.detail = event_detail::all, .page_tokens = 16, .events_max = 3, .keys_max = 10});
  const std::vector<key_digest> keys(8);
  const event_log::source r{"r", keys};
  const std::vector<std::uint32_t> one{0};
  const std::vector<std::uint32_t> many{0, 1, 2, 3, 4, 5};
  for (int i = 0; i < 3; ++i)
    log.not_loaded(r, one);
  CHECK(text_of(log.take()) == "removed 0+1, removed 0+1, removed 0+1");
  for (int i = 0; i < 4; ++i)
    log.not_loaded(r, one);
  CHECK(text_of(log.take()) == "cleared, removed 0+1");
  log.not_loaded(r, many);
  log.not_loaded(r, one);
  CHECK(text_of(log.take()) == "removed 0+6, removed 0+1");
  log.not_loaded(r, many);
  log.not_loaded(r, many);
  CHECK(text_of(log.take()) == "cleared, removed 0+6");
}

/// Full attention and a window of 5 tokens; pages of 4 tokens, blocks of 2.
grouped_options two_groups() {
  grouped_options out;
  out.page_tokens = 4;
  out.events = event_detail::all;
  out.groups = {{group_kind::full, 0, 0, 2, {1}, namespace_id{1, 1}},
                {group_kind::window, 5, 0, 2, {0}, namespace_id{1, 2}}};
  return out;
}

TEST_CASE("connector events: each group of layers has events of its own, also after the end of a request",
          "[connector][groups]") {
  grouped_scheduler_state state(two_groups());
  const std::vector<token_id> tokens(9, 1);
  const std::vector<block_hash> hashes(2, block_hash{std::byte{1}});
  const engine_request request{.id = "r", .tokens = {0, tokens}, .hashes = {0, hashes}};
  state.get_num_new_matched_tokens(request, 0, start_time);
  auto lookups = state.take_outbox();
  REQUIRE(lookups.size() == 2);
  const auto answer = [&](std::size_t i, std::vector<std::uint8_t> found, std::vector<std::uint8_t> on_disk) {
    lookup_result out;
    out.matched = 1;
    out.lease = {7, 1};
    out.found.items = std::move(found);
    out.on_disk.items = std::move(on_disk);
    state.on_lookup(std::get<lookup_submit>(lookups.at(i)).lookup, out, start_time);
  };
  answer(0, {1, 0}, {0, 0});
  answer(1, {0, 1}, {0, 1});
  CHECK(text_of(state.take_events()) == "stored 0+1, removed 1+1, removed 0+1 in 1, disk 1+1 in 1");
  CHECK(state.get_num_new_matched_tokens(request, 0, start_time) == matched_tokens{0, false});
  const std::vector<block_id> blocks{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<std::uint32_t> ends{5, 10};
  state.update_state_after_alloc("r", {blocks, ends}, 0);
  scheduled_request part{.id = "r", .computed_tokens = 0, .scheduled_tokens = 9};
  part.blocks = {blocks, ends};
  const auto stores = state.build_connector_meta({.new_requests = {&part, 1}}, start_time).stores;
  REQUIRE(stores.size() == 2);
  CHECK(text_of(state.take_events()) == "saving 0+2 of 1, saving 0+2 of 2 in 1");
  CHECK_FALSE(state.request_finished("r"));
  state.update_connector_output({.stores = {{stores[1].id, {1, 0}}, {stores[0].id, {1, 1}}}}, start_time);
  const auto ended = state.take_events();
  CHECK(text_of(ended) == "stored 0+1 of 2 in 1, unsaved 1+1 of 2 in 1, stored 0+2 of 1");
  CHECK(ended.at(0).keys.empty());
}

} // namespace connector_events_test
