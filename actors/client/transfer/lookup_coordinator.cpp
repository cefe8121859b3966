#include "actors/client/transfer/lookup_coordinator.hpp"

#include "actors/client/transfer/description_parts.hpp"
#include "actors/support/stats_sum.hpp"

namespace troupe {

using transfer::lookup_state;

namespace {

/// Descriptions are hints: they must not use up the requests that a client may have in progress at its node.
constexpr std::size_t descriptions_most = 64;

} // namespace

lookup_coordinator::lookup_coordinator(caf::actor_config& config, std::uint32_t lookups_max, duration request_timeout)
    : coordinating_actor(config, request_timeout, lookups_max, 3 * request_timeout) {}

lookup_actor::behavior_type lookup_coordinator::make_behavior() {
  return {
      [this](const lookup_task& work) { return start<lookup_result>(work); },
      [this](release_atom, const ticket& lease) { return release(lease, {}); },
      [this](release_atom, const ticket& lease, const packed<key_digest>& kept_there) {
        return release(lease, kept_there.items);
      },
      [this](retain_atom, const ticket& lease, const packed<key_digest>& keys) -> caf::result<void> {
        if (!asked_from_here(*this))
          return to_caf(not_this_process());
        auto retained = state().retain(lease, keys.items);
        flush();
        return to_caf(retained);
      },
      [this](bind_atom, const lookup_binding& node) -> caf::result<void> {
        if (auto bad = check_node(node))
          return to_caf(*bad);
        bind(node.shards, lookup_state::binding{.owner = node.owner,
                                                .ticket_stream = node.ticket_stream,
                                                .ns = node.ns,
                                                .shard_count = static_cast<std::uint32_t>(node.shards.size()),
                                                .batch_keys_max = node.limits.batch_keys,
                                                .lease_max = node.limits.lease,
                                                .has_peers = node.cluster != nullptr});
        cluster_ = node.cluster;
        described_.reset();
        if (node.wants_descriptions)
          described_ = {node.ns, node.limits.batch_keys};
        return caf::unit;
      },
      [this](unbind_atom) -> caf::result<void> {
        if (!asked_from_here(*this))
          return to_caf(not_this_process());
        unbind(errc::unreachable);
        cluster_ = nullptr;
        described_.reset();
        return caf::unit;
      },
      [this](stats_atom) { return sum_stats(); },
      [this](const page_descriptions& pages) { return describe(pages); },
      [this](caf::tick_atom) { on_tick(); },
  };
}

caf::result<void> lookup_coordinator::release(const ticket& lease, const std::vector<key_digest>& kept_there) {
  if (!asked_from_here(*this))
    return to_caf(not_this_process());
  auto released = state().release(lease, now(), kept_there);
  flush();
  return to_caf(released);
}

void lookup_coordinator::on_exit() {
  end();
  cluster_ = nullptr;
  counting_.fail_all({errc::shutting_down, "the coordinator is shutting down"});
}

caf::result<registry_stats> lookup_coordinator::sum_stats() {
  if (!asked_from_here(*this))
    return to_caf(not_this_process());
  if (!state().bound())
    return to_caf(error{errc::unreachable, "not attached to a node"});
  auto promise = make_response_promise();
  const auto number = counting_.add(promise);
  sum_registry_stats(this, shards(), request_timeout(), [this, number](const result<registry_stats>& sum) {
    if (sum)
      counting_.deliver(number, *sum);
    else
      counting_.deliver(number, to_caf(sum.error()));
  });
  return promise;
}

caf::result<void> lookup_coordinator::describe(const page_descriptions& pages) {
  if (!asked_from_here(*this))
    return to_caf(not_this_process());
  if (!described_ || shards().empty())
    return caf::unit;
  auto parts = transfer::parts_by_shard(pages, static_cast<std::uint32_t>(shards().size()), described_->pages_most);
  if (parts.empty())
    return to_caf(error{errc::invalid_argument, "the arrays of these descriptions of pages do not fit each other"});
  if (describing_ + parts.size() > descriptions_most)
    return to_caf(error{errc::limit_exceeded, "too many descriptions of pages are in progress; this one is dropped"});
  for (auto& part : parts) {
    ++describing_;
    request(shard(part.shard), 3 * request_timeout(), describe_pages_request{described_->ns, std::move(part.pages)})
        .then([this](const result_codes&) { --describing_; }, [this](const caf::error&) { --describing_; });
  }
  return caf::unit;
}

void lookup_coordinator::perform(transfer::lookup_match& x) {
  ask(shard(x.shard), patience::limited, &lookup_state::on_match, x.call, std::move(x.request));
}

void lookup_coordinator::perform(transfer::lookup_release& x) {
  // A lease that could not be released expires at its own deadline.
  if (x.shard < shards().size())
    tell(shard(x.shard), std::move(x.request));
}

void lookup_coordinator::perform(transfer::lookup_prefix_fetch& x) {
  ask(cluster_, patience::limited, &lookup_state::on_prefix_fetch, x.call, std::move(x.request));
}

void lookup_coordinator::perform(transfer::lookup_search& x) {
  ask(cluster_, patience::limited, &lookup_state::on_search, x.call, std::move(x.request));
}

void lookup_coordinator::perform(transfer::lookup_fetch& x) {
  ask(cluster_, patience::limited, &lookup_state::on_prefix_fetch, x.call, std::move(x.request));
}

void lookup_coordinator::perform(transfer::lookup_finished& x) {
  if (x.answer)
    answer(x.lookup, *x.answer);
  else
    answer(x.lookup, to_caf(x.answer.error()));
}

} // namespace troupe
