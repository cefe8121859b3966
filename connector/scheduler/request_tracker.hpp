#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "connector/block_keys.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::connector {

/// A run of pages.
struct page_range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  friend bool operator==(const page_range&, const page_range&) = default;
};

/// One request as the connector knows it, from its first lookup to its last report: the arithmetic of blocks, pages
/// and tokens, and one state machine for every granularity (one block per page is HF3FS's, several LMCache's).
///
///     asking ──alloc, tokens to load──▶ to_load ──metadata──▶ loading ──received──▶ active
///        │                                                                            ▲
///        └──alloc, nothing to load────────────────────────────────────────────────────┘
///     any ──preempted──▶ asking            any ──finished──▶ (gone, or waits for reports)
///
/// A synchronous load goes the same way, and ends when all workers have reported on it: the request runs meanwhile, and
/// nothing of it is stored before it is known what it has computed upon.
///
/// A page is known to be in the cache, or is being stored, or is neither. It may be stored when its key is known, its
/// blocks are allocated, and its last token's KV is there once the step is over. Pages are stored in order; one that
/// could not be stored is tried again a few times, and is left as a known hole then.
class request_tracker {
public:
  enum class phase : std::uint8_t { asking, to_load, loading, active };

  request_tracker(session_id session, std::string name, key_chain keys, const key_chain_options& shape,
                  std::uint32_t prompt_tokens);

  session_id session() const noexcept { return session_; }
  const std::string& name() const noexcept { return name_; }
  phase current_phase() const noexcept { return phase_; }
  std::span<const block_id> blocks() const noexcept { return blocks_; }
  std::span<const key_digest> keys() const noexcept { return keys_.keys(); }
  std::uint32_t prompt_tokens() const noexcept { return prompt_tokens_; }

  /// A gap in what the engine says makes the request one that is neither loaded nor saved.
  void add(const token_range& tokens, const hash_range& hashes);
  bool usable() const noexcept { return usable_; }
  void give_up() noexcept { usable_ = false; }

  // Asking.

  /// Pages that a lookup may find: all full ones, without the one that holds the last token.
  std::uint32_t pages_to_look_up() const noexcept;
  /// Tokens to say to an engine that has `computed` itself, once all is known of the lookup and of what it is worth.
  std::uint32_t new_tokens(std::uint32_t computed) noexcept;

  struct lookup {
    enum class status : std::uint8_t { none, under_way, answered };
    status now = status::none;
    std::uint64_t id = 0;
    /// Leading pages found so far.
    std::uint32_t matched = 0;
    /// One mark for each page found, 1 where it is on disk only; empty where nobody knows.
    std::vector<std::uint8_t> on_disk;
    /// Of the pages found, how many are worth a load; absent until that has been decided. And from which page on, since
    /// the engine may have more, or less, when it asks again.
    std::optional<std::uint32_t> worth;
    std::uint32_t worth_from = 0;
    bool passed_over_taken = false;
    /// Tokens that are computed though they were found.
    std::uint32_t passed_over = 0;
    /// Pages that are being asked for.
    std::uint32_t asked = 0;
    timestamp since;
    /// Until when the engine may be told of what was found: a quarter of the lease is left then for the load to begin.
    /// Of several leases, the first to end.
    timestamp fresh_until = timestamp::max();
    std::vector<ticket> leases;
    /// How often what was found was nearly over before the engine could be told.
    std::uint32_t missed = 0;
  };
  lookup& search() noexcept { return lookup_; }
  const lookup& search() const noexcept { return lookup_; }
  /// Only a request that asks: it does so once, and again after a preemption, so that a page that cannot be loaded is
  /// not tried for ever.
  bool may_load() const noexcept { return usable_ && phase_ == phase::asking; }

  /// Tokens that were found and are not worth a load, beyond what the engine has. Says so once for each lookup.
  std::uint32_t take_passed_over() noexcept;
  /// Where tokens of the request lie, from `first` to before `last`, as far as the lookup knew.
  hit_sources sources(std::uint32_t first, std::uint32_t last) const noexcept;

  // Blocks.

  /// The engine has allocated: true if a load follows.
  bool allocated(std::span<const block_id> blocks, std::uint32_t external_tokens);
  void append_blocks(std::span<const block_id> blocks) { blocks_.insert(blocks_.end(), blocks.begin(), blocks.end()); }
  void replace_blocks(std::span<const block_id> blocks) { blocks_.assign(blocks.begin(), blocks.end()); }

  /// The load to be done; the phase becomes `loading`.
  load_op take_load();
  /// Of the load, by where they lie.
  hit_sources load_sources() const noexcept { return sources(load_first_, load_last_); }
  std::uint32_t load_first() const noexcept { return load_first_; }
  /// Which pages are being loaded.
  page_range load_range() const noexcept;
  /// Blocks that are being loaded, and all behind them: what they will hold depends on the load.
  std::span<const block_id> blocks_from_load() const noexcept;
  /// Of the blocks being loaded, those in `failed` (sorted) have not been filled.
  void mark_failed(std::span<const block_id> failed);
  /// Of the pages being loaded, in their order, those without a mark have not been.
  void mark_failed_pages(std::span<const std::uint8_t> filled);
  /// Something has not been filled, and nobody has said which block: none counts as filled.
  void mark_some_failed();
  /// The load has ended. The pages that failed, in runs: they are not in the cache, or not readable, and may be stored
  /// again.
  std::vector<page_range> loaded();

  /// The engine runs the request, without a load if none has begun.
  void run() noexcept;
  /// Since it asked last.
  bool has_run() const noexcept { return has_run_; }

  /// Blocks are gone; asks anew when it comes back.
  void preempt();

  // Stores.

  /// Runs of pages to store in a step after which the KV of `computed_after` tokens is there; none above `limit`
  /// pages. They count as being stored from now on. A page is tried `attempts_max` times.
  std::vector<page_range> take_stores(std::uint32_t computed_after, std::uint32_t limit, std::uint32_t attempts_max);
  store_op make_store(const page_range& range) const;
  /// What became of them.
  void stored(std::uint32_t first_page, std::span<const std::uint8_t> ok);

  /// Stores of the blocks that the request has now, without a report.
  std::uint32_t open_stores() const noexcept { return open_stores_; }
  /// Including those from before a preemption.
  std::uint32_t reports_missing() const noexcept { return reports_missing_; }
  void store_opened() noexcept {
    ++open_stores_;
    ++reports_missing_;
  }
  /// `generation` as when it was opened.
  void store_closed(std::uint32_t generation) noexcept;
  /// A load on which workers report.
  void load_opened() noexcept { ++reports_missing_; }
  void load_closed() noexcept { --reports_missing_; }
  std::uint32_t generation() const noexcept { return generation_; }

  /// The engine does not have the request any more; it keeps its blocks if it waits for reports.
  enum class stay : std::uint8_t { present, waiting_for_reports, gone };
  stay presence = stay::present;

private:
  enum class page_state : std::uint8_t { unknown, storing, stored, hole };

  std::uint32_t page_tokens() const noexcept { return shape_.block_tokens * shape_.blocks_per_page; }
  bool storable(std::uint32_t i) const noexcept;
  void grow();

  session_id session_;
  std::string name_;
  key_chain keys_;
  key_chain_options shape_;
  std::uint32_t prompt_tokens_;
  phase phase_ = phase::asking;
  bool usable_ = true;
  bool has_run_ = false;
  std::uint32_t generation_ = 0;
  lookup lookup_;
  /// What the engine had computed itself when it asked last.
  std::uint32_t computed_ = 0;
  /// Tokens of the load.
  std::uint32_t load_first_ = 0;
  std::uint32_t load_last_ = 0;
  std::vector<block_id> load_failed_;
  std::vector<block_id> blocks_;
  std::vector<page_state> pages_;
  std::vector<std::uint8_t> attempts_;
  /// No page before it is `unknown`.
  std::uint32_t cursor_ = 0;
  /// Pages that are holes, to be tried again.
  std::vector<std::uint32_t> retries_;
  std::uint32_t open_stores_ = 0;
  std::uint32_t reports_missing_ = 0;
};

} // namespace troupe::connector
