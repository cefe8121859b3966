/// The smallest engine that can drive a connector: two tensor-parallel workers in one process, with KV cache in host
/// memory, and two requests with the same prompt. The first computes its KV and saves it; the second loads it.
///
///     build/release/troupe serve --config configs/single-node.json
///     build/release/examples/troupe-example-engine data/single

#include "connector/live/runtime.hpp"
#include "connector/output_aggregator.hpp"
#include "gpu/kv_layout.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

using namespace troupe;
using connector::block_id;
using connector::token_id;

namespace {

constexpr std::uint32_t workers = 2;
constexpr std::uint32_t blocks = 16;

/// As in configs/single-node.json: one worker's part of a block of 64 tokens.
constexpr std::uint32_t block_tokens = 64;
const kv_geometry geometry{
    .layers = 2, .parts = 2, .heads = 2, .head_size = 64, .element_bytes = 2, .block_tokens = block_tokens};

/// One worker's paged KV cache: a tensor (blocks, 2, block tokens, heads, head size) for each layer.
struct kv_cache {
  std::vector<std::vector<std::byte>> tensors;
  kv_cache_view view;

  static result<kv_cache> make() {
    kv_cache out;
    std::vector<std::span<std::byte>> spans;
    for (std::uint32_t layer = 0; layer < geometry.layers; ++layer)
      out.tensors.emplace_back(geometry.page_bytes() / geometry.layers * blocks);
    for (auto& x : out.tensors)
      spans.emplace_back(x);
    auto view = make_kv_cache_view(kv_layout::blocks_first, geometry, blocks, spans);
    if (!view)
      return tl::unexpected(std::move(view.error()));
    out.view = std::move(*view);
    return out;
  }

  std::span<std::byte> bytes_of(std::size_t layer, block_id block) {
    const auto bytes = tensors[layer].size() / blocks;
    return std::span(tensors[layer]).subspan(block * bytes, bytes);
  }
};

/// Replaces a model: computes the KV of a block, for worker and layer.
void compute(std::span<std::byte> out, std::uint32_t worker, std::size_t layer, std::size_t position) {
  std::minstd_rand random(static_cast<unsigned>(1 + worker + 10 * layer + 100 * position));
  for (auto& x : out)
    x = static_cast<std::byte>(random());
}

class engine {
public:
  result<void> start(const std::string& node) {
    auto made = connector::runtime::create({.node = node});
    if (!made)
      return tl::unexpected(std::move(made.error()));
    runtime_ = std::move(*made);
    // Both halves need the same options.
    connector::engine_options options;
    options.parallel.tensor_parallel = workers;
    options.block_tokens = block_tokens;
    auto scheduler = runtime_->make_scheduler_half(options);
    if (!scheduler)
      return tl::unexpected(std::move(scheduler.error()));
    scheduler_ = std::move(*scheduler);
    for (std::uint32_t i = 0; i < workers; ++i) {
      auto cache = kv_cache::make();
      if (!cache)
        return tl::unexpected(std::move(cache.error()));
      caches_.push_back(std::move(*cache));
      auto half = runtime_->make_worker_half(options, i);
      if (!half)
        return tl::unexpected(std::move(half.error()));
      if (auto ready = (*half)->register_kv_caches(caches_.back().view); !ready)
        return ready;
      halves_.push_back(std::move(*half));
    }
    return {};
  }

  /// Tokens of the prompt that the cache has; while the answer is not known, the engine schedules other requests.
  std::uint32_t ask(const std::string& id, const std::vector<token_id>& prompt) {
    for (;;) {
      const auto found = scheduler_->get_num_new_matched_tokens({.id = id, .tokens = {0, prompt}}, 0);
      if (found.tokens)
        return *found.tokens;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void allocated(const std::string& id, const std::vector<block_id>& where, std::uint32_t external_tokens) {
    scheduler_->update_state_after_alloc(id, where, external_tokens);
  }

  /// One step: metadata to all workers, the forward pass if there is one, reports back. `forward(worker)` computes.
  template <class Forward>
  connector::worker_output step(const connector::scheduler_output& scheduled, Forward forward) {
    const bool runs = !scheduled.new_requests.empty() || !scheduled.cached_requests.empty();
    const auto metadata = scheduler_->build_connector_meta(scheduled);
    std::vector<connector::worker_output> outputs;
    for (std::uint32_t i = 0; i < workers; ++i) { // in an engine, on all workers at once
      auto& half = *halves_[i];
      half.handle_preemptions(metadata);
      half.bind_connector_metadata(metadata);
      if (runs)
        forward(i);
      half.start_load_kv();
      half.wait_for_save();
      auto finished = half.get_finished(finished_);
      connector::worker_output out{std::move(finished.sent), std::move(finished.received)};
      out.load_errors = half.get_block_ids_with_load_errors();
      out.stores = half.build_connector_worker_meta();
      outputs.push_back(std::move(out));
      half.clear_connector_metadata();
    }
    finished_.clear();
    auto joined = aggregator_.aggregate(outputs);
    scheduler_->update_connector_output(joined);
    return joined;
  }

  /// A step without computation while a transfer is in progress.
  connector::worker_output idle_step() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return step({}, [](std::uint32_t) {});
  }

  /// Ends the request: waits until its blocks are free.
  void finish(const std::string& id) {
    if (!scheduler_->request_finished(id))
      return;
    finished_.push_back(id);
    while (idle_step().sent.empty())
      ;
  }

  kv_cache& cache(std::uint32_t worker) { return caches_[worker]; }
  std::size_t tracked() const { return scheduler_->tracked_requests(); }

private:
  std::unique_ptr<connector::runtime> runtime_;
  std::unique_ptr<connector::scheduler_half> scheduler_;
  std::vector<kv_cache> caches_;
  std::vector<std::unique_ptr<connector::worker_half>> halves_;
  connector::output_aggregator aggregator_{workers};
  std::vector<std::string_view> finished_;
};

/// Computes the whole prompt, which saves its full blocks.
void run_prompt(engine& x, const std::string& id, const std::vector<token_id>& prompt,
                const std::vector<block_id>& where) {
  const auto found = x.ask(id, prompt);
  std::cout << id << ": " << found << " of " << prompt.size() << " tokens are in the cache\n";
  x.allocated(id, where, 0); // and are not loaded, to have something to compute
  const connector::scheduled_request part{
      .id = id, .computed_tokens = 0, .scheduled_tokens = static_cast<std::uint32_t>(prompt.size()), .blocks = where};
  x.step({.new_requests = {&part, 1}}, [&](std::uint32_t worker) {
    for (std::size_t i = 0; i < prompt.size() / block_tokens; ++i)
      for (std::size_t layer = 0; layer < geometry.layers; ++layer)
        compute(x.cache(worker).bytes_of(layer, where[i]), worker, layer, i);
  });
  x.finish(id);
  std::cout << id << ": computed\n";
}

/// Loads the cached part of the prompt; returns whether every byte is right.
bool load_prompt(engine& x, const std::string& id, const std::vector<token_id>& prompt,
                 const std::vector<block_id>& where) {
  const auto found = x.ask(id, prompt);
  std::cout << id << ": " << found << " of " << prompt.size() << " tokens are in the cache\n";
  if (found == 0)
    return false;
  x.allocated(id, where, found);
  std::vector<block_id> errors;
  for (;;) { // the request waits until it is reported
    const auto output = x.idle_step();
    errors.insert(errors.end(), output.load_errors.begin(), output.load_errors.end());
    if (!output.received.empty())
      break;
  }
  bool right = errors.empty(); // blocks in `errors` would have to be computed
  std::vector<std::byte> expected;
  for (std::uint32_t worker = 0; worker < workers; ++worker)
    for (std::size_t i = 0; i < found / block_tokens; ++i)
      for (std::size_t layer = 0; layer < geometry.layers; ++layer) {
        const auto bytes = x.cache(worker).bytes_of(layer, where[i]);
        expected.resize(bytes.size());
        compute(expected, worker, layer, i);
        right = right && std::ranges::equal(bytes, expected);
      }
  x.finish(id);
  std::cout << id << ": loaded, " << (right ? "every byte is right\n" : "AND NOT EVERY BYTE IS RIGHT\n");
  return right;
}

} // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: troupe-example-engine NODE\n"
                 "NODE is its data_dir, the path of its socket, or HOST:PORT\n";
    return 2;
  }
  engine x;
  if (const auto started = x.start(argv[1]); !started) {
    std::cerr << to_string(started.error()) << '\n';
    return 1;
  }
  // Another prompt each time, so that the first request of a run does not find pages of an earlier run.
  std::vector<token_id> prompt(4 * block_tokens + 10);
  std::iota(prompt.begin(), prompt.end(), static_cast<token_id>(std::random_device{}() % 1'000'000));
  run_prompt(x, "first", prompt, {1, 7, 3, 9, 11});
  const auto right = load_prompt(x, "second", prompt, {2, 4, 6, 8, 10});
  return right && x.tracked() == 0 ? 0 : 1;
}
