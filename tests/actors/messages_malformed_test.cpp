#include "tests/actors/message_support.hpp"
#include "tests/catch.hpp"

#include <random>
#include <string>

namespace messages_malformed_test {

/// Messages from another node may be arbitrary bytes: they cause an error, never a crash and never a hang.

namespace {

using namespace troupe;
using namespace troupe::test;

/// A batch of these bytes, as the other node wrote it.
template <class T>
caf::error load_packed(caf::actor_system& system, const std::string& bytes, packed<T>& out) {
  buffer written;
  caf::binary_serializer sink(system, written);
  REQUIRE_FALSE(sink(bytes));
  caf::binary_deserializer source(system, written);
  return source(out);
}

template <class T>
void check_packed(caf::actor_system& system) {
  for (std::size_t size = 0; size <= 3 * sizeof(T); ++size) {
    INFO(size << " bytes of records of " << sizeof(T));
    packed<T> out(std::vector<T>(2));
    const auto failed = load_packed(system, std::string(size, '\x5a'), out);
    CHECK(static_cast<bool>(failed) == (size % sizeof(T) != 0));
    if (failed)
      CHECK(from_caf(failed).code == errc::invalid_argument);
    else
      CHECK(out.size() == size / sizeof(T));
  }
}

/// One message with a batch, handles and strings in it.
caf::message sample(const named_probes& actors, std::uint64_t seed) {
  random_filler filler(seed, actors.all, false);
  attach_reply reply;
  locate_reply locations;
  transfer_task task;
  registry_peers peers;
  filler(reply, locations, task, peers);
  return caf::make_message(reply, locations, task, peers);
}

} // namespace

TEST_CASE("messages: a batch with a partial record is an error", "[messages]") {
  sim s;
  check_packed<key_digest>(s.system());
  check_packed<location>(s.system());
  check_packed<page_ref>(s.system());
  check_packed<slot_ref>(s.system());
  check_packed<child_delta>(s.system());
  check_packed<page_frame>(s.system());
  check_packed<check_item>(s.system());
  check_packed<copy_item>(s.system());
  check_packed<latency_sample>(s.system());
  check_packed<io_completion_record>(s.system());
  check_packed<std::uint32_t>(s.system());
  check_packed<std::uint64_t>(s.system());
  check_packed<std::uint8_t>(s.system());
}

TEST_CASE("messages: a malformed batch invalidates its whole message", "[messages]") {
  sim s;
  buffer bytes;
  caf::binary_serializer sink(s.system(), bytes);
  // As a locate_reply is written, with a batch that is one byte short.
  REQUIRE_FALSE(sink(std::string(sizeof(location) * 3 - 1, 'x')));
  caf::binary_deserializer source(s.system(), bytes);
  locate_reply reply;
  const auto failed = source(reply);
  REQUIRE(failed);
  CHECK(from_caf(failed).code == errc::invalid_argument);
}

TEST_CASE("messages: a message truncated at any byte is an error", "[messages]") {
  sim s;
  named_probes actors(s.system());
  const auto whole = save_message(s.system(), sample(actors, 3));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size << " of " << whole.size() << " bytes");
    caf::message out;
    CHECK(load_message(s.system(), {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}, out));
  }
}

TEST_CASE("messages: flipped bytes yield an error or another valid message", "[messages]") {
  sim s;
  named_probes actors(s.system());
  const auto seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{20}));
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const auto whole = save_message(s.system(), sample(actors, seed));
  // The names of the types stand in front, and are CAF's business.
  for (int i = 0; i < 200; ++i) {
    auto bytes = whole;
    for (auto flips = 1 + random() % 3; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    caf::message out;
    try {
      static_cast<void>(load_message(s.system(), bytes, out));
    } catch (const std::exception& e) {
      FAIL("an exception: " << e.what());
    }
  }
}

} // namespace messages_malformed_test
