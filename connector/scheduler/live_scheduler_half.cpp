#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "base/log.hpp"
#include "connector/background_attach.hpp"
#include "connector/engine_halves.hpp"
#include "connector/scheduler/scheduler_state.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

namespace troupe::connector {

namespace {

using std::chrono::steady_clock;

/// Passes answers of lookups from actors' threads to the engine's.
class answer_inbox {
public:
  struct answer {
    std::uint64_t lookup = 0;
    result<lookup_result> found;
  };

  void push(answer x) {
    std::lock_guard guard(mutex_);
    answers_.push_back(std::move(x));
    filled_.store(true, std::memory_order_release);
  }

  std::vector<answer> take() {
    if (!filled_.load(std::memory_order_acquire))
      return {};
    std::lock_guard guard(mutex_);
    filled_.store(false, std::memory_order_relaxed);
    return std::exchange(answers_, {});
  }

private:
  std::atomic<bool> filled_{false};
  std::mutex mutex_;
  std::vector<answer> answers_;
};

/// The state that exists once the node is attached.
struct attachment {
  std::unique_ptr<node_client> client;
  scheduler_options options;
};

result<attachment> attach(caf::actor_system& system, const half_connection& node, const engine_options& engine,
                          duration limit) {
  attachment out;
  out.client = std::make_unique<node_client>(system, node.client);
  auto attached = out.client->attach(node.where, limit);
  if (!attached)
    return tl::unexpected(std::move(attached.error()));
  const auto blocks = blocks_per_page(attached->ns, engine);
  if (!blocks)
    return tl::unexpected(blocks.error());
  if (auto bound = out.client->bind(limit); !bound)
    return tl::unexpected(std::move(bound.error()));
  auto& options = out.options;
  options.ns = attached->ns.id();
  options.keys = {engine.keys, scheduler_block_tokens(engine.parallel, engine.block_tokens), *blocks};
  options.workers = worker_count(engine.parallel);
  options.writers = kv_writer_count(engine.parallel);
  options.lookup_keys_max = attached->limits.batch_keys;
  options.lookups_max = node.client.transfer.max_tasks;
  options.lease = std::min(engine.lease, attached->limits.lease);
  options.lookup_patience = engine.lookup_patience;
  options.store_pages_max = attached->limits.batch_keys;
  options.save_generated = engine.save_generated;
  options.min_load_tokens = engine.min_load_tokens;
  options.pace.rule = engine.disk;
  options.synchronous_loads = engine.synchronous_loads;
  return out;
}

/// The rules, driven by the engine's thread. Their requests go to the lookup coordinator, whose answers wait in the
/// inbox until the next hook. So no hook waits for an actor, and the lock is held only while an answer is passed.
///
/// Before a node is attached there are no rules: requests of that time are ignored until they are preempted or looked
/// up again.
class live_scheduler_half final : public scheduler_half {
public:
  live_scheduler_half(caf::actor_system& system, const half_connection& node, const engine_options& engine)
      : system_(system), node_(node), engine_(engine) {}

  ~live_scheduler_half() override { background_.stop(); }

  result<void> start() {
    auto made = attach(system_, node_, engine_, node_.attach_limit);
    if (made) {
      take(std::move(*made));
      return {};
    }
    if (!node_.node_may_be_absent || !is_absence(made.error()))
      return tl::unexpected(std::move(made.error()));
    if (node_.where.ns)
      if (auto fits = blocks_per_page(*node_.where.ns, engine_); !fits)
        return tl::unexpected(std::move(fits.error()));
    log::get("connector")
        ->warn("scheduler: node unreachable, nothing is found until it is reachable: {}", to_string(made.error()));
    return background_.start(
        std::move(made.error()),
        [this]() -> result<void> {
          auto late = attach(system_, node_, engine_, background_attach_limit);
          if (!late)
            return tl::unexpected(std::move(late.error()));
          arrived_ = std::move(*late);
          has_arrived_.store(true, std::memory_order_release);
          log::get("connector")->info("scheduler: attached to the node");
          return {};
        },
        [](const error& why) {
          log::get("connector")->error("scheduler: cannot use this node, nothing is found: {}", to_string(why));
        });
  }

  void on_new_request(const engine_request& request) override {
    const auto at = receive();
    if (!state_)
      return;
    state_->on_new_request(request, at);
    flush();
  }

  matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens) override {
    const auto at = receive();
    if (!state_)
      return {0, false};
    const auto out = state_->get_num_new_matched_tokens(request, computed_tokens, at);
    flush();
    return out;
  }

  void update_state_after_alloc(std::string_view request, std::span<const block_id> blocks,
                                std::uint32_t external_tokens) override {
    if (!state_)
      return;
    state_->update_state_after_alloc(request, blocks, external_tokens);
    flush();
  }

  hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const override {
    return state_ ? state_->get_external_cache_hit_sources(request, tokens) : hit_sources{.unknown = tokens};
  }

  connector_metadata build_connector_meta(const scheduler_output& step) override {
    const auto at = receive();
    if (!state_)
      return {};
    auto out = state_->build_connector_meta(step, at);
    flush();
    return out;
  }

  bool request_finished(std::string_view request) override {
    if (!state_)
      return false;
    const auto out = state_->request_finished(request);
    flush();
    return out;
  }

  void update_connector_output(const worker_output& output) override {
    if (!state_)
      return;
    state_->update_connector_output(output, steady_clock::now());
    flush();
  }

  std::vector<cache_event> take_events() override {
    return state_ ? state_->take_events() : std::vector<cache_event>{};
  }

  std::uint32_t get_finished_count() const override { return worker_count(engine_.parallel); }

  bool reset_cache() override {
    receive();
    if (!state_) {
      ++resets_;
      return true;
    }
    const auto out = state_->reset_cache();
    flush();
    return out;
  }

  result<void> attached() const override {
    if (state_)
      return {};
    return background_.state();
  }

  std::uint64_t passed_over_tokens() const override { return state_ ? state_->passed_over_tokens() : 0; }

  std::size_t tracked_requests() const override { return state_ ? state_->tracked_requests() : 0; }

private:
  void take(attachment made) {
    client_ = std::move(made.client);
    state_.emplace(made.options);
    for (; resets_ > 0; --resets_)
      state_->reset_cache();
  }

  timestamp receive() {
    const auto at = steady_clock::now();
    if (!state_) {
      if (has_arrived_.load(std::memory_order_acquire))
        take(std::move(arrived_));
      return at;
    }
    for (auto& x : inbox_->take())
      state_->on_lookup(x.lookup, std::move(x.found), at);
    return at;
  }

  void flush() {
    if (state_->outbox_empty())
      return;
    for (auto& effect : state_->take_outbox())
      std::visit([this](auto& x) { perform(x); }, effect);
  }

  void perform(lookup_submit& x) {
    ask<lookup_result>(
        system_, client_->lookup(),
        [inbox = inbox_, lookup = x.lookup](result<lookup_result> found) {
          inbox->push({lookup, std::move(found)});
        },
        std::move(x.work));
  }

  void perform(lookup_release& x) {
    // A lease that could not be released expires by itself.
    ask<void>(
        system_, client_->lookup(), [](const result<void>&) {}, release_atom_v, x.lease);
  }

  caf::actor_system& system_;
  half_connection node_;
  engine_options engine_;
  std::unique_ptr<node_client> client_;
  std::shared_ptr<answer_inbox> inbox_ = std::make_shared<answer_inbox>();
  std::optional<scheduler_state> state_;
  /// Resets before a node was attached.
  std::uint32_t resets_ = 0;
  /// Written by the background thread before the flag is set, and read by the engine's thread after that.
  attachment arrived_;
  std::atomic<bool> has_arrived_{false};
  /// The last member, because its thread uses the others.
  background_attach background_;
};

} // namespace

result<std::unique_ptr<scheduler_half>> make_scheduler_half(caf::actor_system& system, const half_connection& node,
                                                            const engine_options& engine) {
  if (auto sound = validate(engine.parallel); !sound)
    return tl::unexpected(std::move(sound.error()));
  auto out = std::make_unique<live_scheduler_half>(system, node, engine);
  if (auto started = out->start(); !started)
    return tl::unexpected(std::move(started.error()));
  return out;
}

} // namespace troupe::connector
