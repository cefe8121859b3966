#include "actors/support/ask.hpp"
#include "base/layouts.hpp"
#include "base/log.hpp"
#include "connector/live/background_attach.hpp"
#include "connector/live/engine_halves.hpp"
#include "connector/worker/ordered_sender.hpp"
#include "connector/worker/worker_state.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace troupe::connector {

namespace {

using std::chrono::steady_clock;

/// How often the log reports that an engine waits for a coordinator, which normally answers in microseconds.
constexpr auto wait_patience = std::chrono::seconds(10);

/// The rules under a lock, and the coordinators that receive their orders. Shared with the receivers of answers in
/// actors' threads: a task that ends starts the next one at once, and not only at the engine's next call.
///
/// The engine's thread and those of actors both use it. Each decides under the lock and sends outside of it, in the
/// order of the decisions: see `ordered_sender`.
class worker_core : public std::enable_shared_from_this<worker_core> {
public:
  worker_core(caf::actor_system& system, const worker_options& options) : system_(system), state_(options, false) {}

  /// Orders go to these coordinators from now on.
  void attach(const worker_options& options, transfer_actor load, transfer_actor save) {
    std::lock_guard guard(mutex_);
    load_ = std::move(load);
    save_ = std::move(save);
    state_.attach(options);
  }

  /// Calls f(state), and carries out its effects.
  template <class F>
  auto with_state(F f) {
    std::unique_lock guard(mutex_);
    if constexpr (std::is_void_v<decltype(f(state_))>) {
      f(state_);
      flush(guard);
    } else {
      auto out = f(state_);
      flush(guard);
      return out;
    }
  }

  /// Waits until `f(state)` holds, and returns whether it does.
  template <class F>
  bool wait_until(timestamp until, F f) {
    std::unique_lock guard(mutex_);
    return changed_.wait_until(guard, until, [&] { return f(state_); });
  }

  /// Releases the coordinators, so that they can end.
  void let_go() {
    std::lock_guard guard(mutex_);
    load_ = nullptr;
    save_ = nullptr;
  }

private:
  void flush(std::unique_lock<std::mutex>& guard) {
    const auto load = load_;
    const auto save = save_;
    sender_.send(guard, state_.take_outbox(),
                 [&](worker_effect& effect) { std::visit([&](auto& x) { perform(x, load, save); }, effect); });
    changed_.notify_all();
  }

  void perform(submit_load& x, const transfer_actor& load, const transfer_actor&) {
    submit(load, x.tag, std::move(x.work));
  }
  void perform(submit_save& x, const transfer_actor&, const transfer_actor& save) {
    submit(save, x.tag, std::move(x.work));
  }
  void perform(cancel_saves& x, const transfer_actor&, const transfer_actor& save) {
    if (!save) // no copies are in progress any more
      return with_state([](worker_state& state) { state.on_cancelled(steady_clock::now()); });
    ask<void>(
        system_, save,
        [self = shared_from_this()](const result<void>&) {
          self->with_state([](worker_state& state) { state.on_cancelled(steady_clock::now()); });
        },
        cancel_atom_v, packed<std::uint64_t>{std::move(x.tags)});
  }

  void submit(const transfer_actor& to, task_tag tag, transfer_task work) {
    ask<transfer_result>(
        system_, to,
        [self = shared_from_this(), tag](const result<transfer_result>& outcome) {
          self->with_state([&](worker_state& state) { state.on_task(tag, outcome, steady_clock::now()); });
        },
        std::move(work));
  }

  caf::actor_system& system_;
  std::mutex mutex_;
  std::condition_variable changed_;
  worker_state state_;
  ordered_sender<worker_effect> sender_;
  transfer_actor load_;
  transfer_actor save_;
};

class live_worker_half final : public worker_half {
public:
  live_worker_half(caf::actor_system& system, half_connection node, const engine_options& engine, std::uint32_t worker,
                   std::optional<int> gpu)
      : system_(system), node_(std::move(node)), engine_(engine), worker_(worker), gpu_(gpu) {}

  ~live_worker_half() override { shutdown(); }

  result<void> register_kv_caches(const kv_cache_view& cache) override {
    if (closed_)
      return fail(errc::shutting_down, "this half of the connector was shut down");
    if (cache_)
      return fail(errc::invalid_argument, "a KV cache is registered already");
    auto done = connect(cache, node_.attach_limit);
    if (!done) {
      if (!node_.node_may_be_absent || !is_absence(done.error()))
        return done;
      if (auto fits = check_without_node(cache); !fits)
        return fits;
    }
    if (!core_)
      core_ = std::make_shared<worker_core>(system_, options_for(cache.blocks_per_page));
    cache_ = cache;
    if (done) {
      go_to_work();
      return {};
    }
    auto begun = connect_later(std::move(done.error()));
    if (!begun)
      cache_.reset();
    return begun;
  }

  result<void> register_groups(const std::vector<kv_cache_view>& caches) override {
    if (caches.size() != 1)
      return fail(errc::invalid_argument, "this half has one group of layers");
    return register_kv_caches(caches.front());
  }

  result<void> unregister_kv_caches() override {
    if (!cache_)
      return {};
    // The cache counts as registered until it is not accessed any more; a repeated call waits for that too.
    if (auto left = leave([](worker_state& x) { x.detach(steady_clock::now()); }); !left)
      return left;
    cache_.reset();
    return {};
  }

  result<void> attached() const override {
    if (!cache_)
      return fail(errc::unreachable, "no KV cache is registered");
    if (core_->with_state([](worker_state& x) { return x.attached(); }))
      return {};
    return background_.state();
  }

  void bind_connector_metadata(connector_metadata metadata) override {
    if (core_)
      core_->with_state([&](worker_state& x) { x.bind(std::move(metadata)); });
  }

  void clear_connector_metadata() override {
    if (core_)
      core_->with_state([](worker_state& x) { x.clear(); });
  }

  void handle_preemptions(const connector_metadata& metadata) override {
    if (!core_)
      return;
    core_->with_state([&](worker_state& x) { x.handle_preemptions(metadata.preempted, steady_clock::now()); });
    // This is the only wait without a limit. Continuing without the answer would let the engine overwrite blocks that a
    // copy still reads, and their new bytes would be published under the old keys. The answer is certain: the
    // coordinator gives it without waiting for copies or disks, and its end counts as an answer too.
    wait_for("the cancellation of saves of preempted requests, whose blocks must not change before",
             [](const worker_state& x) { return !x.preempting(); });
  }

  void start_load_kv(void* ready) override {
    if (!core_)
      return;
    core_->with_state([event = number_of(ready)](worker_state& x) { x.start_load_kv(steady_clock::now(), event); });
    // A load that has not ended by its deadline is still copying into blocks that the forward pass is about to use.
    wait_for("synchronous loads to end", [](const worker_state& x) { return x.synchronous_loads() == 0; });
  }

  void wait_for_layer_load(std::string_view) override {}
  void save_kv_layer(std::string_view) override {}

  void wait_for_save(void* ready) override {
    if (core_)
      core_->with_state([event = number_of(ready)](worker_state& x) { x.wait_for_save(steady_clock::now(), event); });
  }

  finished_requests get_finished(std::span<const std::string_view>) override {
    return core_ ? core_->with_state([](worker_state& x) { return x.get_finished(); }) : finished_requests{};
  }

  std::vector<block_id> get_block_ids_with_load_errors() override {
    return core_ ? core_->with_state([](worker_state& x) { return x.take_load_errors(); }) : std::vector<block_id>{};
  }

  std::vector<store_outcome> build_connector_worker_meta() override {
    return core_ ? core_->with_state([](worker_state& x) { return x.take_store_outcomes(); })
                 : std::vector<store_outcome>{};
  }

  connector_stats get_kv_connector_stats() override {
    return core_ ? core_->with_state([](worker_state& x) { return x.take_stats(); }) : connector_stats{};
  }

  void shutdown() override {
    if (std::exchange(closed_, true) || !core_)
      return;
    if (const auto stopped = leave([](worker_state& x) { x.close(steady_clock::now()); }); !stopped)
      log::get("connector")->error("worker {}: {}", worker_, to_string(stopped.error()));
  }

private:
  worker_options options_for(std::uint32_t blocks_per_page) const {
    worker_options out;
    out.blocks_per_page = blocks_per_page;
    out.block_tokens = engine_.block_tokens;
    out.writer = is_kv_writer(engine_.parallel, worker_);
    out.tasks_max = std::max(node_.client.transfer.max_tasks / 2, std::uint32_t{1});
    out.task_deadline = engine_.task_deadline;
    out.synchronous_load_limit = engine_.synchronous_load_limit;
    return out;
  }

  /// Checks that this cache has the pages of the namespace.
  result<void> check_fit(const namespace_spec& ns, const kv_cache_view& cache) const {
    const auto blocks = blocks_per_page(ns, engine_);
    if (!blocks)
      return tl::unexpected(blocks.error());
    if (cache.geometry != ns.geometry || cache.blocks_per_page != *blocks)
      return fail(errc::identity_mismatch,
                  "pages of namespace '" + ns.name + "' have " + std::to_string(ns.geometry.page_bytes()) +
                      " bytes in " + std::to_string(*blocks) + " blocks; those of worker " + std::to_string(worker_) +
                      " have " + std::to_string(cache.geometry.page_bytes()) + " bytes in " +
                      std::to_string(cache.blocks_per_page) + " blocks, or another shape");
    if (cache.opaque_blocks != (ns.layout == layout_of_whole_blocks))
      return fail(errc::identity_mismatch, "pages of namespace '" + ns.name + "' have the layout " + ns.layout +
                                               ", and blocks of worker " + std::to_string(worker_) +
                                               (cache.opaque_blocks ? " are opaque" : " are not opaque"));
    return {};
  }

  /// Checks what can be checked without a node.
  result<void> check_without_node(const kv_cache_view& cache) const {
    if (node_.where.ns)
      if (auto fits = check_fit(*node_.where.ns, cache); !fits)
        return fits;
    auto memory =
        node_client::rank_memory::of(kv_rank(engine_.parallel, worker_), cache, gpu_, node_.client.transfer.encoding);
    if (!memory)
      return tl::unexpected(std::move(memory.error()));
    return {};
  }

  /// Attaches to the node, and binds the actors of this worker's rank: `client_` and `task_keys_max_`.
  result<void> connect(const kv_cache_view& cache, duration limit) {
    auto client = std::make_unique<node_client>(system_, node_.client);
    auto attached = client->attach(node_.where, limit);
    if (!attached)
      return tl::unexpected(std::move(attached.error()));
    if (auto fits = check_fit(attached->ns, cache); !fits)
      return fits;
    auto memory =
        node_client::rank_memory::of(kv_rank(engine_.parallel, worker_), cache, gpu_, node_.client.transfer.encoding);
    if (!memory)
      return tl::unexpected(std::move(memory.error()));
    memory->events = events_;
    if (auto added = client->add_rank(std::move(*memory)); !added)
      return added;
    if (auto bound = client->bind(limit); !bound)
      return bound;
    task_keys_max_ = attached->limits.batch_keys;
    client_ = std::move(client);
    return {};
  }

  void go_to_work() {
    auto options = options_for(cache_->blocks_per_page);
    options.task_keys_max = task_keys_max_;
    core_->attach(options, client_->load(0), client_->save(0));
  }

  result<void> connect_later(error why) {
    log::get("connector")
        ->warn("worker {}: node unreachable, nothing is loaded or saved until it is reachable: {}", worker_,
               to_string(why));
    return background_.start(
        std::move(why),
        [this]() -> result<void> {
          if (auto done = connect(*cache_, background_attach_limit); !done)
            return done;
          go_to_work();
          log::get("connector")->info("worker {}: attached to the node", worker_);
          return {};
        },
        [this](const error& refused) {
          log::get("connector")
              ->error("worker {}: cannot use this node, nothing is loaded or saved: {}", worker_, to_string(refused));
        });
  }

  /// Ends transfers in progress by `how(state)`, and returns when the KV cache is not accessed any more.
  template <class F>
  result<void> leave(F how) {
    background_.stop();
    core_->with_state(how);
    if (!client_)
      return {};
    // Tasks have deadlines of their own; those that exceed them by far are counted, not waited for.
    const auto until = steady_clock::now() + engine_.task_deadline + std::chrono::seconds(5);
    if (!core_->wait_until(until, [](const worker_state& x) { return x.tasks_outstanding() == 0; }))
      log::get("connector")
          ->error("worker {}: {} transfers did not end within their deadlines", worker_,
                  core_->with_state([](worker_state& x) { return x.tasks_outstanding(); }));
    core_->let_go();
    auto stopped = client_->stop(std::chrono::seconds(10));
    if (stopped)
      client_.reset();
    return stopped;
  }

  /// Returns when `f(state)` holds; `what` is for the log if that takes long.
  template <class F>
  void wait_for(std::string_view what, F f) {
    const auto since = steady_clock::now();
    for (auto say = since + wait_patience; !core_->wait_until(say, f); say += wait_patience)
      log::get("connector")
          ->error("worker {}: the engine has waited {} s for {}", worker_,
                  std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - since).count(), what);
  }

  /// The number of the event in messages; an engine has one or two events, so each is entered once.
  std::uint64_t number_of(void* event) {
    if (event == nullptr)
      return 0;
    const auto [entry, added] = event_numbers_.try_emplace(event);
    if (added)
      entry->second = events_->add(event);
    return entry->second;
  }

  caf::actor_system& system_;
  half_connection node_;
  engine_options engine_;
  std::uint32_t worker_;
  std::optional<int> gpu_;
  std::shared_ptr<device_event_table> events_ = std::make_shared<device_event_table>();
  std::unordered_map<void*, std::uint64_t> event_numbers_;
  /// The background thread owns these two while it runs, otherwise the engine's thread does.
  std::unique_ptr<node_client> client_;
  std::uint32_t task_keys_max_ = 0;
  std::shared_ptr<worker_core> core_;
  /// Set while a cache is registered. Not changed while the background thread runs.
  std::optional<kv_cache_view> cache_;
  bool closed_ = false;
  /// The last member, because its thread uses the others.
  background_attach background_;
};

} // namespace

result<std::unique_ptr<worker_half>> make_worker_half(caf::actor_system& system, const half_connection& node,
                                                      const engine_options& engine, std::uint32_t worker,
                                                      std::optional<int> gpu) {
  if (auto sound = validate(engine.parallel); !sound)
    return tl::unexpected(std::move(sound.error()));
  if (worker >= worker_count(engine.parallel))
    return fail(errc::out_of_range, "worker " + std::to_string(worker) + " of an engine with " +
                                        std::to_string(worker_count(engine.parallel)));
  return std::make_unique<live_worker_half>(system, node, engine, worker, gpu);
}

} // namespace troupe::connector
