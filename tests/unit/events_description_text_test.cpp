#include "events/description_rules.hpp"
#include "events/description_text.hpp"
#include "lmcache/protocol/msgpack_writer.hpp"
#include "messages/description_pages.hpp"
#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"

#include <random>
#include <string>

namespace events_description_text_test {

using namespace troupe;
using namespace troupe::test;

namespace {

page_descriptions sample() {
  auto out = described(3, 5, 2, 16);
  out.groups = {{0, "sliding_window", 4096}, {7}};
  out.lora = "adapter";
  lmcache::protocol::msgpack_writer extra;
  extra.array(2).nil().array(1).text("salt");
  const auto text = extra.take();
  out.extra = text + text;
  const auto length = static_cast<std::uint32_t>(text.size());
  out.extra_ends.items = {length, length, length, length, 2 * length};
  REQUIRE_FALSE(events::fault_of(out));
  return out;
}

} // namespace

TEST_CASE("events description text: descriptions in the index are read as they were written", "[events]") {
  const auto with_everything = sample();
  const auto simple = described(0, 3);
  for (const auto& all : {with_everything, simple}) {
    page_descriptions again;
    for (std::size_t i = 0; i < all.keys.size(); ++i) {
      auto one = events::description_of(events::description_text(all, i));
      REQUIRE(one);
      one->keys.items.push_back(all.keys[i]);
      CHECK_FALSE(events::fault_of(*one));
      CHECK((i == 0 || events::same_shape(again, *one)));
      if (i == 0)
        again = std::move(*one);
      else
        append_page(again, *one, 0);
    }
    CHECK(again == all);
  }
}

TEST_CASE("events description text: extra keys of some pages stay with their pages when descriptions are joined",
          "[events]") {
  const auto all = sample();
  page_descriptions joined;
  std::vector<std::size_t> order{1, 0, 2, 4};
  for (const auto i : order) {
    auto one = events::description_of(events::description_text(all, i)).value();
    one.keys.items.push_back(all.keys[i]);
    if (joined.keys.empty())
      joined = std::move(one);
    else
      append_page(joined, one, 0);
  }
  REQUIRE_FALSE(events::fault_of(joined));
  for (std::size_t at = 0; at < order.size(); ++at)
    CHECK(events::description_text(joined, at) == events::description_text(all, order[at]));
}

TEST_CASE("events description text: any bytes are a description or an error", "[events]") {
  std::mt19937 random(20261130);
  const auto good = events::description_text(sample(), 4);
  CHECK(events::description_of("").error().code == errc::corrupt);
  for (std::size_t length = 0; length < good.size(); ++length)
    if (const auto cut = events::description_of(std::string_view(good).substr(0, length))) {
      // What is missing can only be a part of the extra keys.
      auto one = *cut;
      one.keys.items.push_back(event_key(1));
      CHECK((one.extra_ends.empty() || events::fault_of(one)));
    }
  for (int i = 0; i < 20000; ++i) {
    auto text = good;
    for (int changes = 0; changes < 3; ++changes)
      text[random() % text.size()] = static_cast<char>(random());
    if (auto one = events::description_of(text)) {
      one->keys.items.push_back(event_key(1));
      static_cast<void>(events::fault_of(*one));
    }
  }
}

} // namespace events_description_text_test
