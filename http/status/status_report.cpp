#include "http/status/status_report.hpp"

#include "http/native/native_text.hpp"
#include "http/server/json_members.hpp"
#include "http/status/namespace_capacity.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <utility>

namespace troupe::http::node_status {

namespace {

using rank_key = std::pair<namespace_id, rank_number>;

double seconds_of(duration x) {
  return std::chrono::duration<double>(x).count();
}

double microseconds_of(duration x) {
  return std::chrono::duration<double, std::micro>(x).count();
}

/// "2026-01-31T12:00:00Z"
std::string moment(std::int64_t unix_seconds) {
  const auto at = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::gmtime_r(&at, &parts);
  std::string out(20, '\0');
  std::strftime(out.data(), out.size() + 1, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return out;
}

std::string_view health_of(const status_report& x) {
  const auto is_trouble = [](const warning& w) { return w.severity != "notice"; };
  return x.ready && std::ranges::none_of(x.warnings, is_trouble) ? "healthy" : "degraded";
}

/// The parts of an activity that a document has.
enum class activity_parts : std::uint8_t { bytes, pages, keys, all };

void append_activity(std::string& out, const activity& x, activity_parts parts) {
  json_members m(out);
  m.add("seconds", seconds_of(x.over));
  if (parts >= activity_parts::keys) {
    m.add("lookups", x.lookups).add("asked_keys", x.asked_keys).add("found_keys", x.found_keys);
    m.add("memory_keys", x.memory_keys).add("disk_keys", x.disk_keys).add("peer_keys", x.peer_keys);
    if (const auto ratio = x.hit_ratio())
      m.add("hit_ratio", *ratio);
    else
      m.key("hit_ratio") += "null";
    m.add("evicted_keys", x.evicted_keys);
  }
  m.add("loaded_bytes", x.loaded_bytes).add("saved_bytes", x.saved_bytes);
  m.add("load_gbps", x.load_gbps()).add("save_gbps", x.save_gbps());
  if (parts >= activity_parts::pages)
    m.add("memory_pages", x.memory_pages).add("disk_pages", x.disk_pages());
  if (parts >= activity_parts::all) {
    m.add("peer_pages", x.peer_pages).add("disk_transfers", x.in_flight);
    const auto add = [&m](const char* name, duration time) { m.add(name, microseconds_of(time)); };
    add("lookup_p50_us", x.lookup_p50);
    add("lookup_p99_us", x.lookup_p99);
    add("memory_load_p50_us", x.memory_load_p50);
    add("memory_load_p99_us", x.memory_load_p99);
    add("disk_load_p50_us", x.disk_load_p50);
    add("disk_load_p99_us", x.disk_load_p99);
    add("save_p50_us", x.save_p50);
    add("save_p99_us", x.save_p99);
  }
  m.end();
}

void append_node(std::string& out, const status_report& x) {
  json_members m(out);
  m.add("name", x.node_name).add("version", x.program.version).add("commit", x.program.commit);
  m.add("protocol", x.protocol).add("process", x.process).add("data_dir", x.data_dir);
  m.add("started", moment(x.started)).add("now", moment(x.now)).add("uptime_s", seconds_of(x.uptime));
  m.add("durability", x.durability).add("memory", x.memory_text).add("slabs", x.slabs_text).end();
}

/// Bytes and pages of each tier, over all ranks.
struct tier_sums {
  std::uint64_t memory_pages = 0;
  std::uint64_t memory_page_bytes = 0;
  std::uint64_t dirty_pages = 0;
  std::uint64_t memory_only_pages = 0;
  std::uint64_t disk_pages = 0;
  std::uint64_t disk_page_bytes = 0;
  std::uint64_t disk_slots = 0;
  std::uint64_t disk_bytes = 0;
};

std::uint64_t pages_on_disk(const rank_stats& x) {
  // A dirty page is usually live; one that was just dropped is not.
  const auto elsewhere = x.io.dirty_pages + x.io.memory_pages;
  return x.io.slab_slots == 0 ? 0 : x.slots.live - std::min(x.slots.live, elsewhere);
}

tier_sums sums_of(const node_stats& stats) {
  tier_sums out;
  for (const auto& x : stats.ranks) {
    out.memory_pages += x.io.resident_pages;
    out.memory_page_bytes += x.io.resident_bytes;
    out.dirty_pages += x.io.dirty_pages;
    out.disk_pages += pages_on_disk(x);
    const bool sparse = x.io.slab_bytes > 0 && x.io.slab_pages > 0;
    out.disk_page_bytes += pages_on_disk(x) * (sparse ? x.io.slab_page_bytes / x.io.slab_pages : x.io.frame_bytes);
    const auto slots = x.io.slab_slots == 0 ? 0 : x.slots.total - std::min(x.slots.total, x.slots.beyond_slab);
    out.memory_only_pages += x.io.memory_pages;
    out.disk_slots += slots;
    out.disk_bytes += x.io.slab_bytes > 0 ? x.io.slab_bytes : slots * x.io.frame_bytes;
  }
  return out;
}

/// What the slab files will have room for when they have grown as far as they may.
std::uint64_t disk_capacity(const status_report& x, const tier_sums& sums) {
  return sums.disk_bytes - std::min(sums.disk_bytes, x.made_slabs_bytes) + x.made_slabs_limit;
}

void append_tiers(std::string& out, const status_report& x) {
  const auto sums = sums_of(x.stats);
  json_members m(out);
  json_members(m.key("memory"))
      .add("pages", sums.memory_pages)
      .add("bytes", sums.memory_page_bytes)
      .add("dirty_pages", sums.dirty_pages)
      .add("memory_only_pages", sums.memory_only_pages)
      .add("assigned_bytes", x.extents.assigned * x.extent_bytes)
      .add("limit_bytes", x.arena_bytes)
      .end();
  json_members(m.key("disk"))
      .add("pages", sums.disk_pages)
      .add("bytes", sums.disk_page_bytes)
      .add("slots", sums.disk_slots)
      .add("limit_bytes", sums.disk_bytes)
      .add("capacity_bytes", disk_capacity(x, sums))
      .add("made_bytes", x.made_slabs_bytes)
      .add("made_limit_bytes", x.made_slabs_limit)
      .end();
  json_members(m.key("index")).add("bytes", x.index_bytes).add("limit_bytes", x.index_limit).end();
  m.end();
}

/// A rank whose pages the node keeps; `known` comes from its allocator and its io worker.
void append_slots(std::string& out, const rank_stats& known) {
  json_members(out)
      .add("total", known.slots.total)
      .add("free", known.slots.free)
      .add("reserved", known.slots.reserved)
      .add("live", known.slots.live)
      .add("quarantined", known.slots.quarantined)
      .end();
}

/// A rank whose pages are in an engine's file, which only the registry knows.
void append_slots(std::string& out, const rank_info& x) {
  const auto taken = x.pages + x.reserved + x.withheld;
  json_members(out)
      .add("total", x.slots)
      .add("free", x.slots - std::min<std::uint64_t>(x.slots, taken))
      .add("reserved", x.reserved)
      .add("live", x.pages)
      .add("quarantined", x.withheld)
      .end();
}

void append_rank(std::string& out, const status_report& x, const namespace_id& ns, const rank_info& rank,
                 const rank_stats* known) {
  json_members m(out);
  m.add("rank", rank.rank).add("kept_by", known != nullptr ? "node" : "engine");
  if (known == nullptr) {
    append_slots(m.key("slots"), rank);
    return m.end();
  }
  const auto is_damaged = std::ranges::find(x.damaged, std::pair(ns, known->rank)) != x.damaged.end();
  m.add("damaged", is_damaged);
  append_slots(m.key("slots"), *known);
  json_members(m.key("memory"))
      .add("pages", known->io.resident_pages)
      .add("bytes", known->io.resident_bytes)
      .add("dirty_pages", known->io.dirty_pages)
      .add("memory_only_pages", known->io.memory_pages)
      .add("pinned_pages", known->io.pinned_frames)
      .add("assigned_bytes", known->io.memory_bytes)
      .end();
  json_members(m.key("disk"))
      .add("pages", pages_on_disk(*known))
      .add("bytes", pages_on_disk(*known) * known->io.frame_bytes)
      .add("read_bytes", known->io.read_bytes)
      .add("written_bytes", known->io.written_bytes)
      .add("failed_transfers", known->io.failed)
      .add("transfers", known->io.in_flight)
      .end();
  json_members(m.key("total"))
      .add("loaded_pages", known->io.loaded_pages)
      .add("saved_pages", known->io.saved_pages)
      .add("saved_payload_bytes", known->io.saved_payload_bytes)
      .add("saved_stored_bytes", known->io.saved_stored_bytes)
      .add("memory_hits", known->io.memory_hits)
      .add("memory_loads", known->io.memory_loads)
      .end();
  append_activity(m.key("last_minute"), activity_between(x.before, x.totals, x.since_before, ns, known->rank),
                  activity_parts::pages);
  m.end();
}

void append_namespace(std::string& out, const status_report& x, const namespace_info& ns,
                      const std::map<rank_key, const rank_stats*>& known, std::size_t& ranks_left) {
  const auto id = ns.spec.id();
  json_members m(out);
  m.add("name", ns.spec.name).add("id", to_string(id)).add("model", ns.spec.model);
  m.add("world_size", ns.spec.world_size).add("page_bytes", ns.spec.geometry.page_bytes());
  m.add("keys", ns.keys).add("complete_keys", ns.complete_keys).add("leases", ns.leases);
  m.add("reservations", ns.reservations);
  json_members(m.key("total"))
      .add("lookups", ns.lookups.requests)
      .add("asked_keys", ns.lookups.asked_keys)
      .add("found_keys", ns.lookups.found_keys)
      .add("memory_keys", ns.lookups.memory_keys)
      .add("disk_keys", ns.lookups.disk_keys)
      .add("peer_keys", ns.lookups.peer_keys)
      .add("evicted_keys", ns.evicted_keys)
      .end();
  append_activity(m.key("last_minute"), activity_between(x.before, x.totals, x.since_before, id), activity_parts::keys);
  std::vector<const rank_stats*> kept;
  for (const auto& rank : ns.ranks.items) {
    const auto found = known.find({id, static_cast<rank_number>(rank.rank)});
    kept.push_back(found == known.end() ? nullptr : found->second);
  }
  const auto most = capacity_of(ns, kept, {x.arena_bytes, x.extent_bytes, x.made_slabs_limit});
  json_members(m.key("capacity"))
      .add("keys", most.keys)
      .add("pages", most.pages)
      .add("bytes", most.bytes)
      .add("bounded_by", most.bounded_by)
      .end();
  const auto shown = std::min(ns.ranks.size(), ranks_left);
  ranks_left -= shown;
  std::size_t next = 0;
  append_list(m.key("ranks"), std::span(ns.ranks.items).first(shown),
              [&](const rank_info& rank) { append_rank(out, x, id, rank, kept[next++]); });
  m.add("ranks_omitted", std::uint64_t{ns.ranks.size() - shown}).end();
}

void append_clients(std::string& out, const status_report& x) {
  json_members m(out);
  m.add("attached", x.stats.clients).add("disconnected", x.stats.disconnected_clients);
  const auto shown = std::min(x.stats.attached.size(), clients_most);
  append_list(m.key("list"), std::span(x.stats.attached).first(shown), [&](const client_stats& c) {
    json_members one(out);
    one.add("name", c.name).add("namespace", c.namespace_name).add("process", std::int64_t{c.process});
    one.add("elsewhere", c.elsewhere).add("is_node", c.is_node).add("attached_s", seconds_of(c.attached_for));
    one.add("loaded_bytes", c.loaded_bytes).add("saved_bytes", c.saved_bytes);
    append_activity(one.key("last_minute"), activity_of_client(x.before, x.totals, x.since_before, c.number),
                    activity_parts::bytes);
    one.end();
  });
  m.end();
}

void append_lmcache(std::string& out, const status_report& x) {
  json_members m(out);
  m.add("connected", x.lmcache_clients_connected);
  append_list(m.key("clients"), std::span(x.lmcache_clients), [&](const lmcache::client_info& c) {
    json_members(out)
        .add("client", c.number)
        .add("process", std::int64_t{c.process})
        .add("name", c.name)
        .add("user", c.user)
        .add("version", lmcache::protocol::to_string(c.versions))
        .add("requests", c.requests)
        .add("malformed", c.malformed)
        .add("difference", c.difference)
        .end();
  });
  m.end();
}

void append_events(std::string& out, const events::counters& x) {
  const auto read = [](const events::counters::number& n) { return n.load(std::memory_order_relaxed); };
  json_members(out)
      .add("subscribers", read(x.subscribers))
      .add("pages", read(x.pages))
      .add("pages_without_tokens", read(x.pages_without_tokens))
      .add("last_batch", read(x.last_batch))
      .add("dropped_batches", read(x.dropped_batches))
      .add("snapshots", read(x.snapshots))
      .end();
}

/// A column of the history.
template <class Value>
void append_column(json_members& m, std::string& out, std::string_view name, const status_report& x, Value value) {
  append_list(m.key(name), x.samples, [&](const history::sample& s) { append_json(out, value(s)); });
}

void append_history(std::string& out, const status_report& x) {
  json_members m(out);
  m.add("interval_s", seconds_of(x.span == history_span::six_hours ? history::long_interval : history::interval));
  const auto count = [&](std::string_view name, std::uint64_t activity::*of) {
    append_column(m, out, name, x, [of](const history::sample& s) { return s.what.*of; });
  };
  append_column(m, out, "at", x, [](const history::sample& s) { return s.at; });
  append_column(m, out, "seconds", x, [](const history::sample& s) { return seconds_of(s.what.over); });
  count("lookups", &activity::lookups);
  count("asked_keys", &activity::asked_keys);
  count("found_keys", &activity::found_keys);
  count("memory_keys", &activity::memory_keys);
  count("disk_keys", &activity::disk_keys);
  count("peer_keys", &activity::peer_keys);
  count("evicted_keys", &activity::evicted_keys);
  count("loaded_bytes", &activity::loaded_bytes);
  count("saved_bytes", &activity::saved_bytes);
  count("memory_pages", &activity::memory_pages);
  append_column(m, out, "disk_pages", x, [](const history::sample& s) { return s.what.disk_pages(); });
  count("peer_pages", &activity::peer_pages);
  count("disk_transfers", &activity::in_flight);
  const auto time = [&](std::string_view name, duration activity::*of) {
    append_column(m, out, name, x, [of](const history::sample& s) { return microseconds_of(s.what.*of); });
  };
  time("lookup_p50_us", &activity::lookup_p50);
  time("lookup_p99_us", &activity::lookup_p99);
  time("memory_load_p99_us", &activity::memory_load_p99);
  time("disk_load_p99_us", &activity::disk_load_p99);
  time("save_p99_us", &activity::save_p99);
  m.end();
}

} // namespace

activity_totals totals_of(const node_stats& stats, const std::vector<namespace_info>& namespaces,
                          const request_latencies& latencies) {
  activity_totals out;
  std::map<namespace_id, std::uint64_t> page_bytes;
  for (const auto& x : namespaces) {
    const auto id = x.spec.id();
    page_bytes.emplace(id, x.spec.geometry.page_bytes());
    const auto& y = x.lookups;
    out.namespaces.push_back(
        {id, y.requests, y.asked_keys, y.found_keys, y.memory_keys, y.disk_keys, y.peer_keys, x.evicted_keys});
  }
  for (const auto& x : stats.ranks) {
    const auto found = page_bytes.find(x.ns);
    const auto bytes = found == page_bytes.end() ? x.io.frame_bytes : found->second;
    out.ranks.push_back(
        {x.ns, x.rank, x.io.loaded_pages * bytes, x.io.saved_pages * bytes, x.io.loaded_pages, x.io.memory_loads});
    out.in_flight += x.io.in_flight;
  }
  for (const auto& x : stats.attached)
    out.clients.push_back({x.number, x.loaded_bytes, x.saved_bytes});
  for (const auto& x : stats.cluster.peers)
    out.peer_pages += x.pages;
  std::uint64_t ignored = 0;
  latencies.of(request_kind::match).add_to(out.lookup_times, ignored);
  latencies.of(request_kind::read).add_to(out.memory_load_times, ignored);
  latencies.of(request_kind::read_disk).add_to(out.disk_load_times, ignored);
  latencies.of(request_kind::write).add_to(out.save_times, ignored);
  out.sort();
  return out;
}

void add_notices(std::vector<warning>& to, const status_report& x, const opened_parts& opened) {
  const auto add = [&](const char* reason, std::string text) {
    to.push_back({"notice", reason, std::move(text), std::string("docs/operations.md#") + reason});
  };
  if (opened.buffered)
    add("buffered_io", "slab files go through the page cache, because their file system does not support direct I/O: "
                       "put data_dir, or storage.ranks[i].directory, on ext4 or XFS, or set storage.direct to false");
  if (opened.without_io_uring)
    add("no_io_uring", "slab files are read by threads, because the kernel or a seccomp profile forbids io_uring: "
                       "allow it, or set io.engine to \"threads\"");
  if (x.memory_text.find("RLIMIT_MEMLOCK") != std::string::npos)
    add("memory_not_locked",
        "memory for pages is not locked, and may be swapped out: raise RLIMIT_MEMLOCK (for systemd, "
        "LimitMEMLOCK=infinity), or lower memory.bytes");
  if (!opened.unusable_memory.empty())
    add("unusable_memory", opened.unusable_memory);
  // A process ends some milliseconds after its client has detached.
  if (const auto n = x.stats.lingering_clients; n > 0)
    add("disconnected_clients",
        n == 1
            ? "1 client has disconnected, but its process still runs and may write to memory of the node, which "
              "stays set aside; end that process to free it"
            : std::to_string(n) + " clients have disconnected, but their processes still run and may write to memory "
                                  "of the node, which stays set aside; end these processes to free it");
}

std::string status_text(status_report x) {
  std::ranges::sort(x.namespaces, {}, [](const namespace_info& s) -> const std::string& { return s.spec.name; });
  std::map<rank_key, const rank_stats*> known;
  for (const auto& rank : x.stats.ranks)
    known.emplace(rank_key{rank.ns, rank.rank}, &rank);
  std::string out;
  json_members m(out);
  append_node(m.key("node"), x);
  m.add("health", health_of(x)).add("ready", x.ready.has_value());
  append_list(m.key("warnings"), x.warnings, [&](const warning& w) {
    json_members(out)
        .add("severity", w.severity)
        .add("reason", w.reason)
        .add("text", w.text)
        .add("runbook", w.runbook)
        .end();
  });
  const auto& r = x.stats.registry;
  json_members(m.key("registry"))
      .add("keys", r.keys)
      .add("complete_keys", r.complete_keys)
      .add("leases", r.leases)
      .add("reservations", r.reservations)
      .add("withheld_slots", r.withheld_slots)
      .add("evicted_keys", r.evicted_keys)
      .add("invalidated_pages", r.invalidated_pages)
      .add("refused_requests", r.refused)
      .end();
  append_tiers(m.key("tiers"), x);
  append_activity(m.key("last_minute"), activity_between(x.before, x.totals, x.since_before), activity_parts::all);
  auto ranks_left = ranks_most;
  const auto shown = std::min(x.namespaces.size(), namespaces_most);
  append_list(m.key("namespaces"), std::span(x.namespaces).first(shown),
              [&](const namespace_info& ns) { append_namespace(out, x, ns, known, ranks_left); });
  m.add("namespaces_omitted", std::uint64_t{x.namespaces.size() - shown});
  append_clients(m.key("clients"), x);
  if (!x.stats.cluster.name.empty())
    m.key("cluster") += native::cluster_text(x.stats.cluster);
  if (x.serves_lmcache)
    append_lmcache(m.key("lmcache"), x);
  if (x.events)
    append_events(m.key("events"), *x.events);
  if (x.span != history_span::none)
    append_history(m.key("history"), x);
  m.end();
  return out;
}

} // namespace troupe::http::node_status
