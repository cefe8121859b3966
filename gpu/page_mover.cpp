#include "gpu/page_mover.hpp"

#include <spdlog/fmt/fmt.h>

namespace troupe {

result<void> validate(const kv_cache_view& cache, std::span<const block_move> moves) {
  const auto page_bytes = cache.geometry.page_bytes();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const auto& move = moves[i];
    if (move.further_blocks.size() + 1 != cache.blocks_per_page)
      return fail(errc::invalid_argument,
                  fmt::format("entry {} of {} names {} blocks; a page of this KV cache has {}; nothing was moved", i,
                              moves.size(), move.further_blocks.size() + 1, cache.blocks_per_page));
    for (std::size_t b = 0; b < cache.blocks_per_page; ++b)
      if (const auto block = move.block_at(b); block >= cache.blocks && block != null_block)
        return fail(errc::out_of_range,
                    fmt::format("entry {} of {} names block {}; the KV cache has {} blocks; nothing was moved", i,
                                moves.size(), block, cache.blocks));
    if (move.page_bytes != page_bytes)
      return fail(
          errc::invalid_argument,
          fmt::format("entry {} of {} has a page of {} bytes; pages of this KV cache have {}; nothing was moved", i,
                      moves.size(), move.page_bytes, page_bytes));
    if (move.stored_bytes() == 0)
      return fail(errc::invalid_argument,
                  fmt::format("entry {} of {} is to have encoding {}; pages of {} bytes have none; nothing was moved",
                              i, moves.size(), to_string(move.encoding), move.page_bytes));
    if (move.only_encoded && move.encoding == page_encoding::raw)
      return fail(errc::invalid_argument,
                  fmt::format("entry {} of {} has room for an encoded page only, and is to be stored as it is; nothing "
                              "was moved",
                              i, moves.size()));
    if (move.page == nullptr)
      return fail(errc::invalid_argument,
                  fmt::format("entry {} of {} has a null page; nothing was moved", i, moves.size()));
  }
  return {};
}

} // namespace troupe
