#pragma once

#include "base/namespace_spec.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/handshake_messages.hpp"
#include "messages/io_messages.hpp"
#include "messages/metrics_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/transfer_messages.hpp"

#include <caf/all.hpp>

#include <string>
#include <vector>

/// The typed interfaces of all actors. Every handler answers; one that has nothing to say answers with an empty
/// acknowledgement, so that a sender can bound what it has under way. Requests are told apart by the type of their
/// message; an atom stands in front only where one type serves several verbs.
///
/// Errors are `caf::error` of the category "troupe" with an `errc` as code and a sentence as context, see
/// messages/caf_error.hpp.

CAF_BEGIN_TYPE_ID_BLOCK(troupe_atoms, caf::first_custom_type_id)
CAF_ADD_ATOM(troupe_atoms, troupe, commit_atom, "commit")
CAF_ADD_ATOM(troupe_atoms, troupe, abort_atom, "abort")
CAF_ADD_ATOM(troupe_atoms, troupe, release_atom, "release")
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
CAF_ADD_ATOM(troupe_atoms, troupe, owner_at_rest_atom, "owner_rest")
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
struct memory_borrower;
struct served_space;
struct make_namespace_request;
struct open_space_request;
struct close_space_request;
struct leave_space_request;

/// One shard of the metadata registry.
using registry_actor = caf::typed_actor<
    caf::replies_to<match_request>::with<match_reply>, caf::replies_to<locate_request>::with<locate_reply>,
    caf::replies_to<release_request>::with<void>, caf::replies_to<renew_request>::with<void>,
    caf::replies_to<reserve_request>::with<reserve_reply>,
    caf::replies_to<commit_atom, finish_request>::with<finish_reply>,
    caf::replies_to<abort_atom, finish_request>::with<finish_reply>,
    caf::replies_to<invalidate_request>::with<finish_reply>,
    /// From an io worker; no client says it.
    caf::replies_to<give_up_request>::with<result_codes>, caf::replies_to<children_request>::with<void>,
    caf::replies_to<evict_request>::with<evict_reply>, caf::replies_to<owner_died_atom, owner_id>::with<void>,
    caf::replies_to<bind_atom, registry_peers>::with<void>, caf::replies_to<stats_atom>::with<registry_stats>,
    caf::reacts_to<caf::tick_atom>, caf::replies_to<exists_request>::with<result_codes>,
    caf::replies_to<protect_request>::with<locate_reply>, caf::replies_to<allocate_request>::with<reserve_reply>,
    caf::replies_to<confirm_request>::with<result_codes>, caf::replies_to<reclaim_request>::with<result_codes>,
    caf::replies_to<erase_request>::with<result_codes>, caf::replies_to<clear_request>::with<clear_reply>,
    /// From an io worker; no client says it.
    caf::replies_to<list_pages_request>::with<list_pages_reply>, caf::replies_to<add_namespace_request>::with<void>,
    caf::replies_to<remove_namespace_request>::with<remove_namespace_reply>,
    caf::replies_to<add_rank_request>::with<void>, caf::replies_to<retire_rank_request>::with<void>,
    caf::replies_to<describe_request>::with<describe_reply>, caf::replies_to<key_request>::with<key_reply>,
    caf::replies_to<restore_request>::with<result_codes>, caf::replies_to<drop_restored_request>::with<result_codes>,
    caf::replies_to<restored_atom>::with<restore_report>, caf::replies_to<reuse_request>::with<reuse_reply>,
    /// From this node's part in the cluster; no client says it.
    caf::replies_to<learn_request>::with<void>,
    /// From the shard's store, through the shard itself: a batch of changes is durable, or cannot be made so.
    caf::reacts_to<written_atom, std::uint8_t, std::string>>;

/// What an attached client sees of one shard: what clients do with keys, for itself, in the namespace it attached to.
using client_shard_actor =
    caf::typed_actor<caf::replies_to<match_request>::with<match_reply>,
                     caf::replies_to<locate_request>::with<locate_reply>, caf::replies_to<release_request>::with<void>,
                     caf::replies_to<renew_request>::with<void>, caf::replies_to<reserve_request>::with<reserve_reply>,
                     caf::replies_to<commit_atom, finish_request>::with<finish_reply>,
                     caf::replies_to<abort_atom, finish_request>::with<finish_reply>,
                     caf::replies_to<invalidate_request>::with<finish_reply>,
                     caf::replies_to<stats_atom>::with<registry_stats>,
                     /// From another node.
                     caf::replies_to<reuse_request>::with<reuse_reply>>;

/// Gives a rank more slots, in a slab file that grows: so many more, if there is disk space for them. Answers how many
/// there are then.
using slab_grower_actor =
    caf::typed_actor<caf::replies_to<grow_atom, namespace_id, rank_number, std::uint32_t>::with<std::uint32_t>>;

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
                     /// From its io worker, where slots are memory and no more: for so many pages there is a place.
                     caf::replies_to<resize_atom, std::uint32_t>::with<void>>;

/// The io worker of one rank: its pages in memory and on disk. Whoever asks for frames is named, and alone ends its
/// pins.
using io_worker_actor =
    caf::typed_actor<caf::replies_to<place_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fetch_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fill_atom, owner_id, fill_request>::with<io_reply>,
                     caf::replies_to<unpin_atom, owner_id, pin_number>::with<void>,
                     caf::replies_to<fence_atom, slot_batch>::with<void>,
                     caf::replies_to<bind_atom, registry_peers>::with<void>,
                     /// More memory, for so many pages, if there is some. Answers how many frames there are then.
                     caf::replies_to<grow_atom, std::uint32_t>::with<std::uint32_t>,
                     /// It asks for nothing any more; what it has pinned stays so.
                     caf::replies_to<owner_died_atom, owner_id>::with<void>,
                     /// And it touches no memory any more: its pins end.
                     caf::replies_to<owner_at_rest_atom, owner_id>::with<void>,
                     /// From shards: what a lookup has found, and that its lease is over.
                     caf::replies_to<prefetch_request>::with<void>, caf::replies_to<prefetch_end>::with<void>,
                     caf::replies_to<drain_atom>::with<void>, caf::replies_to<stats_atom>::with<io_stats>,
                     caf::reacts_to<io_completions>, caf::reacts_to<caf::tick_atom>,
                     /// An extent of the arena, by its number, is the rank's. False: it is not taken.
                     caf::replies_to<lend_atom, std::uint32_t>::with<bool>,
                     /// The rank is to give one back within that time, if it must also when it is short of memory
                     /// itself. Answers its number when nobody touches it any more.
                     caf::replies_to<give_back_atom, bool, duration>::with<std::uint32_t>>;

/// Decides which rank has which part of the arena, when all of it is lent.
using memory_broker_actor = caf::typed_actor<
    /// A rank that may borrow, until its io worker ends. Answered before that says anything.
    caf::replies_to<memory_borrower>::with<void>, caf::replies_to<memory_report>::with<void>>;

/// Looks at pages in memory that an io worker is about to write.
using page_checker_actor = caf::typed_actor<caf::replies_to<check_order>::with<io_reply>>;

/// What an attached client sees of one io worker: frames for its own pages, and what to do with them.
using client_worker_actor = caf::typed_actor<caf::replies_to<place_atom, frame_request>::with<frame_reply>,
                                             caf::replies_to<fetch_atom, frame_request>::with<frame_reply>,
                                             caf::replies_to<fill_atom, fill_request>::with<io_reply>,
                                             caf::replies_to<unpin_atom, pin_number>::with<void>,
                                             /// Of a client that cannot map the node's memory: frames are those of this
                                             /// memory from now on. Answered when pages have been seen to move.
                                             caf::replies_to<bind_atom, remote_offer>::with<void>>;

/// The other nodes of a cluster, as one node sees them: brings pages of theirs here.
using cluster_actor = caf::typed_actor<
    /// Answered when they are here, or when that has taken too long; they may come later then.
    caf::replies_to<bring_request>::with<bring_reply>, caf::replies_to<stats_atom>::with<cluster_stats>,
    caf::reacts_to<caf::tick_atom>>;

/// What an attached client sees of that, in the namespace it attached to.
using client_cluster_actor = caf::typed_actor<caf::replies_to<bring_request>::with<bring_reply>>;

/// Between one client on another host and the io worker of one rank: takes the same requests, for frames of the
/// client's memory, and moves pages between these and the arena.
using remote_worker_actor =
    caf::typed_actor<caf::replies_to<bind_atom, remote_offer>::with<void>,
                     caf::replies_to<place_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fetch_atom, owner_id, frame_request>::with<frame_reply>,
                     caf::replies_to<fill_atom, owner_id, fill_request>::with<io_reply>,
                     caf::replies_to<unpin_atom, owner_id, pin_number>::with<void>,
                     /// From the node: the attachment is over. It ends when nothing is under way any more.
                     caf::reacts_to<unbind_atom, owner_id>, caf::reacts_to<remote_news>,
                     caf::reacts_to<caf::tick_atom>>;

/// One per device: moves bytes between its paged KV cache and the arena of the node that its client is attached to.
using copy_engine_actor = caf::typed_actor<
    /// From now on orders are those of this attachment. Takes the place of the one before.
    caf::replies_to<bind_atom, owner_id, arena_info>::with<void>,
    /// The same where the arena is elsewhere: orders name frames of memory that the engine exposes now, and offers.
    caf::replies_to<lend_atom, owner_id, arena_info>::with<remote_offer>,
    /// No order of this attachment begins any more; answered when none of it is under way.
    caf::replies_to<unbind_atom, owner_id>::with<void>, caf::replies_to<gather_atom, copy_order>::with<copy_reply>,
    caf::replies_to<scatter_atom, copy_order>::with<copy_reply>>;

/// Reads pages of one rank from the slab file of a node whose storage is shared, into blocks in host memory. One order
/// at a time: blocks for as long as the file system takes, and no longer than the order's patience.
using slab_reading_actor = caf::typed_actor<caf::replies_to<read_order>::with<read_reply>>;

/// Saves or loads blocks of one rank; the two have the same interface.
using transfer_actor =
    caf::typed_actor<caf::replies_to<transfer_task>::with<transfer_result>,
                     /// Gives up the tasks with these tags, as far as they have not come too far. A save: what is not
                     /// in memory completely when this is answered is never published. A load: no block is
                     /// written but those that are being written when this is answered. Tasks are answered as ever,
                     /// with `cancelled` for the blocks that were given up. Tags that no task has are ignored.
                     caf::replies_to<cancel_atom, packed<std::uint64_t>>::with<void>,
                     caf::replies_to<bind_atom, coordinator_binding>::with<void>,
                     caf::replies_to<unbind_atom>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// Finds the longest complete prefix over all shards and holds it.
using lookup_actor =
    caf::typed_actor<caf::replies_to<lookup_task>::with<lookup_result>,
                     caf::replies_to<release_atom, ticket>::with<void>,
                     /// The same, by a node that keeps pages of these keys: see `release_request::kept_there`.
                     caf::replies_to<release_atom, ticket, packed<key_digest>>::with<void>,
                     caf::replies_to<bind_atom, lookup_binding>::with<void>, caf::replies_to<unbind_atom>::with<void>,
                     caf::replies_to<stats_atom>::with<registry_stats>, caf::reacts_to<caf::tick_atom>>;

/// Counters and histograms of a node.
using metrics_actor =
    caf::typed_actor<caf::replies_to<latency_batch>::with<void>, caf::replies_to<node_stats>::with<void>,
                     caf::replies_to<render_atom>::with<std::string>>;

/// Is told what changes in the directory of handshakes. Answers nothing: it says that it has seen an update, and gets
/// the next one.
using handshake_watcher_actor = caf::typed_actor<caf::reacts_to<handshake_update>>;

/// What others may say to the directory of handshakes.
using handshake_door_actor =
    caf::typed_actor<caf::replies_to<handshake_publish_request>::with<handshake_reply>,
                     caf::replies_to<handshake_heartbeat_request>::with<handshake_reply>,
                     caf::replies_to<handshake_withdraw_request>::with<handshake_reply>,
                     /// Answered when there is something to say, at the end of its wait at the latest.
                     caf::replies_to<handshake_fetch_request>::with<handshake_fetch_reply>,
                     caf::replies_to<handshake_list_request>::with<handshake_list_reply>,
                     /// Of an engine, or of all for an empty name. Answers the number of the watch, which ends with the
                     /// watcher.
                     caf::replies_to<watch_atom, std::string, handshake_watcher_actor>::with<std::uint64_t>,
                     caf::replies_to<handshake_seen_request>::with<void>,
                     /// Ends a watch.
                     caf::replies_to<caf::leave_atom, std::uint64_t>::with<void>>;

/// The directory of handshakes itself.
using directory_actor =
    handshake_door_actor::extend<caf::replies_to<stats_atom>::with<handshake_stats>,
                                 /// Whoever waits is answered, and nobody waits from now on.
                                 caf::replies_to<drain_atom>::with<void>, caf::reacts_to<caf::tick_atom>,
                                 /// From its store, as with shards.
                                 caf::reacts_to<written_atom, std::uint8_t, std::string>>;

/// Where clients attach, and the only actor of a node that is published. The handle is the client's link, whose death
/// ends the attachment; only the link itself may leave.
using reception_actor =
    caf::typed_actor<caf::replies_to<attach_request, caf::actor>::with<attach_reply>,
                     caf::replies_to<caf::leave_atom, owner_id>::with<void>,
                     /// Nothing of that attachment, which is over, touches the node's memory any more. Only the client
                     /// knows the number, so whoever says it may. Of one that the node does not know: fine, too.
                     caf::replies_to<owner_at_rest_atom, owner_id>::with<void>,
                     /// The directory of handshakes, which needs no attachment. unsupported where there is none.
                     caf::replies_to<handshake_atom>::with<handshake_door_actor>,
                     /// From another node, which says it again and again. identity_mismatch to one of another cluster,
                     /// not_owner to one that is no node by its certificate.
                     caf::replies_to<cluster_hello>::with<cluster_welcome>>;

/// The supervisor of a node. Never leaves its process: what clients ask comes from the reception, which names the link
/// that leaves.
using node_actor = caf::typed_actor<
    caf::replies_to<attach_request, caf::actor>::with<attach_reply>,
    caf::replies_to<caf::leave_atom, owner_id, caf::actor>::with<void>,
    caf::replies_to<owner_at_rest_atom, owner_id>::with<void>, caf::replies_to<stats_atom>::with<node_stats>,
    /// Of a namespace that was made at run time: nobody attaches to it any more; or
    /// clients may again, since it stays.
    caf::replies_to<leave_space_request>::with<void>, caf::replies_to<unbind_atom, namespace_id>::with<void>,
    /// Of a client on another host, whose memory cannot be reached any more: its attachment is over.
    caf::replies_to<unbind_atom, owner_id>::with<void>, caf::replies_to<bind_atom, namespace_id>::with<void>,
    caf::replies_to<cluster_hello>::with<cluster_welcome>,
    /// Who it is towards other nodes, and who brings pages of theirs.
    caf::replies_to<bind_atom, cluster_card, cluster_actor>::with<void>, caf::replies_to<drain_atom>::with<void>,
    caf::reacts_to<caf::tick_atom>>;

/// Namespaces and ranks that come and go while the node runs: keeps all shards alike.
using namespaces_actor = caf::typed_actor<
    /// Answers when all shards know the namespace.
    caf::replies_to<add_namespace_request>::with<void>,
    /// Answers when no shard knows it any more.
    caf::replies_to<remove_namespace_request>::with<void>,
    /// Answers when all shards know the rank, and it has an allocator.
    caf::replies_to<register_rank_request>::with<void>,
    /// A namespace whose pages the node keeps: answers when it is served.
    caf::replies_to<make_namespace_request>::with<served_space>,
    /// Who is to be asked whether clients are attached; said once, by the node itself.
    caf::replies_to<bind_atom, node_actor>::with<void>>;

/// Opens and closes what serves namespaces that are made at run time, and makes their slab files grow. Blocks for as
/// long as the disk takes, so it has a thread of its own.
using space_keeper_actor =
    caf::typed_actor<caf::replies_to<open_space_request>::with<served_space>,
                     caf::replies_to<close_space_request>::with<void>,
                     caf::replies_to<grow_atom, namespace_id, rank_number, std::uint32_t>::with<std::uint32_t>,
                     /// Files of namespaces that are not open go.
                     caf::replies_to<restored_atom>::with<void>, caf::reacts_to<caf::tick_atom>>;

/// A client's tie to a node. Serves its own process only: `not_owner` to whoever else asks it to wait or to bind.
using link_actor = caf::typed_actor<
    /// Answers when attached, and all of the client's actors are bound if it has brought them, with what the node said;
    /// or with the last error after this time.
    caf::replies_to<wait_attached_atom, duration>::with<attach_reply>,
    /// The client's actors; answers when all of them are bound to the node, or with the last error after this time.
    caf::replies_to<bind_atom, client_parts, duration>::with<void>,
    /// The current attachment, at once: owner 0 when there is none.
    caf::replies_to<attached_atom>::with<attach_reply>, caf::reacts_to<caf::tick_atom>>;

} // namespace troupe
