#pragma once

#include "events/feed.hpp"
#include "events/hub.hpp"
#include "tests/catch.hpp"
#include "tests/event_view.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

inline key_digest event_key(std::uint64_t n) {
  return {n + 1, n * 31 + 7};
}

/// Pages n, n + 1, … of a chain whose engine hashes are 1000 + n and whose tokens are n.
inline page_descriptions described(std::uint64_t first, std::uint64_t count, std::uint32_t blocks = 1,
                                   std::uint32_t tokens = 4) {
  page_descriptions x;
  x.block_tokens = tokens;
  x.blocks_per_page = blocks;
  for (auto n = first; n < first + count; ++n) {
    x.keys.items.push_back(event_key(n));
    for (std::uint32_t b = 0; b < blocks; ++b)
      x.hashes.items.push_back(1000 + n * blocks + b);
    x.parents.items.push_back(n == 0 ? 0 : 1000 + n * blocks - 1);
    x.has_parent.items.push_back(n == 0 ? 0 : 1);
    for (std::uint32_t t = 0; t < blocks * tokens; ++t)
      x.tokens.items.push_back(static_cast<std::uint32_t>(n));
  }
  return x;
}

/// Of keys of a registry, one chain: the page of each has one block of two tokens.
inline page_descriptions describe_keys(const std::vector<key_digest>& keys) {
  page_descriptions x;
  x.block_tokens = 2;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    x.keys.items.push_back(keys[i]);
    x.hashes.items.push_back(i + 1);
    x.parents.items.push_back(i);
    x.has_parent.items.push_back(i > 0 ? 1 : 0);
    x.tokens.items.insert(x.tokens.items.end(), 2, static_cast<std::uint32_t>(i));
  }
  return x;
}

/// Everything in `x` is complete.
inline events::pages_described complete(page_descriptions x, bool in_memory = true) {
  events::pages_described out;
  for (std::uint32_t i = 0; i < x.keys.size(); ++i) {
    out.positions.push_back(i);
    out.in_memory.push_back(in_memory ? 1 : 0);
  }
  out.pages = std::move(x);
  return out;
}

/// A hub with one stream, and its time.
struct one_hub {
  explicit one_hub(events::hub_options how = {}) : hub(options(std::move(how))) { serve("m"); }

  static events::hub_options options(events::hub_options how) {
    how.node = "n";
    how.first_number = 100;
    return how;
  }

  namespace_id serve(const std::string& model, const std::string& revision = {}) {
    namespace_spec spec;
    spec.name = model;
    spec.model = model;
    spec.revision = revision;
    ns = spec.id();
    take(ns, events::namespace_served{std::make_shared<const namespace_spec>(spec)});
    return ns;
  }

  template <class What>
  void take(namespace_id to, What what, bool overflowed = false) {
    events::feed::batch x;
    x.changes.push_back({to, std::move(what)});
    x.overflowed = overflowed;
    hub.take(std::move(x), now, 1.5);
  }

  void remove(std::vector<std::uint64_t> which) {
    events::keys_removed x;
    for (const auto n : which)
      x.keys.push_back(event_key(n));
    take(ns, std::move(x));
  }

  /// What is published after `pause`; applied to `live`.
  std::vector<events::published_batch> published(duration pause = std::chrono::milliseconds(20)) {
    now += pause;
    auto out = hub.flush(now, 1.5);
    for (const auto& x : out)
      CHECK(live.apply(*x.batch.text) == "");
    return out;
  }

  /// All replies to a request, without the end; fails the test if the end does not come.
  std::vector<events::hub::reply> replay(std::uint64_t start, std::optional<std::string_view> topic = std::nullopt) {
    std::vector<events::hub::reply> out;
    REQUIRE(hub.request("client", start, topic, now));
    for (int i = 0; i < 100000; ++i) {
      const auto x = hub.next_reply(now, 1.5);
      REQUIRE(x.has_value());
      hub.sent(now);
      if (x->end)
        return out;
      out.push_back(*x);
    }
    FAIL("a replay does not end");
    return out;
  }

  timestamp now = timestamp{std::chrono::seconds(1000)};
  events::hub hub;
  namespace_id ns;
  event_view live;
};

} // namespace troupe::test
