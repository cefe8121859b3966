#include "http/status/status_service.hpp"

#include "actors/support/ask.hpp"
#include "actors/support/gather.hpp"

#include <chrono>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace troupe::http::node_status {

namespace {

std::int64_t unix_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

std::vector<warning> warnings_of(const node_condition* condition) {
  std::vector<warning> out;
  if (condition == nullptr)
    return out;
  for (const auto& x : condition->troubles())
    out.push_back({lasts(x.what) ? "failed" : "degraded", std::string(to_string(x.what)), x.text, runbook_of(x.what)});
  return out;
}

} // namespace

status_service::status_service(caf::actor_system& system, status_sources parts)
    : system_(system), parts_(std::move(parts)), started_(std::chrono::steady_clock::now()), unix_started_(unix_now()) {
}

std::shared_ptr<status_service> status_service::make(caf::actor_system& system, status_sources parts) {
  return std::shared_ptr<status_service>(new status_service(system, std::move(parts)));
}

void status_service::gather(std::function<void(result<numbers>)> then) const {
  const auto all = gather_from_threads(2, numbers{}, std::move(then));
  troupe::ask<node_stats>(
      system_, parts_.services.node,
      [all](result<node_stats> x) {
        if (!x)
          return all->part_failed(std::move(x.error()));
        all->value().stats = std::move(*x);
        all->part_done();
      },
      stats_atom_v);
  parts_.service->describe({}, [all](result<std::vector<namespace_info>> x) {
    if (!x)
      return all->part_failed(std::move(x.error()));
    all->value().namespaces = std::move(*x);
    all->part_done();
  });
}

std::string status_service::text_of(numbers x, history_span span) const {
  const auto& services = parts_.services;
  const auto now = std::chrono::steady_clock::now();
  status_report out;
  out.program = parts_.program;
  out.protocol = protocol_version;
  out.node_name = parts_.config.node_name;
  out.data_dir = std::filesystem::absolute(parts_.config.data_dir).string();
  out.durability = parts_.config.registry.durability;
  out.process = ::getpid();
  out.now = unix_now();
  out.started = unix_started_;
  out.uptime = duration(now - started_);
  out.ready = parts_.ready ? parts_.ready() : result<void>{};
  out.memory_text = services.opened.memory ? services.opened.memory() : std::string();
  out.slabs_text = services.opened.slabs.empty() ? "none" : services.opened.slabs;
  if (services.extents) {
    out.arena_bytes = services.extents->info().bytes;
    out.extent_bytes = services.extents->info().extent_bytes;
    out.extents = services.extents->counts();
  }
  if (services.memory) {
    out.index_bytes = services.memory->used();
    out.index_limit = services.memory->limit();
  }
  if (services.disk) {
    out.made_slabs_bytes = services.disk->used();
    out.made_slabs_limit = services.disk->limit();
  }
  if (services.lmcache) {
    out.serves_lmcache = true;
    out.lmcache_clients = services.lmcache->list.all(clients_most);
    out.lmcache_clients_connected = services.lmcache->list.size();
  }
  if (services.condition)
    for (const auto& slab : services.condition->slabs())
      if (slab.damaged)
        out.damaged.emplace_back(slab.name.ns, slab.name.rank);
  out.events = services.events;
  out.stats = std::move(x.stats);
  out.namespaces = std::move(x.namespaces);
  out.warnings = warnings_of(services.condition.get());
  add_notices(out.warnings, out, services.opened);
  if (services.latencies)
    out.totals = totals_of(out.stats, out.namespaces, *services.latencies);
  out.before = out.totals;
  out.span = span;
  {
    const std::lock_guard guard(mutex_);
    if (const auto* mark = history_.minute_ago()) {
      out.before = mark->totals;
      out.since_before = duration(now - mark->at);
    }
    if (span != history_span::none)
      out.samples = span == history_span::hour ? history_.samples() : history_.long_samples();
  }
  return status_text(std::move(out));
}

void status_service::ask(history_span span, std::function<void(result<std::string>)> then) const {
  gather([self = shared_from_this(), span, then = std::move(then)](result<numbers> x) {
    then(x ? result<std::string>(self->text_of(std::move(*x), span)) : tl::unexpected<error>(x.error()));
  });
}

void status_service::sample() {
  gather([self = shared_from_this()](const result<numbers>& x) {
    // A node that does not answer in time gets a gap in its history.
    if (!x || !self->parts_.services.latencies)
      return;
    auto totals = totals_of(x->stats, x->namespaces, *self->parts_.services.latencies);
    const std::lock_guard guard(self->mutex_);
    self->history_.observe(std::chrono::steady_clock::now(), unix_now(), std::move(totals));
  });
}

std::string status_service::config_text() const {
  return config::to_json(config::without_secrets(parts_.config));
}

caf::actor spawn_clock(caf::actor_system& system, std::shared_ptr<status_service> live_status) {
  return system.spawn([live_status = std::move(live_status)](caf::event_based_actor* self) -> caf::behavior {
    self->send(self, caf::tick_atom_v);
    return {[self, live_status](caf::tick_atom) {
      self->delayed_send(self, history::interval, caf::tick_atom_v);
      live_status->sample();
    }};
  });
}

} // namespace troupe::http::node_status
