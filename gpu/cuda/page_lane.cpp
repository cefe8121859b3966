#include "gpu/cuda/page_lane.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::cuda {

namespace {

/// Pages between two waits: room for their checksums is taken once.
constexpr std::size_t most_sums = 4096;

/// Of the part that is gathered before anything is on the bus, or scattered when nothing is any more.
constexpr std::uint64_t least_part_bytes = std::uint64_t{1} << 20U;

/// What is left when a thread that sleeps over a transfer is woken: more than the bus moves until the thread runs.
constexpr std::uint64_t awake_bytes = std::uint64_t{16} << 20U;

/// Bytes between two pages that are copied along: the bus moves as many in the time that it takes to begin another
/// copy.
constexpr std::uint64_t widest_gap = 16384;
constexpr std::uint64_t staging_alignment = 256;

/// Of asking the device again and again for the end of a part.
constexpr auto longest_spin = std::chrono::milliseconds(1);

std::uint64_t aligned(std::uint64_t offset) noexcept {
  return (offset + staging_alignment - 1) / staging_alignment * staging_alignment;
}

const std::byte* end_of(const locked_range& range) noexcept {
  return range.host + range.bytes;
}

const locked_range* range_of(const block_move& move, std::span<const locked_range> locked) noexcept {
  for (const auto& range : locked)
    if (move.page >= range.host && move.page + move.page_bytes <= end_of(range))
      return &range;
  return nullptr;
}

/// The page as a device sees it; null if it is not locked.
std::byte* device_address(const block_move& move, std::span<const locked_range> locked) noexcept {
  const auto* range = range_of(move, locked);
  return range != nullptr ? range->device + (move.page - range->host) : nullptr;
}

bool is_direct(std::span<const block_move> moves, std::span<const locked_range> locked, std::uint64_t most) noexcept {
  if (moves.empty() || moves.size() * moves.front().page_bytes > most ||
      moves.front().page_bytes % io::checksum_word_bytes != 0)
    return false;
  return std::all_of(moves.begin(), moves.end(), [&](const block_move& move) {
    const auto* at = device_address(move, locked);
    return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % io::checksum_word_bytes == 0;
  });
}

} // namespace

result<std::unique_ptr<page_lane>> page_lane::create(const device_plan& plan, move_direction direction,
                                                     std::uint64_t part_bytes) {
  std::unique_ptr<page_lane> lane(new page_lane(plan, direction));
  lane->staging_bytes_ = std::max(part_bytes, aligned(plan.page_bytes));
  lane->most_pages_ = std::min(launch::most_pages, launch::most_blocks / plan.blocks_per_page);
  for (auto& x : lane->halves_) {
    // Loads have an engine waiting for them, saves have not.
    auto queue = make_stream(direction == move_direction::scatter ? priority::high : priority::low);
    auto pages = allocate_device<std::byte>(lane->staging_bytes_);
    auto progress = allocate_device<page_progress>(launch::most_pages);
    auto verdicts = allocate_device<std::uint32_t>(launch::most_pages);
    for (const auto* failed : {queue ? nullptr : &queue.error(), pages ? nullptr : &pages.error(),
                               progress ? nullptr : &progress.error(), verdicts ? nullptr : &verdicts.error()})
      if (failed != nullptr)
        return tl::unexpected(*failed);
    x.queue = std::move(*queue);
    x.pages = std::move(*pages);
    x.progress = std::move(*progress);
    x.verdicts = std::move(*verdicts);
  }
  auto sums = allocate_pinned<io::page_checksum>(most_sums);
  auto nearly_done = make_event();
  auto joined = make_event();
  for (const auto* failed : {sums ? nullptr : &sums.error(), nearly_done ? nullptr : &nearly_done.error(),
                             joined ? nullptr : &joined.error()})
    if (failed != nullptr)
      return tl::unexpected(*failed);
  lane->sums_ = std::move(*sums);
  lane->nearly_done_ = std::move(*nearly_done);
  lane->joined_ = std::move(*joined);
  return lane;
}

std::uint64_t page_lane::part_bytes_for(std::size_t number, std::uint64_t bytes_left) const noexcept {
  // While a part is copied, the kernel of one that is four times as large is done long before. Few parts, because each
  // copy takes the bus a while to begin.
  const auto wanted = direction_ == move_direction::gather ? least_part_bytes << std::min<std::size_t>(2 * number, 30)
                                                           : bytes_left / 8 * 7;
  return std::clamp(wanted, std::min(least_part_bytes, staging_bytes_), staging_bytes_);
}

bool page_lane::follows(const block_move& a, const block_move& b, std::span<const locked_range> locked) const noexcept {
  const auto* end = a.page + a.page_bytes;
  if (b.page < end || static_cast<std::uint64_t>(b.page - end) > widest_gap ||
      static_cast<std::uint64_t>(b.page - a.page) % io::checksum_word_bytes != 0)
    return false;
  const auto gap = static_cast<std::uint64_t>(b.page - end);
  // What is read along must be memory, what is written along must be spare.
  return gap == 0 || (direction_ == move_direction::gather
                          ? gap <= a.spare_behind + b.spare_before
                          : range_of(a, locked) != nullptr && range_of(a, locked) == range_of(b, locked));
}

page_lane::part page_lane::make_part(std::span<const block_move> moves, std::uint64_t bytes,
                                     std::span<const locked_range> locked) const {
  part out;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < std::min(moves.size(), most_pages_); ++i) {
    auto offset = aligned(end);
    const bool joined = i > 0 && follows(moves[i - 1], moves[i], locked);
    if (joined)
      offset = out.offsets.back() + static_cast<std::uint64_t>(moves[i].page - moves[i - 1].page);
    if (i > 0 && (offset + plan_.page_bytes > bytes || offset + aligned(plan_.page_bytes) > staging_bytes_))
      break;
    out.offsets.push_back(offset);
    out.joined.push_back(joined);
    end = offset + plan_.page_bytes;
  }
  out.moves = moves.first(out.offsets.size());
  return out;
}

result<void> page_lane::run(std::span<block_move> moves, std::span<const locked_range> locked,
                            std::uint64_t direct_bytes, const device_events& events) {
  const bool direct = direction_ == move_direction::gather && is_direct(moves, locked, direct_bytes);
  for (auto rest = moves; !rest.empty() || moves.empty();) {
    const auto now = rest.first(std::min(rest.size(), most_sums));
    const bool last = now.size() == rest.size();
    auto submitted = submit(now, locked, direct, {events.ready, last ? events.done : nullptr});
    // Also after a failure: the caller's memory may be used no more when this returns.
    auto waited = wait();
    if (!submitted)
      return submitted;
    if (!waited)
      return waited;
    for (std::size_t i = 0; i < now.size(); ++i) {
      auto& move = now[i];
      const bool sound = direction_ == move_direction::gather || !move.checksum || *move.checksum == sums_[i];
      move.verdict = sound ? errc::ok : errc::corrupt;
      if (direction_ == move_direction::gather)
        move.checksum = sums_[i];
    }
    rest = rest.subspan(now.size());
    if (last)
      break;
  }
  return {};
}

result<void> page_lane::submit(std::span<block_move> moves, std::span<const locked_range> locked, bool direct,
                               const device_events& events) {
  if (events.ready != nullptr)
    for (auto& x : halves_)
      if (auto ok = check(cudaStreamWaitEvent(x.queue.get(), static_cast<cudaEvent_t>(events.ready), 0),
                          "waiting for the engine's event");
          !ok)
        return ok;
  std::size_t parts = 0;
  will_be_long_ = false;
  for (std::size_t first = 0; first < moves.size(); ++parts) {
    const auto left = (moves.size() - first) * plan_.page_bytes;
    const auto next = make_part(moves.subspan(first), part_bytes_for(parts, left), locked);
    last_ = parts % halves_.size();
    if (auto ok = submit_part(halves_[last_], next, first, locked, direct); !ok)
      return ok;
    first += next.moves.size();
    const auto left_behind = (moves.size() - first) * plan_.page_bytes;
    const auto after_next = left_behind - std::min(left_behind, part_bytes_for(parts + 1, left_behind));
    if (!will_be_long_ && left_behind >= awake_bytes && after_next < awake_bytes) {
      will_be_long_ = true;
      if (auto ok = check(cudaEventRecord(nearly_done_.get(), halves_[last_].queue.get()), "recording an event"); !ok)
        return ok;
    }
  }
  return signal(events);
}

result<void> page_lane::submit_part(half& with, const part& next, std::size_t first,
                                    std::span<const locked_range> locked, bool direct) {
  // The bus first: what a kernel is told can be put together while it is busy.
  if (direction_ == move_direction::scatter)
    if (auto ok = copy_pages(with, next); !ok)
      return ok;
  std::vector<page_job> jobs(next.moves.size());
  std::vector<std::uint32_t> blocks;
  for (std::size_t i = 0; i < next.moves.size(); ++i) {
    const auto& move = next.moves[i];
    jobs[i].page = direct ? device_address(move, locked) : with.pages.get() + next.offsets[i];
    jobs[i].skip_tokens = move.skip_tokens;
    jobs[i].checked = move.checksum ? 1 : 0;
    jobs[i].expected = move.checksum.value_or(io::page_checksum{});
    blocks.push_back(move.block);
    blocks.insert(blocks.end(), move.further_blocks.begin(), move.further_blocks.end());
  }
  launch what;
  what.plan = plan_;
  what.pages = static_cast<std::uint32_t>(jobs.size());
  what.progress = with.progress.get();
  what.verdicts = with.verdicts.get();
  what.sums = sums_.get() + first;
  what.jobs = jobs.data();
  what.blocks = blocks.data();
  auto* const queue = with.queue.get();
  if (direction_ == move_direction::gather) {
    if (auto ok = check(launch_gather(what, queue), "launching a gather"); !ok)
      return ok;
    if (!direct)
      if (auto ok = copy_pages(with, next); !ok)
        return ok;
  } else {
    if (auto ok = check(launch_check(what, queue), "launching the check of pages"); !ok)
      return ok;
    if (auto ok = check(launch_scatter(what, queue), "launching a scatter"); !ok)
      return ok;
  }
  return {};
}

result<void> page_lane::copy_pages(const half& with, const part& what) const {
  for (std::size_t i = 0; i < what.moves.size();) {
    std::size_t count = 1;
    auto* page = what.moves[i].page;
    auto* staged = with.pages.get() + what.offsets[i];
    while (i + count < what.moves.size() && what.joined[i + count])
      ++count;
    const auto bytes = what.offsets[i + count - 1] - what.offsets[i] + plan_.page_bytes;
    const auto code = direction_ == move_direction::gather
                          ? cudaMemcpyAsync(page, staged, bytes, cudaMemcpyDeviceToHost, with.queue.get())
                          : cudaMemcpyAsync(staged, page, bytes, cudaMemcpyHostToDevice, with.queue.get());
    if (auto ok = check(code, "copying pages"); !ok)
      return ok;
    i += count;
  }
  return {};
}

result<void> page_lane::signal(const device_events& events) {
  if (events.done == nullptr)
    return {};
  auto* const queue = halves_[last_].queue.get();
  if (auto ok = check(cudaEventRecord(joined_.get(), halves_[1 - last_].queue.get()), "recording an event"); !ok)
    return ok;
  if (auto ok = check(cudaStreamWaitEvent(queue, joined_.get(), 0), "joining streams"); !ok)
    return ok;
  return check(cudaEventRecord(static_cast<cudaEvent_t>(events.done), queue), "signalling the engine's event");
}

result<void> page_lane::wait() {
  result<void> out;
  const auto note = [&](cudaError_t code) {
    if (auto ok = check(code, "moving pages"); !ok && out)
      out = std::move(ok);
  };
  if (will_be_long_)
    note(cudaEventSynchronize(nearly_done_.get()));
  const auto is_busy = [](const half& x) { return cudaStreamQuery(x.queue.get()) == cudaErrorNotReady; };
  const auto give_up = std::chrono::steady_clock::now() + longest_spin;
  while (std::any_of(halves_.begin(), halves_.end(), is_busy) && std::chrono::steady_clock::now() < give_up)
    continue;
  static_cast<void>(cudaGetLastError());
  // Not an event: if the submission failed half-way there is none behind the last part.
  for (auto& x : halves_)
    note(cudaStreamSynchronize(x.queue.get()));
  return out;
}

} // namespace troupe::cuda
