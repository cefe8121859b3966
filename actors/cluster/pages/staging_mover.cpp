#include "actors/cluster/pages/staging_mover.hpp"

#include "gpu/host_copies.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

class staging_mover final : public page_mover {
public:
  staging_mover(std::shared_ptr<const staging_buffer> memory, staging_calls at_once)
      : memory_(std::move(memory)), at_once_(at_once) {}

  const kv_cache_view& cache() const noexcept override { return memory_->view(); }
  result<void> prepare(std::span<std::byte>) override { return {}; }
  void forget(std::span<std::byte>) override {
    // nop
  }
  std::uint32_t calls_at_once(move_direction which) const noexcept override {
    return std::max(which == move_direction::gather ? at_once_.gathers : at_once_.scatters, 1U);
  }
  std::optional<error> failure() const override { return std::nullopt; }

private:
  result<void> do_gather(std::span<block_move> moves, const device_events& events) override {
    return move_each(moves, events, [](block_move& move, const std::byte* block) {
      move.encoding = page_encoding::raw;
      if (move.only_encoded)
        return errc::unsupported;
      move.checksum = io::copy_with_checksum(move.page, {block, move.page_bytes});
      return errc::ok;
    });
  }

  result<void> do_scatter(std::span<block_move> moves, const device_events& events) override {
    return move_each(moves, events, [this](const block_move& move, std::byte* block) {
      const auto frame = memory_->target(move.block);
      return (frame ? land(move, *frame) : fetch_page(move, block)) ? errc::ok : errc::corrupt;
    });
  }

  /// Other processes can write to both frames. The checksum is of the bytes that are copied, which are read once. If a
  /// frame is changed meanwhile, the checksum does not match it, and the page is refused.
  static bool land(const block_move& move, target_frame& frame) {
    const auto sum = io::copy_with_checksum(frame.page, {move.page, move.stored_bytes()});
    if (move.checksum && sum != *move.checksum)
      return false;
    frame.arrived = io::stored_payload{move.encoding, move.stored_bytes(), sum};
    return true;
  }

  /// `move_one` returns the verdict.
  template <class MoveOne>
  result<void> move_each(std::span<block_move> moves, const device_events& events, MoveOne move_one) {
    if (auto ok = without(events); !ok)
      return ok;
    if (auto ok = validate(cache(), moves); !ok)
      return ok;
    for (auto& move : moves) {
      if (move.block == null_block)
        move.verdict = errc::out_of_range;
      else
        move.verdict = move_one(move, memory_->blocks().data() + move.block * move.page_bytes);
    }
    return {};
  }

  std::shared_ptr<const staging_buffer> memory_;
  staging_calls at_once_;
};

} // namespace

std::unique_ptr<page_mover> make_staging_mover(std::shared_ptr<const staging_buffer> memory, staging_calls at_once) {
  return std::make_unique<staging_mover>(std::move(memory), at_once);
}

std::uint32_t calls_for(std::uint32_t cores, std::size_t ranks) noexcept {
  constexpr std::size_t most = 8;
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(cores / std::max<std::size_t>(ranks, 1), 1, most));
}

} // namespace troupe::cluster
