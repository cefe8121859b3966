#include "actors/client/link/link.hpp"
#include "tests/catch.hpp"

#include <type_traits>

namespace narrow_proxies_test {

using namespace troupe;

/// The handles that a client gets, as types: what the compiler lets it say.

namespace {

/// Whether an actor with this handle accepts a message of these types.
template <class Handle, class... Ts>
constexpr bool takes = caf::response_type_unbox<caf::signatures_of_t<Handle>, caf::detail::type_list<Ts...>>::valid;

template <class Handle>
constexpr bool takes_what_only_the_node_says =
    takes<Handle, owner_died_atom, owner_id> || takes<Handle, drain_atom> || takes<Handle, restored_atom> ||
    takes<Handle, restore_request> || takes<Handle, io_completions> ||
    takes<Handle, written_atom, std::uint8_t, std::string> || takes<Handle, children_request> ||
    takes<Handle, evict_request> || takes<Handle, bind_atom, registry_peers> || takes<Handle, fence_atom, slot_batch> ||
    takes<Handle, take_atom, std::uint32_t, duration> || takes<Handle, publish_page_atom, slot_batch> ||
    takes<Handle, abort_atom, slot_batch> || takes<Handle, release_atom, slot_batch> ||
    takes<Handle, add_namespace_request> || takes<Handle, remove_namespace_request> ||
    takes<Handle, add_rank_request> || takes<Handle, retire_rank_request> || takes<Handle, describe_request> ||
    takes<Handle, erase_request> || takes<Handle, clear_request> || takes<Handle, reclaim_request> ||
    takes<Handle, allocate_request> || takes<Handle, confirm_request> || takes<Handle, protect_request> ||
    takes<Handle, fetch_atom, owner_id, frame_request> || takes<Handle, fill_atom, owner_id, fill_request> ||
    takes<Handle, caf::tick_atom> || takes<Handle, handshake_update>;

} // namespace

TEST_CASE("client handles: they accept only the messages of clients", "[reception]") {
  // The question is one that can be answered with yes.
  STATIC_REQUIRE(takes_what_only_the_node_says<registry_actor>);
  STATIC_REQUIRE(takes_what_only_the_node_says<io_worker_actor>);
  STATIC_REQUIRE(takes_what_only_the_node_says<allocator_actor>);
  STATIC_REQUIRE(takes_what_only_the_node_says<node_actor>);

  STATIC_REQUIRE_FALSE(takes_what_only_the_node_says<client_shard_actor>);
  STATIC_REQUIRE_FALSE(takes_what_only_the_node_says<client_worker_actor>);
  STATIC_REQUIRE_FALSE(takes_what_only_the_node_says<reception_actor>);
  STATIC_REQUIRE(takes_what_only_the_node_says<directory_actor>);
  STATIC_REQUIRE_FALSE(takes_what_only_the_node_says<handshake_proxy_actor>);
  STATIC_REQUIRE(takes<handshake_proxy_actor, handshake_publish_request>);
  STATIC_REQUIRE(takes<client_shard_actor, match_request>);
  STATIC_REQUIRE(takes<client_shard_actor, commit_atom, finish_request>);
  STATIC_REQUIRE(takes<client_worker_actor, place_atom, frame_request>);
}

TEST_CASE("client handles: replies to clients contain no other handles, for local and remote clients", "[reception]") {
  STATIC_REQUIRE(std::is_same_v<decltype(attach_reply::shards), std::vector<client_shard_actor>>);
  STATIC_REQUIRE(std::is_same_v<decltype(rank_endpoint::worker), client_worker_actor>);
  STATIC_REQUIRE(std::is_same_v<decltype(coordinator_binding::shards), std::vector<client_shard_actor>>);
  STATIC_REQUIRE(std::is_same_v<decltype(coordinator_binding::worker), client_worker_actor>);
  STATIC_REQUIRE(std::is_same_v<decltype(lookup_binding::shards), std::vector<client_shard_actor>>);
  STATIC_REQUIRE(std::is_same_v<decltype(link_options::local), reception_actor>);
}

} // namespace narrow_proxies_test
