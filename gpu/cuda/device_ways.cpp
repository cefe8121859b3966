#include "gpu/cuda/device_ways.hpp"

#include "codec/page_codec.hpp"

#include <map>
#include <utility>

namespace troupe::cuda {

result<std::shared_ptr<device_ways>> device_ways::of_device(int device) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<device_ways>> known;
  const std::lock_guard guard(mutex);
  if (auto found = known[device].lock())
    return found;
  auto out = std::make_shared<device_ways>();
  for (const auto direction : {move_direction::gather, move_direction::scatter}) {
    auto streams = page_streams::make(direction);
    if (!streams)
      return tl::unexpected(std::move(streams.error()));
    out->of(direction).streams.streams = std::move(*streams);
  }
  known[device] = out;
  return out;
}

result<void> device_ways::reserve(move_direction direction, std::uint32_t calls, const pipeline_memory& memory) {
  auto& own = of(direction);
  const std::lock_guard alone(reserving_);
  const auto count = pipelines_for(own.made, calls);
  // Also for those that are made now: calls of earlier movers will take them, too.
  const auto enough = own.memory.joined(memory);
  auto done = own.pipelines.with_all(
      count, [&] { return page_pipeline::create(direction, own.streams); },
      [&](page_pipeline& each) { return each.reserve(enough); });
  if (done) {
    own.made = count;
    own.memory = enough;
  }
  return done;
}

result<device_ways::event_wait> device_ways::event_wait::make() {
  auto queue = make_stream(priority::low);
  if (!queue)
    return tl::unexpected(std::move(queue.error()));
  auto reached = make_event(awaited_by::threads);
  if (!reached)
    return tl::unexpected(std::move(reached.error()));
  return event_wait{std::move(*queue), std::move(*reached)};
}

// The engine's event may be of the kind that threads wait for by polling, hence another one behind it.
result<void> device_ways::event_wait::until(cudaEvent_t ready) const {
  constexpr auto what = "waiting for the engine's event";
  if (auto ok = check(cudaStreamWaitEvent(queue.get(), ready, 0), what); !ok)
    return ok;
  if (auto ok = check(cudaEventRecord(reached.get(), queue.get()), what); !ok)
    return ok;
  return check(cudaEventSynchronize(reached.get()), what);
}

result<void> device_ways::await(cudaEvent_t ready) {
  if (cudaEventQuery(ready) == cudaSuccess)
    return {};
  static_cast<void>(cudaGetLastError());
  std::unique_lock guard(mutex_);
  result<event_wait> wait;
  if (idle_waits_.empty()) {
    guard.unlock();
    wait = event_wait::make();
    if (!wait)
      return tl::unexpected(std::move(wait.error()));
  } else {
    wait = std::move(idle_waits_.back());
    idle_waits_.pop_back();
    guard.unlock();
  }
  auto done = wait->until(ready);
  guard.lock();
  idle_waits_.push_back(std::move(*wait));
  return done;
}

result<void> device_ways::run(move_direction direction, const moved_cache& what, std::span<block_move> moves,
                              page_encoding encoding, std::span<const locked_range> locked,
                              std::uint64_t direct_bytes) {
  auto& own = of(direction);
  const auto pipeline = own.pipelines.take();
  const auto bytes = moves.size() * codec::stored_bytes(encoding, what.plan.page_bytes);
  const auto ahead = own.bytes.fetch_add(bytes, std::memory_order_relaxed);
  auto done = pipeline->run(what, moves, encoding, {locked, direct_bytes, ahead});
  own.bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return done;
}

} // namespace troupe::cuda
