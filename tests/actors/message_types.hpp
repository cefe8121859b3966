#pragma once

#include "messages/messages.hpp"

#include <array>
#include <cstddef>
#include <tuple>

/// All types that have an id, for tests that go over each of them.

namespace troupe::test {

using registry_types =
    std::tuple<ticket, match_request, match_reply, locate_request, locate_reply, release_request, renew_request,
               reserve_request, reserve_reply, finish_request, finish_reply, invalidate_request, children_request,
               evict_request, evict_reply, registry_stats, take_reply, slot_batch, slot_results, allocator_stats>;

using slot_types = std::tuple<result_codes, exists_request, protect_request, allocate_request, confirm_request,
                              reclaim_request, erase_request, clear_request, clear_reply, add_namespace_request,
                              remove_namespace_request, remove_namespace_reply, add_rank_request, retire_rank_request,
                              describe_request, describe_reply, key_request, key_reply, restore_request, restore_report,
                              drop_restored_request, dropped_pages_request, list_pages_request, list_pages_reply,
                              reuse_request, reuse_reply, learn_request, page_descriptions, describe_pages_request>;

using transfer_types = std::tuple<arena_info, frame_request, frame_reply, fill_request, check_order, io_reply, io_stats,
                                  io_completions, lookup_task, lookup_result, transfer_task, transfer_result,
                                  copy_order, copy_reply, latency_batch, packed<std::uint64_t>, prefetch_request,
                                  prefetch_end, memory_report, remote_offer, remote_news, read_order, read_reply>;

using node_types =
    std::tuple<attach_request, attach_reply, coordinator_binding, lookup_binding, registry_peers, node_stats,
               client_parts, register_rank_request, memory_holder, served_namespace, make_namespace_request,
               open_namespace_request, close_namespace_request, leave_namespace_request, cluster_card, cluster_hello,
               cluster_welcome, prefix_fetch_request, prefix_fetch_reply, search_peers_request, search_peers_reply,
               fetch_pages_request, cluster_stats>;

using handshake_types =
    std::tuple<handshake_publish_request, handshake_heartbeat_request, handshake_withdraw_request, handshake_reply,
               handshake_fetch_request, handshake_fetch_reply, handshake_list_request, handshake_list_reply,
               handshake_update, handshake_seen_request, handshake_stats>;

using handle_types =
    std::tuple<registry_actor, allocator_actor, io_worker_actor, page_checker_actor, copy_engine_actor, transfer_actor,
               lookup_actor, metrics_actor, node_actor, link_actor, namespaces_actor, client_shard_actor,
               client_worker_actor, remote_worker_actor, reception_actor, cluster_actor, client_cluster_actor,
               handshake_watcher_actor, handshake_proxy_actor, directory_actor>;

using message_types = decltype(std::tuple_cat(registry_types{}, slot_types{}, transfer_types{}, node_types{},
                                              handshake_types{}, handle_types{}));

/// Whether the list above names each id of the block once.
template <class... Ts>
constexpr bool is_whole_block(const std::tuple<Ts...>*) {
  using block = caf::id_block::troupe;
  std::array<bool, block::end - block::begin> seen{};
  for (const auto id : {caf::type_id<Ts>::value...}) {
    if (id < block::begin || id >= block::end || seen[id - block::begin])
      return false;
    seen[id - block::begin] = true;
  }
  return sizeof...(Ts) == seen.size();
}

static_assert(is_whole_block(static_cast<const message_types*>(nullptr)),
              "a type of the block in messages/messages.hpp is not tested: add it to one of the lists above");

} // namespace troupe::test
