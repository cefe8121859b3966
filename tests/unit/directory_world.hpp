#pragma once

#include "handshake/directory_state.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace troupe::handshake::test {

/// The rules of a directory of handshakes, with requests that are short to write.

inline errc code(std::uint8_t x) {
  return static_cast<errc>(x);
}

inline handshake_publish_request rank_of(std::string engine, std::uint32_t tp, incarnation_number incarnation = 7) {
  handshake_publish_request x;
  x.engine = std::move(engine);
  x.rank = {0, 0, tp};
  x.incarnation = incarnation;
  x.sizes = {1, 1, 2};
  x.compat = "abc";
  x.payload = "payload of " + std::to_string(tp) + " in " + std::to_string(incarnation);
  return x;
}

inline handshake_fetch_request fetch_of(std::string engine, std::uint32_t tp, duration wait = {}) {
  handshake_fetch_request x;
  x.engine = std::move(engine);
  x.scope = handshake_scope::rank;
  x.rank = {0, 0, tp};
  x.wait = wait;
  return x;
}

struct directory_world {
  explicit directory_world(const directory_options& options = {}) : state(options) {}
  ~directory_world() { CHECK(state.find_inconsistency() == ""); }
  directory_world(const directory_world&) = delete;
  directory_world& operator=(const directory_world&) = delete;

  handshake_reply publish(const handshake_publish_request& x) { return state.publish(x, now); }
  errc publish_code(const handshake_publish_request& x) { return code(publish(x).code); }
  std::optional<handshake_fetch_reply> fetch(const handshake_fetch_request& x) { return state.fetch(x, ++last, now); }
  handshake_fetch_reply get(const handshake_fetch_request& x) {
    auto answer = fetch(x);
    REQUIRE(answer.has_value());
    return *answer;
  }
  void pass(duration x) {
    now += x;
    state.advance(now);
  }
  /// The only answer to a waiting request.
  handshake_fetch_reply answer() {
    auto all = state.take_answers();
    REQUIRE(all.size() == 1);
    return all.front().second;
  }

  directory_state state;
  timestamp now{std::chrono::seconds(1000)};
  directory_state::number last = 0;
};

} // namespace troupe::handshake::test
