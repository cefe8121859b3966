#pragma once

#include "actors/node/registry/deadline_queue.hpp"
#include "actors/node/registry/owner_index.hpp"
#include "actors/node/tables/key_index.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe {

/// Number of a reservation in its table.
using reservation_number = std::uint32_t;

/// Number of one reserved page in the table; `page_cell` refers to it.
using reserved_page_number = std::uint32_t;

inline constexpr reserved_page_number no_reserved_page = 0xffffffff;

/// The name of one request for slots. The rank is part of it, so that a writer may use one ticket for all ranks. Owner
/// 0 means that there is no owner: slot clients' reservations have it, and any number of them may have the same name.
struct reservation_name {
  troupe::ticket ticket;
  std::uint32_t ns = 0;
  rank_number rank = 0;

  friend bool operator==(const reservation_name&, const reservation_name&) = default;
};

/// One request for slots whose pages have not all ended.
///
/// The differences between writers are data. A writer with a ticket has its pages exclusively and as a unit: they share
/// one deadline, the ticket finds them again, and they end with their owner. A reservation without an owner is
/// shareable: no ticket finds it, no disconnect ends it, and every client that requests such a page receives its slot.
/// So each page has a deadline of its own, the latest that any client was promised. See
/// docs/decisions/0006-slot-clients.md.
struct reservation {
  enum class phase : std::uint8_t {
    /// The number is free.
    closed,
    /// Keys are marked; slots are being requested.
    awaiting_slots,
    /// The writer has its answer.
    open,
    /// Ended while slots were being requested; kept until the slots arrive and are returned.
    dropped,
  };

  /// A page whose answer is known before there are slots. By the time the answer is given, the page may have changed.
  struct known_page {
    key_digest key;
    std::uint32_t answer = 0;
  };

  /// A key that the request names again: it shares the first one's answer.
  struct repeated_key {
    std::uint32_t answer = 0;
    std::uint32_t first = 0;
  };

  bool shareable() const noexcept { return name.ticket.owner == 0; }

  reservation_name name;
  /// Digest of the keys: the same ticket with other keys is an error of the client.
  key_digest fingerprint;
  duration lasts{};
  /// Deadline of all its pages, unless they have their own.
  timestamp deadline;
  phase state = phase::closed;
  /// The owner has disconnected, or the namespace is being removed.
  bool doomed = false;
  /// Distinguishes this reservation from earlier ones with the same number.
  std::uint32_t incarnation = 0;
  /// One answer per key of the request; empty once the request cannot be repeated any more.
  std::vector<location> answers;
  /// The pages that needed a slot, in prefix order; `no_reserved_page` where the page has ended.
  std::vector<reserved_page_number> pages;
  /// How many numbers in `pages` are open.
  std::uint32_t open_pages = 0;
  /// `known` and `repeated` are used only where pages are shareable.
  std::vector<known_page> known;
  std::vector<repeated_key> repeated;
};

/// A reserved page: a key on a rank.
struct reserved_page {
  entry_index entry = no_entry;
  reservation_number by = 0;
  /// Positions in `reservation::answers` and in `reservation::pages`.
  std::uint32_t answer = 0;
  std::uint32_t place : 31 = 0;
  /// The slot was given to more than one client: another client may be writing too.
  std::uint32_t shared : 1 = 0;
  /// The generation is 0 until there is a slot.
  slot_ref where;
  /// Set if the reservation is shareable, once there is a slot.
  timestamp deadline;
};

/// All reservations of a shard, by ticket, by owner and by deadline. Contains no rules.
///
/// A number is in use from `open` to `close`. Meanwhile each of its pages that has not ended is listed in its `pages`
/// and refers back to it, and `open_pages` counts them. If a reservation's pages end together, its number has the
/// deadline; if each ends alone, the pages have deadlines, and the number has one only when it is doomed.
class reservation_table {
public:
  /// Does not find reservations without an owner.
  std::optional<reservation_number> find(const reservation_name& name) const;

  /// Opens a reservation. The name must not be in use, unless it has no owner. Invalidates references to reservations.
  reservation_number open(const reservation_name& name, duration lasts);

  /// Whether a reservation of this name has ended recently (the last `remembered_names` are known). This distinguishes
  /// a late writer from one that never had a reservation.
  bool recently_ended(const reservation_name& name) const { return ended_.contains(name); }

  /// Frees the name, the owner's count and the deadline; `close` frees the number.
  void drop(reservation_number number);

  /// Frees the number, also of a dropped reservation. All pages must have ended.
  void close(reservation_number number);

  void set_deadline(reservation_number number, timestamp deadline);
  void set_page_deadline(reserved_page_number page, timestamp deadline);
  bool has_page_deadline(reserved_page_number page) const { return page_deadlines_.contains(page); }

  /// Invalidates references to pages.
  reserved_page_number add_page(reservation_number number, entry_index entry, std::uint32_t answer);
  void remove_page(reserved_page_number page);

  /// A reservation, or a page that ends alone, whose deadline has passed.
  std::optional<reservation_number> due(timestamp now) const { return deadlines_.due(now); }
  std::optional<reserved_page_number> page_due(timestamp now) const { return page_deadlines_.due(now); }
  /// The earlier of both next deadlines.
  std::optional<timestamp> next_deadline() const;

  /// Makes all reservations of the owner, or in the namespace, due.
  void doom(owner_id owner);
  void doom_namespace(std::uint32_t ns);

  reservation& at(reservation_number number) noexcept { return reservations_[number]; }
  const reservation& at(reservation_number number) const noexcept { return reservations_[number]; }
  reserved_page& page(reserved_page_number number) noexcept { return pages_[number]; }
  const reserved_page& page(reserved_page_number number) const noexcept { return pages_[number]; }
  /// The reservation that the page belongs to.
  const reservation& of_page(reserved_page_number number) const noexcept { return reservations_[pages_[number].by]; }

  /// Identifies a reservation that awaits slots, or was dropped while it did.
  std::uint64_t plan_id(reservation_number number) const noexcept;
  std::optional<reservation_number> find_plan(std::uint64_t plan) const noexcept;

  /// Number of reserved pages.
  std::uint64_t pages() const noexcept { return pages_.size() - free_pages_.size(); }
  /// Number of requests, dropped ones included.
  std::uint64_t size() const noexcept { return reservations_.size() - free_.size(); }
  /// Number of requests in one namespace, dropped ones included.
  std::uint64_t count_in(std::uint32_t ns) const noexcept { return ns < in_namespace_.size() ? in_namespace_[ns] : 0; }
  /// Number of requests of one owner, without dropped ones.
  std::uint64_t count(owner_id owner) const { return owners_.count(owner); }
  std::uint64_t resident_bytes() const noexcept;

  /// Calls `f` for all that are awaiting slots or open.
  template <class F>
  void for_each(F&& f) const {
    for (reservation_number i = 0; i < reservations_.size(); ++i)
      if (is_live(reservations_[i]))
        f(i, reservations_[i]);
  }

private:
  static constexpr std::size_t remembered_names = 4096;

  static bool is_live(const reservation& r) noexcept {
    return r.state == reservation::phase::awaiting_slots || r.state == reservation::phase::open;
  }

  void remember(const reservation_name& name);
  void doom_one(reservation_number number);

  struct hash_name {
    std::size_t operator()(const reservation_name& x) const noexcept {
      return mix(x.ticket.owner, mix(x.ticket.sequence, (std::uint64_t{x.ns} << 32) | x.rank));
    }
  };

  std::vector<reservation> reservations_;
  std::vector<reservation_number> free_;
  std::vector<reserved_page> pages_;
  std::vector<reserved_page_number> free_pages_;
  /// `by_name_` and `owners_` do not contain reservations without an owner.
  std::unordered_map<reservation_name, reservation_number, hash_name> by_name_;
  owner_index owners_;
  deadline_queue deadlines_;
  deadline_queue page_deadlines_;
  /// Requests by namespace.
  std::vector<std::uint64_t> in_namespace_;
  std::unordered_set<reservation_name, hash_name> ended_;
  /// The names in `ended_`, each once, as a ring that overwrites the oldest first.
  std::vector<reservation_name> ended_order_;
  std::size_t oldest_ended_ = 0;
};

} // namespace troupe
