#pragma once

#include "base/identifiers.hpp"
#include "tests/simulation/lease_book.hpp"
#include "tests/simulation/page_ledger.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>

namespace troupe::simulation {

/// Which keys may go before others, by what shards were asked and have answered: those of which another node has told
/// that it keeps the pages that it read under its lease, until somebody uses them; and guests, whenever nobody reads
/// them any more. Where it cannot be known, as at the moment at which a lease runs out, a key may be spare, and need
/// not.
class spare_ledger {
public:
  /// Of the node that the world plays.
  static constexpr owner_id other_node = 0x6e6f64652d32;

  spare_ledger(const lease_book& book, const page_ledger& pages) : book_(book), pages_(pages) {}

  void clear() {
    keys_.clear();
    taken_.clear();
    wanted_.clear();
  }

  /// A page of the key was committed; whether it is its first one, and whether it was fetched to go. `before`: a lease
  /// that was over by then has been ended.
  void committed(std::uint32_t shard, const key_digest& key, bool first, bool guest, timestamp now, timestamp before);
  /// A lookup or a locate has found them, under this lease.
  void used(const ticket& lease, std::span<const key_digest> keys);
  /// Somebody is about to save these keys, which uses those that are there already, and may take no lease on them: some
  /// time before the answer.
  void wanted(std::span<const key_digest> keys);
  void answered(std::span<const key_digest> keys);
  /// Another node has given this lease back, which held them before, and keeps pages of those.
  void kept_there(std::uint32_t shard, const ticket& lease, std::span<const key_digest> keys, timestamp now);

  bool may_be_spare(std::uint32_t shard, const key_digest& key, timestamp now) const;
  bool is_spare(std::uint32_t shard, const key_digest& key, timestamp now, timestamp before) const;
  /// How many are, at least and at most. Forgets keys that are not there.
  std::pair<std::size_t, std::size_t> count(std::uint32_t shard, timestamp now, timestamp before);

private:
  /// May have been used under no lease.
  void perhaps_used(const key_digest& key);

  struct record {
    std::uint32_t shard = 0;
    /// And maybe, where the shard may have forgotten an earlier page of it.
    bool guest = false;
    bool perhaps_guest = false;
    /// Another node has told of it since it was used last; and whether it has to be believed.
    bool told = false;
    bool for_sure = false;
    /// Since it is a guest: leased, and maybe.
    bool leased = false;
    bool perhaps_leased = false;
    /// When a page of it was made last, and whether somebody may have held it then.
    std::uint64_t made = 0;
    bool made_under_lease = false;
  };

  const lease_book& book_;
  const page_ledger& pages_;
  std::map<key_digest, record> keys_;
  /// When a lease of the other node has got a key.
  std::map<std::pair<ticket, key_digest>, std::uint64_t> taken_;
  /// How often each is wanted, by whom has had no answer.
  std::map<key_digest, std::uint32_t> wanted_;
  std::uint64_t clock_ = 0;
};

} // namespace troupe::simulation
