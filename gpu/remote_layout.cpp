#include "gpu/remote_layout.hpp"

#include <string>
#include <string_view>

namespace troupe {

namespace {

/// The limit for the bytes of one block in all runs; a larger page is refused.
constexpr std::uint64_t remote_page_bytes_max = std::uint64_t{1} << 32U;

constexpr std::size_t shared_memory_name_max = 255;

std::uint64_t bytes_of(const memory_handle& x) noexcept {
  return std::visit([](const auto& handle) { return handle.bytes; }, x);
}

result<void> validate_run(const remote_layout& x, std::size_t i) {
  const auto& run = x.runs[i];
  const auto name = "run " + std::to_string(i);
  if (run.memory >= x.memories.size())
    return fail(errc::out_of_range,
                name + " lies in memory " + std::to_string(run.memory) + " of " + std::to_string(x.memories.size()));
  if (run.bytes == 0 || run.bytes > remote_page_bytes_max || (x.blocks > 1 && run.block_stride < run.bytes))
    return fail(errc::invalid_argument, name + " has " + std::to_string(run.bytes) + " bytes a block, and blocks " +
                                            std::to_string(run.block_stride) + " bytes apart");
  std::uint64_t end = 0;
  const auto bytes = bytes_of(x.memories[run.memory]);
  if (__builtin_mul_overflow(std::uint64_t{x.blocks} - 1, run.block_stride, &end) ||
      __builtin_add_overflow(end, run.bytes, &end) || __builtin_add_overflow(end, run.offset, &end) || end > bytes)
    return fail(errc::out_of_range, name + ": " + std::to_string(x.blocks) + " blocks end behind the " +
                                        std::to_string(bytes) + " bytes of their memory");
  return {};
}

} // namespace

bool is_shared_memory_name(std::string_view x) noexcept {
  if (x.starts_with('/'))
    x.remove_prefix(1);
  return !x.empty() && x.size() < shared_memory_name_max && x != "." && x != ".." &&
         x.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::uint64_t remote_layout::page_bytes() const noexcept {
  std::uint64_t out = 0;
  for (const auto& run : runs)
    out += run.bytes;
  return out * blocks_per_page;
}

result<void> validate(const remote_layout& x) {
  if (x.memories.empty() || x.runs.empty() || x.memories.size() > remote_runs_max || x.runs.size() > remote_runs_max)
    return fail(errc::invalid_argument, "a KV cache of " + std::to_string(x.memories.size()) + " tensors");
  if (x.blocks == 0 || x.blocks_per_page == 0 || x.block_tokens == 0)
    return fail(errc::invalid_argument, "a KV cache without blocks");
  for (const auto& memory : x.memories) {
    if (memory.index() != x.memories.front().index())
      return fail(errc::unsupported, "a KV cache in memories of different kinds");
    if (const auto* shared = std::get_if<shared_memory_handle>(&memory))
      if (!is_shared_memory_name(shared->name))
        return fail(errc::invalid_argument, "the name of the shared memory is not valid");
  }
  std::uint64_t block_bytes = 0;
  for (std::size_t i = 0; i < x.runs.size(); ++i) {
    if (auto ok = validate_run(x, i); !ok)
      return ok;
    block_bytes += x.runs[i].bytes;
  }
  if (block_bytes > remote_page_bytes_max / x.blocks_per_page)
    return fail(errc::invalid_argument, "a page of " + std::to_string(x.blocks_per_page) + " blocks of " +
                                            std::to_string(block_bytes) + " bytes");
  return {};
}

} // namespace troupe
