#include "io/slab/slab_store.hpp"

#include "base/log.hpp"
#include "io/make_engine.hpp"
#include "io/page.hpp"
#include "io/slab/chunk_advice.hpp"
#include "io/slab/occupied_slots.hpp"
#include "io/slab/slab_growth.hpp"

#include <chrono>
#include <filesystem>
#include <sys/vfs.h>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::io {

namespace {

result<slab_file> open_slab(const slab_store_options& options) {
  using clock = std::chrono::steady_clock;
  /// Short for an operator, and long compared to the cost of opening.
  constexpr auto pause = std::chrono::milliseconds(20);
  const auto retry_until = clock::now() + options.patience;
  auto slab = slab_file::open(options.slab, options.direct, *options.engine.gate);
  const auto busy = [&] { return !slab && slab.error().code == errc::busy; };
  if (busy() && options.patience > duration::zero())
    log::get("io")->info("slab in use: {}; waiting, in case its last node has just died", options.slab.path.string());
  while (busy() && clock::now() < retry_until) {
    std::this_thread::sleep_for(pause);
    slab = slab_file::open(options.slab, options.direct, *options.engine.gate);
  }
  return slab;
}

/// Whether the file is, or will be, on a file system that a daemon serves (FUSE).
bool is_of_a_daemon(const std::filesystem::path& file) {
  std::error_code ignored;
  auto there = std::filesystem::absolute(file, ignored).parent_path();
  while (!std::filesystem::exists(there, ignored) && there != there.root_path())
    there = there.parent_path();
  constexpr long fuse_magic = 0x65735546;
  struct statfs system {};
  return ::statfs(there.c_str(), &system) == 0 && system.f_type == fuse_magic;
}

} // namespace

slab_store::slab_store(slab_file slab, std::unique_ptr<engine> mover, std::uint32_t file, bool direct)
    : slab_(std::move(slab)), engine_(std::move(mover)),
      file_(file), traits_{slab_.spec().slots,       slab_.spec().slot_bytes,  page_alignment,
                           direct || slab_.direct(), slab_.spec().incarnation, slab_.spec().path.string(),
                           slab_.spec().length_only} {}

result<std::unique_ptr<slab_store>> slab_store::make(slab_file slab, std::unique_ptr<engine> mover, bool direct) {
  const auto file = mover->add_file(slab.descriptor());
  if (!file)
    return tl::unexpected<error>(file.error());
  return std::unique_ptr<slab_store>(new slab_store(std::move(slab), std::move(mover), *file, direct));
}

void slab_store::submit(std::span<const page_request> requests) {
  requests_.clear();
  for (const auto& x : requests)
    requests_.push_back(
        {x.op, file_, x.where.slot * traits_.slot_bytes + x.from, x.data, x.length, x.buffer, x.tag, x.deadline});
  engine_->submit(requests_);
}

result<void> slab_store::health() const {
  if (auto damage = slab_.damage(); !damage.empty())
    return fail(errc::slab_damaged, std::move(damage));
  return {};
}

std::shared_ptr<store_growth> slab_store::growth() const {
  return slab_.growth();
}

std::vector<std::uint64_t> slab_store::occupied() const {
  const auto& growth = slab_.growth();
  if (!growth || !growth->is_sparse())
    return {};
  if (auto found = occupied_slots(slab_.descriptor(), growth->slots(), traits_.slot_bytes))
    return std::move(*found);
  log::get("io")->warn("{}: the file system does not say what it occupies; all slots count as whole", traits_.place);
  return std::vector<std::uint64_t>(growth->slots(), traits_.slot_bytes);
}

bool goes_past_the_kernel(engine_kind kind, const std::filesystem::path& file) {
  return kind == engine_kind::usrbio || (kind == engine_kind::usrbio_or_uring && is_of_a_daemon(file));
}

result<std::unique_ptr<page_store>> open_slab_store(const slab_store_options& wanted, completion_sink sink) {
  auto options = wanted;
  auto& engine = options.engine;
  const bool on_3fs = goes_past_the_kernel(engine.kind, options.slab.path);
  engine.usrbio.directory = options.slab.path.parent_path();
  options.slab.length_only = on_3fs;
  // The descriptor is used for the trailer only.
  options.direct = options.direct && !on_3fs;
  // Checked before a slab is created that could not be used.
  std::error_code ignored;
  if (on_3fs)
    std::filesystem::create_directories(engine.usrbio.directory, ignored);
  auto mover = on_3fs ? make_engine(engine, sink) : result<std::unique_ptr<io::engine>>(nullptr);
  if (!mover)
    return tl::unexpected<error>(std::move(mover.error()));
  auto slab = open_slab(options);
  if (!slab)
    return tl::unexpected<error>(std::move(slab.error()));
  if (on_3fs)
    if (const auto advice = chunk_advice(options.slab.slot_bytes, chunk_bytes_of(slab->descriptor())); !advice.empty())
      log::get("io")->warn("{}: {}", options.slab.path.string(), advice);
  if (!*mover)
    mover = make_engine(engine, std::move(sink));
  if (!mover)
    return tl::unexpected<error>(std::move(mover.error()));
  return slab_store::make(std::move(*slab), std::move(*mover), on_3fs);
}

} // namespace troupe::io
