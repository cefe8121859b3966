#include "actors/support/listeners/connection_limits.hpp"
#include "actors/support/listeners/frame_gate.hpp"
#include "tests/catch.hpp"

#include <random>
#include <string>
#include <vector>

namespace listeners_gate_test {

using namespace troupe;

namespace {

using verdict = frame_gate::verdict;
using bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t most = 1000;
const std::string me(32, 'm');
const std::string other_node(32, 's');
const std::string known_kind("\0\0\0\x05known", 9);

bytes header(std::uint8_t operation, std::uint32_t length, std::uint8_t flags = 0) {
  bytes out(32);
  out[0] = operation;
  out[3] = flags;
  for (int i = 0; i < 4; ++i)
    out[static_cast<std::size_t>(7 - i)] = static_cast<std::uint8_t>(length >> (8 * i));
  return out;
}

bytes as_bytes(const std::string& x) {
  return {x.begin(), x.end()};
}

frame_gate new_gate() {
  return frame_gate({most, std::make_shared<const std::vector<std::string>>(
                               std::vector<std::string>{std::string("\0\0\0\x04what", 8), known_kind})});
}

/// Sends a frame with contents: returns the verdict on the payload, or that on the header if it is refused.
verdict sent(frame_gate& gate, std::uint8_t operation, const std::string& contents, std::uint8_t flags = 0) {
  if (gate.header(header(operation, static_cast<std::uint32_t>(contents.size()), flags)) == verdict::refuse)
    return verdict::refuse;
  CHECK(gate.payload_bytes() == contents.size());
  return gate.payload(as_bytes(contents));
}

frame_gate gate_after_handshake() {
  auto out = new_gate();
  CHECK(sent(out, 1, me) == verdict::pass);
  return out;
}

} // namespace

TEST_CASE("listeners gate: before its handshake a peer can send nothing else", "[listeners]") {
  for (unsigned operation = 0; operation < 256; ++operation) {
    auto gate = new_gate();
    const bool handshake = operation == 1;
    for (const std::uint32_t length : {0U, 1U, 32U})
      CHECK((gate.header(header(static_cast<std::uint8_t>(operation), length)) == verdict::pass) ==
            (handshake && length == 32));
    CHECK_FALSE(gate.has_handshake());
  }
}

TEST_CASE("listeners gate: a length beyond the limit is refused before and after the handshake", "[listeners]") {
  auto gate = new_gate();
  CHECK(gate.header(header(1, 0xffffffff)) == verdict::refuse);
  CHECK(gate.payload_bytes() == 0);
  auto inside = gate_after_handshake();
  CHECK(inside.header(header(2, most)) == verdict::pass);
  CHECK(inside.payload_bytes() == most);
  for (const std::uint32_t length : {most + 1, 1U << 24U, 0x80000000U, 0xffffffffU}) {
    CHECK(inside.header(header(2, length)) == verdict::refuse);
    CHECK(inside.payload_bytes() == 0);
  }
}

TEST_CASE("listeners gate: a peer keeps its name", "[listeners]") {
  auto gate = gate_after_handshake();
  CHECK(gate.identity() == me);
  CHECK(sent(gate, 1, me) == verdict::pass); // CAF sends its handshake twice
  CHECK(sent(gate, 1, other_node) == verdict::refuse);
  CHECK(gate.identity() == me);
}

TEST_CASE("listeners gate: only messages that clients send pass", "[listeners]") {
  auto gate = gate_after_handshake();
  CHECK(sent(gate, 2, known_kind + "and its contents") == verdict::pass);
  CHECK(sent(gate, 2, known_kind) == verdict::pass);
  CHECK(sent(gate, 2, known_kind.substr(0, 8)) == verdict::drop);
  CHECK(sent(gate, 2, std::string("\0\0\0\x06known!", 10)) == verdict::drop);
  CHECK(sent(gate, 2, std::string("\1", 1) + known_kind) == verdict::drop); // with another recipient of the answer
  CHECK(sent(gate, 2, known_kind, 1) == verdict::drop);                     // to an actor of the system
  CHECK(sent(gate, 2, known_kind, 0xff) == verdict::drop);
  CHECK(sent(gate, 2, known_kind) == verdict::pass); // the connection continues
}

TEST_CASE("listeners gate: a peer can neither claim the identity of another node nor route through this one",
          "[listeners]") {
  auto gate = gate_after_handshake();
  for (const auto news : {std::uint8_t{4}, std::uint8_t{5}}) {
    CHECK(sent(gate, news, me + "whom") == verdict::pass);
    CHECK(sent(gate, news, other_node + me) == verdict::refuse);
    CHECK(sent(gate, news, me.substr(0, 31)) == verdict::refuse);
  }
  CHECK(sent(gate, 0, me) == verdict::refuse);
  CHECK(sent(gate, 3, me + me + known_kind) == verdict::refuse);
}

TEST_CASE("listeners gate: an inconsistent header is refused", "[listeners]") {
  auto gate = gate_after_handshake();
  CHECK(gate.header(bytes(31)) == verdict::refuse);
  CHECK(gate.header(bytes{}) == verdict::refuse);
  CHECK(gate.header(header(6, 0)) == verdict::pass);
  CHECK(gate.header(header(6, 1)) == verdict::refuse);
  for (const auto operation : {std::uint8_t{2}, std::uint8_t{4}, std::uint8_t{5}})
    CHECK(gate.header(header(operation, 0)) == verdict::refuse);
  for (unsigned operation = 7; operation < 256; ++operation)
    CHECK(gate.header(header(static_cast<std::uint8_t>(operation), 8)) == verdict::refuse);
  CHECK(gate.header(header(2, 9)) == verdict::pass);
  CHECK(gate.payload(as_bytes(known_kind + "x")) == verdict::refuse);
}

TEST_CASE("listeners gate: garbage does not pass the gate", "[listeners]") {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    auto gate = round % 2 == 0 ? new_gate() : gate_after_handshake();
    bytes noise(32);
    for (auto& x : noise)
      x = static_cast<std::uint8_t>(random());
    if (round % 4 > 1)
      noise[0] %= 8;
    if (gate.header(noise) == verdict::refuse)
      continue;
    CHECK(gate.payload_bytes() <= most);
    bytes contents(gate.payload_bytes());
    for (auto& x : contents)
      x = static_cast<std::uint8_t>(random());
    if (!contents.empty() && noise[0] != 1)
      CHECK(gate.payload(contents) != verdict::pass);
  }
}

namespace {

constexpr duration second = std::chrono::seconds(1);
const timestamp start{};

} // namespace

TEST_CASE("listeners gate: the number of connections is bounded until one ends", "[listeners]") {
  connection_limits limits(2, second, "node");
  CHECK(limits.come(1, start));
  CHECK(limits.come(2, start));
  CHECK_FALSE(limits.come(3, start));
  limits.leave(3); // was never admitted
  CHECK_FALSE(limits.come(4, start));
  limits.leave(1);
  CHECK(limits.come(5, start));
  CHECK(limits.size() == 2);
}

TEST_CASE("listeners gate: a connection without a handshake in time is reported late", "[listeners]") {
  connection_limits limits(9, second, "node");
  CHECK(limits.come(1, start));
  CHECK(limits.come(2, start + second / 2));
  CHECK(limits.come(3, start));
  CHECK(limits.complete_handshake(3, "three"));
  CHECK(limits.silent() == 2);
  CHECK(limits.late(start + second - duration(1)).empty());
  CHECK(limits.late(start + second) == std::vector<connection_limits::connection_id>{1});
  CHECK(limits.late(start + 2 * second).size() == 2);
  limits.leave(1);
  CHECK(limits.complete_handshake(2, "two"));
  CHECK(limits.silent() == 0);
  CHECK(limits.late(start + 100 * second).empty());
}

TEST_CASE("listeners gate: two connections have different names and neither has the name of the node", "[listeners]") {
  connection_limits limits(9, second, "node");
  for (const connection_limits::connection_id x : {1, 2, 3})
    CHECK(limits.come(x, start));
  CHECK(limits.complete_handshake(1, "one"));
  CHECK(limits.complete_handshake(1, "one"));
  CHECK_FALSE(limits.complete_handshake(1, "two"));
  CHECK_FALSE(limits.complete_handshake(2, "one"));
  CHECK_FALSE(limits.complete_handshake(2, "node"));
  CHECK(limits.silent() == 2);
  limits.leave(2); // its name was never its own
  CHECK_FALSE(limits.complete_handshake(3, "one"));
  limits.leave(1);
  CHECK(limits.complete_handshake(3, "one"));
}

} // namespace listeners_gate_test
