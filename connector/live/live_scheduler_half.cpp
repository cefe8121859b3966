#include "actors/support/actor_support.hpp"
#include "actors/support/ask.hpp"
#include "base/log.hpp"
#include "connector/groups/grouped_scheduler_state.hpp"
#include "connector/live/background_attach.hpp"
#include "connector/live/engine_halves.hpp"
#include "connector/scheduler/scheduler_state.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

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
  /// One for each group of layers, in their order.
  std::vector<std::unique_ptr<node_client>> clients;
  std::unique_ptr<scheduler_rules> rules;
  bool wants_descriptions = false;
};

/// What all groups have in common, as the node has granted it.
struct granted {
  std::uint32_t batch_keys = 0;
  duration lease{};
};

/// The namespaces of an engine: one, or one for each group of layers. Made once, and passed to the thread that attaches
/// in the background.
struct wanted_rules {
  std::vector<half_connection> nodes;
  engine_options engine;
  /// Empty for a model with one group.
  std::vector<page_group> groups{};
  std::uint32_t page_tokens = 0;
};

/// The engine's options for one of its namespaces: with groups of pipeline stages, each has the pages of one stage.
engine_options options_of_pages(const wanted_rules& wanted) {
  auto out = wanted.engine;
  out.parallel = layout_of_group(wanted.groups, wanted.engine.parallel);
  return out;
}

void set_limits(scheduler_limits& out, const wanted_rules& wanted, const granted& limits) {
  const auto engine = options_of_pages(wanted);
  out.workers = worker_count(engine.parallel);
  out.writers = kv_writer_count(engine.parallel);
  out.lookup_keys_max = limits.batch_keys;
  out.lookups_max = wanted.nodes.front().client.transfer.max_tasks;
  out.lease = std::min(engine.lease, limits.lease);
  out.lookup_patience = engine.lookup_patience;
  out.store_pages_max = limits.batch_keys;
  out.save_generated = engine.save_generated;
  out.min_load_tokens = engine.min_load_tokens;
  out.pace.rule = engine.disk;
  out.events = engine.events;
}

std::unique_ptr<scheduler_rules> make_rules(const wanted_rules& wanted, const granted& limits, namespace_id ns,
                                            std::uint32_t blocks) {
  const auto& engine = wanted.engine;
  scheduler_options options;
  set_limits(options, wanted, limits);
  options.ns = ns;
  options.keys = {engine.keys, scheduler_block_tokens(engine.parallel, engine.block_tokens), blocks};
  options.synchronous_loads = engine.synchronous_loads;
  return std::make_unique<scheduler_state>(options);
}

std::unique_ptr<scheduler_rules> make_grouped_rules(const wanted_rules& wanted, const granted& limits) {
  grouped_options options;
  set_limits(options, wanted, limits);
  options.groups = wanted.groups;
  options.keys = wanted.engine.keys;
  options.page_tokens = wanted.page_tokens;
  return std::make_unique<grouped_scheduler_state>(std::move(options));
}

result<attachment> attach(caf::actor_system& system, const wanted_rules& wanted, duration limit) {
  attachment out;
  granted limits;
  namespace_id ns;
  std::uint32_t blocks_in_page = 1;
  for (const auto& node : wanted.nodes) {
    auto client = std::make_unique<node_client>(system, node.client);
    auto attached = client->attach(node.where, limit);
    if (!attached)
      return tl::unexpected(std::move(attached.error()));
    const auto blocks = blocks_per_page(attached->ns, options_of_pages(wanted));
    if (!blocks)
      return tl::unexpected(blocks.error());
    if (auto bound = client->bind(limit); !bound)
      return tl::unexpected(std::move(bound.error()));
    const bool first = out.clients.empty();
    if (first) {
      ns = attached->ns.id();
      blocks_in_page = *blocks;
    }
    out.wants_descriptions = attached->wants_descriptions;
    limits.batch_keys = first ? attached->limits.batch_keys : std::min(limits.batch_keys, attached->limits.batch_keys);
    limits.lease = first ? attached->limits.lease : std::min(limits.lease, attached->limits.lease);
    out.clients.push_back(std::move(client));
  }
  out.rules =
      wanted.groups.empty() ? make_rules(wanted, limits, ns, blocks_in_page) : make_grouped_rules(wanted, limits);
  return out;
}

/// The rules, driven by the engine's thread. Their requests go to the lookup coordinator, whose answers wait in the
/// inbox until the next hook. So no hook waits for an actor, and the lock is held only while an answer is passed.
///
/// Before a node is attached there are no rules: requests of that time are ignored until they are preempted or looked
/// up again.
class live_scheduler_half final : public scheduler_half {
public:
  live_scheduler_half(caf::actor_system& system, wanted_rules wanted) : system_(system), wanted_(std::move(wanted)) {}

  ~live_scheduler_half() override { background_.stop(); }

  result<void> start() {
    const auto& node = wanted_.nodes.front();
    auto made = attach(system_, wanted_, node.attach_limit);
    if (made) {
      take(std::move(*made));
      return {};
    }
    if (!node.node_may_be_absent || !is_absence(made.error()))
      return tl::unexpected(std::move(made.error()));
    for (const auto& each : wanted_.nodes)
      if (each.where.ns)
        if (auto fits = blocks_per_page(*each.where.ns, options_of_pages(wanted_)); !fits)
          return tl::unexpected(std::move(fits.error()));
    log::get("connector")
        ->warn("scheduler: node unreachable, nothing is found until it is reachable: {}", to_string(made.error()));
    return background_.start(
        std::move(made.error()),
        [this]() -> result<void> {
          auto late = attach(system_, wanted_, background_attach_limit);
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

  void update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                std::uint32_t external_tokens) override {
    if (!state_)
      return;
    state_->update_state_after_alloc(request, blocks, external_tokens);
    flush();
  }

  hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const override {
    return state_ ? state_->get_external_cache_hit_sources(request, tokens) : hit_sources{.unknown = tokens};
  }

  fetched_pages get_fetched_pages(std::string_view request) const override {
    return state_ ? state_->get_fetched_pages(request) : fetched_pages{};
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

  block_holds take_block_holds() override { return state_ ? state_->take_block_holds() : block_holds{}; }

  std::vector<cache_event> take_events() override {
    return state_ ? state_->take_events() : std::vector<cache_event>{};
  }

  bool wants_descriptions() const override { return state_ && wants_descriptions_; }

  result<void> describe(std::size_t group, page_descriptions pages) override {
    if (!wants_descriptions())
      return {};
    if (group >= clients_.size())
      return fail(errc::invalid_argument, "descriptions: the engine has " + std::to_string(clients_.size()) +
                                              " groups, and none at position " + std::to_string(group));
    ask<void>(
        system_, clients_[group]->lookup(), [](const result<void>&) {}, std::move(pages));
    return {};
  }

  std::uint32_t get_finished_count() const override { return worker_count(wanted_.engine.parallel); }

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
    clients_ = std::move(made.clients);
    state_ = std::move(made.rules);
    wants_descriptions_ = made.wants_descriptions;
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
        system_, clients_[x.group]->lookup(),
        [inbox = inbox_, lookup = x.lookup](result<lookup_result> found) {
          inbox->push({lookup, std::move(found)});
        },
        std::move(x.work));
  }

  void perform(lookup_release& x) {
    // A lease that could not be released expires by itself.
    ask<void>(
        system_, clients_[x.group]->lookup(), [](const result<void>&) {}, release_atom_v, x.lease);
  }

  void perform(lookup_retain& x) {
    ask<void>(
        system_, clients_[x.group]->lookup(), [](const result<void>&) {}, retain_atom_v, x.lease,
        packed<key_digest>{std::move(x.keys)});
  }

  void perform(search_release& x) {
    lookup_task work;
    work.lease_for = wanted_.engine.lease;
    work.peers = {peer_step::kind::fetch, x.search, {}, {}};
    ask<lookup_result>(
        system_, clients_[x.group]->lookup(), [](const result<lookup_result>&) {}, std::move(work));
  }

  caf::actor_system& system_;
  wanted_rules wanted_;
  std::vector<std::unique_ptr<node_client>> clients_;
  std::shared_ptr<answer_inbox> inbox_ = std::make_shared<answer_inbox>();
  std::unique_ptr<scheduler_rules> state_;
  bool wants_descriptions_ = false;
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
  auto out = std::make_unique<live_scheduler_half>(system, wanted_rules{{node}, engine});
  if (auto started = out->start(); !started)
    return tl::unexpected(std::move(started.error()));
  return out;
}

result<std::unique_ptr<scheduler_half>> make_grouped_scheduler_half(caf::actor_system& system,
                                                                    std::vector<half_connection> nodes,
                                                                    const engine_options& engine,
                                                                    const grouped_layout& layout) {
  if (auto sound = validate(engine.parallel); !sound)
    return tl::unexpected(std::move(sound.error()));
  if (auto sound = validate(layout.groups, layout.page_tokens); !sound)
    return tl::unexpected(std::move(sound.error()));
  auto out = std::make_unique<live_scheduler_half>(
      system, wanted_rules{std::move(nodes), unit_blocks(engine), layout.groups, layout.page_tokens});
  if (auto started = out->start(); !started)
    return tl::unexpected(std::move(started.error()));
  return out;
}

} // namespace troupe::connector
