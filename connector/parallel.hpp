#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <vector>

namespace troupe::connector {

/// The distribution of an engine over workers. Workers are numbered pipeline stage by pipeline stage, and inside a
/// stage by tensor-parallel rank: worker = stage × tensor_parallel + tensor rank.
struct parallel_layout {
  std::uint32_t tensor_parallel = 1;
  std::uint32_t pipeline_parallel = 1;
  /// The number of workers over which the tokens of one block are spread (vLLM's decode context parallelism). These are
  /// consecutive tensor-parallel ranks: tensor rank modulo `context_parallel` is the share of the tokens that a worker
  /// holds.
  std::uint32_t context_parallel = 1;
  /// Whether the KV of a token is the same on every tensor-parallel worker that holds it, as with MLA, where heads are
  /// not split. Without context parallelism these are all workers of a stage; with it, those whose tensor ranks are
  /// equal modulo `context_parallel`.
  bool kv_replicated = false;

  friend bool operator==(const parallel_layout&, const parallel_layout&) = default;
};

/// Checks the numbers: none is 0, context parallelism divides tensor parallelism, and there are at most 65535 workers.
/// invalid_argument names the wrong one.
result<void> validate(const parallel_layout& layout);

/// The layout of one pipeline stage alone.
parallel_layout one_stage(const parallel_layout& layout) noexcept;

// The functions below expect a layout that `validate` accepts, and a worker below `worker_count`.

/// The number of workers of the engine.
std::uint32_t worker_count(const parallel_layout& layout) noexcept;

/// The pipeline stage of a worker, 0 … pipeline_parallel - 1, and its number inside of it.
std::uint32_t stage_of(const parallel_layout& layout, std::uint32_t worker) noexcept;
std::uint32_t worker_in_stage(const parallel_layout& layout, std::uint32_t worker) noexcept;

/// The number of different pages of one key, which is the namespace's world size: stages × context parallelism where KV
/// is replicated, or else stages × tensor parallelism, which is every worker.
std::uint32_t kv_world_size(const parallel_layout& layout) noexcept;

/// The rank whose page a worker reads, and writes if it is a writer: 0 … kv_world_size - 1, stage by stage. Where KV is
/// replicated: stage × context_parallel + tensor rank modulo context_parallel, or else the worker itself.
rank_number kv_rank(const parallel_layout& layout, std::uint32_t worker) noexcept;

/// Whether a worker saves: the first of the workers with the same KV does.
bool is_kv_writer(const parallel_layout& layout, std::uint32_t worker) noexcept;

/// The number of workers that save, and of the outcomes of a store. One for each page.
std::uint32_t kv_writer_count(const parallel_layout& layout) noexcept;

/// The number of workers that read each page: tensor_parallel / context_parallel where KV is replicated, or else one.
/// It is computed from the layout, not by comparing tensor parallelism with the world size, which fails where there are
/// at least as many stages as tensor-parallel ranks.
std::uint32_t readers_per_page(const parallel_layout& layout) noexcept;

/// The tokens of a block as the scheduler counts them, from those of one worker's tensor: with context parallelism a
/// block of the scheduler is spread over several workers. At most what fits in 32 bits.
std::uint32_t scheduler_block_tokens(const parallel_layout& layout, std::uint32_t tensor_block_tokens) noexcept;

} // namespace troupe::connector
