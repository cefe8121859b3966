#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Tracks the leases and reservations of the registry shards by requests and answers, and by no statement of a shard
/// about itself. A lease holds from its answer to its deadline, its release or its owner's death; a shard may be late
/// in noticing the end.
class lease_book {
public:
  explicit lease_book(std::uint32_t shards) : shards_(shards) {}

  /// A lookup or a locate was answered: these keys are held, in this order, beside what the lease held before.
  void taken(std::uint32_t shard, const ticket& lease, std::span<const key_digest> keys, duration lease_for,
             timestamp now);
  /// A reader got the location of the page of a key that the lease holds.
  void notified(std::uint32_t shard, const ticket& lease, rank_number rank, const page_ref& page);
  /// A shard was asked to release it, and may do so from now on, until `released` or `owner_died` reports that it has.
  /// Keys released meanwhile are not held.
  void may_end(std::uint32_t shard, const ticket& name) { ++shards_[shard].ending[name]; }
  void may_end(std::uint32_t shard, owner_id owner) { ++shards_[shard].dying[owner]; }
  void released(std::uint32_t shard, const ticket& lease, std::uint32_t keep, timestamp now);
  void owner_died(std::uint32_t shard, owner_id owner, timestamp now);
  /// The shard has had time to notice leases that had ended before.
  void forget(std::uint32_t shard, timestamp before);

  /// A writer has until then, at most.
  void reserved(std::uint32_t shard, const ticket& token, timestamp until);
  /// A page was committed for the first time under this reservation. The error, or an empty text.
  std::string committed(std::uint32_t shard, const ticket& token, timestamp now) const;

  /// The shard gives back a page's slot. Who still may read it, in words, or an empty text.
  std::string reader_of(std::uint32_t shard, rank_number rank, slot_ref where, timestamp now) const;

  /// A key that is leased, in words, or an empty text.
  std::string holder_of(std::uint32_t shard, const key_digest& key, timestamp now) const;

  /// The number of leases that hold now, and of those that still held at `before`.
  std::pair<std::size_t, std::size_t> count(std::uint32_t shard, timestamp now, timestamp before) const;

  /// The same, of those that hold this key.
  std::pair<std::size_t, std::size_t> count_of(std::uint32_t shard, const key_digest& key, timestamp now,
                                               timestamp before) const;
  /// The key of a lease in this place, if it has so many.
  std::optional<key_digest> key_of(std::uint32_t shard, const ticket& name, std::size_t place) const;

  /// Whether the lease has not expired and has this key, even if its release is in flight.
  bool lasts(std::uint32_t shard, const ticket& name, timestamp now) const;
  bool lists(std::uint32_t shard, const ticket& name, const key_digest& key, timestamp now) const;

  /// Some key that is leased, and by whom.
  struct holding {
    owner_id owner = 0;
    key_digest key;
  };
  std::optional<holding> any_key(std::uint32_t shard, std::uint64_t random) const;
  std::optional<holding> key_at(rank_number rank, slot_ref where) const;

private:
  struct notified_page {
    rank_number rank = 0;
    page_ref page;
  };

  struct lease {
    std::vector<key_digest> keys;
    std::vector<notified_page> pages;
    timestamp deadline = timestamp::min();
  };

  struct shard_record {
    /// Expired leases and those of dead owners stay until the shard must have noticed.
    std::map<ticket, lease> leases;
    std::map<ticket, timestamp> reservations;
    std::map<ticket, int> ending;
    std::map<owner_id, int> dying;

    bool holds(const ticket& name, const lease& l, timestamp now) const {
      return l.deadline > now && !ending.contains(name) && !dying.contains(name.owner);
    }
  };

  std::vector<shard_record> shards_;
};

} // namespace troupe::simulation
