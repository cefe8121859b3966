#include "gpu/cuda/page_pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace troupe::cuda {

namespace {

/// The most pages between two waits: memory for their checksums is allocated once.
constexpr std::size_t most_sums = 4096;

/// Lists of at most this size are waited for by polling throughout, which takes less than 2 ms. A processor that has
/// slept takes some ten microseconds more for the next calls: 1 % of 64 MiB.
constexpr std::uint64_t awake_list_bytes = std::uint64_t{96} << 20U;

/// The rest of a longer list when the sleeping thread is woken: more than PCIe copies until the thread runs.
constexpr std::uint64_t awake_bytes = std::uint64_t{16} << 20U;

/// The longest uninterrupted polling of the device; afterwards there are pauses.
constexpr auto longest_spin = std::chrono::milliseconds(2);
constexpr auto spin_pause = std::chrono::microseconds(20);

/// The same for lists with others ahead, counted together: there are several threads then, and each polling thread
/// delays the others.
constexpr std::uint64_t awake_together_bytes = std::uint64_t{32} << 20U;

result<void> record(const event& what, cudaStream_t in) {
  return check(cudaEventRecord(what.get(), in), "recording an event");
}

result<void> await(cudaStream_t in, cudaEvent_t what, std::string_view text = "waiting for an event") {
  return check(cudaStreamWaitEvent(in, what, 0), text);
}

/// Stores the result, or returns its error.
template <class T>
result<void> keep(T& to, result<T> made) {
  if (!made)
    return tl::unexpected(made.error());
  to = std::move(*made);
  return {};
}

/// Pieces of memory that are copied in any order.
class piece_list {
public:
  void add(std::byte* to, const std::byte* from, std::size_t bytes) {
    to_.push_back(to);
    from_.push_back(from);
    bytes_.push_back(bytes);
  }

  /// Copies all pieces with one call: separate copies have a gap of several microseconds between them while the other
  /// direction is busy as well, since each ends before the next begins.
  cudaError_t copy(cudaStream_t in) {
#if CUDART_VERSION >= 13000
    if (bytes_.size() > 1) {
      cudaMemcpyAttributes in_order{};
      in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      std::size_t from_first = 0;
      return cudaMemcpyBatchAsync(to_.data(), from_.data(), bytes_.data(), bytes_.size(), &in_order, &from_first, 1,
                                  in);
    }
#endif
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (const auto code = cudaMemcpyAsync(to_[i], from_[i], bytes_[i], cudaMemcpyDefault, in); code != cudaSuccess)
        return code;
    return cudaSuccess;
  }

private:
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
};

kernel_arguments arguments_of(const page_part& part, const page_list& pages, std::byte* staging, bool gather) {
  kernel_arguments out;
  out.jobs.resize(part.pages);
  out.blocks.reserve(part.pages * (pages.moves[part.first].further_blocks.size() + 1));
  for (std::size_t i = 0; i < part.pages; ++i) {
    const auto& move = pages.moves[part.first + i];
    auto* const reached = part.direct ? pages.places[part.first + i].device : nullptr;
    auto& job = out.jobs[i];
    job.page = gather && part.direct ? reached : staging + part.offsets[i];
    job.source = reached;
    job.checked = move.checksum ? 1 : 0;
    job.expected = move.checksum.value_or(io::page_checksum{});
    out.blocks.push_back(move.block);
    out.blocks.insert(out.blocks.end(), move.further_blocks.begin(), move.further_blocks.end());
  }
  return out;
}

} // namespace

result<page_streams> page_streams::make(move_direction direction) {
  // An engine waits for loads, but not for saves.
  const auto urgency = direction == move_direction::scatter ? priority::high : priority::low;
  page_streams out;
  auto ok = keep(out.copies, make_stream(urgency));
  if (ok)
    ok = keep(out.kernels, make_stream(urgency));
  if (!ok)
    return tl::unexpected(ok.error());
  return out;
}

result<std::unique_ptr<page_pipeline>> page_pipeline::create(const device_plan& plan, move_direction direction,
                                                             std::uint64_t part_bytes, shared_streams& shared) {
  std::unique_ptr<page_pipeline> pipeline(new page_pipeline(plan, direction, shared));
  if (auto ok = pipeline->allocate(part_bytes); !ok)
    return tl::unexpected(ok.error());
  return pipeline;
}

result<void> page_pipeline::allocate(std::uint64_t part_bytes) {
  staging_bytes_ = std::max(part_bytes, staged_bytes(plan_.page_bytes));
  most_pages_ = std::min(launch::most_pages, launch::most_blocks / plan_.blocks_per_page);
  auto ok = keep(own_, page_streams::make(direction_));
  const auto then = [&](auto& to, auto make) {
    if (ok)
      ok = keep(to, make());
  };
  for (auto& x : halves_) {
    then(x.pages, [&] { return allocate_device<std::byte>(staging_bytes_); });
    then(x.progress, [] { return allocate_device<page_progress>(launch::most_pages); });
    then(x.verdicts, [] { return allocate_device<std::uint32_t>(launch::most_pages); });
    then(x.filled, [] { return make_event(awaited_by::streams); });
    then(x.emptied, [] { return make_event(awaited_by::streams); });
  }
  then(wake_up_, [] { return make_event(awaited_by::threads); });
  then(sums_, [] { return allocate_pinned<io::page_checksum>(most_sums); });
  return ok;
}

result<void> page_pipeline::run(std::span<block_move> moves, const call_surroundings& around,
                                const device_events& events) {
  const auto places = locate_pages(moves, around.locked);
  const page_list pages{moves, places};
  // Runs once at least: an empty list waits for the engine, too.
  for (std::size_t first = 0; first == 0 || first < moves.size(); first += most_sums) {
    const auto count = std::min(moves.size() - first, most_sums);
    auto submitted = submit(pages.sub(first, count), around, events);
    // Also after a failure: the caller may free its memory when this returns.
    auto waited = submitted ? wait() : wait_for_streams();
    if (!submitted)
      return submitted;
    if (!waited)
      return waited;
    for (std::size_t i = 0; i < count; ++i) {
      auto& move = moves[first + i];
      const bool sound = direction_ == move_direction::gather || !move.checksum || *move.checksum == sums_[i];
      move.verdict = sound ? errc::ok : errc::corrupt;
      if (direction_ == move_direction::gather)
        move.checksum = sums_[i];
    }
  }
  return {};
}

result<void> page_pipeline::submit(const page_list& pages, const call_surroundings& around,
                                   const device_events& events) {
  will_sleep_ = false;
  ends_ = {};
  streams_ = &shared_->streams;
  if (auto ok = await_engine(events); !ok)
    return ok;
  if (streams_ == &own_)
    return submit_parts(pages, around);
  // Held for the whole submission: the kernel that scatters must directly follow the one that checks, and a part must
  // not wait for a call that began later.
  const std::lock_guard guard(shared_->submitting);
  return submit_parts(pages, around);
}

result<void> page_pipeline::submit_parts(const page_list& pages, const call_surroundings& around) {
  const bool gather = direction_ == move_direction::gather;
  part_cutter parts(direction_,
                    {plan_.page_bytes, staging_bytes_, most_pages_, around.direct_bytes, around.bytes_ahead}, pages);
  const auto bytes = pages.moves.size() * plan_.page_bytes;
  const bool is_long = bytes > awake_list_bytes;
  const bool sleeps_at_end = !is_long && around.bytes_ahead > 0 && around.bytes_ahead + bytes > awake_together_bytes;
  bool copied = false;
  std::size_t number = 0;
  for (; !parts.done(); ++number) {
    const auto part = parts.next();
    const bool wakes = sleeps_at_end && parts.done();
    const bool aside = !gather && around.bytes_ahead == 0 && number % 2 == 1;
    auto* const queue = (aside ? own_ : *streams_).kernels.get();
    if (auto ok = gather ? submit_gather(number, queue, part, pages, wakes)
                         : submit_scatter(number, queue, part, pages, wakes);
        !ok)
      return ok;
    copied = copied || !part.direct;
    const auto left = parts.left() * plan_.page_bytes;
    if (is_long && left >= awake_bytes && left - awake_bytes < staging_bytes_)
      if (auto ok = wake_behind(copied ? streams_->copies.get() : queue); !ok)
        return ok;
  }
  // A copy of a gather ends after its kernel, and a kernel of a scatter after its copy. A part before the last two has
  // ended before the part that reuses its staging memory begins. So waiting for the last two is enough.
  for (std::size_t i = 0; i < std::min(number, ends_.size()); ++i)
    ends_[i] = halves_[(number - 1 - i) % halves_.size()].emptied.get();
  return {};
}

result<void> page_pipeline::wake_behind(cudaStream_t what) {
  will_sleep_ = true;
  return record(wake_up_, what);
}

launch page_pipeline::launch_with(const half& with, const page_part& part, const kernel_arguments& arguments) const {
  launch what;
  what.plan = plan_;
  what.pages = static_cast<std::uint32_t>(part.pages);
  what.progress = with.progress.get();
  what.verdicts = with.verdicts.get();
  what.sums = sums_.get() + part.first;
  what.jobs = arguments.jobs.data();
  what.blocks = arguments.blocks.data();
  return what;
}

result<void> page_pipeline::await_engine(const device_events& events) {
  if (events.ready == nullptr)
    return {};
  auto* const ready = static_cast<cudaEvent_t>(events.ready);
  if (cudaEventQuery(ready) == cudaSuccess)
    return {};
  static_cast<void>(cudaGetLastError());
  // The engine may take arbitrarily long: other calls must not wait behind this one. Besides, its event may be of the
  // polling kind.
  streams_ = &own_;
  if (auto ok = await(own_.kernels.get(), ready, "waiting for the engine's event"); !ok)
    return ok;
  return wake_behind(own_.kernels.get());
}

result<void> page_pipeline::submit_gather(std::size_t number, cudaStream_t queue, const page_part& part,
                                          const page_list& pages, bool wakes) {
  auto& with = halves_[number % halves_.size()];
  auto* const copies = streams_->copies.get();
  if (number >= halves_.size() && !part.direct)
    if (auto ok = await(queue, with.emptied.get()); !ok)
      return ok;
  const auto arguments = arguments_of(part, pages, with.pages.get(), true);
  if (auto ok = check(launch_gather(launch_with(with, part, arguments), queue), "launching a gather"); !ok)
    return ok;
  if (part.direct)
    return record(with.emptied, queue);
  if (wakes)
    if (auto ok = wake_behind(queue); !ok)
      return ok;
  if (auto ok = record(with.filled, queue); !ok)
    return ok;
  if (auto ok = await(copies, with.filled.get()); !ok)
    return ok;
  if (auto ok = copy_pages(with, part, pages); !ok)
    return ok;
  return record(with.emptied, copies);
}

result<void> page_pipeline::submit_scatter(std::size_t number, cudaStream_t queue, const page_part& part,
                                           const page_list& pages, bool wakes) {
  auto& with = halves_[number % halves_.size()];
  auto* const copies = streams_->copies.get();
  if (!part.direct) {
    // The copy is submitted first: the kernel's arguments are prepared while it runs.
    if (number >= halves_.size())
      if (auto ok = await(copies, with.emptied.get()); !ok)
        return ok;
    if (auto ok = copy_pages(with, part, pages); !ok)
      return ok;
    if (auto ok = record(with.filled, copies); !ok)
      return ok;
    if (auto ok = await(queue, with.filled.get()); !ok)
      return ok;
  }
  if (wakes)
    if (auto ok = wake_behind(queue); !ok)
      return ok;
  const auto arguments = arguments_of(part, pages, with.pages.get(), false);
  const auto what = launch_with(with, part, arguments);
  if (auto ok =
          check(part.direct ? launch_fetch(what, queue) : launch_check(what, queue), "launching the check of pages");
      !ok)
    return ok;
  if (auto ok = check(launch_scatter(what, queue), "launching a scatter"); !ok)
    return ok;
  return record(with.emptied, queue);
}

result<void> page_pipeline::copy_pages(const half& with, const page_part& part, const page_list& pages) const {
  piece_list pieces;
  for (std::size_t i = 0; i < part.pages;) {
    std::size_t count = 1;
    while (i + count < part.pages && part.joined[i + count])
      ++count;
    auto* const page = pages.moves[part.first + i].page;
    auto* const staged = with.pages.get() + part.offsets[i];
    const auto bytes = part.offsets[i + count - 1] - part.offsets[i] + plan_.page_bytes;
    direction_ == move_direction::gather ? pieces.add(page, staged, bytes) : pieces.add(staged, page, bytes);
    i += count;
  }
  return check(pieces.copy(streams_->copies.get()), "copying pages");
}

result<void> page_pipeline::wait() {
  result<void> out;
  const auto note = [&](cudaError_t code) {
    if (auto ok = check(code, "moving pages"); !ok && out)
      out = std::move(ok);
  };
  if (will_sleep_)
    note(cudaEventSynchronize(wake_up_.get()));
  const auto deadline = std::chrono::steady_clock::now() + longest_spin;
  for (auto* end : ends_) {
    auto code = end != nullptr ? cudaEventQuery(end) : cudaSuccess;
    for (; code == cudaErrorNotReady; code = cudaEventQuery(end))
      if (std::chrono::steady_clock::now() >= deadline)
        std::this_thread::sleep_for(spin_pause);
    note(code);
  }
  static_cast<void>(cudaGetLastError()); // not ready is no error
  return out;
}

result<void> page_pipeline::wait_for_streams() const {
  result<void> out;
  for (auto* x : {streams_->copies.get(), streams_->kernels.get(), own_.kernels.get()})
    if (auto ok = check(cudaStreamSynchronize(x), "moving pages"); !ok && out)
      out = std::move(ok);
  return out;
}

} // namespace troupe::cuda
