#include "gpu/cuda/page_pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <initializer_list>
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

/// An engine waits for loads, but not for saves.
priority urgency_of(move_direction direction) {
  return direction == move_direction::scatter ? priority::high : priority::low;
}

/// Pieces of memory that are copied in any order.
class piece_list {
public:
  /// `range`: the locked memory of the host that the piece lies in; null if it is not locked.
  void add(std::byte* to, const std::byte* from, std::size_t bytes, const locked_range* range) {
    one_range_ = one_range_ && range != nullptr && (to_.empty() || range == range_);
    range_ = range;
    to_.push_back(to);
    from_.push_back(from);
    bytes_.push_back(bytes);
  }

  /// Copies all pieces with one call: separate copies have a gap of several microseconds between them while the other
  /// direction is busy as well, since each ends before the next begins.
  cudaError_t copy(cudaStream_t in) {
    if (bytes_.size() > 1 && is_regular())
      return cudaMemcpy2DAsync(to_[0], distance(to_, 0), from_[0], distance(from_, 0), bytes_[0], bytes_.size(),
                               cudaMemcpyDefault, in);
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
  template <class T>
  static std::size_t distance(const std::vector<T>& all, std::size_t i) {
    return static_cast<std::size_t>(static_cast<const std::byte*>(all[i + 1]) - static_cast<const std::byte*>(all[i]));
  }

  /// Whether all pieces are equally long, and equally far apart, and do not overlap; and whether all memory between
  /// them is locked, in one piece: CUDA may refuse a copy with rows elsewhere.
  bool is_regular() const {
    if (!one_range_)
      return false;
    for (std::size_t i = 0; i + 1 < bytes_.size(); ++i)
      if (bytes_[i + 1] != bytes_[0] || distance(to_, i) != distance(to_, 0) ||
          distance(from_, i) != distance(from_, 0))
        return false;
    return std::max(distance(to_, 0), distance(from_, 0)) < longest_distance &&
           std::min(distance(to_, 0), distance(from_, 0)) >= bytes_[0];
  }

  /// CUDA's limit is 2 GiB.
  static constexpr std::size_t longest_distance = std::size_t{1} << 30U;

  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
  const locked_range* range_ = nullptr;
  bool one_range_ = true;
};

/// The arguments of a kernel for the pages of a part; `fill` sets the addresses of the i-th one.
template <class Fill>
kernel_arguments arguments_of(const page_part& part, const page_list& pages, const Fill& fill) {
  kernel_arguments out;
  out.jobs.resize(part.pages);
  out.blocks.reserve(part.pages * (pages.moves[part.first].further_blocks.size() + 1));
  for (std::size_t i = 0; i < part.pages; ++i) {
    const auto& move = pages.moves[part.first + i];
    auto& job = out.jobs[i];
    job.checked = move.checksum ? 1 : 0;
    job.expected = move.checksum.value_or(io::page_checksum{});
    fill(job, i);
    out.blocks.push_back(move.block);
    out.blocks.insert(out.blocks.end(), move.further_blocks.begin(), move.further_blocks.end());
  }
  return out;
}

/// The address for the device of a page in host memory, where a kernel accesses it there, else null.
std::byte* reached(const page_part& part, const page_list& pages, std::size_t i) {
  return part.direct ? pages.places[part.first + i].device : nullptr;
}

} // namespace

result<page_streams> page_streams::make(move_direction direction) {
  const auto urgency = urgency_of(direction);
  page_streams out;
  auto ok = keep(out.copies, make_stream(urgency));
  if (ok)
    ok = keep(out.kernels, make_stream(urgency));
  if (!ok)
    return tl::unexpected(ok.error());
  return out;
}

result<std::unique_ptr<page_pipeline>> page_pipeline::create(move_direction direction, shared_streams& shared) {
  std::unique_ptr<page_pipeline> pipeline(new page_pipeline(direction, shared));
  if (auto ok = pipeline->allocate(); !ok)
    return tl::unexpected(ok.error());
  return pipeline;
}

result<void> page_pipeline::allocate() {
  result<void> ok;
  const auto then = [&](auto& to, auto make) {
    if (ok)
      ok = keep(to, make());
  };
  then(aside_, [&] { return make_stream(urgency_of(direction_)); });
  for (auto& x : halves_) {
    then(x.progress, [] { return allocate_device<page_progress>(launch::most_pages); });
    then(x.verdicts, [] { return allocate_device<std::uint32_t>(launch::most_pages); });
    then(x.filled, [] { return make_event(awaited_by::streams); });
    then(x.emptied, [] { return make_event(awaited_by::streams); });
  }
  then(wake_up_, [] { return make_event(awaited_by::threads); });
  then(sums_, [] { return allocate_pinned<io::page_checksum>(most_sums); });
  then(coding_.progress, [] { return allocate_device<std::uint32_t>(launch::most_pages); });
  then(coding_.refused, [] { return allocate_pinned<std::uint32_t>(most_sums); });
  return ok;
}

// What is there is freed only when its successor has been allocated: other movers use it.
result<void> page_pipeline::reserve(const pipeline_memory& memory) {
  const auto grow = [](std::uint64_t& bytes, std::uint64_t wanted,
                       std::initializer_list<device_memory<std::byte>*> all) {
    if (wanted <= bytes)
      return result<void>{};
    for (auto* each : all)
      if (auto ok = keep(*each, allocate_device<std::byte>(wanted)); !ok)
        return ok;
    bytes = wanted;
    return result<void>{};
  };
  auto ok = grow(memory_.staging_bytes, memory.staging_bytes, {&halves_[0].pages, &halves_[1].pages});
  if (ok)
    ok = grow(memory_.plain_bytes, memory.plain_bytes, {&coding_.plain});
  return ok ? grow(memory_.scratch_bytes, memory.scratch_bytes, {&coding_.scratch}) : ok;
}

void page_pipeline::note_outcome(std::span<block_move> moves) const {
  for (std::size_t i = 0; i < moves.size(); ++i) {
    auto& move = moves[i];
    const bool refused = is_encoded() && coding_.refused[i] != 0;
    if (direction_ == move_direction::gather) {
      move.verdict = errc::ok;
      move.checksum = sums_[i];
      if (refused)
        move.encoding = page_encoding::raw;
    } else {
      const bool sound = !refused && (!move.checksum || *move.checksum == sums_[i]);
      move.verdict = sound ? errc::ok : errc::corrupt;
    }
  }
}

result<void> page_pipeline::run(const moved_cache& what, std::span<block_move> moves, page_encoding encoding,
                                const call_surroundings& around) {
  what_ = what;
  const bool encodes = encoding != page_encoding::raw;
  if (!memory_.covers(pipeline_memory::of(what.parts, what.plan.page_bytes, direction_, encodes)))
    return fail(errc::internal, "no staging memory was reserved for pages of this size; nothing was moved");
  encoding_ = encoding;
  stored_bytes_ = codec::stored_bytes(encoding, what.plan.page_bytes);
  const auto places = locate_pages(moves, around.locked);
  const page_list pages{moves, places};
  for (std::size_t first = 0; first < moves.size(); first += most_sums) {
    const auto count = std::min(moves.size() - first, most_sums);
    if (is_encoded())
      std::fill_n(coding_.refused.get(), count, 0U);
    auto submitted = submit(pages.sub(first, count), around);
    // Also after a failure: the caller may free its memory when this returns.
    auto waited = submitted ? wait() : wait_for_streams();
    if (!submitted)
      return submitted;
    if (!waited)
      return waited;
    note_outcome(moves.subspan(first, count));
  }
  return {};
}

result<void> page_pipeline::submit(const page_list& pages, const call_surroundings& around) {
  will_sleep_ = false;
  ends_ = {};
  // Held for the whole submission: the kernel that scatters must directly follow the one that checks, and a part must
  // not wait for a call that began later.
  const std::lock_guard guard(shared_->submitting);
  const bool gather = direction_ == move_direction::gather;
  const auto staging_bytes = what_.parts.staging_bytes;
  part_limits limits{stored_bytes_, staging_bytes, what_.parts.pages, around.direct_bytes, around.bytes_ahead};
  if (is_encoded()) {
    limits.pages = what_.parts.encoded_pages;
    limits.apart = true;
  }
  part_cutter parts(direction_, limits, pages);
  const auto bytes = pages.moves.size() * stored_bytes_;
  const bool is_long = bytes > awake_list_bytes;
  const bool sleeps_at_end = !is_long && around.bytes_ahead > 0 && around.bytes_ahead + bytes > awake_together_bytes;
  bool copied = false;
  std::size_t number = 0;
  for (; !parts.done(); ++number) {
    const auto part = parts.next();
    const bool wakes = sleeps_at_end && parts.done();
    const bool aside = !gather && are_parts_apart() && around.bytes_ahead == 0 && number % 2 == 1;
    auto* const queue = (aside ? aside_ : shared_->streams.kernels).get();
    if (auto ok = gather ? submit_gather(number, queue, part, pages, wakes)
                         : submit_scatter(number, queue, part, pages, wakes);
        !ok)
      return ok;
    copied = copied || !part.direct;
    const auto left = parts.left() * stored_bytes_;
    if (is_long && left >= awake_bytes && left - awake_bytes < staging_bytes)
      if (auto ok = wake_behind(copied ? shared_->streams.copies.get() : queue); !ok)
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

launch page_pipeline::launch_with(const half& with, const page_part& part, const kernel_arguments& arguments,
                                  std::uint64_t page_bytes) const {
  launch what;
  what.plan = what_.plan;
  what.plan.page_bytes = page_bytes;
  what.pages = static_cast<std::uint32_t>(part.pages);
  what.progress = with.progress.get();
  what.verdicts = with.verdicts.get();
  what.sums = sums_.get() + part.first;
  what.jobs = arguments.jobs.data();
  what.blocks = arguments.blocks.data();
  return what;
}

result<void> page_pipeline::submit_gather(std::size_t number, cudaStream_t queue, const page_part& part,
                                          const page_list& pages, bool wakes) {
  auto& with = halves_[number % halves_.size()];
  auto* const copies = shared_->streams.copies.get();
  if (number >= halves_.size() && !part.direct)
    if (auto ok = await(queue, with.emptied.get()); !ok)
      return ok;
  if (auto ok = launch_gather_of(with, queue, part, pages); !ok)
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
  auto* const copies = shared_->streams.copies.get();
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
  if (auto ok = launch_scatter_of(with, queue, part, pages); !ok)
    return ok;
  return record(with.emptied, queue);
}

result<void> page_pipeline::launch_gather_of(const half& with, cudaStream_t queue, const page_part& part,
                                             const page_list& pages) {
  if (is_encoded_at_once())
    return gather_encoded(with, queue, part, pages);
  const auto arguments = arguments_of(part, pages, [&](page_job& job, std::size_t i) {
    if (is_encoded())
      job.page = coding_.plain.get() + i * staged_bytes(what_.plan.page_bytes);
    else
      job.page = part.direct ? reached(part, pages, i) : with.pages.get() + part.offsets[i];
  });
  const auto what = launch_with(with, part, arguments, what_.plan.page_bytes);
  if (auto ok = check(launch_gather(what, queue), "launching a gather"); !ok)
    return ok;
  return is_encoded() ? encode(with, queue, part, pages) : result<void>{};
}

result<void> page_pipeline::launch_scatter_of(const half& with, cudaStream_t queue, const page_part& part,
                                              const page_list& pages) {
  if (is_encoded_at_once())
    return scatter_encoded(with, queue, part, pages);
  auto arguments = arguments_of(part, pages, [&](page_job& job, std::size_t i) {
    job.page = with.pages.get() + part.offsets[i];
    job.source = reached(part, pages, i);
  });
  const auto stored = launch_with(with, part, arguments, stored_bytes_);
  if (auto ok = check(part.direct ? launch_fetch(stored, queue) : launch_check(stored, queue),
                      "launching the check of pages");
      !ok)
    return ok;
  if (is_encoded()) {
    if (auto ok = decode(with, queue, part); !ok)
      return ok;
    for (std::size_t i = 0; i < part.pages; ++i)
      arguments.jobs[i].page = coding_.plain.get() + i * staged_bytes(what_.plan.page_bytes);
  }
  return check(launch_scatter(launch_with(with, part, arguments, what_.plan.page_bytes), queue), "launching a scatter");
}

encoded_launch page_pipeline::encoded_launch_with(const half& with, const page_part& part) const {
  encoded_launch out;
  out.staged = with.pages.get();
  out.staged_stride = staged_bytes(stored_bytes_);
  out.refused = coding_.refused.get() + part.first;
  out.scratch = coding_.scratch.get();
  return out;
}

result<void> page_pipeline::gather_encoded(const half& with, cudaStream_t queue, const page_part& part,
                                           const page_list& pages) {
  const auto arguments = arguments_of(part, pages, [&](page_job& job, std::size_t i) {
    job.page = part.direct ? reached(part, pages, i) : with.pages.get() + part.offsets[i];
  });
  return check(launch_encoded_gather(launch_with(with, part, arguments, what_.plan.page_bytes),
                                     encoded_launch_with(with, part), queue),
               "launching a gather that encodes");
}

result<void> page_pipeline::scatter_encoded(const half& with, cudaStream_t queue, const page_part& part,
                                            const page_list& pages) {
  const auto arguments = arguments_of(part, pages, [&](page_job& job, std::size_t i) {
    job.page = with.pages.get() + part.offsets[i];
    job.source = reached(part, pages, i);
  });
  const auto what = launch_with(with, part, arguments, what_.plan.page_bytes);
  const auto more = encoded_launch_with(with, part);
  if (auto ok = check(part.direct ? launch_encoded_fetch(what, more, queue) : launch_encoded_check(what, more, queue),
                      "launching the check of encoded pages");
      !ok)
    return ok;
  return check(launch_encoded_scatter(what, more, queue), "launching a scatter that decodes");
}

codec::cuda::page_batch page_pipeline::batch_of(const half& with, const page_part& part) const {
  codec::cuda::page_batch out;
  out.payloads = coding_.plain.get();
  out.payload_stride = staged_bytes(what_.plan.page_bytes);
  out.encoded = with.pages.get();
  out.encoded_stride = staged_bytes(stored_bytes_);
  out.payload_bytes = what_.plan.page_bytes;
  out.pages = static_cast<std::uint32_t>(part.pages);
  return out;
}

/// Encodes the pages of a part, and computes their checksums, where a kernel that writes to host memory does so, too.
result<void> page_pipeline::encode(const half& with, cudaStream_t queue, const page_part& part,
                                   const page_list& pages) {
  auto batch = batch_of(with, part);
  batch.verdicts = coding_.refused.get() + part.first;
  const codec::cuda::encode_scratch scratch{coding_.progress.get(), coding_.scratch.get()};
  if (auto ok = check(codec::cuda::encode_pages(batch, scratch, queue), "launching an encoder"); !ok)
    return ok;
  const auto arguments = arguments_of(part, pages, [&](page_job& job, std::size_t i) {
    auto* const staged = with.pages.get() + part.offsets[i];
    job.page = part.direct ? reached(part, pages, i) : staged;
    job.source = staged;
    job.checked = 1;
  });
  const auto stored = launch_with(with, part, arguments, stored_bytes_);
  return check(part.direct ? launch_fetch(stored, queue) : launch_check(stored, queue), "launching the sums of pages");
}

/// Decodes the pages of a part that are the expected ones. The kernel that scatters looks at the same verdicts.
result<void> page_pipeline::decode(const half& with, cudaStream_t queue, const page_part& part) {
  auto batch = batch_of(with, part);
  batch.verdicts = with.verdicts.get();
  auto* const reports = coding_.refused.get() + part.first;
  return check(codec::cuda::decode_sound_pages(batch, reports, queue), "launching a decoder");
}

result<void> page_pipeline::copy_pages(const half& with, const page_part& part, const page_list& pages) const {
  piece_list pieces;
  for (std::size_t i = 0; i < part.pages;) {
    std::size_t count = 1;
    while (i + count < part.pages && part.joined[i + count])
      ++count;
    auto* const page = pages.moves[part.first + i].page;
    auto* const staged = with.pages.get() + part.offsets[i];
    const auto bytes = part.offsets[i + count - 1] - part.offsets[i] + stored_bytes_;
    const auto* const range = pages.places[part.first + i].range;
    if (direction_ == move_direction::gather)
      pieces.add(page, staged, bytes, range);
    else
      pieces.add(staged, page, bytes, range);
    i += count;
  }
  return check(pieces.copy(shared_->streams.copies.get()), "copying pages");
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
  for (auto* x : {shared_->streams.copies.get(), shared_->streams.kernels.get(), aside_.get()})
    if (auto ok = check(cudaStreamSynchronize(x), "moving pages"); !ok && out)
      out = std::move(ok);
  return out;
}

} // namespace troupe::cuda
