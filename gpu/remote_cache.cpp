#include "gpu/remote_cache.hpp"

#include "base/unique_descriptor.hpp"

#include <spdlog/fmt/fmt.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

/// The size of the header of PyTorch's file of counters.
constexpr std::uint64_t share_counter_header_bytes = 64;
constexpr std::uint64_t share_counters_max = 10000;

} // namespace

result<std::unique_ptr<remote_cache>> open_remote_cache(const remote_layout& layout) {
  if (auto ok = validate(layout); !ok)
    return tl::unexpected(std::move(ok.error()));
  return std::holds_alternative<shared_memory_handle>(layout.memories.front()) ? open_remote_shared_cache(layout)
                                                                               : open_remote_gpu_cache(layout);
}

result<void> validate(const remote_layout& layout, std::span<const block_move> moves) {
  const auto page_bytes = layout.page_bytes();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto& move = moves[i];
    if (move.further_blocks.size() + 1 != layout.blocks_per_page)
      return fail(errc::invalid_argument, fmt::format("entry {} of {} names {} blocks; a page has {}", i, moves.size(),
                                                      move.further_blocks.size() + 1, layout.blocks_per_page));
    for (std::size_t b = 0; b < layout.blocks_per_page; ++b)
      if (const auto block = move.block_at(b); block >= layout.blocks && block != null_block)
        return fail(errc::out_of_range, fmt::format("entry {} of {} names block {}; the KV cache has {}", i,
                                                    moves.size(), block, layout.blocks));
    if (move.page_bytes != page_bytes || move.page == nullptr)
      return fail(errc::invalid_argument, fmt::format("entry {} of {} has a page of {} bytes; pages have {}", i,
                                                      moves.size(), move.page_bytes, page_bytes));
    if (move.stored_bytes() == 0 || move.only_encoded)
      return fail(errc::invalid_argument, fmt::format("entry {} of {} is to have encoding {}; its page cannot have it",
                                                      i, moves.size(), to_string(move.encoding)));
  }
  return {};
}

void count_down(std::span<const share_counter> counters) noexcept {
  for (const auto& x : counters) {
    if (!is_shared_memory_name(x.name) || x.index >= share_counters_max)
      continue;
    const unique_descriptor file(::shm_open(x.name.c_str(), O_RDWR | O_CLOEXEC, 0));
    struct stat status {};
    const auto at = static_cast<off_t>(share_counter_header_bytes + x.index * sizeof(std::int64_t));
    constexpr auto least = static_cast<off_t>(share_counter_header_bytes + share_counters_max * sizeof(std::int64_t));
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < least)
      continue;
    // Each counter belongs to one receiver: no other process changes it once it is set.
    std::int64_t left = 0;
    if (::pread(file.get(), &left, sizeof left, at) != sizeof left || left <= 0)
      continue;
    --left;
    // A write of eight bytes of shared memory fails only if the file has lost its page: then the counter is lost as
    // well.
    if (::pwrite(file.get(), &left, sizeof left, at) != sizeof left)
      continue;
  }
}

} // namespace troupe
