#pragma once

#include "actors/node/registry/deadline_queue.hpp"
#include "actors/node/registry/key_index.hpp"
#include "actors/node/registry/owner_index.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

/// Number of a reservation in its table.
using reservation_number = std::uint32_t;

/// Number of one reserved page in the table; `page_cell` refers to it.
using page_record = std::uint32_t;

inline constexpr page_record no_record = 0xffffffff;

/// What one reserve request is known by. The rank is part of it, so that a writer may use one ticket for all ranks.
struct reservation_name {
  troupe::ticket ticket;
  std::uint32_t space = 0;
  rank_number rank = 0;

  friend bool operator==(const reservation_name&, const reservation_name&) = default;
};

/// One reserve request whose pages have not all ended.
struct reservation {
  enum class phase : std::uint8_t {
    /// Keys are marked, slots are being asked for.
    awaiting_slots,
    /// The writer has its answer.
    open,
    /// Ended while slots were being asked for; kept so that these find their way back.
    dropped,
  };

  reservation_name name;
  /// Digest of the keys: the same ticket with other keys is a mistake of the client.
  key_digest fingerprint;
  duration lasts{};
  timestamp deadline;
  phase state = phase::awaiting_slots;
  /// The owner is gone.
  bool doomed = false;
  /// Tells apart what stood at this number before.
  std::uint32_t incarnation = 0;
  /// Per key of the request.
  std::vector<location> answers;
  /// The pages that needed a slot, in prefix order; `no_record` where the page has ended.
  std::vector<page_record> pages;
  /// Records in `pages`.
  std::uint32_t open_pages = 0;
};

/// A key and rank that one writer has to itself.
struct reserved_page {
  entry_index entry = no_entry;
  reservation_number owner = 0;
  /// In `reservation::answers` and in `reservation::pages`.
  std::uint32_t answer = 0;
  std::uint32_t page = 0;
  /// Generation 0 until there is a slot.
  slot_ref where;
};

/// All reservations of a shard: by ticket, by owner, by deadline. Knows no rules.
class reservation_table {
public:
  std::optional<reservation_number> find(const reservation_name& name) const;

  /// The name must not be in use. Invalidates references to reservations.
  reservation_number open(const reservation_name& name, timestamp deadline);

  /// Whether a reservation of this name has ended not long ago (`remembered_names` ended ones are known): tells a
  /// writer that is late from one that was never here.
  bool recently_ended(const reservation_name& name) const { return ended_.contains(name); }

  /// Frees the name, the owner's count and the deadline, not yet the number: `close` does that.
  void drop(reservation_number number);

  /// All pages must have ended. Also for dropped ones.
  void close(reservation_number number);

  void set_deadline(reservation_number number, timestamp deadline);

  page_record add_page(reservation_number number, entry_index entry, std::uint32_t answer);
  void remove_page(page_record record);

  std::optional<reservation_number> due(timestamp now) const { return deadlines_.due(now); }
  std::optional<timestamp> next_deadline() const { return deadlines_.next(); }

  /// Makes all reservations of the owner, or in the namespace, due.
  void doom(owner_id owner);
  void doom_space(std::uint32_t space);

  reservation& at(reservation_number number) noexcept { return reservations_[number]; }
  const reservation& at(reservation_number number) const noexcept { return reservations_[number]; }
  reserved_page& page(page_record record) noexcept { return pages_[record]; }
  const reserved_page& page(page_record record) const noexcept { return pages_[record]; }

  /// Identifies a reservation that awaits slots, or was dropped while it did.
  std::uint64_t plan_id(reservation_number number) const noexcept;
  std::optional<reservation_number> find_plan(std::uint64_t plan) const noexcept;

  /// Reserved pages.
  std::uint64_t pages() const noexcept { return pages_.size() - free_pages_.size(); }
  /// Requests, dropped ones included.
  std::uint64_t size() const noexcept { return reservations_.size() - free_.size(); }
  /// Requests in one namespace, dropped ones included.
  std::uint64_t count_in(std::uint32_t space) const noexcept { return space < in_space_.size() ? in_space_[space] : 0; }
  /// Requests of one owner, without dropped ones.
  std::uint64_t count(owner_id owner) const { return owners_.count(owner); }
  std::uint64_t resident_bytes() const noexcept;

  template <class F>
  void for_each(F&& f) const {
    for (const auto& [name, number] : by_name_)
      f(number, reservations_[number]);
  }

private:
  static constexpr std::size_t remembered_names = 4096;

  void remember(const reservation_name& name);

  struct hash_name {
    std::size_t operator()(const reservation_name& x) const noexcept {
      return mix(x.ticket.owner, mix(x.ticket.sequence, (std::uint64_t{x.space} << 32) | x.rank));
    }
  };

  std::vector<reservation> reservations_;
  std::vector<reservation_number> free_;
  std::vector<reserved_page> pages_;
  std::vector<page_record> free_pages_;
  std::unordered_map<reservation_name, reservation_number, hash_name> by_name_;
  owner_index owners_;
  deadline_queue deadlines_;
  /// Requests by namespace.
  std::vector<std::uint64_t> in_space_;
  std::unordered_set<reservation_name, hash_name> ended_;
  /// The names in `ended_`, each once; a ring, the oldest is overwritten first.
  std::vector<reservation_name> ended_order_;
  std::size_t oldest_ended_ = 0;
};

} // namespace troupe
