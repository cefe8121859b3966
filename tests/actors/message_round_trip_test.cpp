// Every type in the type-id block goes to another node and comes back as it was. A type that is added to the block
// without a test here does not compile.

#include "tests/catch.hpp"

#include <string>

#include "actors/metrics/metrics.hpp"
#include "actors/node/system_config.hpp"
#include "messages/messages.hpp"

namespace {

using namespace troupe;

struct fixture {
  system_config config{config::caf_config{}};
  caf::actor_system system{config};
};

/// How many types of the block the tests of this file cover. Each test case may run in a process of its own, so this is
/// counted by hand and compared with the block below.
constexpr int covered_types = 16 + 12 + 4 + 7 + 9;

/// Out through a serialiser and back in, as between two nodes. Sent as a message, because an unregistered type fails
/// only there.
template <class T>
T round_trip(caf::actor_system& system, const T& x) {
  const auto sent = caf::make_message(x);
  std::vector<char> bytes;
  caf::binary_serializer out{system, bytes};
  REQUIRE_FALSE(sent.save(out));
  caf::binary_deserializer in{system, bytes};
  caf::message received;
  REQUIRE_FALSE(received.load(in));
  REQUIRE(received.match_elements<T>());
  return received.template get_as<T>(0);
}

/// The bytes of a value: two values with the same bytes are the same to any receiver.
template <class T>
std::vector<char> bytes_of(caf::actor_system& system, const T& x) {
  std::vector<char> out;
  caf::binary_serializer sink{system, out};
  auto copy = x;
  REQUIRE_FALSE(sink(copy));
  return out;
}

template <class T>
void check_round_trip(caf::actor_system& system, const T& x) {
  const auto back = round_trip(system, x);
  // Different values must have different bytes, or comparing bytes would prove nothing.
  CHECK(bytes_of(system, T{}) != bytes_of(system, x));
  CHECK(bytes_of(system, back) == bytes_of(system, x));
}

static_assert(caf::id_block::troupe::end - caf::id_block::troupe::begin == covered_types,
              "a message type without a round-trip test: add one, and count it");

constexpr namespace_id space{11, 12};
constexpr ticket some_ticket{21, 22};
const packed<key_digest> keys{{{1, 2}, {3, 4}, {~0ULL, 0}}};
const packed<slot_ref> slots{{{1, 2}, {0xffffffff, 3}}};
const packed<page_ref> pages{{{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}};
const packed<std::uint8_t> codes{{0, 1, 2, 255}};
const packed<location> locations{{{{1, 2}, 3}, {{4, 5}, 6}}};
constexpr client_limits limits{1, 2, 3, duration(4), duration(5)};

} // namespace

TEST_CASE_METHOD(fixture, "registry messages survive the wire", "[messages]") {
  check_round_trip(system, some_ticket);
  check_round_trip(system, match_request{space, some_ticket, duration(5), keys});
  check_round_trip(system, match_reply{7});
  check_round_trip(system, locate_request{space, 3, some_ticket, duration(-1), keys});
  check_round_trip(system, locate_reply{locations});
  check_round_trip(system, release_request{space, some_ticket, 9});
  check_round_trip(system, renew_request{space, some_ticket, std::chrono::hours(1)});
  check_round_trip(system, reserve_request{space, 1, some_ticket, duration(2), keys, keys});
  check_round_trip(system, reserve_reply{locations});
  check_round_trip(system, finish_request{space, 2, some_ticket, pages});
  check_round_trip(system, finish_reply{codes});
  check_round_trip(system, invalidate_request{space, 4, pages});
  check_round_trip(system, link_request{space, {{{{1, 2}, -3}, {{4, 5}, 6}}}});
  check_round_trip(system, evict_request{space, 1, 2});
  check_round_trip(system, evict_reply{3, true});
  check_round_trip(system, registry_stats{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
}

TEST_CASE_METHOD(fixture, "allocator, io and copy messages survive the wire", "[messages]") {
  check_round_trip(system, take_reply{slots});
  check_round_trip(system, slot_batch{slots});
  check_round_trip(system, slot_results{codes});
  check_round_trip(system, allocator_stats{1, 2, 3, 4, 5, 6});
  check_round_trip(system, segment_info{1, -2, 3, 4});
  check_round_trip(system, io_batch{1, duration(2), {{{{3, 4}, 5, 6}}}});
  check_round_trip(system, io_reply{codes});
  check_round_trip(system, io_stats{1, 2, 3, 4, 5, 6, 7, 8, 9});
  check_round_trip(system, io_completions{{{{1, 2, -3}}}});
  check_round_trip(system, copy_order{1, {{{{1, 2}, {3, 4}, 5, 6, 7}}}});
  check_round_trip(system, copy_reply{codes, duration(1), duration(2)});
  check_round_trip(system, latency_batch{{{{1, 2, 3}}}});
}

TEST_CASE_METHOD(fixture, "transfer messages survive the wire", "[messages]") {
  check_round_trip(system, lookup_task{keys, duration(3)});
  check_round_trip(system, lookup_result{4, some_ticket});
  check_round_trip(system, transfer_task{keys, {{1, 2, 3}}, {4, 5}, duration(6)});
  transfer_timing timing{duration(1), duration(2), duration(3), duration(4), duration(5), duration(6), duration(7)};
  check_round_trip(system, transfer_result{codes, 8, timing});
}

TEST_CASE_METHOD(fixture, "messages with actor handles survive the wire", "[messages]") {
  // Within one process a handle is found again by its id, so one living actor serves for all: what is checked is that
  // each field is walked.
  namespace_spec spec{"name", "model", "revision", "dtype", "layout", "salt", 2, {1, 2, 3, 4, 5, 6}};
  check_round_trip(system, attach_request{9, "client", 10, "space"});
  check_round_trip(system, attach_reply{1, "node", spec, limits, {registry_actor{}}, {{1, 2, {}, {}}}});
  check_round_trip(system, coordinator_binding{1, 2, limits, {registry_actor{}}, {}, 3, 4, 5});
  check_round_trip(system, lookup_binding{1, 2, space, limits, {registry_actor{}}});
  check_round_trip(system, client_parts{{}, {{1, {}, {}, {}}}});
  check_round_trip(system, registry_peers{{registry_actor{}}, {allocator_actor{}}, {space}, {1}});
  check_round_trip(system, node_stats{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {{space, "name", 1, {}, {}}}, 3});
  const auto meters = system.spawn<metrics>("test");
  CHECK(round_trip(system, meters) == meters);
  caf::anon_send_exit(meters, caf::exit_reason::user_shutdown);
}

TEST_CASE_METHOD(fixture, "empty handles survive the wire", "[messages]") {
  CHECK_FALSE(round_trip(system, registry_actor{}));
  CHECK_FALSE(round_trip(system, allocator_actor{}));
  CHECK_FALSE(round_trip(system, io_worker_actor{}));
  CHECK_FALSE(round_trip(system, copy_engine_actor{}));
  CHECK_FALSE(round_trip(system, transfer_actor{}));
  CHECK_FALSE(round_trip(system, lookup_actor{}));
  CHECK_FALSE(round_trip(system, node_actor{}));
  CHECK_FALSE(round_trip(system, link_actor{}));
  CHECK_FALSE(round_trip(system, metrics_actor{}));
}

TEST_CASE_METHOD(fixture, "a batch that is no whole number of records is refused", "[messages]") {
  std::vector<char> bytes;
  caf::binary_serializer out{system, bytes};
  std::string odd = "seventeen bytes!!";
  REQUIRE_FALSE(out(odd));
  caf::binary_deserializer in{system, bytes};
  packed<key_digest> batch;
  const auto refused = in(batch);
  REQUIRE(refused);
  CHECK(from_caf(refused).code == errc::invalid_argument);
  CHECK(batch.empty());
}

TEST_CASE_METHOD(fixture, "errors keep their code and text", "[messages]") {
  for (std::uint8_t code = 1; code < errc_count; ++code) {
    const auto back = from_caf(to_caf(error{static_cast<errc>(code), "what happened"}));
    CHECK(back.code == static_cast<errc>(code));
    CHECK(back.text == "what happened");
    const auto rendered = system.render(to_caf(back));
    CHECK(rendered.find(std::string(to_string(back.code))) != std::string::npos);
    CHECK(rendered.find("what happened") != std::string::npos);
  }
  CHECK(from_caf(caf::error{}).code == errc::internal);
  CHECK(from_caf(caf::make_error(caf::sec::request_timeout)).code == errc::timeout);
  CHECK(from_caf(caf::make_error(caf::sec::request_receiver_down)).code == errc::unreachable);
  CHECK(from_caf(caf::make_error(caf::exit_reason::remote_link_unreachable)).code == errc::unreachable);
  CHECK(from_caf(caf::make_error(caf::sec::unexpected_message)).code == errc::internal);
}
