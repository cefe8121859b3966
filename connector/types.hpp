#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The data exchanged between an inference engine and the two halves of its connector. Plain data, free of CAF: views
/// for inputs (which are read during the call and not kept), values for outputs. The hooks and their meaning are those
/// of vLLM's `KVConnectorBase_V1`; see docs/engine-connector.md.

namespace troupe::connector {

using token_id = std::uint32_t;

/// A block of the engine's paged KV cache.
using block_id = std::uint32_t;

/// Block tables of a request. An engine with several KV cache groups has one for each, as its layers keep different
/// parts of the tokens. A null block stands for tokens that a table does not keep.
struct block_tables {
  /// All tables, one after the other.
  std::span<const block_id> blocks{};
  /// Where each table ends in `blocks`; empty where there is one table.
  std::span<const std::uint32_t> ends{};

  block_tables() = default;
  /// One table.
  template <std::convertible_to<std::span<const block_id>> Blocks>
  block_tables(const Blocks& one) // NOLINT(google-explicit-constructor): a list is a table
      : blocks(one) {}
  block_tables(std::span<const block_id> all, std::span<const std::uint32_t> table_ends)
      : blocks(all), ends(table_ends) {}

  /// Empty for a table that does not exist. `ends` must ascend, and not beyond `blocks`.
  std::span<const block_id> table(std::size_t number) const noexcept {
    if (ends.empty())
      return number == 0 ? blocks : std::span<const block_id>{};
    if (number >= ends.size())
      return {};
    const std::size_t first = number == 0 ? 0 : ends[number - 1];
    return blocks.subspan(first, ends[number] - first);
  }
};

/// A block with the state of some layers after `tokens` tokens of a request, which the step writes. It is offered once,
/// and its bytes stay until the block is given out again.
struct state_offer {
  /// The block table of the layers.
  std::uint32_t table = 0;
  block_id block = 0;
  std::uint32_t tokens = 0;

  friend bool operator==(const state_offer&, const state_offer&) = default;
};

/// The engine's own content address of a full block, chained over the prefix; shorter hashes are padded with zeroes.
using block_hash = std::array<std::byte, 32>;

/// Tokens of a request from position `first` on. A connector ignores those that it has already, so an engine may pass
/// all of a request's tokens each time (which copies nothing), or only new ones. They must be final: no drafts, and no
/// placeholders for outputs that are still being computed.
struct token_range {
  std::uint32_t first = 0;
  std::span<const token_id> tokens{};
};

/// Hashes of a request's full blocks from block `first` on, in the same form.
struct hash_range {
  std::uint32_t first = 0;
  std::span<const block_hash> hashes{};
};

/// Tokens that stand for an image or other input: equal tokens with different hashes have different KV.
struct multimodal_item {
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
  std::string_view hash;
};

/// A request as the engine's scheduler knows it.
struct engine_request {
  std::string_view id;
  token_range tokens;
  /// Used where keys are made from the engine's hashes.
  hash_range hashes{};
  /// Name of the adapter; empty for the base model.
  std::string_view lora{};
  /// Requests with different salts share nothing.
  std::string_view cache_salt{};
  std::span<const multimodal_item> multimodal{};
  /// False where tokens do not determine the KV, as with prompts given as embeddings: nothing is loaded or saved.
  bool cacheable = true;
};

/// How much of a request is in the cache.
struct matched_tokens {
  /// Tokens beyond those that the engine has computed already. Empty: not known yet, call again in a later step.
  std::optional<std::uint32_t> tokens;
  /// Whether the tokens will be loaded between steps; the request then waits until `get_finished` of all workers has
  /// named it. False, where there are tokens: the request can run in this step, whose forward pass begins when they
  /// have been loaded.
  bool asynchronous = false;

  friend bool operator==(const matched_tokens&, const matched_tokens&) = default;
};

/// The tiers of tokens that are loaded, as far as the lookup knew. The sum is the requested number of tokens.
struct hit_sources {
  /// Memory of the node.
  std::uint32_t memory = 0;
  std::uint32_t disk = 0;
  /// The tier is not known.
  std::uint32_t unknown = 0;

  friend bool operator==(const hit_sources&, const hit_sources&) = default;
};

/// What the last lookup of a request had from other nodes: how often they were asked, how many pages were fetched from
/// them, and how long that took together. With several groups of layers, the pages of all groups count, and times of
/// groups that were waited for at once add up.
struct fetched_pages {
  std::uint32_t requests = 0;
  std::uint32_t pages = 0;
  duration took{};

  friend bool operator==(const fetched_pages&, const fetched_pages&) = default;
};

/// What happens to the part of a hit that is on the node's disk, and not in its memory.
enum class disk_hits : std::uint8_t {
  /// It is loaded.
  always,
  /// It is loaded if that is expected to take no longer than computing it, by measurements.
  when_faster,
  /// It is computed.
  never,
};

/// One request's part in a step.
struct scheduled_request {
  std::string_view id;
  /// Tokens whose KV exists before the step, from any source.
  std::uint32_t computed_tokens = 0;
  /// Tokens that the step computes.
  std::uint32_t scheduled_tokens = 0;
  /// New and resumed requests: all blocks. Others: those that were added in this step.
  block_tables blocks{};
  /// Resumed after a preemption: `blocks` replaces the earlier ones.
  bool resumed = false;
  token_range tokens{};
  hash_range hashes{};
  std::span<const state_offer> states{};
};

/// The engine's scheduling of a step. Not modified.
struct scheduler_output {
  std::span<const scheduled_request> new_requests{};
  /// Requests that ran before.
  std::span<const scheduled_request> cached_requests{};
  /// Requests that were preempted while this step was scheduled: their blocks may belong to others already.
  std::span<const std::string_view> preempted{};
};

/// The number of a request's life inside the connector: unlike the engine's ids, never reused.
using session_id = std::uint64_t;

/// The number of one store op, or of one load, for its result.
using store_id = std::uint64_t;

/// An order to fill blocks from the cache: between steps, before the engine schedules the request, or before the step's
/// forward pass, which needs them.
struct load_op {
  session_id session = 0;
  std::string request;
  /// One per page.
  std::vector<key_digest> keys;
  /// `blocks_per_page` for each key. `null_block` where nothing may be written, because the engine has computed those
  /// tokens itself and other requests may be reading them.
  std::vector<block_id> blocks;
  /// The id under which each worker reports the result, as for a store. 0: it does not.
  store_id id = 0;
  /// Whether the request waits for the load, and is named as received when it has ended. Otherwise the load is
  /// synchronous: the step waits for it.
  bool between_steps = true;
  /// The group of layers whose blocks these are.
  std::uint32_t group = 0;

  bool synchronous() const noexcept { return !between_steps; }
  friend bool operator==(const load_op&, const load_op&) = default;
};

/// An order to copy blocks to the cache, when the step has computed them.
struct store_op {
  store_id id = 0;
  session_id session = 0;
  std::string request;
  /// Position of `keys[0]` in the request, in pages.
  std::uint32_t first_page = 0;
  /// The key before `keys[0]`; null for the first page.
  key_digest parent;
  std::vector<key_digest> keys;
  /// `blocks_per_page` for each key.
  std::vector<block_id> blocks;
  /// As in `load_op`.
  std::uint32_t group = 0;
  /// Whether each key is the parent of the next one; as in `transfer_task`.
  bool chained = true;

  friend bool operator==(const store_op&, const store_op&) = default;
};

/// A request has finished; the engine keeps its blocks until every worker has reported that it does not need them.
struct finish_op {
  session_id session = 0;
  std::string request;
  /// The list of `finished_requests` in which the engine expects the id: a request that finishes during its load is
  /// still named as received, and not also as sent.
  bool received = false;

  friend bool operator==(const finish_op&, const finish_op&) = default;
};

/// From the scheduler half to every worker half, with each step.
struct connector_metadata {
  std::vector<load_op> loads{};
  std::vector<store_op> stores{};
  /// Sessions whose blocks may be overwritten by others from this step on.
  std::vector<session_id> preempted{};
  std::vector<finish_op> finished{};

  bool empty() const noexcept { return loads.empty() && stores.empty() && preempted.empty() && finished.empty(); }
  friend bool operator==(const connector_metadata&, const connector_metadata&) = default;
};

/// Ids of requests whose transfers have ended. Each id is in one of the lists at most once per load, and once after it
/// has finished.
struct finished_requests {
  /// Finished requests whose blocks may be freed.
  std::vector<std::string> sent;
  /// Requests whose load has ended, successfully or not; see `get_block_ids_with_load_errors`.
  std::vector<std::string> received;
  /// Those in `received` with at least one block that was not filled. `get_block_ids_with_load_errors` is more precise:
  /// an engine that uses both computes all tokens of the request, and not only those from the first bad block on. For
  /// engines in which block numbers are not unique, as with several KV cache groups.
  std::vector<std::string> failed;
};

/// The result of a store, or of a load with an id, page by page, on one worker.
struct store_outcome {
  store_id id = 0;
  /// 1 where the page is in the cache, written now or before, else 0; for a load, see `load_mark`.
  std::vector<std::uint8_t> stored;

  friend bool operator==(const store_outcome&, const store_outcome&) = default;
};

/// From the workers to the scheduler half after each step, of one worker or of several joined by `output_aggregator`.
struct worker_output {
  std::vector<std::string> sent{};
  std::vector<std::string> received{};
  /// Blocks that a load failed to fill.
  std::vector<block_id> load_errors{};
  std::vector<store_outcome> stores{};
  /// As `finished_requests::failed`: failed on at least one worker, and received on all.
  std::vector<std::string> failed{};
};

/// Blocks that the engine must keep although no request may need them any more, as they are being copied, and those
/// that it need not keep any more. A block may be in several copies, and is in the lists once for each.
struct block_holds {
  std::vector<block_id> hold{};
  std::vector<block_id> release{};

  bool empty() const noexcept { return hold.empty() && release.empty(); }
  friend bool operator==(const block_holds&, const block_holds&) = default;
};

/// Which events are kept for `take_events`.
enum class event_detail : std::uint8_t {
  /// Pages that this engine has saved, or could not load. With several groups only those of one of them.
  changes,
  none,
  /// All kinds, of all groups: also what lookups have found and missed, and saves that begin.
  all,
};

/// Pages of a request were added to the cache or removed, as far as this engine knows. For `take_events`.
struct cache_event {
  enum class kind : std::uint8_t {
    stored,
    removed,
    all_cleared,
    /// They are in the cache, on disk only.
    on_disk,
    /// They are being saved, and are not in the cache yet. `stored` or `not_saved` follows for each of them, with the
    /// same `save`, maybe after the end of the request; or neither, after `all_cleared`.
    saving,
    /// They were not saved, and may be absent or not.
    not_saved,
  };
  kind what = kind::stored;
  std::string request{};
  /// Those of the pages; none where the request has ended.
  std::vector<key_digest> keys{};
  /// The parent of the first key.
  key_digest parent{};
  /// Tokens of one key.
  std::uint32_t page_tokens = 0;
  std::uint32_t group = 0;
  /// 0: none.
  store_id save = 0;
  std::uint32_t first_page = 0;
  std::uint32_t pages = 0;

  friend bool operator==(const cache_event&, const cache_event&) = default;
};

} // namespace troupe::connector
