#include "actors/client/transfer/lookup_coordinator.hpp"

#include "actors/support/stats_sum.hpp"

namespace troupe {

lookup_coordinator::lookup_coordinator(caf::actor_config& config, std::uint32_t lookups_max, duration request_timeout)
    : lookup_actor::base(config), state_(lookups_max, 3 * request_timeout), deadlines_(request_timeout) {}

lookup_coordinator::behavior_type lookup_coordinator::make_behavior() {
  return {
      [this](const lookup_task& work) -> caf::result<lookup_result> {
        const auto id = state_.start(work, now());
        if (!id)
          return to_caf(id.error());
        auto promise = make_response_promise();
        promises_.emplace(*id, promise);
        flush();
        return promise;
      },
      [this](release_atom, const ticket& lease) -> caf::result<void> {
        auto released = state_.release(lease, now());
        flush();
        return to_caf(released);
      },
      [this](bind_atom, const lookup_binding& node) -> caf::result<void> {
        if (node.owner == 0 || node.shards.empty())
          return to_caf(error{errc::invalid_argument, "a binding needs an owner and at least one registry shard"});
        state_.unbind(errc::unreachable);
        flush();
        shards_ = node.shards;
        state_.bind({node.owner, node.ticket_stream, node.space, static_cast<std::uint32_t>(shards_.size()),
                     node.limits.batch_keys, node.limits.lease});
        return caf::unit;
      },
      [this](unbind_atom) -> caf::result<void> {
        state_.unbind(errc::unreachable);
        flush();
        shards_.clear();
        return caf::unit;
      },
      [this](stats_atom) { return sum_stats(); },
      [this](caf::tick_atom) {
        ticking_ = false;
        deadlines_.expire(*this, now());
        state_.on_tick(now());
        flush();
      },
  };
}

void lookup_coordinator::on_exit() {
  state_.unbind(errc::shutting_down);
  flush();
  counting_.fail_all({errc::shutting_down, "the coordinator is ending"});
  shards_.clear();
}

caf::result<registry_stats> lookup_coordinator::sum_stats() {
  if (!state_.bound())
    return to_caf(error{errc::unreachable, "not attached to a node"});
  auto promise = make_response_promise();
  const auto number = counting_.add(promise);
  sum_registry_stats(this, shards_, deadlines_.limit(), [this, number](const result<registry_stats>& sum) {
    if (sum)
      counting_.deliver(number, *sum);
    else
      counting_.deliver(number, to_caf(sum.error()));
  });
  return promise;
}

void lookup_coordinator::perform(transfer::lookup_match& x) {
  const auto call = x.call;
  deadlines_.watch(request(shards_[x.shard], caf::infinite, std::move(x.request)), now())
      .then(
          [this, call](const match_reply& reply) {
            state_.on_match(call, reply, now());
            flush();
          },
          [this, call](const caf::error& e) {
            state_.on_match(call, failed<match_reply>(e), now());
            flush();
          });
}

void lookup_coordinator::perform(transfer::lookup_release& x) {
  // A lease that could not be given back runs out by its own deadline.
  if (x.shard < shards_.size())
    deadlines_.watch(request(shards_[x.shard], caf::infinite, std::move(x.request)), now())
        .then([] {}, [](const caf::error&) {});
}

void lookup_coordinator::perform(transfer::lookup_finished& x) {
  auto node = promises_.extract(x.lookup);
  if (node.empty())
    return;
  if (x.answer)
    node.mapped().deliver(*x.answer);
  else
    node.mapped().deliver(to_caf(x.answer.error()));
}

void lookup_coordinator::flush() {
  for (auto& effect : state_.take_outbox())
    std::visit([this](auto& x) { perform(x); }, effect);
  if (!ticking_ && (state_.under_way() > 0 || state_.held() > 0 || !deadlines_.empty())) {
    ticking_ = true;
    delayed_send(this, std::chrono::milliseconds(100), caf::tick_atom_v);
  }
}

} // namespace troupe
