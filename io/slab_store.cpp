#include "io/slab_store.hpp"

#include "base/log.hpp"
#include "io/page.hpp"
#include "io/slab_growth.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace troupe::io {

namespace {

result<slab_file> open_slab(const slab_store_options& options) {
  using clock = std::chrono::steady_clock;
  /// Short next to what a person notices, long next to what opening costs.
  constexpr auto pause = std::chrono::milliseconds(20);
  const auto give_up = clock::now() + options.patience;
  auto slab = slab_file::open(options.slab, options.direct);
  const auto busy = [&] { return !slab && slab.error().code == errc::busy; };
  if (busy() && options.patience > duration::zero())
    log::get("io")->info("{} is in use: waiting, in case its last node has just died", options.slab.path.string());
  while (busy() && clock::now() < give_up) {
    std::this_thread::sleep_for(pause);
    slab = slab_file::open(options.slab, options.direct);
  }
  return slab;
}

} // namespace

slab_store::slab_store(slab_file slab, std::unique_ptr<engine> mover, std::uint32_t file)
    : slab_(std::move(slab)), engine_(std::move(mover)),
      file_(file), traits_{slab_.spec().slots, slab_.spec().slot_bytes,  page_alignment,
                           slab_.direct(),     slab_.spec().incarnation, slab_.spec().path.string()} {}

result<std::unique_ptr<slab_store>> slab_store::make(slab_file slab, std::unique_ptr<engine> mover) {
  const auto file = mover->add_file(slab.descriptor());
  if (!file)
    return tl::unexpected<error>(file.error());
  return std::unique_ptr<slab_store>(new slab_store(std::move(slab), std::move(mover), *file));
}

void slab_store::submit(std::span<const page_request> requests) {
  requests_.clear();
  for (const auto& x : requests)
    requests_.push_back(
        {x.op, file_, x.where.slot * traits_.slot_bytes, x.data, x.length, x.buffer, x.tag, x.deadline});
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

result<std::unique_ptr<page_store>> open_slab_store(const slab_store_options& options, completion_sink sink) {
  auto slab = open_slab(options);
  if (!slab)
    return tl::unexpected<error>(std::move(slab.error()));
  auto mover = make_engine(options.engine, std::move(sink));
  if (!mover)
    return tl::unexpected<error>(std::move(mover.error()));
  return slab_store::make(std::move(*slab), std::move(*mover));
}

} // namespace troupe::io
