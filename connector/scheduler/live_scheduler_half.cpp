#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "connector/engine_halves.hpp"
#include "connector/scheduler/scheduler_state.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

namespace troupe::connector {

namespace {

using std::chrono::steady_clock;

/// Answers of lookups, on their way from actors' threads to the engine's.
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

/// The rules, driven by the engine's thread: what they want asked goes to the lookup coordinator, whose answers wait in
/// the inbox until the next hook. So no hook waits for an actor, and none needs a lock but for the moment in which
/// there is an answer.
class live_scheduler_half final : public scheduler_half {
public:
  live_scheduler_half(caf::actor_system& system, std::unique_ptr<node_client> client, const scheduler_options& options)
      : system_(system), client_(std::move(client)), state_(options), workers_(options.workers) {}

  void on_new_request(const engine_request& request) override {
    state_.on_new_request(request, receive());
    flush();
  }

  matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens) override {
    const auto at = receive();
    const auto out = state_.get_num_new_matched_tokens(request, computed_tokens, at);
    flush();
    return out;
  }

  void update_state_after_alloc(std::string_view request, std::span<const block_id> blocks,
                                std::uint32_t external_tokens) override {
    state_.update_state_after_alloc(request, blocks, external_tokens);
    flush();
  }

  hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const override {
    return state_.get_external_cache_hit_sources(request, tokens);
  }

  connector_metadata build_connector_meta(const scheduler_output& step) override {
    auto out = state_.build_connector_meta(step, receive());
    flush();
    return out;
  }

  bool request_finished(std::string_view request) override {
    const auto out = state_.request_finished(request);
    flush();
    return out;
  }

  void update_connector_output(const worker_output& output) override {
    state_.update_connector_output(output);
    flush();
  }

  std::vector<cache_event> take_events() override { return state_.take_events(); }

  std::uint32_t get_finished_count() const override { return workers_; }

  bool reset_cache() override {
    const auto out = state_.reset_cache();
    flush();
    return out;
  }

  result<void> attached() const override { return {}; }

  std::size_t tracked_requests() const override { return state_.tracked_requests(); }

private:
  timestamp receive() {
    const auto at = steady_clock::now();
    for (auto& x : inbox_->take())
      state_.on_lookup(x.lookup, std::move(x.found), at);
    return at;
  }

  void flush() {
    if (state_.outbox_empty())
      return;
    for (auto& effect : state_.take_outbox())
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
    // A lease that could not be given back runs out by itself.
    ask<void>(
        system_, client_->lookup(), [](const result<void>&) {}, release_atom_v, x.lease);
  }

  caf::actor_system& system_;
  std::unique_ptr<node_client> client_;
  std::shared_ptr<answer_inbox> inbox_ = std::make_shared<answer_inbox>();
  scheduler_state state_;
  std::uint32_t workers_;
};

} // namespace

result<std::unique_ptr<scheduler_half>> make_scheduler_half(caf::actor_system& system, const half_connection& node,
                                                            const engine_options& engine) {
  if (auto sound = validate(engine.parallel); !sound)
    return tl::unexpected(std::move(sound.error()));
  auto client = std::make_unique<node_client>(system, node.client);
  auto attached = client->attach(node.where, node.attach_limit);
  if (!attached)
    return tl::unexpected(std::move(attached.error()));
  const auto blocks = blocks_per_page(attached->space, engine);
  if (!blocks)
    return tl::unexpected(blocks.error());
  if (auto bound = client->bind(node.attach_limit); !bound)
    return tl::unexpected(std::move(bound.error()));
  scheduler_options options;
  options.space = attached->space.id();
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
  return std::make_unique<live_scheduler_half>(system, std::move(client), options);
}

} // namespace troupe::connector
