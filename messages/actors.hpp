#pragma once

#include "base/namespace_spec.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/event_messages.hpp"
#include "messages/handshake_messages.hpp"
#include "messages/io_messages.hpp"
#include "messages/metrics_messages.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <caf/all.hpp>

#include <string>
#include <vector>

/// The typed interfaces of all actors. Every request is answered, if only with an empty acknowledgement, so that a
/// sender can limit its requests in progress. Requests are distinguished by the type of their message; an atom comes
/// first only where one type serves several verbs.
///
/// Errors are `caf::error` of the category "troupe" with an `errc` as code and a text as context, see
/// messages/caf_error.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_atoms, caf::first_custom_type_id)
CAF_ADD_ATOM(troupe_atoms, troupe, commit_atom, "commit")
CAF_ADD_ATOM(troupe_atoms, troupe, abort_atom, "abort")
CAF_ADD_ATOM(troupe_atoms, troupe, release_atom, "release")
CAF_ADD_ATOM(troupe_atoms, troupe, retain_atom, "retain")
CAF_ADD_ATOM(troupe_atoms, troupe, publish_page_atom, "pub_page")
CAF_ADD_ATOM(troupe_atoms, troupe, take_atom, "take")
CAF_ADD_ATOM(troupe_atoms, troupe, fence_atom, "fence")
CAF_ADD_ATOM(troupe_atoms, troupe, place_atom, "place")
CAF_ADD_ATOM(troupe_atoms, troupe, fetch_atom, "fetch")
CAF_ADD_ATOM(troupe_atoms, troupe, unpin_atom, "unpin")
CAF_ADD_ATOM(troupe_atoms, troupe, fill_atom, "fill")
CAF_ADD_ATOM(troupe_atoms, troupe, grow_atom, "grow")
CAF_ADD_ATOM(troupe_atoms, troupe, gather_atom, "gather")
CAF_ADD_ATOM(troupe_atoms, troupe, scatter_atom, "scatter")
CAF_ADD_ATOM(troupe_atoms, troupe, bind_atom, "bind")
CAF_ADD_ATOM(troupe_atoms, troupe, unbind_atom, "unbind")
CAF_ADD_ATOM(troupe_atoms, troupe, owner_died_atom, "owner_died")
CAF_ADD_ATOM(troupe_atoms, troupe, owner_quiesced_atom, "owner_rest")
CAF_ADD_ATOM(troupe_atoms, troupe, stats_atom, "stats")
CAF_ADD_ATOM(troupe_atoms, troupe, render_atom, "render")
CAF_ADD_ATOM(troupe_atoms, troupe, drain_atom, "drain")
CAF_ADD_ATOM(troupe_atoms, troupe, attached_atom, "attached")
CAF_ADD_ATOM(troupe_atoms, troupe, wait_attached_atom, "wait_att")
CAF_ADD_ATOM(troupe_atoms, troupe, restore_atom, "restore")
CAF_ADD_ATOM(troupe_atoms, troupe, restored_atom, "restored")
CAF_ADD_ATOM(troupe_atoms, troupe, written_atom, "written")
CAF_ADD_ATOM(troupe_atoms, troupe, cancel_atom, "cancel")
CAF_ADD_ATOM(troupe_atoms, troupe, lend_atom, "lend")
CAF_ADD_ATOM(troupe_atoms, troupe, give_back_atom, "give_back")
CAF_ADD_ATOM(troupe_atoms, troupe, resize_atom, "resize")
CAF_ADD_ATOM(troupe_atoms, troupe, handshake_atom, "handshake")
CAF_ADD_ATOM(troupe_atoms, troupe, watch_atom, "watch")
CAF_END_TYPE_ID_BLOCK(troupe_atoms)

namespace troupe {

struct reuse_request;
struct reuse_reply;
struct learn_request;
struct attach_request;
struct attach_reply;
struct node_stats;
struct io_completions;
struct coordinator_binding;
struct lookup_binding;
struct registry_peers;
struct client_parts;
struct add_rank_request;
struct retire_rank_request;
struct register_rank_request;
struct memory_holder;
struct served_namespace;
struct make_namespace_request;
struct open_namespace_request;
struct close_namespace_request;
struct leave_namespace_request;

/// One shard of the metadata registry.
using registry_actor = caf::typed_actor<
    caf::replies_to<match_request>::with<match_reply>, caf::replies_to<locate_request>::with<locate_reply>,
    caf::replies_to<release_request>::with<void>, caf::replies_to<renew_request>::with<void>,
    caf::replies_to<reserve_request>::with<reserve_reply>,
    caf::replies_to<commit_atom, finish_request>::with<finish_reply>,
    caf::replies_to<abort_atom, finish_request>::with<finish_reply>,
    caf::replies_to<invalidate_request>::with<finish_reply>,
    /// From an io worker; clients do not send it.
    caf::replies_to<dropped_pages_request>::with<result_codes>, caf::replies_to<children_request>::with<void>,
    caf::replies_to<evict_request>::with<evict_reply>, caf::replies_to<owner_died_atom, owner_id>::with<void>,
    caf::replies_to<bind_atom, registry_peers>::with<void>, caf::replies_to<stats_atom>::with<registry_stats>,
    caf::reacts_to<caf::tick_atom>, caf::replies_to<exists_request>::with<result_codes>,
    caf::replies_to<protect_request>::with<locate_reply>, caf::replies_to<allocate_request>::with<reserve_reply>,
    caf::replies_to<confirm_request>::with<result_codes>, caf::replies_to<reclaim_request>::with<result_codes>,
    caf::replies_to<erase_request>::with<result_codes>, caf::replies_to<clear_request>::with<clear_reply>,
    /// From an io worker; clients do not send it.
    caf::replies_to<list_pages_request>::with<list_pages_reply>, caf::replies_to<add_namespace_request>::with<void>,
    caf::replies_to<remove_namespace_request>::with<remove_namespace_reply>,
    caf::replies_to<add_rank_request>::with<void>, caf::replies_to<retire_rank_request>::with<void>,
    caf::replies_to<describe_request>::with<describe_reply>, caf::replies_to<key_request>::with<key_reply>,
    caf::replies_to<restore_request>::with<result_codes>, caf::replies_to<drop_restored_request>::with<result_codes>,
    caf::replies_to<restored_atom>::with<restore_report>, caf::replies_to<reuse_request>::with<reuse_reply>,
    /// From this node's cluster actor; clients do not send it.
    caf::replies_to<learn_request>::with<void>, caf::replies_to<describe_pages_request>::with<result_codes>,
    /// From the shard's store, through the shard itself: a batch of changes is durable, or has failed.
    caf::reacts_to<written_atom, std::uint8_t, std::string>>;

/// One shard, as an attached client sees it: requests on keys, for itself, in the namespace that it attached to.
using client_shard_actor = caf::typed_actor<
    caf::replies_to<match_request>::with<match_reply>, caf::replies_to<locate_request>::with<locate_reply>,
    caf::replies_to<release_request>::with<void>, caf::replies_to<renew_request>::with<void>,
    caf::replies_to<reserve_request>::with<reserve_reply>,
    caf::replies_to<commit_atom, finish_request>::with<finish_reply>,
    caf::replies_to<abort_atom, finish_request>::with<finish_reply>,
    caf::replies_to<invalidate_request>::with<finish_reply>, caf::replies_to<stats_atom>::with<registry_stats>,
    /// From another node.
    caf::replies_to<reuse_request>::with<reuse_reply>, caf::replies_to<describe_pages_request>::with<result_codes>>;

/// Adds slots to a rank in a slab file that grows: of this number, those that need no more disk space, which is the
/// second number, or else those for which there is disk space. Returns how many slots there are now, and for how many
/// whole pages the file has disk space.
using slab_grower_actor = caf::typed_actor<caf::replies_to<grow_atom, namespace_id, rank_number, std::uint32_t,
                                                           std::uint32_t>::with<std::uint32_t, std::uint32_t>>;

/// The allocator of one (namespace, rank).
using allocator_actor =
    caf::typed_actor<caf::replies_to<take_atom, std::uint32_t, duration>::with<take_reply>,
                     caf::replies_to<publish_page_atom, slot_batch>::with<slot_results>,
                     caf::replies_to<abort_atom, slot_batch>::with<slot_results>,
                     caf::replies_to<release_atom, slot_batch>::with<slot_results>,
                     caf::replies_to<bind_atom, registry_peers>::with<void>,
                     caf::replies_to<stats_atom>::with<allocator_stats>, caf::reacts_to<caf::tick_atom>,
                     caf::replies_to<restore_atom, slot_batch>::with<slot_results>,
                     caf::replies_to<restored_atom>::with<slot_batch>,
                     /// From its io worker, where slots are in memory only: there is room for this number of pages.
                     caf::replies_to<resize_atom, std::uint32_t>::with<void>,
                     /// The same for a sparse slab file.
                     caf::replies_to<grow_atom, std::uint32_t>::with<void>>;

/// The io worker of one rank: its pages in memory and on disk. A request for frames names its owner, and only that
/// owner can end the pins.
using io_worker_actor =
    caf::typed_actor<caf::replies_to<place_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fetch_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fill_atom, owner_id, fill_request>::with<io_reply>,
                     caf::replies_to<unpin_atom, owner_id, pin_number>::with<void>,
                     caf::replies_to<fence_atom, slot_batch>::with<void>,
                     caf::replies_to<bind_atom, registry_peers>::with<void>,
                     /// Adds memory for this number of pages, if available. Returns the new number of frames.
                     caf::replies_to<grow_atom, std::uint32_t>::with<std::uint32_t>,
                     /// The owner sends no more requests; what it has pinned stays pinned.
                     caf::replies_to<owner_died_atom, owner_id>::with<void>,
                     /// The owner does not access memory any more: its pins end.
                     caf::replies_to<owner_quiesced_atom, owner_id>::with<void>,
                     /// From shards: what a lookup has found, and that its lease has ended.
                     caf::replies_to<prefetch_request>::with<void>, caf::replies_to<prefetch_end>::with<void>,
                     caf::replies_to<drain_atom>::with<void>, caf::replies_to<stats_atom>::with<io_stats>,
                     caf::reacts_to<io_completions>, caf::reacts_to<caf::tick_atom>,
                     /// Assigns an extent of the arena, by its number, to the rank. False: the rank does not accept it.
                     caf::replies_to<lend_atom, std::uint32_t>::with<bool>,
                     /// Requests an extent back within that time, and with `true` even if the rank is short of memory
                     /// itself. Returns its number once it is not accessed any more.
                     caf::replies_to<give_back_atom, bool, duration>::with<std::uint32_t>>;

/// Assigns the extents of the arena to ranks, and reassigns them when all are in use.
using memory_broker_actor = caf::typed_actor<
    /// A rank that extents can be assigned to, until its io worker ends. Answered before the worker sends reports.
    caf::replies_to<memory_holder>::with<void>, caf::replies_to<memory_report>::with<void>>;

/// Verifies pages in memory that an io worker is about to write.
using page_checker_actor = caf::typed_actor<caf::replies_to<check_order>::with<io_reply>>;

/// One io worker, as an attached client sees it: frames for its own pages, and the requests on them.
using client_worker_actor = caf::typed_actor<caf::replies_to<place_atom, frame_request>::with<frame_reply>,
                                             caf::replies_to<fetch_atom, frame_request>::with<frame_reply>,
                                             caf::replies_to<fill_atom, fill_request>::with<io_reply>,
                                             caf::replies_to<unpin_atom, pin_number>::with<void>,
                                             /// From a client that cannot map the node's memory: its frames are in this
                                             /// memory from now on. Answered once the node has reached it.
                                             caf::replies_to<bind_atom, remote_offer>::with<void>>;

/// The other nodes of a cluster, as one node sees them: fetches pages of theirs.
using cluster_actor = caf::typed_actor<
    /// Answered when the pages are here, or at the time limit; they may still arrive after that.
    caf::replies_to<prefix_fetch_request>::with<prefix_fetch_reply>, caf::replies_to<stats_atom>::with<cluster_stats>,
    caf::replies_to<search_peers_request>::with<search_peers_reply>,
    caf::replies_to<fetch_pages_request>::with<prefix_fetch_reply>, caf::reacts_to<caf::tick_atom>>;

/// The same for an attached client, in the namespace that it attached to.
using client_cluster_actor = caf::typed_actor<caf::replies_to<prefix_fetch_request>::with<prefix_fetch_reply>,
                                              caf::replies_to<search_peers_request>::with<search_peers_reply>,
                                              caf::replies_to<fetch_pages_request>::with<prefix_fetch_reply>>;

/// The proxy between a client on another host and the io worker of one rank: accepts the same requests, for frames of
/// the client's memory, and moves pages between these and the arena.
using remote_worker_actor =
    caf::typed_actor<caf::replies_to<bind_atom, remote_offer>::with<void>,
                     caf::replies_to<place_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fetch_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fill_atom, owner_id, fill_request>::with<io_reply>,
                     caf::replies_to<unpin_atom, owner_id, pin_number>::with<void>,
                     /// From the node: the attachment has ended. The actor ends when nothing is in progress any more.
                     caf::reacts_to<unbind_atom, owner_id>, caf::reacts_to<remote_news>,
                     caf::reacts_to<caf::tick_atom>>;

/// The copy engine of a device: moves bytes between its paged KV cache and the arena of the node that its client is
/// attached to.
using copy_engine_actor = caf::typed_actor<
    /// Makes this attachment the current one, whose orders are accepted.
    caf::replies_to<bind_atom, owner_id, arena_info>::with<void>,
    /// The same where the arena is on another host: orders name frames of memory that the engine exposes now, and
    /// offers.
    caf::replies_to<lend_atom, owner_id, arena_info>::with<remote_offer>,
    /// Starts no more orders of this attachment; answered when none of them is in progress.
    caf::replies_to<unbind_atom, owner_id>::with<void>, caf::replies_to<gather_atom, copy_order>::with<copy_reply>,
    caf::replies_to<scatter_atom, copy_order>::with<copy_reply>>;

/// Reads pages of one rank from the slab file of a node whose storage is shared, into blocks in host memory. One order
/// at a time: blocks for as long as the file system takes, and no longer than the order's patience.
using slab_reading_actor = caf::typed_actor<caf::replies_to<read_order>::with<read_reply>>;

/// Saves or loads blocks of one rank; the two have the same interface.
using transfer_actor =
    caf::typed_actor<caf::replies_to<transfer_task>::with<transfer_result>,
                     /// Cancels the tasks with these tags, as far as possible. Save: a page that is not completely in
                     /// memory when this is answered is never published. Load: no block is written except those that
                     /// are being written when this is answered. The tasks are answered as usual, with `cancelled` for
                     /// the cancelled blocks. Unknown tags are ignored.
                     caf::replies_to<cancel_atom, packed<std::uint64_t>>::with<void>,
                     caf::replies_to<bind_atom, coordinator_binding>::with<void>,
                     caf::replies_to<unbind_atom>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// Finds the longest complete prefix over all shards, and leases it.
using lookup_actor =
    caf::typed_actor<caf::replies_to<lookup_task>::with<lookup_result>,
                     caf::replies_to<release_atom, ticket>::with<void>,
                     /// The same, from a node that keeps pages of these keys: see `release_request::kept_there`.
                     caf::replies_to<release_atom, ticket, packed<key_digest>>::with<void>,
                     /// Keep these keys of an `each` lookup, which count as used, and release the others.
                     caf::replies_to<retain_atom, ticket, packed<key_digest>>::with<void>,
                     caf::replies_to<bind_atom, lookup_binding>::with<void>, caf::replies_to<unbind_atom>::with<void>,
                     caf::replies_to<stats_atom>::with<registry_stats>,
                     /// Passes descriptions of pages on to the node. limit_exceeded where too many are under way.
                     caf::replies_to<page_descriptions>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// Counters and histograms of a node.
using metrics_actor =
    caf::typed_actor<caf::replies_to<latency_batch>::with<void>, caf::replies_to<node_stats>::with<void>,
                     caf::replies_to<render_atom>::with<std::string>>;

/// Receives changes in the handshake directory. Sends no answer: it confirms an update with `handshake_seen_request`,
/// and receives the next one.
using handshake_watcher_actor = caf::typed_actor<caf::reacts_to<handshake_update>>;

/// The requests of others to the handshake directory.
using handshake_proxy_actor =
    caf::typed_actor<caf::replies_to<handshake_publish_request>::with<handshake_reply>,
                     caf::replies_to<handshake_heartbeat_request>::with<handshake_reply>,
                     caf::replies_to<handshake_withdraw_request>::with<handshake_reply>,
                     /// Answered when there is a result, and at the end of its wait at the latest.
                     caf::replies_to<handshake_fetch_request>::with<handshake_fetch_reply>,
                     caf::replies_to<handshake_list_request>::with<handshake_list_reply>,
                     /// Watches an engine, or all for an empty name. Returns the number of the watch, which ends with
                     /// the watcher.
                     caf::replies_to<watch_atom, std::string, handshake_watcher_actor>::with<std::uint64_t>,
                     caf::replies_to<handshake_seen_request>::with<void>,
                     /// Ends a watch.
                     caf::replies_to<caf::leave_atom, std::uint64_t>::with<void>>;

/// The handshake directory itself.
using directory_actor =
    handshake_proxy_actor::extend<caf::replies_to<stats_atom>::with<handshake_stats>,
                                  /// Answers all waiting requests, and accepts no more waits.
                                  caf::replies_to<drain_atom>::with<void>, caf::reacts_to<caf::tick_atom>,
                                  /// From its store, as with shards.
                                  caf::reacts_to<written_atom, std::uint8_t, std::string>>;

/// The actor where clients attach, the only one of a node that is published. The handle is the client's link, whose end
/// ends the attachment; only the link itself may leave.
using reception_actor =
    caf::typed_actor<caf::replies_to<attach_request, caf::actor>::with<attach_reply>,
                     caf::replies_to<caf::leave_atom, owner_id>::with<void>,
                     /// An ended attachment does not access the node's memory any more. Only the client has the number,
                     /// so every sender of it is accepted. An unknown number is no error.
                     caf::replies_to<owner_quiesced_atom, owner_id>::with<void>,
                     /// Returns the handshake directory, which needs no attachment. unsupported where there is none.
                     caf::replies_to<handshake_atom>::with<handshake_proxy_actor>,
                     /// From another node, repeatedly. identity_mismatch for a node of another cluster, not_owner for a
                     /// sender whose certificate is not a node's.
                     caf::replies_to<cluster_hello>::with<cluster_welcome>>;

/// The supervisor of a node. It never leaves its process: requests of clients come through the reception, which names
/// the link that leaves.
using node_actor = caf::typed_actor<
    caf::replies_to<attach_request, caf::actor>::with<attach_reply>,
    caf::replies_to<caf::leave_atom, owner_id, caf::actor>::with<void>,
    caf::replies_to<owner_quiesced_atom, owner_id>::with<void>, caf::replies_to<stats_atom>::with<node_stats>,
    /// Ends attaching to a namespace that was made at run time. `unbind_atom` stops monitoring its actors, once its
    /// disconnected clients are drained; `bind_atom` allows attaching again, where the namespace stays.
    caf::replies_to<leave_namespace_request>::with<void>, caf::replies_to<unbind_atom, namespace_id>::with<void>,
    /// The memory of a client on another host cannot be reached any more, so its attachment ends.
    caf::replies_to<unbind_atom, owner_id>::with<void>, caf::replies_to<bind_atom, namespace_id>::with<void>,
    caf::replies_to<cluster_hello>::with<cluster_welcome>,
    /// The node's identity towards other nodes, and its cluster actor.
    caf::replies_to<bind_atom, cluster_card, cluster_actor>::with<void>, caf::replies_to<drain_atom>::with<void>,
    caf::reacts_to<caf::tick_atom>>;

/// Adds and removes namespaces and ranks at run time, equally in all shards.
using namespaces_actor = caf::typed_actor<
    /// Answered when all shards have the namespace.
    caf::replies_to<add_namespace_request>::with<void>,
    /// Answered when no shard has it any more.
    caf::replies_to<remove_namespace_request>::with<void>,
    /// Answered when all shards have the rank, and it has an allocator.
    caf::replies_to<register_rank_request>::with<void>,
    /// Makes a namespace whose pages the node keeps. Answered when it is served.
    caf::replies_to<make_namespace_request>::with<served_namespace>,
    /// The node to ask whether clients are attached; sent once, by the node itself.
    caf::replies_to<bind_atom, node_actor>::with<void>>;

/// Opens and closes the parts that serve namespaces made at run time, and grows their slab files. It blocks for as long
/// as the disk takes, so it has a thread of its own.
using namespace_manager_actor =
    caf::typed_actor<caf::replies_to<open_namespace_request>::with<served_namespace>,
                     caf::replies_to<close_namespace_request>::with<void>,
                     caf::replies_to<grow_atom, namespace_id, rank_number, std::uint32_t,
                                     std::uint32_t>::with<std::uint32_t, std::uint32_t>,
                     /// Removes files of namespaces that are not open.
                     caf::replies_to<restored_atom>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// A client's connection to a node. Serves its own process only: `not_owner` for requests of others to wait or to bind.
using link_actor = caf::typed_actor<
    /// Answered with the node's reply when attached, and all of the client's actors are bound if it has brought them;
    /// or with the last error after this time.
    caf::replies_to<wait_attached_atom, duration>::with<attach_reply>,
    /// The client's actors. Answered when all of them are bound to the node, or with the last error after this time.
    caf::replies_to<bind_atom, client_parts, duration>::with<void>,
    /// The current attachment, at once: owner 0 when there is none.
    caf::replies_to<attached_atom>::with<attach_reply>, caf::reacts_to<caf::tick_atom>>;

} // namespace troupe
