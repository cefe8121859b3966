#pragma once

#include "connector/groups/page_group.hpp"
#include "connector/types.hpp"
#include "tests/simulation/random.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::group_simulation {

using connector::block_id;
using connector::group_kind;
using connector::page_group;

/// What a place in a KV cache holds: a number that says what it depends on.
using content = std::uint64_t;

/// The engine's block that stands for tokens that a table does not keep.
inline constexpr block_id empty_block = 0;

/// A model and the engine that runs it, as a seed has them.
struct shape {
  std::uint32_t page_tokens = 0;
  std::vector<page_group> groups;
  /// By the engine's number of a block table: a group that it is in.
  std::vector<std::uint32_t> group_of_table;
  /// Of all pipeline stages, stage by stage.
  std::uint32_t workers = 1;
  /// Pipeline stages, each of which has groups of its own with the same tables as those of others; 0: all workers have
  /// all groups.
  std::uint32_t stages = 0;
  /// All workers of a stage have the same KV, and one of them saves.
  bool replicated = false;
  std::uint32_t blocks = 0;
  std::uint32_t step_tokens = 0;
  std::uint32_t prompt_max = 0;
  std::uint32_t output_max = 0;
  bool prefix_caching = false;
  /// Freed blocks are given out again first, and not last.
  bool newest_first = false;
  /// States at boundaries are written by a step that goes beyond them; otherwise steps end there.
  bool checkpoints = false;
  /// The output of a step is processed behind the scheduling of the next one.
  bool late_output = false;
  /// One offer of a state in this number is left out.
  std::uint32_t offers_left_out = 0;
  /// The node has peers.
  bool peers = false;
  /// The most drafts that a step verifies beside a request's last token.
  std::uint32_t drafts = 0;

  std::uint32_t tables() const noexcept { return static_cast<std::uint32_t>(group_of_table.size()); }
  const page_group& group_of(std::uint32_t table) const { return groups[group_of_table[table]]; }
  std::uint32_t block_tokens(std::uint32_t table) const { return group_of(table).block_tokens; }
  std::uint32_t blocks_per_page(std::uint32_t group) const;
  std::uint32_t workers_of_group() const noexcept { return stages == 0 ? workers : workers / stages; }
  /// As `page_group::stage`.
  std::uint32_t stage_of(std::uint32_t worker) const noexcept {
    return stages == 0 ? 0 : worker / workers_of_group() + 1;
  }
  std::uint32_t rank_of(std::uint32_t worker) const noexcept { return replicated ? 0 : worker % workers_of_group(); }
  std::uint32_t ranks() const noexcept { return replicated ? 1 : workers_of_group(); }
  bool has_group(std::uint32_t worker, std::uint32_t group) const { return groups[group].stage == stage_of(worker); }
  /// Whether a worker has layers whose blocks are in this table.
  bool has_table(std::uint32_t worker, std::uint32_t table) const;
  std::string describe() const;
};

shape make_shape(simulation::random_source& random);

/// The first token that a kind of layers needs of a prefix of `length` tokens, as vLLM has it; `length` where it needs
/// none. States: the first token of the block with the state after `length` tokens.
///
/// Written from vLLM's behaviour, and not from the rules that are tested.
std::uint32_t first_needed(const page_group& group, std::uint32_t length);
/// The first page that a hit of `length` tokens needs.
std::uint32_t first_page(const shape& x, std::uint32_t group, std::uint32_t length);

/// The KV of one token, or the state after some tokens: `prefix` stands for all tokens up to there. `stage`: as
/// `page_group::stage`.
content kv(std::uint32_t table, std::uint32_t stage, std::uint32_t rank, content prefix);

} // namespace troupe::group_simulation
