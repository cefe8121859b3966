#pragma once

#include "actors/node/namespaces/namespace_names.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "messages/allocator_messages.hpp"
#include "messages/registry_messages.hpp"

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

/// A rank that registers: its slab file is its clients', with so many slots.
struct rank_order {
  namespace_id space;
  rank_number rank = 0;
  std::uint32_t slots = 0;
};

/// "rank 3 of namespace 'llama'", as it stands in every sentence about a rank.
std::string name_of(rank_number rank, const std::string& space);

/// Which namespaces and ranks come and go while a node runs, as plain rules. Shards and allocators are told by orders
/// in the outbox; what they said comes back with the order's number.
///
/// Every shard of the node knows every namespace and every rank, or is being told. For that, at most one change of a
/// rank is under way at a time, and none while its namespace is being removed: whoever asks for another one meanwhile
/// is told `busy`, and whoever asks for the same shares its answer.
///
/// A rank has one allocator as long as any shard may have given slots away from it. It is replaced when all shards have
/// said that they hold nothing of the rank any more. Where not all of its slots are free by then, writers or readers of
/// the old registration may still be at work, in the file that the new one describes in another way: no slot of the new
/// one is known to lie beside theirs. So all of its slots rest until every promise of the old one is over; who
/// registers need not wait for that.
///
///                        all said yes
///   (none) ── under_way ─────────────▶ registered ◀──────────┐ all know it again: as it was, or with its new slots
///                │  ▲ │ some did           │                 │
///     none did   │  │ └──────▶ half_known  └───────────▶ replacing
///   (none) ◀─────┘  └─────────────┘ again      another number of slots
///
/// Where some shards refuse a namespace that others have taken, these forget it before that is answered: else its name
/// and its place would be taken there, and nobody would know of it.
///
/// What a shard has forgotten of a namespace is gone durably for all of them. So once one has, the others follow, by
/// force; and while one of them cannot, it is nothing but removed again.
class namespaces_state {
public:
  /// Of a request that waits; the caller's.
  using request_number = std::uint64_t;
  using order_number = std::uint64_t;
  /// Stands for an allocator; the caller's.
  using allocator_number = std::uint64_t;

  struct known_allocator {
    rank_order rank;
    allocator_number allocator = 0;
    incarnation_number incarnation = 0;
  };

  struct options {
    /// A rank may register with so many slots.
    std::uint32_t max_slots = 1U << 28U;
    /// Makes an allocator for the rank of a namespace of this name, or says why there can be none. At once.
    /// `replaces`: the rank has another one, whose last writers may be late.
    std::function<result<allocator_number>(const rank_order&, const std::string& space_name, bool replaces)>
        make_allocator;
    /// `fresh_incarnation`, or what a simulation has in its place.
    std::function<incarnation_number()> fresh = fresh_incarnation;
    /// Where others look names up: has what all shards know, as soon as that is answered.
    std::shared_ptr<namespace_names> names = std::make_shared<namespace_names>();
  };

  // Orders. Those with a number are to be answered by `told`, or `counted`.

  struct tell_of_namespace {
    order_number number = 0;
    add_namespace_request request;
  };
  struct tell_of_rank {
    order_number number = 0;
    known_allocator what;
  };
  /// Shards are to forget the slots of the rank, as `retire_rank_request` says.
  struct tell_to_retire {
    order_number number = 0;
    namespace_id space;
    rank_number rank = 0;
  };
  /// To be repeated at each shard until nothing is left there. Without `force`: at none, unless all agree as far as can
  /// be known.
  struct tell_to_remove {
    order_number number = 0;
    remove_namespace_request request;
  };
  /// How many of its slots are free?
  struct count_slots {
    order_number number = 0;
    allocator_number allocator = 0;
  };
  /// Its slots are not to be given out before the promises of an earlier registration of the rank are over.
  struct rest_allocator {
    allocator_number allocator = 0;
  };
  /// Nobody needs it any more.
  struct end_allocator {
    allocator_number allocator = 0;
  };
  struct answer {
    request_number request = 0;
    /// ok: done.
    error outcome;
  };
  /// For the log.
  struct note {
    std::string text;
  };
  using effect = std::variant<tell_of_namespace, tell_of_rank, tell_to_retire, tell_to_remove, count_slots,
                              rest_allocator, end_allocator, answer, note>;

  explicit namespaces_state(options how) : options_(std::move(how)) {}

  // What is known at the start.

  /// Of the config: it cannot be changed, and its allocators are others' to end.
  void know_own(const namespace_spec& space);
  void know(const namespace_spec& space) { know(space.id(), space.name); }
  void know(const known_allocator& rank);

  // Requests, each of which is answered once.

  void add(request_number request, const add_namespace_request& wanted);
  void remove(request_number request, const remove_namespace_request& wanted);
  void register_rank(request_number request, const rank_order& wanted);

  // What became of an order.

  /// What each shard said.
  void told(order_number number, std::span<const error> outcomes);
  void counted(order_number number, const result<allocator_stats>& stats);

  std::vector<effect> take_outbox() { return std::exchange(outbox_, {}); }

  /// Whether such a namespace is there, or is being made known.
  bool knows(const namespace_id& space) const { return spaces_.contains(space) || adding_.contains(space); }

  /// Whose slots are lost when the allocator dies that was not ended; empty if nobody's.
  std::string rank_of(allocator_number allocator) const;

private:
  enum class phase : std::uint8_t {
    registered,
    /// Shards are being told.
    under_way,
    /// It is given another number of slots.
    replacing,
    /// Some shards know it, and some do not: it is told to all again, as it is, when somebody registers it again.
    half_known,
  };
  struct rank_entry {
    std::uint32_t slots = 0;
    allocator_number allocator = 0;
    incarnation_number incarnation = 0;
    phase state = phase::under_way;
    std::vector<request_number> waiting;
    /// It has taken the place of another registration, whose writers and readers may be late.
    bool replaces = false;
  };
  struct space_entry {
    std::string name;
    std::map<rank_number, rank_entry> ranks;
    bool own = false;
    /// A shard has forgotten it, and another one could not.
    bool half_gone = false;
    /// Being removed: who asked for it.
    std::vector<request_number> removing;
  };
  using outcomes_function = std::function<void(std::span<const error>)>;
  using stats_function = std::function<void(const result<allocator_stats>&)>;

  /// All shards know it.
  void know(const namespace_id& id, const std::string& name);
  void reply(request_number request, error outcome = {errc::ok, {}});
  void reply_all(std::vector<request_number> waiting, const error& outcome);
  order_number expect(outcomes_function then);
  rank_entry& entry_of(const rank_order& x) { return spaces_.at(x.space).ranks.at(x.rank); }
  std::string name_of_rank(const rank_order& x) const { return name_of(x.rank, spaces_.at(x.space).name); }

  /// Nobody knows it any more, and the request is answered with the reason.
  void take_back(request_number request, const namespace_id& space, const std::string& name, error why);
  void tell_all_to_remove(const namespace_id& space, bool force);
  void removal_ended(const namespace_id& space, bool forced, std::span<const error> outcomes);
  void register_own(request_number request, const space_entry& space, const rank_order& wanted);
  void register_again(request_number request, space_entry& space, const rank_order& wanted);
  void tell_shards(const rank_order& wanted, outcomes_function then);
  void register_at_shards(const rank_order& wanted);
  void registered(const rank_order& wanted, std::span<const error> outcomes);
  /// Gives a rank that has no pages another number of slots. Shards forget the old ones first.
  void replace(const rank_order& wanted, allocator_number fresh);
  void retired(const rank_order& wanted, allocator_number fresh);
  void replaced(const rank_order& wanted, allocator_number fresh, const allocator_stats& old_slots);
  void keep_old(const rank_order& wanted, allocator_number fresh, const error& why);

  options options_;
  std::map<namespace_id, space_entry> spaces_;
  /// Shards are being told; as often as somebody waits for it.
  std::multiset<namespace_id> adding_;
  /// Of these, those that some shards have refused, and others are to forget.
  std::set<namespace_id> taken_back_;
  std::unordered_map<order_number, outcomes_function> open_orders_;
  std::unordered_map<order_number, stats_function> open_counts_;
  std::vector<effect> outbox_;
  order_number last_order_ = 0;
};

} // namespace troupe
