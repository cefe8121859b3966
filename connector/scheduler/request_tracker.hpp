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

/// The state of one request in the connector, from its first lookup to its last report: the arithmetic of blocks, pages
/// and tokens, and one state machine for every granularity (HF3FS has one block per page, LMCache several).
///
///     asking ──alloc, tokens to load──▶ to_load ──metadata──▶ loading ──received──▶ active
///        │                                                                            ▲
///        └──alloc, nothing to load────────────────────────────────────────────────────┘
///     any ──preempted──▶ asking            any ──finished──▶ (gone, or waits for reports)
///
/// A synchronous load has the same states, and ends when all workers have reported it. The request runs meanwhile, and
/// nothing of it is stored before the result of the load is known.
///
/// A page is known to be in the cache, or is being stored, or neither. It may be stored when its key is known, its
/// blocks are allocated, and its last token's KV exists after the step. Pages are stored in order. A page that could
/// not be stored is retried a few times, and then left as a known hole.
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

  /// Adds tokens and hashes. A gap in them excludes the request from loads and saves.
  void add(const token_range& tokens, const hash_range& hashes);
  bool usable() const noexcept { return usable_; }
  void abandon() noexcept { usable_ = false; }

  // Lookup.

  /// The pages that a lookup may find: all full ones except the one with the last token.
  std::uint32_t pages_to_look_up() const noexcept;
  /// The tokens to offer to an engine that has computed `computed`, once the lookup and its worth are known.
  std::uint32_t new_tokens(std::uint32_t computed) noexcept;

  struct lookup {
    enum class status : std::uint8_t { none, under_way, answered };
    status now = status::none;
    std::uint64_t id = 0;
    /// The number of leading pages found so far.
    std::uint32_t matched = 0;
    /// One mark for each page found, 1 where it is on disk only; empty where this is unknown.
    std::vector<std::uint8_t> on_disk;
    /// From other nodes, in the lookups of which this consists.
    fetched_pages fetched;
    /// How many of the pages found are worth a load, empty until that is decided; and the page from which that counts,
    /// since the engine may have more or less at its next call.
    std::optional<std::uint32_t> worth;
    std::uint32_t worth_from = 0;
    bool passed_over_taken = false;
    /// Tokens that were found and are computed.
    std::uint32_t passed_over = 0;
    /// Pages that are being looked up.
    std::uint32_t asked = 0;
    timestamp since;
    /// The time until which the engine may receive the result: then a quarter of the lease is left for the load to
    /// begin. With several leases, the first to expire counts.
    timestamp fresh_until = timestamp::max();
    std::vector<ticket> leases;
    /// How often the leases had nearly expired before the engine could receive the result.
    std::uint32_t missed = 0;
  };
  lookup& search() noexcept { return lookup_; }
  const lookup& search() const noexcept { return lookup_; }
  /// Only in the phase `asking`: that is once, and again after a preemption, so that a page that cannot be loaded is
  /// not retried forever.
  bool may_load() const noexcept { return usable_ && phase_ == phase::asking; }

  /// Tokens that were found and are not worth a load, beyond those of the engine. Returns them once for each lookup.
  std::uint32_t take_passed_over() noexcept;
  /// The tiers of the request's tokens from `first` to before `last`, as far as the lookup knew.
  hit_sources sources(std::uint32_t first, std::uint32_t last) const noexcept;

  // Blocks.

  /// The engine has allocated blocks. Returns true if a load follows.
  bool allocated(std::span<const block_id> blocks, std::uint32_t external_tokens);
  void append_blocks(std::span<const block_id> blocks) { blocks_.insert(blocks_.end(), blocks.begin(), blocks.end()); }
  void replace_blocks(std::span<const block_id> blocks) { blocks_.assign(blocks.begin(), blocks.end()); }

  /// The load to run; the phase becomes `loading`.
  load_op take_load();
  /// The tokens of the load, by tier.
  hit_sources load_sources() const noexcept { return sources(load_first_, load_last_); }
  std::uint32_t load_first() const noexcept { return load_first_; }
  /// The pages that are being loaded.
  page_range load_range() const noexcept;
  /// Blocks that are being loaded, and all later ones: their content depends on the load.
  std::span<const block_id> blocks_from_load() const noexcept;
  /// Marks the blocks of the load that are in `failed` (sorted) as not filled.
  void mark_failed(std::span<const block_id> failed);
  /// Marks pages of the load without a mark in `filled` as not filled; in their order.
  void mark_failed_pages(std::span<const std::uint8_t> filled);
  /// An unknown block was not filled, so all blocks of the load count as not filled.
  void mark_some_failed();
  /// The load has ended. Returns the failed pages, in runs: they are not in the cache, or not readable, and may be
  /// stored again.
  std::vector<page_range> loaded();

  /// The engine runs the request, without a load if none has begun.
  void run() noexcept;
  /// Whether it has run since its last lookup.
  bool has_run() const noexcept { return has_run_; }

  /// The engine has taken its blocks; it is looked up again when it resumes.
  void preempt();

  // Stores.

  /// Runs of pages to store in a step after which the KV of `computed_after` tokens exists; at most `limit` pages per
  /// run. They count as being stored from now on. A page is tried `attempts_max` times.
  std::vector<page_range> take_stores(std::uint32_t computed_after, std::uint32_t limit, std::uint32_t attempts_max);
  store_op make_store(const page_range& range) const;
  /// The results of a store.
  void stored(std::uint32_t first_page, std::span<const std::uint8_t> ok);

  /// Stores of the request's current blocks without a report.
  std::uint32_t open_stores() const noexcept { return open_stores_; }
  /// The same, including stores from before a preemption.
  std::uint32_t reports_missing() const noexcept { return reports_missing_; }
  void store_opened() noexcept {
    ++open_stores_;
    ++reports_missing_;
  }
  /// `generation`: its value when the store was opened.
  void store_closed(std::uint32_t generation) noexcept;
  /// A load begins on which workers report.
  void load_opened() noexcept { ++reports_missing_; }
  void load_closed() noexcept { --reports_missing_; }
  std::uint32_t generation() const noexcept { return generation_; }

  /// Whether the engine still has the request; a finished one keeps its blocks if it waits for reports.
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
  /// The tokens that the engine had computed at the last lookup.
  std::uint32_t computed_ = 0;
  /// The tokens of the load.
  std::uint32_t load_first_ = 0;
  std::uint32_t load_last_ = 0;
  std::vector<block_id> load_failed_;
  std::vector<block_id> blocks_;
  std::vector<page_state> pages_;
  std::vector<std::uint8_t> attempts_;
  /// No page before this one is `unknown`.
  std::uint32_t cursor_ = 0;
  /// Holes that are to be retried.
  std::vector<std::uint32_t> retries_;
  std::uint32_t open_stores_ = 0;
  std::uint32_t reports_missing_ = 0;
};

} // namespace troupe::connector
