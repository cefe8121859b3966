#pragma once

#include "base/identifiers.hpp"
#include "io/slab/page_store.hpp"
#include "messages/io_messages.hpp"
#include "tests/simulation/environment.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Tracks the pages that are requested from an io worker, by the messages of shards and clients to it and by its
/// answers: pending fetches, pages that were fetched, and pages that a lookup has found whose lease holds, as far as
/// the worker knows.
class asked_ledger {
public:
  explicit asked_ledger(const environment& world) : world_(world) {}

  /// The run has ended.
  void begin();

  /// A message on its way to a worker, by its sender and number.
  using message_name = std::pair<std::uint64_t, std::uint64_t>;

  void fetches(rank_number rank, message_name by, std::span<const page_ref> pages);
  /// Is answered, with frames or without.
  void fetched(message_name by, const frame_reply* reply);
  void notified(rank_number rank, const prefetch_request& x);
  /// A shard reports the end of a lease, and the worker has received it.
  void ends(rank_number rank, message_name by, const prefetch_end& x);
  void ended(message_name by);

  /// The error of a transfer that begins, or empty.
  std::string may_transfer(rank_number rank, const io::page_request& x) const;
  /// The error of a page that was dropped, or empty.
  std::string may_drop(rank_number rank, slot_ref where) const;
  /// No request waits for the page.
  bool has_no_waiter(rank_number rank, slot_ref where) const { return !waiting_.contains({rank, where}); }
  /// No lease that lasts has found it.
  bool is_unforeseen(rank_number rank, slot_ref where) const { return !foreseen_.contains({rank, where}); }

private:
  using page_name = std::pair<rank_number, slot_ref>;
  using lease_name = std::tuple<rank_number, std::uint32_t, ticket>;
  using counts = std::map<page_name, std::uint64_t>;

  static void drop(counts& from, const page_name& x) {
    if (const auto found = from.find(x); --found->second == 0)
      from.erase(found);
  }

  const environment& world_;
  std::map<message_name, std::vector<page_name>> fetches_;
  counts waiting_;
  /// By position in the lease.
  std::map<lease_name, std::multimap<std::uint32_t, slot_ref>> leases_;
  std::map<message_name, std::vector<page_name>> ending_;
  counts foreseen_;
  /// Since they were saved, ever.
  std::set<page_name> asked_;
  std::set<page_name> fetched_;
};

} // namespace troupe::simulation
