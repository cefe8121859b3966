#pragma once

#include "base/identifiers.hpp"
#include "io/engine/engine.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace troupe::simulation {

/// Tracks the state of each slot and the committed pages, by the messages of shards, allocators and io workers to each
/// other and to clients, and by no state of one of them:
///
///     free → held (granted to a shard) → live (published) → resting (given back) → free (fenced)
///
/// Functions that return a text return the error, or an empty text.
class page_ledger {
public:
  page_ledger(std::uint32_t ranks, std::uint32_t slots);

  /// The node's process has ended, and its index with it.
  void clear();

  // -- allocators ----------------------------------------------------------------------------------------------------

  std::string granted(rank_number rank, std::span<const slot_ref> slots);
  std::string published(rank_number rank, std::span<const slot_ref> slots);
  std::string aborted(rank_number rank, std::span<const slot_ref> slots);
  std::string released(rank_number rank, std::span<const slot_ref> slots);
  std::string fenced(rank_number rank, std::span<const slot_ref> slots);

  // -- shards --------------------------------------------------------------------------------------------------------

  /// A client was asked to write the page of this key there.
  std::string reserved(rank_number rank, const key_digest& key, slot_ref where);
  /// It was answered that the page is committed; whether for the first time.
  bool committed(rank_number rank, const page_ref& page);
  std::string located(rank_number rank, const key_digest& key, slot_ref where) const;
  /// A committed page that a shard says it has not got.
  std::string missed(rank_number rank, const key_digest& key) const;
  /// A request to drop the pages of the key was sent: on one rank, or on all.
  void unpublished(rank_number rank, const key_digest& key);
  /// Whether the committed page of a key exists.
  bool is_committed(rank_number rank, const key_digest& key, slot_ref where) const;
  bool is_committed(const key_digest& key) const;
  void for_each_committed(const std::function<void(rank_number, const page_ref&)>& visit) const;
  /// A slot that a writer was given for the key, on whatever rank, in words, or nothing.
  std::string writer_of(const key_digest& key) const;

  // -- slot clients, whose slots have no fence
  // -------------------------------------------------------------------------

  /// A start has found it in the store.
  std::string restored(rank_number rank, const key_digest& key, slot_ref where);
  /// An engine gets the answer that the page of the key exists.
  std::string notified(rank_number rank, const key_digest& key, slot_ref where) const;
  /// The rank is registered again, with slots that had no owner.
  void forget(rank_number rank);
  /// Slots that have a page.
  std::uint64_t live(rank_number rank) const;
  /// The keys of all pages that exist; some more than once.
  std::vector<key_digest> keys() const;

  // -- disks ---------------------------------------------------------------------------------------------------------

  /// Whether the holder of the slot may be that of this generation.
  std::string may_transfer(io::operation op, rank_number rank, slot_ref where) const;

  /// The key whose page is, or will be, there.
  std::optional<key_digest> key_at(rank_number rank, slot_ref where) const;

  /// Slots that are neither free nor live, in words.
  std::string quiesced() const;

private:
  enum class use : std::uint8_t { free, held, live, resting };

  struct slot {
    use is = use::free;
    generation_number generation = 0;
    std::optional<key_digest> key;
  };

  std::string move(rank_number rank, std::span<const slot_ref> slots, use from, use to);

  std::vector<std::vector<slot>> ranks_;
  std::vector<std::map<key_digest, slot_ref>> committed_;
  std::vector<std::set<slot_ref>> ever_committed_;
};

} // namespace troupe::simulation
