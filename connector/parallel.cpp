#include "connector/parallel.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace troupe::connector {

namespace {

/// The number of tensor-parallel ranks of a stage with different KV; rank r has the same KV as r modulo this number.
std::uint32_t different_per_stage(const parallel_layout& layout) noexcept {
  return layout.kv_replicated ? layout.context_parallel : layout.tensor_parallel;
}

} // namespace

result<void> validate(const parallel_layout& layout) {
  const auto invalid = [](std::string text) { return fail(errc::invalid_argument, std::move(text)); };
  if (layout.tensor_parallel == 0 || layout.pipeline_parallel == 0 || layout.context_parallel == 0)
    return invalid("tensor, pipeline and context parallelism must be 1 or more");
  if (layout.tensor_parallel % layout.context_parallel != 0)
    return invalid("context parallelism " + std::to_string(layout.context_parallel) +
                   " does not divide tensor parallelism " + std::to_string(layout.tensor_parallel));
  const auto workers = std::uint64_t{layout.tensor_parallel} * layout.pipeline_parallel;
  if (workers > std::numeric_limits<std::uint16_t>::max())
    return invalid("tensor times pipeline parallelism is " + std::to_string(workers) + ", more than 65535 workers");
  return {};
}

parallel_layout one_stage(const parallel_layout& layout) noexcept {
  auto out = layout;
  out.pipeline_parallel = 1;
  return out;
}

std::uint32_t worker_count(const parallel_layout& layout) noexcept {
  return layout.tensor_parallel * layout.pipeline_parallel;
}

std::uint32_t stage_of(const parallel_layout& layout, std::uint32_t worker) noexcept {
  return worker / layout.tensor_parallel;
}

std::uint32_t worker_in_stage(const parallel_layout& layout, std::uint32_t worker) noexcept {
  return worker % layout.tensor_parallel;
}

std::uint32_t kv_world_size(const parallel_layout& layout) noexcept {
  return layout.pipeline_parallel * different_per_stage(layout);
}

rank_number kv_rank(const parallel_layout& layout, std::uint32_t worker) noexcept {
  return stage_of(layout, worker) * different_per_stage(layout) +
         worker_in_stage(layout, worker) % different_per_stage(layout);
}

bool is_kv_writer(const parallel_layout& layout, std::uint32_t worker) noexcept {
  return worker_in_stage(layout, worker) < different_per_stage(layout);
}

std::uint32_t kv_writer_count(const parallel_layout& layout) noexcept {
  return kv_world_size(layout);
}

std::uint32_t readers_per_page(const parallel_layout& layout) noexcept {
  return layout.tensor_parallel / different_per_stage(layout);
}

std::uint32_t scheduler_block_tokens(const parallel_layout& layout, std::uint32_t tensor_block_tokens) noexcept {
  const auto tokens = std::uint64_t{layout.context_parallel} * tensor_block_tokens;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, std::numeric_limits<std::uint32_t>::max()));
}

} // namespace troupe::connector
