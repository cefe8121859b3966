#pragma once

#include "actors/node/registry/reservation_table.hpp"
#include "actors/node/registry/shard_namespaces.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"
#include "messages/registry_slot_messages.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Names a reservation that waits for slots, from `begin_reserve` to `finish_reserve`.
using plan_id = std::uint64_t;

/// The result of `begin_reserve` or `begin_allocate`.
struct reserve_plan {
  enum class kind : std::uint8_t {
    /// `reply` is the answer.
    answered,
    /// Take `slots_needed` slots from the rank's allocator, then call `finish_reserve` exactly once, also if the
    /// allocator granted none or did not answer.
    needs_slots,
    /// The same request is in progress. The answer that `finish_reserve` returns for `plan` is also the answer of this
    /// one.
    pending,
    /// Another request under `plan` is requesting slots for some of the keys. Nothing has changed: try again after
    /// `finish_reserve` for `plan`.
    wait,
  };

  kind what = kind::answered;
  plan_id plan = 0;
  std::uint32_t slots_needed = 0;
  reserve_reply reply;
};

/// The writers of one shard: which writer may write which page, to which slot, and until when. All of them use one
/// protocol,
///
///   begin: mark the keys that have no page    →  request slots from the rank's allocator  →  finish: hand them out
///   then per page: publish (commit, confirm), or give the slot back (abort, reclaim, or on expiry)
///
/// and the differences between writers with a ticket and slot clients are data of the reservation (`reservation`).
///
/// A page that is neither live nor free is reserved for exactly one reservation, which the page's cell refers to. So
/// two writers never hold two slots for one page. Each granted slot is with one reserved page, or goes back.
class shard_writes {
public:
  explicit shard_writes(shard_namespaces& namespaces) : namespaces_(namespaces) {}

  /// Marks the keys without a page as being written by this ticket and returns how many slots they need. A key that
  /// occurs twice is busy the second time. Parents, where given, are adopted.
  ///
  /// The same ticket and rank again gets the first answer as long as any page of it is reserved: the same slots, exists
  /// for pages that were committed meanwhile, expired for pages that were aborted. With other keys: invalid_argument.
  result<reserve_plan> begin_reserve(const reserve_request& request, timestamp now);

  /// For a slot client: finds or reserves a slot for each key. If another request is requesting slots for some of the
  /// keys, the result is `wait` with `may_wait`; otherwise these keys are busy.
  result<reserve_plan> begin_allocate(const allocate_request& request, timestamp now, bool may_wait);

  /// Hands out the granted slots in prefix order; keys for which there are too few answer full and are free for the
  /// next writer. The reservation's time starts again. If the reservation has ended meanwhile, all slots go back
  /// through the outbox and the error is expired.
  result<reserve_reply> finish_reserve(plan_id plan, std::span<const slot_ref> granted, timestamp now);

  /// Publishes pages. Per page: ok (also when it was committed before); expired when the reservation has ended;
  /// not_owner when another writer has the page; stale when the slot is not the one that was reserved, or another page
  /// is live; not_found for what was never reserved under this ticket.
  result<finish_reply> commit(const finish_request& request, timestamp now);

  /// Cancels reserved pages; their slots go back by way of the quarantine. Generation 0 stands for any reserved slot,
  /// and an empty list of pages for all pages of the ticket, so that a writer whose answer was lost can abort. Per
  /// page: ok (also when it had ended before); not_owner when it was committed or belongs to another writer; stale;
  /// not_found.
  result<finish_reply> abort(const finish_request& request, timestamp now);

  // For slot clients; messages/registry_messages.hpp says what each code means.

  result<result_codes> confirm(const confirm_request& request, timestamp now);
  result<result_codes> reclaim(const reclaim_request& request, timestamp now);

  /// Unpublishes live pages that are named exactly. Per page: ok, stale, not_found.
  result<finish_reply> invalidate(const invalidate_request& request, timestamp now);

  /// Drops pages that exist nowhere any more. Live ones are unpublished, and reservations for them end: a later commit
  /// finds them expired. The number of pages is not limited, because no client sends this request.
  result<result_codes> drop_pages(const dropped_pages_request& request, timestamp now);

  /// What one rank has of an entry, if anything.
  std::optional<key_page> page_of(page_cell cell, rank_number rank) const;

  /// Makes all reservations of the owner, or in the namespace, due.
  void doom(owner_id owner) { reservations_.doom(owner); }
  void doom_namespace(std::uint32_t ns) { reservations_.doom_namespace(ns); }

  /// Ends all reservations of a rank. Its slots are withheld for as long as their writers were promised, and slots that
  /// are being requested go back as soon as they arrive. A later confirm or commit publishes nothing.
  void end_rank(std::uint32_t ns, rank_number rank, timestamp now);

  /// Ends pages that are due while `left` is not used up, and subtracts their number from it.
  void end_due(timestamp now, std::size_t& left);
  bool has_due(timestamp now) const { return reservations_.due(now) || reservations_.page_due(now); }
  std::optional<timestamp> next_deadline() const { return reservations_.next_deadline(); }

  /// Number of reserved pages.
  std::uint64_t pages() const noexcept { return reservations_.pages(); }
  /// Number of requests in one namespace, including those that are still requesting slots.
  std::uint64_t count_in(std::uint32_t ns) const noexcept { return reservations_.count_in(ns); }
  std::uint64_t expired() const noexcept { return expired_; }
  /// Number of pages of that tier that were invalidated.
  std::uint64_t invalidated(page_tier x) const noexcept { return invalidated_[static_cast<std::size_t>(x)]; }
  std::uint64_t reclaimed() const noexcept { return reclaimed_; }
  std::uint64_t resident_bytes() const noexcept { return reservations_.resident_bytes(); }

  /// For tests: the first inconsistency, or an empty text.
  std::string check() const;

private:
  /// A request for slots, of any kind of writer.
  struct slot_request {
    reservation_name name;
    duration lasts{};
    std::span<const key_digest> keys;
    std::span<const key_digest> parents;

    bool shareable() const noexcept { return name.ticket.owner == 0; }
  };

  std::optional<error> check_new_keys(std::span<const key_digest> keys, std::span<const key_digest> parents) const;
  std::optional<error> check_reserve(const key_space& ns, const reserve_request& request) const;
  std::optional<error> check_limits(std::uint64_t pages, owner_id owner) const;

  /// Returns the answer that the same request got before, or will get when it is finished.
  result<reserve_plan> repeat(reservation_number number, const key_digest& fingerprint) const;
  /// The answer in a namespace in which nothing can be saved. Stored pages still answer exists, so that saving them
  /// again is no error. All other keys fail with this error; the whole request does if there are only such keys.
  result<reserve_plan> only_stored(const found_namespace& ns, const reserve_request& request, error why, timestamp now);
  /// Returns the plan that the request must wait for, if it may wait: the one that is requesting slots for one of its
  /// keys. Ends what has expired.
  std::optional<plan_id> awaited(const found_namespace& ns, const allocate_request& request, timestamp now,
                                 bool may_wait);
  result<reserve_plan> begin(const found_namespace& ns, const slot_request& request, const key_digest& fingerprint,
                             timestamp now);
  /// Marks the keys of the request that have no page; `answers` receives the answers of all others. Returns the
  /// reservation, if one was opened.
  std::optional<reservation_number> mark(key_space& ns, const slot_request& request, timestamp now,
                                         std::vector<location>& answers);
  /// Handles a key of the request that is reserved already. Returns the answer, or where it will be found.
  location share(reserved_page_number number, const slot_request& request, std::uint32_t at,
                 std::optional<reservation_number> own, timestamp now);
  /// Gives an answer that was known at the beginning, if it still holds; its protection starts now.
  location promise_again(key_space& ns, const reservation& r, const key_digest& key, slot_ref where, timestamp now);
  /// The next valid slot; generation 0 if there are no more.
  slot_ref next_granted(std::span<const slot_ref>& granted);

  /// Returns the reservation if its deadline has not passed; ends it otherwise.
  std::optional<reservation_number> live_reservation(const reservation_name& name, timestamp now);
  /// Ends a page without publishing it. Its slot, if there is one, goes back, but not before `until`.
  void end_page(reserved_page_number number, errc answer, coarse_time until = 0);
  /// As `end_page`, for a page that ends alone; also ends its reservation if the page was the last.
  void end_shared(reserved_page_number number, coarse_time until = 0);
  void expire_shared(reserved_page_number number);
  /// Ends all pages of the reservation, or marks it dropped if slots are being requested for it.
  void end_reservation(reservation_number number);
  void expire_reservation(reservation_number number);
  void close_if_ended(reservation_number number);
  /// Notes the keys of which the rank has no page; `found_` has their entries.
  void note_refused(const key_space& ns, std::span<const key_digest> keys, key_event what, rank_number rank) const;

  /// Finds the entries of the pages' keys: one each in `found_`. Refuses an invalid request.
  result<found_namespace> find_written(const namespace_id& id, rank_number rank, std::span<const page_ref> pages);
  void publish(key_space& ns, entry_index entry, rank_number rank, slot_ref where);
  errc commit_page(key_space& ns, const reservation_name& name, std::optional<reservation_number> number,
                   const page_ref& page, entry_index entry, bool must_exist);
  errc abort_one(const key_space& ns, const reservation_name& name, std::optional<reservation_number> number,
                 const page_ref& page, entry_index entry);
  errc confirm_page(key_space& ns, rank_number rank, const page_ref& page, entry_index entry, timestamp now);
  errc reclaim_slot(key_space& ns, rank_number rank, slot_number slot, timestamp now);
  /// Records that `inserted_` have their first page, and that all of `used_` were written, in prefix order.
  void note_written(key_space& ns, rank_number rank, page_origin origin, timestamp now);

  shard_namespaces& namespaces_;
  reservation_table reservations_;
  std::uint64_t expired_ = 0;
  std::array<std::uint64_t, page_tier_count> invalidated_{};
  std::uint64_t reclaimed_ = 0;

  // Kept between calls for their memory.
  std::vector<key_digest> keys_;
  std::vector<entry_index> found_;
  std::vector<entry_index> used_;
  /// Keys without a page that are reserved by this request.
  std::vector<entry_index> announced_;
  std::vector<entry_index> inserted_;
};

} // namespace troupe
