#include "actors/support/listeners/message_kinds.hpp"
#include "actors/support/system_config.hpp"
#include "messages/messages.hpp"
#include "tests/catch.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <string>

/// What passes the gate of a node's listeners.

namespace message_kinds_test {

using namespace troupe;

namespace {

struct kinds_world {
  system_config options{config::caf_config{}};
  caf::actor_system system{options};
  std::vector<std::string> kinds = kinds_of_client_messages(system);

  /// Whether the message begins as one of the kinds, as the gate compares it.
  bool passes(const caf::message& x) {
    std::vector<char> bytes;
    caf::binary_serializer sink(system, bytes);
    std::vector<caf::strong_actor_ptr> no_stages;
    auto content = x;
    REQUIRE_FALSE(sink(no_stages, content));
    const std::string_view all(bytes.data(), bytes.size());
    return std::ranges::any_of(kinds, [all](const std::string& y) { return all.starts_with(y); });
  }
};

} // namespace

TEST_CASE_METHOD(kinds_world, "listener: messages that a client sends pass", "[handshake]") {
  CHECK(passes(caf::make_message(attach_request{}, caf::actor{})));
  CHECK(passes(caf::make_message(caf::leave_atom_v, owner_id{})));
  CHECK(passes(caf::make_message(owner_quiesced_atom_v, owner_id{})));
  CHECK(passes(caf::make_message(commit_atom_v, finish_request{})));
  CHECK(passes(caf::make_message(abort_atom_v, finish_request{})));
  CHECK(passes(caf::make_message(fetch_atom_v, frame_request{})));
  CHECK(passes(caf::make_message(unpin_atom_v, pin_number{})));
  CHECK(passes(caf::make_message(watch_atom_v, std::string("a"), handshake_watcher_actor{})));
  CHECK(passes(caf::make_message(prefix_fetch_request{})));
  CHECK(passes(caf::make_message(search_peers_request{})));
  CHECK(passes(caf::make_message(fetch_pages_request{})));
  CHECK(passes(caf::make_message(cluster_hello{})));
}

TEST_CASE_METHOD(kinds_world, "listener: messages between a node's own actors, and CAF's own, do not pass",
                 "[handshake]") {
  CHECK_FALSE(passes(caf::make_message(caf::exit_msg{{}, caf::exit_reason::kill})));
  CHECK_FALSE(passes(caf::make_message(caf::down_msg{{}, caf::exit_reason::kill})));
  CHECK_FALSE(passes(caf::make_message(evict_request{})));
  CHECK_FALSE(passes(caf::make_message(place_atom_v, owner_id{}, frame_request{})));
  CHECK_FALSE(passes(caf::make_message(owner_died_atom_v, owner_id{}, std::string())));
  CHECK_FALSE(passes(caf::make_message(add_namespace_request{})));
  CHECK_FALSE(passes(caf::make_message(std::string("spawn"))));
  // In order, without repetitions: the gate compares each frame with all of them.
  CHECK(std::ranges::adjacent_find(kinds, std::greater_equal<>()) == kinds.end());
}

} // namespace message_kinds_test
