#pragma once

#include "messages/caf_error.hpp"
#include "messages/node_messages.hpp"

#include <caf/all.hpp>

/// The one header that every actor includes: all messages, their serialization, and their type ids. It has to be
/// included wherever a message is made: CAF decides there, per translation unit, whether a type can be serialized.

namespace troupe {

template <class Inspector, class T>
typename Inspector::result_type inspect(Inspector& f, packed<T>& x) {
  std::string bytes;
  if constexpr (Inspector::reads_state)
    bytes = x.to_bytes();
  auto load = [&]() -> caf::error {
    if (x.from_bytes(bytes))
      return caf::none;
    return caf::make_error(errc::invalid_argument,
                           std::string("the size of a packed batch is not a multiple of its record size"));
  };
  return f(bytes, caf::meta::load_callback(load));
}

#define TROUPE_INSPECT(type, ...)                                                                                      \
  template <class Inspector>                                                                                           \
  typename Inspector::result_type inspect(Inspector& f, type& x) {                                                     \
    return f(caf::meta::type_name("troupe::" #type), __VA_ARGS__);                                                     \
  }

TROUPE_INSPECT(lease_bounds, x.leases, x.share, x.readers_share)
TROUPE_INSPECT(match_request, x.ns, x.lease, x.lease_for, x.keys, x.bounds, x.report_on_disk, x.by_peer, x.each,
               x.request)
TROUPE_INSPECT(match_reply, x.matched, x.uses, x.on_disk, x.found)
TROUPE_INSPECT(locate_request, x.ns, x.rank, x.lease, x.lease_for, x.keys, x.bounds, x.report_in_slab)
TROUPE_INSPECT(locate_reply, x.locations, x.in_slab)
TROUPE_INSPECT(release_request, x.ns, x.lease, x.keep, x.uses, x.must_exist, x.kept_there, x.retained)
TROUPE_INSPECT(renew_request, x.ns, x.lease, x.lease_for)
TROUPE_INSPECT(reserve_request, x.ns, x.rank, x.ticket, x.expires_in, x.keys, x.parents)
TROUPE_INSPECT(reserve_reply, x.results)
TROUPE_INSPECT(finish_request, x.ns, x.rank, x.ticket, x.pages, x.must_exist, x.origin)
TROUPE_INSPECT(finish_reply, x.results)
TROUPE_INSPECT(invalidate_request, x.ns, x.rank, x.pages, x.reasons, x.tiers)
TROUPE_INSPECT(dropped_pages_request, x.ns, x.rank, x.pages)
TROUPE_INSPECT(children_request, x.ns, x.changes)
TROUPE_INSPECT(evict_request, x.ns, x.rank, x.wanted, x.force, x.seen)
TROUPE_INSPECT(release_progress, x.shard, x.released, x.keys)
TROUPE_INSPECT(evict_reply, x.slots, x.more, x.progress)
TROUPE_INSPECT(registry_stats, x.keys, x.complete_keys, x.leases, x.reservations, x.evicted_keys, x.invalidated_pages,
               x.expired_leases, x.expired_reservations, x.refused, x.resident_bytes, x.reclaimed_pages, x.erased_pages,
               x.withheld_slots, x.invalidated_in_memory, x.invalidated_on_disk, x.evict_first_keys)
TROUPE_INSPECT(result_codes, x.results)
TROUPE_INSPECT(reuse_request, x.ns)
TROUPE_INSPECT(reuse_reply, x.clock, x.counts)
TROUPE_INSPECT(learn_request, x.ns, x.counts)
TROUPE_INSPECT(exists_request, x.ns, x.rank, x.keys)
TROUPE_INSPECT(protect_request, x.ns, x.rank, x.complete_only, x.protect_for, x.keys, x.readers_share)
TROUPE_INSPECT(allocate_request, x.ns, x.rank, x.expires_in, x.keys, x.parents)
TROUPE_INSPECT(confirm_request, x.ns, x.rank, x.pages)
TROUPE_INSPECT(reclaim_request, x.ns, x.rank, x.slots)
TROUPE_INSPECT(erase_request, x.ns, x.rank, x.keys)
TROUPE_INSPECT(clear_request, x.ns, x.rank, x.from)
TROUPE_INSPECT(clear_reply, x.pages, x.next, x.more)
TROUPE_INSPECT(list_pages_request, x.ns, x.rank, x.from, x.most)
TROUPE_INSPECT(list_pages_reply, x.pages, x.next, x.more)
TROUPE_INSPECT(namespace_options, x.automatic, x.slot_index, x.max_ranks, x.origin)
TROUPE_INSPECT(add_namespace_request, x.spec, x.options)
TROUPE_INSPECT(remove_namespace_request, x.ns, x.force)
TROUPE_INSPECT(remove_namespace_reply, x.more)
TROUPE_INSPECT(lookup_counts, x.requests, x.asked_keys, x.found_keys, x.memory_keys, x.disk_keys, x.peer_keys)
TROUPE_INSPECT(namespace_info, x.spec, x.options, x.keys, x.complete_keys, x.evicted_keys, x.leases, x.reservations,
               x.ranks, x.lookups)
TROUPE_INSPECT(describe_request, x.ns)
TROUPE_INSPECT(describe_reply, x.namespaces)
TROUPE_INSPECT(key_request, x.ns, x.key)
TROUPE_INSPECT(key_reply, x.parent, x.children, x.leases, x.complete, x.protected_for, x.pages)
TROUPE_INSPECT(described_group, x.index, x.kind, x.window)
TROUPE_INSPECT(page_descriptions, x.block_tokens, x.blocks_per_page, x.groups, x.lora, x.keys, x.hashes, x.parents,
               x.has_parent, x.tokens, x.extra, x.extra_ends)
TROUPE_INSPECT(describe_pages_request, x.ns, x.pages)
TROUPE_INSPECT(restore_request, x.pages)
TROUPE_INSPECT(drop_restored_request, x.ns, x.rank, x.slots)
TROUPE_INSPECT(restore_report, x.pages, x.keys, x.displaced, x.refused)
TROUPE_INSPECT(add_rank_request, x.ns, x.rank, x.slots, x.allocator, x.incarnation, x.worker)
TROUPE_INSPECT(retire_rank_request, x.ns, x.rank)
TROUPE_INSPECT(register_rank_request, x.ns, x.rank, x.slots)
TROUPE_INSPECT(take_reply, x.slots)
TROUPE_INSPECT(slot_batch, x.slots, x.rest, x.progress)
TROUPE_INSPECT(slot_results, x.results)
TROUPE_INSPECT(allocator_stats, x.total, x.free, x.reserved, x.live, x.quarantined, x.refused, x.beyond_slab)
TROUPE_INSPECT(arena_info, x.bytes, x.extent_bytes, x.name, x.elsewhere, x.movers)
TROUPE_INSPECT(remote_offer, x.address, x.key, x.base, x.bytes, x.frame_bytes, x.proof)
TROUPE_INSPECT(remote_news, x.what, x.code, x.job, x.text)
TROUPE_INSPECT(frame_request, x.pages, x.patience, x.sizes)
TROUPE_INSPECT(frame_reply, x.pin, x.frames)
TROUPE_INSPECT(check_order, x.items)
TROUPE_INSPECT(fill_request, x.pin, x.gathered, x.deadline)
TROUPE_INSPECT(io_reply, x.results)
TROUPE_INSPECT(owner_pages, x.owner, x.loaded, x.saved)
TROUPE_INSPECT(io_stats, x.read_pages, x.written_pages, x.read_bytes, x.written_bytes, x.failed, x.timed_out, x.fenced,
               x.in_flight, x.frames, x.frame_bytes, x.memory_bytes, x.resident_bytes, x.resident_pages, x.dirty_pages,
               x.pinned_frames, x.orphaned_frames, x.memory_hits, x.memory_loads, x.demotions, x.damaged_pages,
               x.unasked_pages, x.dropped_pages, x.prefetched_pages, x.prefetch_hits, x.prefetches_cancelled, x.extents,
               x.encoded_extents, x.returned_extents, x.scrubbed_pages, x.scrub_unsound_pages, x.scrub_passes,
               x.loaded_pages, x.saved_pages, x.saved_payload_bytes, x.saved_stored_bytes, x.slab_slots, x.memory_slots,
               x.slab_bytes, x.slab_occupied_bytes, x.slab_pages, x.slab_page_bytes, x.memory_pages, x.owners)
TROUPE_INSPECT(prefetch_request, x.shard, x.lease, x.first, x.pages)
TROUPE_INSPECT(prefetch_end, x.shard, x.lease, x.keep)
TROUPE_INSPECT(memory_report, x.ns, x.rank, x.wants, x.extents, x.free_bytes, x.oldest)
TROUPE_INSPECT(io_completions, x.records)
TROUPE_INSPECT(peer_step, x.what, x.search, x.parents, x.waited)
TROUPE_INSPECT(lookup_task, x.keys, x.lease_for, x.report_on_disk, x.each, x.peers, x.request)
TROUPE_INSPECT(peers_share, x.requests, x.keys, x.took)
TROUPE_INSPECT(lookup_result, x.matched, x.lease, x.on_disk, x.lease_for, x.found, x.search, x.has_peers, x.peers)
TROUPE_INSPECT(transfer_task, x.keys, x.blocks, x.parent, x.deadline, x.tag, x.ready_event, x.origin, x.chained)
TROUPE_INSPECT(transfer_timing, x.registry, x.copy, x.move, x.io, x.finish, x.window_wait)
TROUPE_INSPECT(transfer_result, x.results, x.bytes, x.timing, x.from_disk, x.from_files, x.files_stale, x.files_damaged,
               x.files_failed)
TROUPE_INSPECT(shared_slab, x.path, x.incarnation)
TROUPE_INSPECT(read_order, x.file, x.items, x.patience)
TROUPE_INSPECT(read_reply, x.results)
TROUPE_INSPECT(copy_order, x.owner, x.items, x.further_blocks, x.ready_event)
TROUPE_INSPECT(copy_reply, x.results, x.move, x.encoded)
TROUPE_INSPECT(latency_batch, x.samples)
TROUPE_INSPECT(client_limits, x.pinned_bytes, x.batch_keys, x.batch_pages, x.lease, x.reservation)
TROUPE_INSPECT(attach_request, x.protocol, x.client_name, x.process, x.home, x.namespace_name, x.wish, x.ns, x.cluster)
TROUPE_INSPECT(rank_endpoint, x.rank, x.slots, x.worker, x.slab)
TROUPE_INSPECT(attach_reply, x.owner, x.node_name, x.ns_id, x.ns, x.limits, x.arena, x.shards, x.ranks, x.cluster,
               x.wants_descriptions)
TROUPE_INSPECT(coordinator_binding, x.owner, x.ticket_stream, x.limits, x.shards, x.worker, x.window_pages, x.slab)
TROUPE_INSPECT(lookup_binding, x.owner, x.ticket_stream, x.ns, x.limits, x.shards, x.cluster, x.wants_descriptions)
TROUPE_INSPECT(client_rank, x.rank, x.copier, x.load, x.save)
TROUPE_INSPECT(client_parts, x.lookup, x.ranks)
TROUPE_INSPECT(registry_peers, x.shards, x.allocators, x.namespaces, x.ranks, x.workers)
TROUPE_INSPECT(memory_holder, x.ns, x.rank, x.worker)
TROUPE_INSPECT(served_rank, x.rank, x.slots, x.incarnation, x.worker, x.allocator, x.listens, x.slab)
TROUPE_INSPECT(served_namespace, x.spec, x.ranks)
TROUPE_INSPECT(make_namespace_request, x.spec)
TROUPE_INSPECT(open_namespace_request, x.spec, x.stored)
TROUPE_INSPECT(close_namespace_request, x.ns)
TROUPE_INSPECT(leave_namespace_request, x.ns, x.force)
TROUPE_INSPECT(rank_stats, x.ns, x.namespace_name, x.rank, x.slots, x.io)
TROUPE_INSPECT(client_stats, x.name, x.namespace_name, x.process, x.elsewhere, x.attached_for, x.number, x.is_node,
               x.loaded_pages, x.saved_pages, x.loaded_bytes, x.saved_bytes)
TROUPE_INSPECT(cluster_card, x.cluster, x.node, x.incarnation)
TROUPE_INSPECT(cluster_hello, x.protocol, x.from)
TROUPE_INSPECT(cluster_namespace, x.id, x.name)
TROUPE_INSPECT(cluster_welcome, x.node, x.namespaces)
TROUPE_INSPECT(prefix_fetch_request, x.ns, x.parent, x.keys, x.waited)
TROUPE_INSPECT(prefix_fetch_reply, x.keys)
TROUPE_INSPECT(search_peers_request, x.ns, x.keys, x.waited)
TROUPE_INSPECT(search_peers_reply, x.search, x.found)
TROUPE_INSPECT(fetch_pages_request, x.ns, x.search, x.keys, x.parents)
TROUPE_INSPECT(peer_stats, x.address, x.node, x.incarnation, x.up, x.self, x.trouble, x.namespaces, x.asked, x.had,
               x.late, x.pages, x.bytes, x.failed, x.learned_keys, x.file_pages, x.file_bytes, x.files_stale,
               x.files_damaged, x.files_failed, x.lag_us, x.served_pages, x.served_bytes)
TROUPE_INSPECT(etcd_stats, x.endpoints, x.up, x.trouble, x.registered, x.listed, x.senseless, x.requests, x.failed,
               x.leases_lost)
TROUPE_INSPECT(adopted_stats, x.node, x.own, x.keys, x.asked, x.had, x.pages, x.bytes, x.failed)
TROUPE_INSPECT(cluster_stats, x.name, x.peers, x.etcd, x.adopted, x.claims_lost, x.adopted_pages, x.adopted_failed)
TROUPE_INSPECT(remote_stats, x.put_pages, x.got_pages, x.put_bytes, x.got_bytes, x.put_failures, x.got_failures, x.lost,
               x.streams_lost, x.streams_reopened)
TROUPE_INSPECT(node_stats, x.registry, x.ranks, x.clients, x.disconnected_clients, x.attached, x.cluster, x.remote,
               x.lingering_clients)
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, shared_payload& x) {
  std::string bytes;
  if constexpr (Inspector::reads_state)
    bytes = x.view();
  auto load = [&]() -> caf::error {
    x = shared_payload(std::move(bytes));
    return caf::none;
  };
  return f(bytes, caf::meta::load_callback(load));
}

TROUPE_INSPECT(handshake_rank, x.dp, x.pp, x.tp)
TROUPE_INSPECT(handshake_sizes, x.dp, x.pp, x.tp)
TROUPE_INSPECT(handshake_publish_request, x.engine, x.rank, x.incarnation, x.sizes, x.compat, x.ttl, x.form, x.payload)
TROUPE_INSPECT(handshake_heartbeat_request, x.engine, x.incarnation, x.ttl)
TROUPE_INSPECT(handshake_withdraw_request, x.engine, x.incarnation)
TROUPE_INSPECT(handshake_reply, x.code, x.text, x.incarnation, x.expires_in, x.ranks, x.complete, x.added)
TROUPE_INSPECT(handshake_fetch_request, x.engine, x.scope, x.rank, x.own_tp_size, x.compat, x.incarnation, x.etag,
               x.complete, x.wait)
TROUPE_INSPECT(handshake_entry, x.rank, x.etag, x.form, x.payload)
TROUPE_INSPECT(handshake_fetch_reply, x.code, x.text, x.not_modified, x.incarnation, x.sizes, x.compat, x.etag,
               x.complete, x.expires_in, x.entries)
TROUPE_INSPECT(handshake_list_request, x.engine)
TROUPE_INSPECT(handshake_engine_info, x.engine, x.incarnation, x.sizes, x.compat, x.ranks, x.payload_bytes, x.complete,
               x.expires_in)
TROUPE_INSPECT(handshake_list_reply, x.engines)
TROUPE_INSPECT(handshake_change, x.engine, x.now)
TROUPE_INSPECT(handshake_update, x.watch, x.changes)
TROUPE_INSPECT(handshake_seen_request, x.watch)
TROUPE_INSPECT(handshake_stats, x.published, x.repeated, x.replaced, x.heartbeats, x.withdrawn, x.expired, x.found,
               x.not_modified, x.not_found, x.gone, x.incompatible, x.waits, x.waits_timed_out, x.waits_cancelled,
               x.refused_stale, x.refused_conflict, x.refused_malformed, x.refused_engines, x.refused_bytes,
               x.refused_waiting, x.refused_watches, x.refused_answers, x.refused_disk, x.engines, x.ranks, x.bytes,
               x.waiting, x.watches, x.remembered)

#undef TROUPE_INSPECT

} // namespace troupe

CAF_BEGIN_TYPE_ID_BLOCK(troupe, caf::first_custom_type_id)
CAF_ADD_TYPE_ID(troupe, (troupe::ticket))
CAF_ADD_TYPE_ID(troupe, (troupe::match_request))
CAF_ADD_TYPE_ID(troupe, (troupe::match_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::locate_request))
CAF_ADD_TYPE_ID(troupe, (troupe::locate_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::release_request))
CAF_ADD_TYPE_ID(troupe, (troupe::renew_request))
CAF_ADD_TYPE_ID(troupe, (troupe::reserve_request))
CAF_ADD_TYPE_ID(troupe, (troupe::reserve_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::finish_request))
CAF_ADD_TYPE_ID(troupe, (troupe::finish_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::invalidate_request))
CAF_ADD_TYPE_ID(troupe, (troupe::children_request))
CAF_ADD_TYPE_ID(troupe, (troupe::evict_request))
CAF_ADD_TYPE_ID(troupe, (troupe::evict_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::registry_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::take_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::slot_batch))
CAF_ADD_TYPE_ID(troupe, (troupe::slot_results))
CAF_ADD_TYPE_ID(troupe, (troupe::allocator_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::arena_info))
CAF_ADD_TYPE_ID(troupe, (troupe::frame_request))
CAF_ADD_TYPE_ID(troupe, (troupe::frame_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::fill_request))
CAF_ADD_TYPE_ID(troupe, (troupe::check_order))
CAF_ADD_TYPE_ID(troupe, (troupe::io_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::io_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::io_completions))
CAF_ADD_TYPE_ID(troupe, (troupe::lookup_task))
CAF_ADD_TYPE_ID(troupe, (troupe::lookup_result))
CAF_ADD_TYPE_ID(troupe, (troupe::transfer_task))
CAF_ADD_TYPE_ID(troupe, (troupe::transfer_result))
CAF_ADD_TYPE_ID(troupe, (troupe::copy_order))
CAF_ADD_TYPE_ID(troupe, (troupe::copy_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::latency_batch))
CAF_ADD_TYPE_ID(troupe, (troupe::attach_request))
CAF_ADD_TYPE_ID(troupe, (troupe::attach_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::coordinator_binding))
CAF_ADD_TYPE_ID(troupe, (troupe::lookup_binding))
CAF_ADD_TYPE_ID(troupe, (troupe::registry_peers))
CAF_ADD_TYPE_ID(troupe, (troupe::node_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::client_parts))
CAF_ADD_TYPE_ID(troupe, (troupe::registry_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::allocator_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::io_worker_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::page_checker_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::copy_engine_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::transfer_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::lookup_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::metrics_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::node_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::link_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::namespaces_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::result_codes))
CAF_ADD_TYPE_ID(troupe, (troupe::exists_request))
CAF_ADD_TYPE_ID(troupe, (troupe::protect_request))
CAF_ADD_TYPE_ID(troupe, (troupe::allocate_request))
CAF_ADD_TYPE_ID(troupe, (troupe::confirm_request))
CAF_ADD_TYPE_ID(troupe, (troupe::reclaim_request))
CAF_ADD_TYPE_ID(troupe, (troupe::erase_request))
CAF_ADD_TYPE_ID(troupe, (troupe::clear_request))
CAF_ADD_TYPE_ID(troupe, (troupe::clear_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::add_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::remove_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::remove_namespace_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::add_rank_request))
CAF_ADD_TYPE_ID(troupe, (troupe::register_rank_request))
CAF_ADD_TYPE_ID(troupe, (troupe::retire_rank_request))
CAF_ADD_TYPE_ID(troupe, (troupe::describe_request))
CAF_ADD_TYPE_ID(troupe, (troupe::describe_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::key_request))
CAF_ADD_TYPE_ID(troupe, (troupe::key_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::restore_request))
CAF_ADD_TYPE_ID(troupe, (troupe::drop_restored_request))
CAF_ADD_TYPE_ID(troupe, (troupe::restore_report))
CAF_ADD_TYPE_ID(troupe, (troupe::packed<std::uint64_t>))
CAF_ADD_TYPE_ID(troupe, (troupe::client_shard_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::client_worker_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::reception_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::dropped_pages_request))
CAF_ADD_TYPE_ID(troupe, (troupe::prefetch_request))
CAF_ADD_TYPE_ID(troupe, (troupe::prefetch_end))
CAF_ADD_TYPE_ID(troupe, (troupe::memory_report))
CAF_ADD_TYPE_ID(troupe, (troupe::memory_holder))
CAF_ADD_TYPE_ID(troupe, (troupe::served_namespace))
CAF_ADD_TYPE_ID(troupe, (troupe::make_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::open_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::close_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::leave_namespace_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_publish_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_heartbeat_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_withdraw_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_fetch_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_fetch_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_list_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_list_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_update))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_seen_request))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_watcher_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::handshake_proxy_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::directory_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::remote_offer))
CAF_ADD_TYPE_ID(troupe, (troupe::remote_news))
CAF_ADD_TYPE_ID(troupe, (troupe::remote_worker_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::list_pages_request))
CAF_ADD_TYPE_ID(troupe, (troupe::list_pages_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::cluster_card))
CAF_ADD_TYPE_ID(troupe, (troupe::cluster_hello))
CAF_ADD_TYPE_ID(troupe, (troupe::cluster_welcome))
CAF_ADD_TYPE_ID(troupe, (troupe::prefix_fetch_request))
CAF_ADD_TYPE_ID(troupe, (troupe::prefix_fetch_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::cluster_stats))
CAF_ADD_TYPE_ID(troupe, (troupe::cluster_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::client_cluster_actor))
CAF_ADD_TYPE_ID(troupe, (troupe::reuse_request))
CAF_ADD_TYPE_ID(troupe, (troupe::reuse_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::learn_request))
CAF_ADD_TYPE_ID(troupe, (troupe::read_order))
CAF_ADD_TYPE_ID(troupe, (troupe::read_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::page_descriptions))
CAF_ADD_TYPE_ID(troupe, (troupe::describe_pages_request))
CAF_ADD_TYPE_ID(troupe, (troupe::search_peers_request))
CAF_ADD_TYPE_ID(troupe, (troupe::search_peers_reply))
CAF_ADD_TYPE_ID(troupe, (troupe::fetch_pages_request))
CAF_END_TYPE_ID_BLOCK(troupe)

namespace troupe {

/// Makes an actor system able to send every message of this folder to another node, and to render Troupe's errors.
void register_messages(caf::actor_system_config& config);

} // namespace troupe
