#pragma once

#include "actors/node/registry/described_keys.hpp"
#include "base/incarnation.hpp"
#include "events/feed.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/io_messages.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Notices for the allocator of one (namespace, rank), to be sent in the order of the members. Which slots rest before
/// reuse: docs/decisions/0006-slot-clients.md.
struct slots_to_allocator {
  namespace_id ns;
  rank_number rank = 0;
  slot_batch publish;
  /// Reserved slots whose location a writer received (`abort`), and those whose location no writer received (`unused`).
  slot_batch abort;
  slot_batch unused{{}, false, {}};
  /// Live slots whose pages were removed after every promise about them had expired (`release`), and those of pages
  /// with bad contents, whose writer may still be writing (`suspect`).
  slot_batch release{{}, false, {}};
  slot_batch suspect;
};

/// Changes of child counts for another shard. Deltas between two shards should arrive in the order they were sent; if
/// they do not, counts are still exact once all have arrived.
struct children_in_shard {
  std::uint32_t shard = 0;
  children_request request;
};

/// A notice about leases for the io worker of one (namespace, rank), in the order of events.
struct worker_notice {
  namespace_id ns;
  rank_number rank = 0;
  std::variant<prefetch_request, prefetch_end> what;
};

struct namespace_added {
  std::shared_ptr<const namespace_spec> spec;
  namespace_options options;
};

/// The namespace was removed with all its ranks and pages; no changes follow for these.
struct namespace_removed {
  namespace_id ns;
};

struct rank_added {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t slots = 0;
  incarnation_number incarnation = 0;
};

struct page_published {
  stored_page page;
  /// Incarnation of the rank.
  incarnation_number incarnation = 0;
};

struct page_unpublished {
  namespace_id ns;
  key_digest key;
  rank_number rank = 0;
};

/// An engine has described a complete key, see events/description_text.hpp.
struct key_described {
  namespace_id ns;
  key_digest key;
  std::string text;
};

/// A described key is not complete any more.
struct description_ended {
  namespace_id ns;
  key_digest key;
};

/// A change that must survive a restart; changes are in the order they happened.
using registry_change = std::variant<namespace_added, namespace_removed, rank_added, page_published, page_unpublished,
                                     key_described, description_ended>;

/// The messages that follow from calls to a registry's state. The actor sends them before it answers the call: an
/// allocator that receives the number of slots an eviction freed must already know the slots.
///
/// With `registry_options::change_feed`, `slots` and the answers of calls that change something wait until all changes
/// so far are durable. For published pages this prevents a reader from relying on them too early; for
/// unpublished pages, it prevents the slot from being written again while a crash could bring the page back. That
/// includes changes of earlier calls, which may still be in flight: a withheld slot is released long after its page was
/// unpublished. So outboxes wait in the order in which they were taken. Messages to other shards about children, and
/// those to io workers, wait for nothing: they are not stored.
struct registry_outbox {
  std::vector<slots_to_allocator> slots;
  std::vector<children_in_shard> children;
  std::vector<worker_notice> workers;
  std::vector<registry_change> changes;
  /// For the publisher of events, if there is one. They wait for nothing either: events are hints.
  std::vector<events::change> events{};

  bool empty() const noexcept {
    return slots.empty() && children.empty() && workers.empty() && changes.empty() && events.empty();
  }
};

/// The collector of one namespace's outbox.
class outbox_collector {
public:
  /// Without `feed`, changes are discarded; without `describes`, there is nothing about described keys.
  outbox_collector(namespace_id ns, std::uint32_t max_ranks, std::uint32_t shard_count, bool feed, bool describes);

  void publish(rank_number rank, slot_ref where) { of_rank(rank).publish.slots.items.push_back(where); }
  void abort(rank_number rank, slot_ref where) { of_rank(rank).abort.slots.items.push_back(where); }
  void unused(rank_number rank, slot_ref where) { of_rank(rank).unused.slots.items.push_back(where); }
  void release(rank_number rank, slot_ref where) {
    of_rank(rank).release.slots.items.push_back(where);
    ++released_[rank];
  }
  /// How many slots `release` was called for in total.
  std::uint64_t released(rank_number rank) const noexcept { return released_[rank]; }
  void suspect(rank_number rank, slot_ref where) { of_rank(rank).suspect.slots.items.push_back(where); }
  void count_children(std::uint32_t shard, child_delta change);

  void notify_worker(rank_number rank, std::variant<prefetch_request, prefetch_end> what) {
    pending_.workers.push_back({ns_, rank, std::move(what)});
  }

  /// The keys about which events are published; null if none are.
  described_keys* described() noexcept { return described_.get(); }
  const described_keys* described() const noexcept { return described_.get(); }

  bool feeds() const noexcept { return feed_; }
  void change(registry_change what) {
    if (feed_)
      pending_.changes.push_back(std::move(what));
  }

  /// Called when the namespace ends: slots still go back, but changes and children are no longer reported.
  void end_changes() noexcept {
    feed_ = false;
    tells_shards_ = false;
  }

  /// Moves the collected messages to the end of `out`.
  void drain_into(registry_outbox& out);

private:
  slots_to_allocator& of_rank(rank_number rank);

  static constexpr std::uint32_t nowhere = 0xffffffff;

  namespace_id ns_;
  bool feed_;
  bool tells_shards_ = true;
  registry_outbox pending_;
  std::unique_ptr<described_keys> described_;
  /// By rank and by shard: the position of its part in `pending_`.
  std::vector<std::uint32_t> rank_at_;
  std::vector<std::uint32_t> shard_at_;
  /// By rank.
  std::vector<std::uint64_t> released_;
};

} // namespace troupe
