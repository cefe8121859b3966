#include "actors/support/ask.hpp"
#include "base/log.hpp"
#include "base/processors.hpp"
#include "connector/live/background_attach.hpp"
#include "connector/live/engine_halves.hpp"
#include "gpu/host_page_mover.hpp"
#include "messages/answer_codes.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace troupe::connector {

namespace {

using std::chrono::steady_clock;

/// A block that is named more than once.
std::optional<block_id> repeated(std::span<const block_id> blocks) {
  std::vector<block_id> sorted(blocks.begin(), blocks.end());
  std::ranges::sort(sorted);
  const auto found = std::ranges::adjacent_find(sorted);
  return found == sorted.end() ? std::nullopt : std::optional(*found);
}

/// The copies of a pool are limited by memory: more threads than these take cores from the engine and gain nothing.
std::uint32_t copy_threads_default() {
  return std::clamp(usable_processors() / 2, 2U, 8U);
}

/// The most leases of lookups that are held at once; then the oldest is released.
constexpr std::size_t pool_leases_max = 64;

class live_page_pool final : public page_pool {
public:
  live_page_pool(caf::actor_system& system, half_connection node, pool_options options, kv_cache_view cache)
      : system_(system), node_(std::move(node)), options_(options), cache_(std::move(cache)) {
    if (options_.batch_pages > 0)
      node_.client.transfer.batch_pages = options_.batch_pages;
  }

  ~live_page_pool() override { shutdown(); }

  /// Waits for the node within the connection's limit, then in the background where the node may be absent.
  result<void> start() {
    auto first = attach(node_.attach_limit);
    if (first || !node_.node_may_be_absent || !is_absence(first.error()))
      return first;
    log::get("connector")
        ->warn("page pool: node unreachable, nothing is found or saved until it is reachable: {}",
               to_string(first.error()));
    return background_.start(
        std::move(first.error()), [this] { return attach(background_attach_limit); },
        [](const error& why) {
          log::get("connector")
              ->error("page pool: cannot use this node, nothing is found or saved: {}", to_string(why));
        });
  }

  result<void> attached() const override {
    if (closed_)
      return fail(errc::shutting_down, "the pool has been shut down");
    return at_work() ? result<void>{} : background_.state();
  }

  bool wants_descriptions() const override { return at_work() && wants_descriptions_; }

  void describe(page_descriptions pages) override {
    const std::shared_lock use(in_use_);
    if (wants_descriptions())
      ask<void>(
          system_, client_->lookup(), [](const result<void>&) {}, std::move(pages));
  }

  std::size_t exist(std::span<const key_digest> keys, duration limit) override {
    const std::shared_lock use(in_use_);
    if (!at_work())
      return 0;
    const auto until = later(steady_clock::now(), limit);
    std::size_t found = 0;
    while (found < keys.size()) {
      const auto count = std::min<std::size_t>(keys.size() - found, batch_keys_);
      const auto said = look_up(keys.subspan(found, count), false, until);
      if (!said || said->matched == 0)
        break;
      found += std::min<std::size_t>(said->matched, count);
      if (said->matched < count)
        break;
    }
    return found;
  }

  std::vector<std::uint8_t> exist_each(std::span<const key_digest> keys, duration limit) override {
    std::vector<std::uint8_t> out(keys.size());
    const std::shared_lock use(in_use_);
    if (!at_work())
      return out;
    const auto until = later(steady_clock::now(), limit);
    for (std::size_t first = 0; first < keys.size();) {
      const auto asked = keys.subspan(first, std::min<std::size_t>(keys.size() - first, batch_keys_));
      const auto said = look_up(asked, true, until);
      if (!said || said->found.items.empty())
        break;
      const auto count = std::min(said->found.items.size(), keys.size() - first);
      std::copy_n(said->found.items.begin(), count, out.begin() + static_cast<std::ptrdiff_t>(first));
      first += count;
    }
    return out;
  }

  result<std::vector<errc>> get(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                duration limit) override {
    return move(true, keys, blocks, limit);
  }

  result<std::vector<errc>> put(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                duration limit) override {
    return move(false, keys, blocks, limit);
  }

  connector_stats take_stats() override {
    std::lock_guard guard(mutex_);
    return stats_.clone_and_reset();
  }

  void shutdown() override {
    if (closed_.exchange(true))
      return;
    background_.stop();
    const std::unique_lock alone(in_use_); // calls in progress end by their limits
    if (!at_work_.exchange(false))
      return;
    if (const auto stopped = client_->stop(std::chrono::seconds(10)); !stopped)
      log::get("connector")->error("page pool: {}", to_string(stopped.error()));
    client_.reset();
  }

private:
  bool at_work() const { return at_work_.load(std::memory_order_acquire); }

  result<void> attach(duration limit) {
    auto client = std::make_unique<node_client>(system_, node_.client);
    const auto node = client->attach(node_.where, limit);
    if (!node)
      return tl::unexpected(node.error());
    if (auto fits = check(node->ns); !fits)
      return fits;
    auto memory =
        options_.gpu ? node_client::rank_memory::of(options_.rank, cache_, options_.gpu, node_.client.transfer.encoding)
                     : host_memory();
    if (!memory)
      return tl::unexpected(memory.error());
    if (auto added = client->add_rank(std::move(*memory)); !added)
      return added;
    if (auto bound = client->bind(limit); !bound)
      return bound;
    client_ = std::move(client);
    batch_keys_ = std::max(node->limits.batch_keys, 1U);
    lease_max_ = node->limits.lease;
    wants_descriptions_ = node->wants_descriptions;
    at_work_.store(true, std::memory_order_release);
    return {};
  }

  result<node_client::rank_memory> host_memory() const {
    const auto threads = options_.copy_threads > 0 ? options_.copy_threads : copy_threads_default();
    auto mover = make_host_page_mover(
        cache_, {.verify_while_copying = !options_.keeps_unread_blocks, .calls_at_once = threads, .populate = true});
    if (!mover)
      return tl::unexpected(mover.error());
    node_client::rank_memory out;
    out.rank = options_.rank;
    out.mover = std::move(*mover);
    out.batches_in_window = std::max(out.batches_in_window, 2 * threads); // one is ready when a copy ends
    return out;
  }

  result<void> check(const namespace_spec& ns) const {
    if (ns.geometry != cache_.geometry)
      return fail(errc::identity_mismatch, "pages of namespace '" + ns.name + "' have another shape than the pool's");
    if (options_.rank >= ns.world_size)
      return fail(errc::out_of_range, "rank " + std::to_string(options_.rank) + " of namespace '" + ns.name +
                                          "' with " + std::to_string(ns.world_size));
    return {};
  }

  /// Empty where there is no answer in time.
  std::optional<lookup_result> look_up(std::span<const key_digest> keys, bool each, steady_clock::time_point until) {
    lookup_task work;
    work.keys.items.assign(keys.begin(), keys.end());
    work.lease_for = std::min(options_.lease, lease_max_);
    work.each = each;
    // A late answer is ignored, and its lease expires by itself.
    auto promise = std::make_shared<std::promise<result<lookup_result>>>();
    auto answer = promise->get_future();
    ask<lookup_result>(
        system_, client_->lookup(), [promise](result<lookup_result> x) { promise->set_value(std::move(x)); },
        std::move(work));
    if (answer.wait_until(until) != std::future_status::ready)
      return std::nullopt;
    auto said = answer.get();
    if (!said)
      return std::nullopt;
    if (said->matched > 0)
      keep(said->lease);
    return std::move(*said);
  }

  void keep(const ticket& lease) {
    std::unique_lock guard(mutex_);
    leases_.push_back(lease);
    if (leases_.size() <= pool_leases_max)
      return;
    const auto oldest = leases_.front();
    leases_.pop_front();
    guard.unlock();
    ask<void>(
        system_, client_->lookup(), [](const result<void>&) {}, release_atom_v, oldest);
  }

  result<std::vector<errc>> move(bool load, std::span<const key_digest> keys, std::span<const block_id> blocks,
                                 duration limit) {
    if (blocks.size() != keys.size())
      return fail(errc::invalid_argument,
                  std::to_string(blocks.size()) + " blocks for " + std::to_string(keys.size()) + " keys");
    for (const auto block : blocks)
      if (block >= cache_.blocks)
        return fail(errc::out_of_range,
                    "block " + std::to_string(block) + " of a pool of " + std::to_string(cache_.blocks));
    // Two threads would copy at once, and a page that is not valid may be copied over one that is.
    if (const auto twice = load ? repeated(blocks) : std::nullopt)
      return fail(errc::invalid_argument, "block " + std::to_string(*twice) + " is named twice; a block has one page");
    std::vector<errc> out(keys.size(), closed_ ? errc::shutting_down : errc::unreachable);
    const std::shared_lock use(in_use_);
    if (!at_work())
      return out;
    const auto until = later(steady_clock::now(), limit);
    const std::size_t batch = batch_keys_;
    for (std::size_t first = 0; first < keys.size(); first += batch) {
      const auto count = std::min(batch, keys.size() - first);
      const auto left = until - steady_clock::now();
      if (left <= duration::zero()) {
        std::fill(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), errc::timeout);
        break;
      }
      transfer_task work;
      work.keys.items.assign(keys.begin() + static_cast<std::ptrdiff_t>(first),
                             keys.begin() + static_cast<std::ptrdiff_t>(first + count));
      work.blocks.items.assign(blocks.begin() + static_cast<std::ptrdiff_t>(first),
                               blocks.begin() + static_cast<std::ptrdiff_t>(first + count));
      if (first > 0)
        work.parent = keys[first - 1];
      work.deadline = left;
      submit(load, std::move(work), std::span(out).subspan(first, count));
    }
    return out;
  }

  /// Waits for the answer, which coordinators guarantee at the deadline or shortly after.
  void submit(bool load, transfer_task work, std::span<errc> out) {
    const auto since = steady_clock::now();
    auto promise = std::make_shared<std::promise<result<transfer_result>>>();
    auto answer = promise->get_future();
    ask<transfer_result>(
        system_, load ? client_->load(0) : client_->save(0),
        [promise](result<transfer_result> x) { promise->set_value(std::move(x)); }, std::move(work));
    const auto said = answer.get();
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = code_at(said, i);
    count(load, said, out, steady_clock::now() - since);
  }

  void count(bool load, const result<transfer_result>& said, std::span<const errc> out, duration took) {
    const auto seconds = [](duration x) { return std::chrono::duration<double>(x).count(); };
    const auto add = [&](std::vector<double>& samples, duration x) {
      if (samples.size() < samples_max)
        samples.push_back(seconds(x));
    };
    const bool whole = std::all_of(out.begin(), out.end(), [&](errc x) {
      return x == errc::ok || (!load && (x == errc::exists || x == errc::busy));
    });
    std::lock_guard guard(mutex_);
    ++stats_.num_transfer_task;
    if (said)
      add(stats_.metadata_duration, said->timing.registry + said->timing.finish);
    if (whole)
      add(load ? stats_.load_duration : stats_.save_duration, took);
    else
      ++(load ? stats_.num_failed_load : stats_.num_failed_save);
    if (said)
      (load ? stats_.loaded_bytes : stats_.saved_bytes) += said->bytes;
    if (load && said)
      stats_.disk_tokens += said->from_disk * cache_.geometry.block_tokens;
    for (const auto x : out) {
      if (load && x == errc::ok)
        stats_.hit_tokens += cache_.geometry.block_tokens;
      if (!load && (x == errc::exists || x == errc::busy))
        ++stats_.skipped_pages;
      if (!load && x == errc::slab_damaged)
        ++stats_.refused_pages;
    }
  }

  static constexpr std::size_t samples_max = 65536;

  caf::actor_system& system_;
  half_connection node_;
  pool_options options_;
  kv_cache_view cache_;

  /// Held by every call, so that the client lives until they have ended.
  std::shared_mutex in_use_;
  std::atomic<bool> closed_{false};

  std::mutex mutex_;
  std::deque<ticket> leases_;
  connector_stats stats_;

  /// Written before `at_work_` becomes true, and not changed while it is.
  std::unique_ptr<node_client> client_;
  std::uint32_t batch_keys_ = 1;
  duration lease_max_{};
  bool wants_descriptions_ = false;
  std::atomic<bool> at_work_{false};
  /// The last member, because its thread uses the others.
  background_attach background_;
};

} // namespace

result<std::unique_ptr<page_pool>> make_page_pool(caf::actor_system& system, const half_connection& node,
                                                  const pool_options& options, const kv_cache_view& cache) {
  if (auto sound = validate(cache); !sound)
    return tl::unexpected(std::move(sound.error()));
  if (cache.blocks_per_page != 1)
    return fail(errc::unsupported, "a page of a pool has to be one block");
  auto out = std::make_unique<live_page_pool>(system, node, options, cache);
  if (auto started = out->start(); !started)
    return tl::unexpected(std::move(started.error()));
  return out;
}

} // namespace troupe::connector
