#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/prefetch.hpp"
#include "base/request_name.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

/// What ended the pages of a key, or an attempt to save them; or that they arrived from another node.
enum class key_event : std::uint8_t {
  /// Evicted, because a rank needed slots: memory or disk was full.
  evicted,
  /// Evicted, because the memory budget of the index was used up.
  evicted_for_index,
  /// Evicted before other keys, because another node has a copy.
  evicted_copy,
  /// Erased or cleared by a request.
  erased,
  /// Left memory without having been written to disk.
  dropped,
  /// Did not verify when it was read.
  damaged,
  /// Returned by a slot client, whose write had failed.
  reclaimed,
  /// Known from an earlier run, and not restored, because another page claims its slot.
  not_restored,
  /// A save got no slot.
  save_without_slot,
  /// A save got no place in the index.
  save_without_entry,
  /// A save was refused: too many pages were reserved, or its client had too many reservations.
  save_over_limit,
  /// A save was refused, because nothing could be saved in the namespace.
  save_refused,
  /// A save ended without a page: cancelled, failed, or out of time.
  save_ended,
  /// Fetched from another node and saved here.
  fetched,
};

/// The state of a key that a lookup did not find, at the time of the lookup.
enum class missing_state : std::uint8_t {
  /// The lookup found all its keys.
  none,
  /// No rank had a page of it.
  absent,
  /// A client was writing its first pages.
  being_saved,
  /// Some ranks had a page of it, and others had not.
  incomplete,
};

/// One key event. `rank` is the one that needed slots, or whose page it was.
struct key_note {
  timestamp at{};
  rank_number rank = 0;
  key_event what = key_event::evicted;
};

/// What one shard knows of one lookup: the part with the keys of this shard.
struct lookup_part {
  timestamp at{};
  ticket name{};
  namespace_id ns{};
  std::uint32_t shard = 0;
  /// The keys of the part; how many of them were found, in prefix order unless `each`; and how many of these belong to
  /// the prefix that all shards found together.
  std::uint32_t asked = 0;
  std::uint32_t found = 0;
  std::uint32_t kept = 0;
  /// How many of the found keys were not in memory on some rank, if `tiers_known`; and how many had been fetched from
  /// another node, and were not leased since.
  std::uint32_t on_disk = 0;
  std::uint32_t fetched = 0;
  bool tiers_known = false;
  bool each = false;
  /// Why the shard refused the lookup; ok: it did not.
  errc refused = errc::ok;
  /// The first key that was not found.
  missing_state state = missing_state::none;
  /// If the key is incomplete: the first rank without a page, whether a client is writing that page, and the number of
  /// ranks with a page.
  bool rank_being_written = false;
  rank_number rank = 0;
  std::uint32_t ranks_with_page = 0;
  key_digest missing{};
  /// The first key of the part, by which repetitions are recognized.
  key_digest first{};
  /// The number of key events of the shard before the lookup.
  std::uint64_t events_before = 0;
  request_name request{};
};

/// A part of a lookup with what happened to its missing key: the last event before the lookup, and the first one after
/// it that brought the key here.
struct explained_part {
  lookup_part part{};
  std::optional<key_note> before{};
  std::optional<key_note> arrived{};
};

/// The lookups that a reader wants: all criteria apply.
struct lookup_filter {
  /// Lookups of these namespaces, in ascending order; absent: of all.
  std::optional<std::span<const namespace_id>> namespaces{};
  /// Lookups of these owners; empty: of all.
  std::span<const owner_id> owners{};
  std::optional<ticket> name{};
  /// Lookups for requests whose name begins so: engines append to the names that their callers know, and vLLM numbers
  /// the choices of an answer before them. Empty: all.
  std::string_view request{};
};

/// The last lookups of one shard, and the last events that explain their misses. Both are rings of a fixed size, the
/// oldest entry is overwritten, and nothing is allocated after the constructor.
///
/// Events are stored under a fingerprint of 64 bits of namespace and key. Another key with the same fingerprint among
/// the stored events, which would be taken for this one, occurs about once in 2^64 / `events_most` questions. Their
/// times are rounded down to `tick`.
///
/// One thread at a time writes: the shard. Any thread may read.
class lookup_history {
public:
  static constexpr duration tick = std::chrono::milliseconds(50);

  /// Keeps `lookups_most` lookups and `events_most` events, at least one of each. `began`: the time of the first call.
  lookup_history(std::uint32_t lookups_most, std::uint32_t events_most, timestamp began);

  lookup_history(const lookup_history&) = delete;
  lookup_history& operator=(const lookup_history&) = delete;

  // -- the shard

  /// The time of the events that are noted from now on.
  void advance(timestamp now) noexcept { now_ = static_cast<std::uint32_t>((now - began_) / tick); }

  void note(const namespace_id& ns, const key_digest& key, key_event what, rank_number rank) {
    batch(this, ns, rank).add(key, what);
  }

  /// Notes events of many keys of one namespace. Readers wait until it is destroyed, and nothing else of the history
  /// may be called meanwhile.
  class batch {
  public:
    /// Null: events are not recorded.
    batch(lookup_history* to, const namespace_id& ns, rank_number rank)
        : to_(to), ns_(ns), rank_(static_cast<std::uint16_t>(std::min<rank_number>(rank, rank_most))) {
      if (to_ != nullptr)
        lock_ = std::unique_lock(to_->mutex_);
    }

    void add(const key_digest& key, key_event what) noexcept {
      if (to_ == nullptr)
        return;
      auto* const event = to_->events_.data() + to_->next_event_;
      prefetch_to_write(event + prefetch_distance);
      *event = {fingerprint_of(ns_, key), to_->now_, rank_, what};
      ++to_->event_count_;
      if (++to_->next_event_ == to_->events_.size())
        to_->next_event_ = 0;
    }

  private:
    lookup_history* to_;
    std::unique_lock<std::mutex> lock_;
    namespace_id ns_;
    std::uint16_t rank_;
  };

  /// Records a lookup; `events_before` is set here.
  void record(const lookup_part& x);

  /// Notes that only the first `kept` keys of the last lookup under this ticket belong to the prefix that all shards
  /// found. Has no effect if the lookup was overwritten.
  void trim(const ticket& name, std::uint32_t kept);

  // -- readers

  struct view {
    /// The newest first.
    std::vector<explained_part> parts;
    /// Since when all events are known: since the beginning, or since the oldest one that is stored.
    timestamp events_since{};
    std::uint64_t events = 0;
  };

  /// The newest `most` lookups that pass the filter. The shard waits meanwhile: about 0.1 ms for 65,536 events, on a
  /// Xeon of 2023.
  view read(const lookup_filter& wanted, std::size_t most) const;

  std::uint64_t resident_bytes() const noexcept;

private:
  static constexpr rank_number rank_most = 0xffff;
  /// In events: the processor does not fetch the ring ahead between the other accesses of an eviction.
  static constexpr std::size_t prefetch_distance = 16;

  struct stored_event {
    std::uint64_t fingerprint = 0;
    /// In ticks since the beginning.
    std::uint32_t at = 0;
    std::uint16_t rank = 0;
    key_event what = key_event::evicted;
  };
  static_assert(sizeof(stored_event) == 16);

  static std::uint64_t fingerprint_of(const namespace_id& ns, const key_digest& key) noexcept {
    // One multiplication: eviction does this for each key.
    return (key.hi ^ ns.hi) * 0x9e3779b97f4a7c15ULL + (key.lo ^ ns.lo);
  }

  void explain(std::vector<explained_part>& parts) const;
  /// The lookup that is `age` lookups older than the newest.
  lookup_part& lookup_at(std::uint64_t age) noexcept { return lookups_[(lookup_count_ - 1 - age) % lookups_.size()]; }
  const lookup_part& lookup_at(std::uint64_t age) const noexcept {
    return lookups_[(lookup_count_ - 1 - age) % lookups_.size()];
  }
  std::uint64_t stored_lookups() const noexcept { return std::min<std::uint64_t>(lookup_count_, lookups_.size()); }
  const stored_event& event_at(std::uint64_t number) const noexcept { return events_[number % events_.size()]; }
  timestamp time_of(const stored_event& x) const noexcept { return began_ + x.at * tick; }
  /// The number of the oldest event that is stored.
  std::uint64_t first_event() const noexcept {
    return event_count_ - std::min<std::uint64_t>(event_count_, events_.size());
  }

  // Entry number n of a ring of size s is at n % s; the last s entries are there.

  const timestamp began_;
  /// In ticks since the beginning. Only the shard uses it.
  std::uint32_t now_ = 0;

  mutable std::mutex mutex_;
  std::vector<lookup_part> lookups_;
  std::uint64_t lookup_count_ = 0;
  std::vector<stored_event> events_;
  std::uint64_t event_count_ = 0;
  /// `event_count_` % the size of the ring.
  std::size_t next_event_ = 0;
};

} // namespace troupe
