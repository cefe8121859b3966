#include "actors/cluster/passing_mover.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace troupe::cluster {

namespace {

/// Stays in the first cache between being copied and being summed, or the other way round.
constexpr std::uint64_t piece_bytes = 16384;
static_assert(piece_bytes % io::checksum_word_bytes == 0);

/// Past the caches: what is written into a frame is much, and read by another one if at all, and memory that is written
/// whole need not be read before.
void copy_out(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
#ifdef __SSE2__
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128i) == 0) {
    const auto whole = bytes / sizeof(__m128i);
    for (std::uint64_t i = 0; i < whole; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i));
    const auto done = whole * sizeof(__m128i);
    to += done;
    from += done;
    bytes -= done;
  }
#endif
  std::memcpy(to, from, bytes);
}

/// Such stores come after all others unless somebody waits for them.
void wait_for_copies() noexcept {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

class passing_mover final : public page_mover {
public:
  passing_mover(std::shared_ptr<const passing_memory> memory, std::uint32_t calls_at_once)
      : memory_(std::move(memory)), calls_at_once_(calls_at_once) {}

  const kv_cache_view& cache() const noexcept override { return memory_->view(); }
  result<void> prepare(std::span<std::byte>) override { return {}; }
  void forget(std::span<std::byte>) override {
    // nop
  }
  std::uint32_t calls_at_once() const noexcept override { return calls_at_once_; }
  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    if (auto ok = check(moves, events); !ok)
      return ok;
    for (auto& move : moves)
      each_piece(move, [](std::byte* block, std::byte* page, std::uint64_t bytes, std::uint64_t first_word) {
        const auto sum = io::checksum_of({block, bytes}, first_word);
        copy_out(page, block, bytes);
        return sum;
      });
    wait_for_copies();
    return {};
  }

  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    if (auto ok = check(moves, events); !ok)
      return ok;
    for (auto& move : moves) {
      const auto wanted = std::exchange(move.checksum, std::nullopt);
      each_piece(move, [](std::byte* block, std::byte* page, std::uint64_t bytes, std::uint64_t first_word) {
        std::memcpy(block, page, bytes);
        return io::checksum_of({block, bytes}, first_word);
      });
      if (move.verdict == errc::ok && wanted && move.checksum != wanted)
        move.verdict = errc::corrupt;
      move.checksum = wanted;
    }
    return {};
  }

  result<void> check(std::span<const block_move> moves, const device_events& events) const {
    if (events.ready != nullptr)
      return fail(errc::unsupported, "host memory has no events of a device");
    return validate(cache(), moves);
  }

  /// Sets the checksum to what comes of all pieces.
  template <class CopyAndSum>
  void each_piece(block_move& move, CopyAndSum copy_and_sum) const noexcept {
    if (move.block == null_block) {
      move.verdict = errc::out_of_range;
      return;
    }
    auto* const block = memory_->blocks().data() + move.block * move.page_bytes;
    io::page_checksum sum;
    for (std::uint64_t at = 0; at < move.page_bytes; at += piece_bytes)
      sum += copy_and_sum(block + at, move.page + at, std::min(piece_bytes, move.page_bytes - at),
                          at / io::checksum_word_bytes);
    move.checksum = sum;
    move.verdict = errc::ok;
  }

  std::shared_ptr<const passing_memory> memory_;
  std::uint32_t calls_at_once_;
};

} // namespace

std::unique_ptr<page_mover> make_passing_mover(std::shared_ptr<const passing_memory> memory,
                                               std::uint32_t calls_at_once) {
  return std::make_unique<passing_mover>(std::move(memory), std::max(calls_at_once, 1U));
}

std::uint32_t passing_calls(std::uint32_t cores, std::size_t ranks) noexcept {
  constexpr std::size_t most = 8;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(cores / (2 * std::max<std::size_t>(ranks, 1)), 1, most));
}

} // namespace troupe::cluster
