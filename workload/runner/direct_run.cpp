#include "workload/runner/direct_run.hpp"

#include "actors/support/actor_support.hpp"
#include "workload/replay/text_table.hpp"
#include "workload/runner/machine.hpp"
#include "workload/runner/replayer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace troupe::replay {

namespace {

/// The number of blocks of the longest request.
std::size_t longest_request(const trace& what) {
  std::size_t out = 0;
  for (const auto& x : what.requests)
    out = std::max(out, x.hash_ids.size());
  return out;
}

/// Allocates device memory for all replayers: in host memory, it may take half of the host's.
result<void> make_devices(replay_context& scene, const namespace_spec& ns, std::size_t blocks,
                          const run_options& options) {
  const auto gpu = options.gpu;
  const auto bytes = ns.geometry.page_bytes() * blocks * ns.world_size;
  if (auto room = gpu ? result<void>{} : check_memory(bytes, "concurrent requests", "--concurrency or --page-bytes");
      !room)
    return room;
  for (rank_number rank = 0; rank < ns.world_size; ++rank) {
    auto device =
        device_memory::create(ns.geometry, static_cast<std::uint32_t>(std::max<std::size_t>(blocks, 1)),
                              {.layout = kv_layout::split, .seed = 1 + rank, .gpu = gpu, .values = options.values});
    if (!device)
      return tl::unexpected<error>(device.error());
    scene.devices.push_back(std::make_unique<device_memory>(std::move(*device)));
  }
  return {};
}

/// Serves each rank's device memory, waits until all is bound to the node, and sets the actors that replayers use.
result<void> start_ranks(node_client& client, replay_context& scene) {
  for (rank_number rank = 0; rank < scene.devices.size(); ++rank) {
    auto memory = node_client::rank_memory::of(rank, scene.devices[rank]->view(), scene.options.gpu);
    if (!memory)
      return tl::unexpected<error>(memory.error());
    if (auto added = client.add_rank(std::move(*memory)); !added)
      return added;
  }
  if (auto bound = client.bind(scene.options.patience); !bound)
    return bound;
  scene.lookup = client.lookup();
  scene.link = client.link_handle();
  for (std::size_t i = 0; i < scene.devices.size(); ++i) {
    scene.load.push_back(client.load(i));
    scene.save.push_back(client.save(i));
  }
  return {};
}

/// Keys that the node has evicted so far; 0 when it does not answer.
std::uint64_t evicted_keys(caf::actor_system& system, const lookup_actor& lookup) {
  std::uint64_t out = 0;
  caf::scoped_actor self{system};
  self->request(lookup, std::chrono::seconds(10), stats_atom_v)
      .receive([&](const registry_stats& x) { out = x.evicted_keys; }, [](const caf::error&) {});
  return out;
}

/// Indexed by replayer and rank.
using replayer_blocks = std::vector<std::vector<std::vector<std::uint32_t>>>;

replayer_blocks divide_blocks(const replay_context& scene, std::size_t longest) {
  replayer_blocks out(scene.options.concurrency);
  for (auto& own : out)
    for (const auto& device : scene.devices)
      own.push_back(device->take(longest).value()); // made for exactly this many
  return out;
}

/// Controls the replayers until all requests of the tally have ended, the node is lost for good, or the observer
/// requests the end. Replayers report by messages, so that only this thread changes the tally.
void conduct(caf::actor_system& system, const std::shared_ptr<const replay_context>& scene,
             const replayer_blocks& blocks, tally& sums, run_observer& observer) {
  caf::scoped_actor self{system};
  const auto began = std::chrono::steady_clock::now();
  std::size_t playing = 0;
  for (const auto& own : blocks) {
    const auto one = system.spawn<replayer>(scene, caf::actor_cast<caf::actor>(self.ptr()), own);
    self->monitor(one);
    caf::anon_send(one, caf::ok_atom_v);
    ++playing;
  }
  auto shown = began;
  while (playing > 0) {
    self->receive([&](const next_request&) { return sums.next().value_or(scene->what->requests.size()); },
                  [&](const still_wanted&) { return !sums.abandoned().has_value(); },
                  [&](const run_event& x) { sums.note(x); }, [&](const caf::down_msg&) { --playing; },
                  caf::after(observer.interval()) >> [] {});
    // Messages arrive faster than the display needs.
    const auto now = std::chrono::steady_clock::now();
    if (playing > 0 && now - shown < observer.interval())
      continue;
    shown = now;
    observer.progress(sums.progress(now - began), playing == 0);
    if (observer.wants_end())
      sums.abandon({errc::cancelled, "interrupted"});
  }
}

} // namespace

direct_run::direct_run(const trace& what, const run_options& options, bool compared)
    : scene_(std::make_shared<replay_context>()) {
  scene_->what = &what;
  scene_->options = options;
  scene_->compared = compared;
}

direct_run::~direct_run() = default;

result<direct_outcome> direct_run::play(caf::actor_system& system, node_client& client, const attach_reply& attached,
                                        run_observer& observer) {
  const auto& ns = attached.ns;
  const auto& what = *scene_->what;
  auto& options = scene_->options;
  const auto longest = longest_request(what);
  const auto page_bytes = ns.geometry.page_bytes();
  options.lease = std::min(options.lease, attached.limits.lease);
  scene_->batch_keys = attached.limits.batch_keys;
  observer.preparing("making " + human_bytes(page_bytes * longest * options.concurrency * ns.world_size) +
                     " of KV cache");
  if (auto made = make_devices(*scene_, ns, longest * options.concurrency, options); !made)
    return tl::unexpected(std::move(made.error()));
  if (auto started = start_ranks(client, *scene_); !started)
    return tl::unexpected(std::move(started.error()));

  std::optional<plain_copy_pace> copy;
  if (options.gpu && !scene_->compared) {
    const auto measured = measure_plain_copy(*options.gpu);
    if (!measured)
      return tl::unexpected<error>(measured.error());
    copy = *measured;
  }
  const auto blocks = divide_blocks(*scene_, longest);
  const auto warm_up = std::min<std::uint64_t>(options.warm_up, what.requests.size());
  tally before(0, warm_up, page_bytes, scene_->compared);
  tally sums(warm_up, what.requests.size(), page_bytes, scene_->compared);
  observer.begins();
  if (warm_up > 0)
    conduct(system, scene_, blocks, before, observer);
  sums.begin_after(before);
  const auto evicted = evicted_keys(system, client.lookup());
  const auto began = std::chrono::steady_clock::now();
  const auto busy_before = processor_seconds();
  conduct(system, scene_, blocks, sums, observer);
  const auto ended = std::chrono::steady_clock::now();

  direct_outcome out{sums.report(ended), sums.phases(), sums.first_wrong(), sums.slab_damaged(), sums.abandoned()};
  out.report.plain_copy = copy;
  out.report.seconds = std::chrono::duration<double>(ended - began).count();
  out.report.cores = out.report.seconds > 0 ? (processor_seconds() - busy_before) / out.report.seconds : 0.0;
  for (const auto& device : scene_->devices)
    if (const auto failure = device->failure())
      return tl::unexpected<error>(*failure);
  const auto evicted_now = evicted_keys(system, client.lookup());
  out.report.evicted_keys = evicted_now > evicted ? evicted_now - evicted : 0;
  return out;
}

} // namespace troupe::replay
