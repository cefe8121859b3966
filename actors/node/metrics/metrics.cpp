#include "actors/node/metrics/metrics.hpp"

#include "actors/support/actor_support.hpp"

namespace troupe {

metrics::metrics(caf::actor_config& config, const std::string& node_name)
    : metrics_actor::base(config), state_(node_name) {}

metrics::behavior_type metrics::make_behavior() {
  return {
      [this](const latency_batch& batch) -> caf::result<void> {
        state_.observe(batch);
        return caf::unit;
      },
      [this](const node_stats& stats) -> caf::result<void> {
        update(stats);
        return caf::unit;
      },
      [this](render_atom) { return state_.render(); },
  };
}

void metrics::update(const node_stats& stats) {
  const auto number = [](std::uint64_t x) { return static_cast<double>(x); };
  const auto& r = stats.registry;
  state_.set("troupe_clients", "Clients attached.", {}, number(stats.clients));
  state_.set("troupe_keys", "Keys with at least one page.", {}, number(r.keys));
  state_.set("troupe_complete_keys", "Keys with a page on every rank.", {}, number(r.complete_keys));
  state_.set("troupe_leases", "Leases held.", {}, number(r.leases));
  state_.set("troupe_reservations", "Reservations open.", {}, number(r.reservations));
  state_.count("troupe_evicted_keys_total", "Keys evicted.", {}, number(r.evicted_keys));
  state_.count("troupe_invalidated_pages_total", "Pages found bad.", {}, number(r.invalidated_pages));
  state_.count("troupe_expired_leases_total", "Leases that ran out.", {}, number(r.expired_leases));
  state_.count("troupe_expired_reservations_total", "Reservations that ran out.", {}, number(r.expired_reservations));
  state_.count("troupe_refused_requests_total", "Registry requests refused.", {}, number(r.refused));
  state_.count("troupe_reclaimed_pages_total", "Live pages that their writers gave back.", {},
               number(r.reclaimed_pages));
  state_.count("troupe_erased_pages_total", "Pages that were erased or cleared.", {}, number(r.erased_pages));
  state_.set("troupe_withheld_slots", "Slots of unpublished pages that leases or protection still hold.", {},
             number(r.withheld_slots));
  state_.set("troupe_registry_bytes", "Memory of the registry.", {}, number(r.resident_bytes));
  for (const auto& x : stats.ranks) {
    const prometheus::Labels rank{{"namespace", x.space_name}, {"rank", std::to_string(x.rank)}};
    const auto slots = [&](const char* name, std::uint64_t value) {
      auto labels = rank;
      labels["state"] = name;
      state_.set("troupe_slots", "Slots of a slab by state.", labels, number(value));
    };
    slots("free", x.slots.free);
    slots("reserved", x.slots.reserved);
    slots("live", x.slots.live);
    slots("quarantined", x.slots.quarantined);
    state_.count("troupe_refused_slots_total", "Slots named by somebody who did not hold them.", rank,
                 number(x.slots.refused));
    state_.count("troupe_read_bytes_total", "Bytes read.", rank, number(x.io.read_bytes));
    state_.count("troupe_written_bytes_total", "Bytes written.", rank, number(x.io.written_bytes));
    state_.count("troupe_failed_transfers_total", "Reads and writes that failed.", rank, number(x.io.failed));
    state_.count("troupe_late_transfers_total", "Reads and writes past their deadline.", rank, number(x.io.timed_out));
    state_.count("troupe_fenced_transfers_total", "Orders of a slot's earlier owner that were refused.", rank,
                 number(x.io.fenced));
    state_.set("troupe_transfers_in_flight", "Reads and writes under way.", rank, number(x.io.in_flight));
    state_.set("troupe_segment_bytes", "Memory shared with clients.", rank, number(x.io.segment_bytes));
  }
}

} // namespace troupe
