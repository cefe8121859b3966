#pragma once

#include "actors/node/namespaces/namespace_names.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/registry_admin_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// A rank that registers with this many slots; its slab file belongs to clients.
struct rank_order {
  namespace_id ns;
  rank_number rank = 0;
  std::uint32_t slots = 0;
};

/// The text "rank 3 of namespace 'llama'", used in every sentence about a rank.
std::string name_of(rank_number rank, const std::string& ns);

/// The rules for namespaces and ranks that are added and removed while a node runs. Plain state. Orders to shards and
/// allocators come out of the outbox; their results come back with the order's number.
///
/// Every shard of the node knows every namespace and every rank, or is being notified. To ensure this, at most one
/// change of a rank is in progress at a time, and none while its namespace is being removed. Meanwhile a request for
/// another change is answered `busy`, and a request for the same change shares its answer.
///
/// A rank keeps one allocator as long as any shard may have granted slots of it. The allocator is replaced when all
/// shards have reported that they hold nothing of the rank any more. If not all of its slots are free by then, writers
/// or readers of the old registration may still use the file, which the new registration describes differently: every
/// slot of the new one may overlap theirs. So all new slots rest until every promise of the old registration has
/// expired. The registration itself is answered without waiting for that.
///
///                        all said yes
///   (none) ── under_way ─────────────▶ registered ◀──────────┐ all know it again: as it was, or with its new slots
///                │  ▲ │ some did           │                 │
///     none did   │  │ └──────▶ half_known  └───────────▶ replacing
///   (none) ◀─────┘  └─────────────┘ again      another number of slots
///
/// If some shards refuse a namespace that others have accepted, it is removed from these before the request is
/// answered. Otherwise it would occupy its name and a place there without being known anywhere else.
///
/// A removal on one shard is durable and cannot be undone. So once one shard has removed a namespace, the others
/// follow, by force; while one of them cannot, the namespace can only be removed again.
class namespaces_state {
public:
  /// The caller's number of a waiting request.
  using request_number = std::uint64_t;
  using order_number = std::uint64_t;
  /// The caller's number of an allocator.
  using allocator_number = std::uint64_t;

  struct known_allocator {
    rank_order rank;
    allocator_number allocator = 0;
    incarnation_number incarnation = 0;
  };

  struct options {
    /// The most slots that a rank may register.
    std::uint32_t max_slots = 1U << 28U;
    /// Makes an allocator for the rank of a namespace of this name, or returns why it cannot. Returns without waiting.
    /// `replaces`: the rank has another allocator, whose last writers may be late.
    std::function<result<allocator_number>(const rank_order&, const std::string& namespace_name, bool replaces)>
        make_allocator;
    /// `fresh_incarnation`, or its replacement in a simulation.
    std::function<incarnation_number()> fresh = fresh_incarnation;
    /// The names for other parts. It contains what all shards know, before the request is answered.
    std::shared_ptr<namespace_names> names = std::make_shared<namespace_names>();
  };

  // Orders. Those with a number are answered by `notified` or `counted`.

  struct report_namespace {
    order_number number = 0;
    add_namespace_request request;
  };
  struct report_rank {
    order_number number = 0;
    known_allocator what;
  };
  /// Retires the rank at all shards, as `retire_rank_request` says.
  struct order_retirement {
    order_number number = 0;
    namespace_id ns;
    rank_number rank = 0;
  };
  /// Removes the namespace; repeated at each shard until nothing is left there. Without `force`, all shards are checked
  /// first, and it is removed from none if one refuses.
  struct order_removal {
    order_number number = 0;
    remove_namespace_request request;
  };
  /// Asks how many of the allocator's slots are free.
  struct count_slots {
    order_number number = 0;
    allocator_number allocator = 0;
  };
  /// Makes the allocator grant no slots until the promises of an earlier registration of the rank have expired.
  struct rest_allocator {
    allocator_number allocator = 0;
  };
  /// Ends an allocator that is not needed any more.
  struct end_allocator {
    allocator_number allocator = 0;
  };
  struct answer {
    request_number request = 0;
    /// ok: done.
    error outcome;
  };
  /// A line for the log.
  struct note {
    std::string text;
  };
  using effect = std::variant<report_namespace, report_rank, order_retirement, order_removal, count_slots,
                              rest_allocator, end_allocator, answer, note>;

  explicit namespaces_state(options how) : options_(std::move(how)) {}

  // State at the start.

  /// Adds a namespace of the config: it cannot be changed, and its allocators are ended elsewhere.
  void know_own(const namespace_spec& ns);
  void know(const namespace_spec& ns) { know(ns.id(), ns.name); }
  void know(const known_allocator& rank);

  // Requests, each of which is answered once.

  void add(request_number request, const add_namespace_request& wanted);
  void remove(request_number request, const remove_namespace_request& wanted);
  void register_rank(request_number request, const rank_order& wanted);

  // Results of orders.

  /// Reports the answer of each shard.
  void notified(order_number number, std::span<const error> outcomes);
  void counted(order_number number, const result<allocator_stats>& stats);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Whether such a namespace exists, or is being added.
  bool knows(const namespace_id& ns) const { return namespaces_.contains(ns) || adding_.contains(ns); }

  /// The rank whose slots are lost when this allocator dies unexpectedly; empty if there is none.
  std::string rank_of(allocator_number allocator) const;

private:
  enum class phase : std::uint8_t {
    registered,
    /// Shards are being notified.
    under_way,
    /// The number of slots is being changed.
    replacing,
    /// Some shards know it and some do not. It is sent to all again, unchanged, when it is registered again.
    half_known,
  };
  struct rank_entry {
    std::uint32_t slots = 0;
    allocator_number allocator = 0;
    incarnation_number incarnation = 0;
    phase state = phase::under_way;
    std::vector<request_number> waiting;
    /// It has replaced another registration, whose writers and readers may be late.
    bool replaces = false;
  };
  struct namespace_entry {
    std::string name;
    std::map<rank_number, rank_entry> ranks;
    bool own = false;
    /// A shard has removed it, and another one could not.
    bool half_removed = false;
    /// The requests that wait for its removal; not empty while it is being removed.
    std::vector<request_number> removing;
  };
  using outcomes_function = std::function<void(std::span<const error>)>;
  using stats_function = std::function<void(const result<allocator_stats>&)>;

  /// Adds a namespace that all shards know.
  void know(const namespace_id& id, const std::string& name);
  void reply(request_number request, error outcome = {errc::ok, {}});
  void reply_all(std::vector<request_number> waiting, const error& outcome);
  order_number expect(outcomes_function then);
  rank_entry& entry_of(const rank_order& x) { return namespaces_.at(x.ns).ranks.at(x.rank); }
  std::string name_of_rank(const rank_order& x) const { return name_of(x.rank, namespaces_.at(x.ns).name); }

  /// Removes the namespace from the shards that accepted it, then answers the request with the reason.
  void take_back(request_number request, const namespace_id& ns, const std::string& name, error why);
  void order_all_removals(const namespace_id& ns, bool force);
  void removal_ended(const namespace_id& ns, bool forced, std::span<const error> outcomes);
  void register_own(request_number request, const namespace_entry& ns, const rank_order& wanted);
  void register_again(request_number request, namespace_entry& ns, const rank_order& wanted);
  void notify_shards(const rank_order& wanted, outcomes_function then);
  void register_at_shards(const rank_order& wanted);
  void registered(const rank_order& wanted, std::span<const error> outcomes);
  /// Gives a rank without pages another number of slots. Shards retire the old ones first.
  void replace(const rank_order& wanted, allocator_number fresh);
  void retired(const rank_order& wanted, allocator_number fresh);
  void replaced(const rank_order& wanted, allocator_number fresh, const allocator_stats& old_slots);
  void keep_old(const rank_order& wanted, allocator_number fresh, const error& why);

  options options_;
  std::map<namespace_id, namespace_entry> namespaces_;
  /// Namespaces that shards are being notified of, once per waiting request.
  std::multiset<namespace_id> adding_;
  /// Those of them that some shards have refused and that are being removed from the others.
  std::set<namespace_id> taken_back_;
  std::unordered_map<order_number, outcomes_function> open_orders_;
  std::unordered_map<order_number, stats_function> open_counts_;
  std::vector<effect> outbox_;
  order_number last_order_ = 0;
};

} // namespace troupe
