#include "actors/node/metrics/probes.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

double number(std::uint64_t x) {
  return static_cast<double>(x);
}

// -- registry, allocator, io worker -----------------------------------------------------------------------------------

void show(metrics_state& to, const registry_stats& r) {
  to.set("troupe_keys", "Keys with at least one page.", {}, number(r.keys));
  to.set("troupe_complete_keys", "Keys with a page on every rank.", {}, number(r.complete_keys));
  to.set("troupe_spare_keys", "Keys that go before others, since another node has them as well.", {},
         number(r.spare_keys));
  to.set("troupe_leases", "Leases held.", {}, number(r.leases));
  to.set("troupe_reservations", "Reservations open.", {}, number(r.reservations));
  to.count("troupe_evicted_keys_total", "Keys evicted.", {}, number(r.evicted_keys));
  const auto invalidated = [&](const char* tier, std::uint64_t pages) {
    to.count("troupe_invalidated_pages_total", "Pages found bad, by where they came from.", {{"tier", tier}},
             number(pages));
  };
  invalidated("memory", r.invalidated_in_memory);
  invalidated("disk", r.invalidated_on_disk);
  invalidated("unknown", r.invalidated_pages - r.invalidated_in_memory - r.invalidated_on_disk);
  to.count("troupe_expired_leases_total", "Leases that ran out.", {}, number(r.expired_leases));
  to.count("troupe_expired_reservations_total", "Reservations that ran out.", {}, number(r.expired_reservations));
  to.count("troupe_refused_requests_total", "Registry requests refused.", {}, number(r.refused));
  to.count("troupe_reclaimed_pages_total", "Live pages that their writers gave back.", {}, number(r.reclaimed_pages));
  to.count("troupe_erased_pages_total", "Pages that were erased or cleared.", {}, number(r.erased_pages));
  to.set("troupe_withheld_slots", "Slots of unpublished pages that leases or protection still hold.", {},
         number(r.withheld_slots));
  to.set("troupe_registry_bytes", "Memory of the registry.", {}, number(r.resident_bytes));
}

void show(metrics_state& to, const rank_stats& x) {
  const metric_labels rank{{"namespace", x.space_name}, {"rank", std::to_string(x.rank)}};
  const auto slots = [&](const char* name, std::uint64_t value) {
    auto labels = rank;
    labels.push_back({"state", name});
    to.set("troupe_slots", "Slots of a slab by state.", std::move(labels), number(value));
  };
  slots("free", x.slots.free);
  slots("reserved", x.slots.reserved);
  slots("live", x.slots.live);
  slots("quarantined", x.slots.quarantined);
  to.count("troupe_refused_slots_total", "Slots named by somebody who did not hold them.", rank,
           number(x.slots.refused));
  to.count("troupe_loaded_pages_total", "Pages that clients have got.", rank, number(x.io.loaded_pages));
  to.count("troupe_saved_pages_total", "Pages that clients have handed over.", rank, number(x.io.saved_pages));
  to.count("troupe_read_bytes_total", "Bytes read.", rank, number(x.io.read_bytes));
  to.count("troupe_written_bytes_total", "Bytes written.", rank, number(x.io.written_bytes));
  to.count("troupe_failed_transfers_total", "Reads and writes that failed.", rank, number(x.io.failed));
  to.count("troupe_late_transfers_total", "Reads and writes past their deadline.", rank, number(x.io.timed_out));
  to.count("troupe_fenced_transfers_total", "Requests of a slot's earlier owner that were refused.", rank,
           number(x.io.fenced));
  to.set("troupe_transfers_in_flight", "Reads and writes under way.", rank, number(x.io.in_flight));
  to.set("troupe_memory_bytes", "Memory lent to the rank for pages.", rank, number(x.io.frames * x.io.frame_bytes));
  to.set("troupe_memory_extents", "Extents of the arena that are lent to the rank.", rank, number(x.io.extents));
  to.count("troupe_memory_extents_returned_total", "Extents that the rank has given back for others.", rank,
           number(x.io.returned_extents));
  const auto frames = [&](const char* name, std::uint64_t value) {
    auto labels = rank;
    labels.push_back({"state", name});
    to.set("troupe_memory_frames", "Places for pages in memory by state.", std::move(labels), number(value));
  };
  frames("clean", x.io.resident_pages - x.io.dirty_pages);
  frames("dirty", x.io.dirty_pages);
  frames("orphaned", x.io.orphaned_frames);
  to.set("troupe_memory_pinned_frames", "Places in memory that a client may touch.", rank, number(x.io.pinned_frames));
  to.set("troupe_memory_dirty_bytes", "Pages that are in memory only.", rank,
         number(x.io.dirty_pages * x.io.frame_bytes));
  to.count("troupe_memory_hits_total", "Pages fetched that were in memory.", rank, number(x.io.memory_hits));
  to.count("troupe_promoted_pages_total", "Pages read from the slab into memory.", rank, number(x.io.read_pages));
  to.count("troupe_demoted_pages_total", "Pages that left memory for others.", rank, number(x.io.demotions));
  to.count("troupe_written_back_pages_total", "Pages written from memory to the slab.", rank,
           number(x.io.written_pages));
  to.count("troupe_damaged_memory_pages_total", "Pages in memory that were found damaged before they were written.",
           rank, number(x.io.damaged_pages));
  to.count("troupe_scrubbed_pages_total", "Pages read in the slab although nobody asked for them.", rank,
           number(x.io.scrubbed_pages));
  to.count("troupe_scrub_unsound_pages_total", "Such pages that were not what had been saved.", rank,
           number(x.io.scrub_unsound_pages));
  to.count("troupe_scrub_passes_total", "How often all pages in the slab were gone over.", rank,
           number(x.io.scrub_passes));
  to.set("troupe_memory_unasked_bytes",
         "Pages that are in memory only, and not written before somebody asks for them again.", rank,
         number(x.io.unasked_pages * x.io.frame_bytes));
  to.count("troupe_given_up_pages_total", "Pages that left memory unwritten, as nobody had asked for them again.", rank,
           number(x.io.given_up_pages));
  to.count("troupe_prefetched_pages_total", "Pages read from the slab because a lookup had found them.", rank,
           number(x.io.prefetched_pages));
  to.count("troupe_prefetch_hits_total", "Prefetched pages that were fetched later.", rank, number(x.io.prefetch_hits));
  to.count("troupe_prefetches_cancelled_total",
           "Pages that were to be prefetched, and whose lease ended before, or for which too many waited.", rank,
           number(x.io.prefetches_cancelled));
}

// -- the cluster -----------------------------------------------------------------------------------------------------

void show(metrics_state& to, const etcd_stats& x) {
  if (x.endpoints.empty())
    return;
  to.set("troupe_etcd_up", "1 where etcd has answered last.", {}, x.up ? 1.0 : 0.0);
  to.set("troupe_etcd_registered", "1 where this node is in the list of nodes in etcd.", {}, x.registered ? 1.0 : 0.0);
  to.set("troupe_etcd_listed_nodes", "Nodes in the list, this one too.", {}, number(x.listed));
  to.set("troupe_etcd_senseless_entries", "Entries of the list that are left out, since they are no nodes.", {},
         number(x.senseless));
  to.count("troupe_etcd_requests_total", "Requests to etcd.", {}, number(x.requests));
  to.count("troupe_etcd_failed_requests_total", "Requests to etcd that failed.", {}, number(x.failed));
  to.count("troupe_etcd_lost_leases_total", "Leases of this node that were over before their time.", {},
           number(x.leases_lost));
}

/// Summed up, as those that are dead come and go.
void show_adopted(metrics_state& to, const cluster_stats& cluster) {
  std::uint64_t own = 0;
  std::uint64_t keys = 0;
  for (const auto& x : cluster.adopted) {
    own += x.own ? 1 : 0;
    keys += x.keys;
  }
  to.set("troupe_adopted_nodes", "Nodes that are dead, and whose pages are read where they have left them.", {},
         number(cluster.adopted.size()));
  to.set("troupe_adopted_claims", "Of these, those on whose data directories this node has the claim.", {},
         number(own));
  to.set("troupe_adopted_keys", "Keys in their indexes.", {}, number(keys));
  to.count("troupe_adopted_pages_total",
           "Pages that were read from slab files of dead nodes, and are this node's since.", {},
           number(cluster.adopted_pages));
  to.count("troupe_adopted_failed_pages_total", "Pages that were to be read there, and did not verify, or not come.",
           {}, number(cluster.adopted_failed));
  to.count("troupe_claims_lost_total",
           "Claims on directories of other nodes that were lost, as when their nodes came back.", {},
           number(cluster.claims_lost));
}

void show(metrics_state& to, const cluster_stats& cluster) {
  show(to, cluster.etcd);
  if (!cluster.name.empty())
    show_adopted(to, cluster);
  // Those of a list come and go.
  to.forget_peers([&](const std::string& peer) {
    return std::ranges::any_of(cluster.peers, [&](const peer_stats& x) { return x.address == peer; });
  });
  for (const auto& x : cluster.peers) {
    if (x.self)
      continue;
    const metric_labels peer{{"peer", x.address}};
    to.set("troupe_peer_up", "1 where another node of the cluster is there.", peer, x.up ? 1.0 : 0.0);
    to.set("troupe_peer_lag_seconds", "From the last hello to its answer; 0 while it is not there.", peer,
           number(x.lag_us) / 1e6);
    to.set("troupe_peer_namespaces", "Namespaces whose pages can be fetched from there.", peer, number(x.spaces));
    to.count("troupe_peer_asked_total", "How often a peer was asked for keys that are not here.", peer,
             number(x.asked));
    to.count("troupe_peer_had_total", "How often it had some of them.", peer, number(x.had));
    to.count("troupe_peer_late_total", "How often it did not answer in time.", peer, number(x.late));
    to.count("troupe_peer_pages_total", "Pages that were fetched from there, and are pages of this node since.", peer,
             number(x.pages));
    to.count("troupe_peer_bytes_total", "Bytes of these.", peer, number(x.bytes));
    to.count("troupe_peer_failed_pages_total", "Pages that were to come from there, and did not.", peer,
             number(x.failed));
    to.set("troupe_peer_learned_keys", "Uses of keys that were seen there, and count for what goes here.", peer,
           number(x.learned_keys));
    to.count("troupe_peer_file_pages_total", "Of the pages that came, those that were read from its slab files.", peer,
             number(x.file_pages));
    to.count("troupe_peer_file_bytes_total", "Bytes of these.", peer, number(x.file_bytes));
    const auto refused = [&](const char* reason, std::uint64_t pages) {
      to.count("troupe_peer_refused_file_pages_total",
               "Pages that were looked for in its slab files, and asked of the node instead.",
               {{"peer", x.address}, {"reason", reason}}, number(pages));
    };
    refused("stale", x.files_stale);
    refused("damaged", x.files_damaged);
    refused("failed", x.files_failed);
  }
}

void show(metrics_state& to, const remote_stats& x) {
  const auto both = [&](const char* name, const char* help, std::uint64_t put, std::uint64_t got) {
    to.count(name, help, {{"direction", "to_client"}}, number(put));
    to.count(name, help, {{"direction", "from_client"}}, number(got));
  };
  both("troupe_remote_pages_total", "Pages moved between this node and memory of clients elsewhere.", x.put_pages,
       x.got_pages);
  both("troupe_remote_bytes_total", "Bytes of these, with their headers.", x.put_bytes, x.got_bytes);
  both("troupe_remote_failed_pages_total", "Such pages that did not arrive, or were not what they should be.",
       x.put_failures, x.got_failures);
  to.count("troupe_remote_lost_clients_total", "How often memory of a client elsewhere was lost while it was attached.",
           {}, number(x.lost));
}

// -- namespaces -------------------------------------------------------------------------------------------------------

constexpr std::string_view other = "other";

struct rank_sum {
  std::uint64_t slots = 0;
  std::uint64_t live = 0;
  std::uint64_t reserved = 0;
  std::uint64_t withheld = 0;
  std::uint64_t live_bytes = 0;

  void add(const rank_info& x, std::uint64_t page_bytes) noexcept {
    slots += x.slots;
    live += x.pages;
    reserved += x.reserved;
    withheld += x.withheld;
    live_bytes += x.pages * page_bytes;
  }
  /// All others: free, or on their way to or from it.
  std::uint64_t rest() const noexcept {
    const auto taken = live + reserved + withheld;
    return slots > taken ? slots - taken : 0;
  }
};

struct space_sum {
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  lookup_counts lookups;
  /// By the name of the rank.
  std::map<std::string, rank_sum> ranks;
};

std::map<std::string, space_sum> sums_of(std::vector<namespace_info> spaces, const series_limits& limits) {
  // Those that stand on their own shall not change from one time to the next.
  std::ranges::sort(spaces, {}, [](const namespace_info& x) -> const std::string& { return x.spec.name; });
  std::map<std::string, space_sum> out;
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    const auto& x = spaces[i];
    const bool has_name = i < limits.namespaces;
    auto& sum = out[has_name ? x.spec.name : std::string{other}];
    sum.keys += x.keys;
    sum.complete_keys += x.complete_keys;
    sum.evicted_keys += x.evicted_keys;
    sum.leases += x.leases;
    sum.reservations += x.reservations;
    sum.lookups.requests += x.lookups.requests;
    sum.lookups.asked_keys += x.lookups.asked_keys;
    sum.lookups.found_keys += x.lookups.found_keys;
    for (const auto& rank : x.ranks) {
      const bool has_number = has_name && ranks < limits.ranks;
      ranks += has_number ? 1 : 0;
      sum.ranks[has_number ? std::to_string(rank.rank) : std::string{other}].add(rank, x.spec.geometry.page_bytes());
    }
  }
  return out;
}

} // namespace

void show(metrics_state& to, const node_stats& stats) {
  to.set("troupe_clients", "Clients attached.", {}, number(stats.clients));
  to.set("troupe_departed_clients", "Clients that have gone and may still touch the node's memory.", {},
         number(stats.departed_clients));
  show(to, stats.registry);
  show(to, stats.cluster);
  show(to, stats.remote);
  // Those that are gone would stay as they were last, and for ever.
  std::set<std::pair<std::string, std::string>> served;
  for (const auto& x : stats.ranks)
    served.emplace(x.space_name, std::to_string(x.rank));
  to.forget_ranks([&](const std::string& space, const std::string& rank) { return served.contains({space, rank}); });
  for (const auto& x : stats.ranks)
    show(to, x);
}

std::vector<metric_family> families_of(std::vector<namespace_info> spaces, const series_limits& limits) {
  metric_family keys("troupe_namespace_keys", "Keys with at least one page.");
  metric_family complete("troupe_namespace_complete_keys", "Keys with a page on every rank.");
  metric_family evicted("troupe_namespace_evicted_keys_total", "Keys that were evicted.", metric_family::kind::Counter);
  metric_family lookups("troupe_namespace_lookups_total", "Requests that asked which keys there are.",
                        metric_family::kind::Counter);
  metric_family asked("troupe_namespace_asked_keys_total", "Keys that lookups have asked for.",
                      metric_family::kind::Counter);
  metric_family found("troupe_namespace_found_keys_total", "Keys that lookups have found.",
                      metric_family::kind::Counter);
  metric_family leases("troupe_namespace_leases", "Leases held.");
  metric_family reservations("troupe_namespace_reservations", "Reservations open.");
  metric_family slots("troupe_namespace_slots",
                      "Slots of a rank by state; withheld: unpublished, but leased or protected.");
  metric_family bytes("troupe_namespace_live_bytes", "Bytes in live pages, where the size of a page is known.");
  for (const auto& [name, x] : sums_of(std::move(spaces), limits)) {
    const metric_labels space{{"namespace", name}};
    keys.add(space, x.keys);
    complete.add(space, x.complete_keys);
    evicted.add(space, x.evicted_keys);
    lookups.add(space, x.lookups.requests);
    asked.add(space, x.lookups.asked_keys);
    found.add(space, x.lookups.found_keys);
    leases.add(space, x.leases);
    reservations.add(space, x.reservations);
    for (const auto& [number, rank] : x.ranks) {
      const metric_labels where{{"namespace", name}, {"rank", number}};
      const auto in_state = [&](const char* state, std::uint64_t value) {
        auto all = where;
        all.push_back({"state", state});
        slots.add(std::move(all), value);
      };
      in_state("live", rank.live);
      in_state("reserved", rank.reserved);
      in_state("withheld", rank.withheld);
      in_state("free", rank.rest());
      bytes.add(where, rank.live_bytes);
    }
  }
  return {std::move(keys),  std::move(complete), std::move(evicted),      std::move(lookups), std::move(asked),
          std::move(found), std::move(leases),   std::move(reservations), std::move(slots),   std::move(bytes)};
}

std::vector<metric_family> families_of(const handshake_stats& x) {
  const auto by = [](const char* name, const char* help, const char* label,
                     std::initializer_list<std::pair<const char*, std::uint64_t>> values) {
    metric_family out(name, help, metric_family::kind::Counter);
    for (const auto& [value, count] : values)
      out.add({{label, value}}, count);
    return out;
  };
  const auto one = [](const char* name, const char* help, metric_family::kind what, std::uint64_t value) {
    metric_family out(name, help, what);
    out.add({}, value);
    return out;
  };
  constexpr auto counter = metric_family::kind::Counter;
  constexpr auto gauge = metric_family::kind::Gauge;
  return {
      by("troupe_handshake_publications_total", "Payloads that engines have published, by what became of them.",
         "outcome", {{"added", x.published}, {"repeated", x.repeated}}),
      by("troupe_handshake_endings_total", "Engines that have ended in the directory, by how.", "reason",
         {{"replaced", x.replaced}, {"withdrawn", x.withdrawn}, {"expired", x.expired}}),
      one("troupe_handshake_heartbeats_total", "Signs of life of engines.", counter, x.heartbeats),
      by("troupe_handshake_fetches_total", "Fetches by their answer.", "outcome",
         {{"found", x.found},
          {"not_modified", x.not_modified},
          {"not_found", x.not_found},
          {"gone", x.gone},
          {"incompatible", x.incompatible}}),
      by("troupe_handshake_waits_total", "Fetches that have waited, and those of them that waited in vain.", "outcome",
         {{"begun", x.waits}, {"timed_out", x.waits_timed_out}, {"given_up", x.waits_given_up}}),
      by("troupe_handshake_refused_total", "Requests to the directory that were refused, by reason.", "reason",
         {{"stale", x.refused_stale},
          {"conflict", x.refused_conflict},
          {"malformed", x.refused_malformed},
          {"engines", x.refused_engines},
          {"bytes", x.refused_bytes},
          {"waiting", x.refused_waiting},
          {"watches", x.refused_watches},
          {"answers", x.refused_answers},
          {"disk", x.refused_disk}}),
      one("troupe_handshake_engines", "Engines that are published.", gauge, x.engines),
      one("troupe_handshake_ranks", "Their ranks that are published.", gauge, x.ranks),
      one("troupe_handshake_bytes", "Their payloads.", gauge, x.bytes),
      one("troupe_handshake_waiting", "Fetches that wait.", gauge, x.waiting),
      one("troupe_handshake_watches", "Watches.", gauge, x.watches),
  };
}

std::vector<metric_family> families_of(const node_condition& condition) {
  metric_family degraded("troupe_degraded", "1 while the node cannot do all it is there for, by reason.");
  for (std::uint8_t i = 0; i < trouble_count; ++i)
    degraded.add({{"reason", std::string(to_string(static_cast<trouble>(i)))}},
                 condition.has(static_cast<trouble>(i)) ? 1.0 : 0.0);
  metric_family slabs("troupe_slab_damaged", "1 where a slab file was removed or truncated.");
  for (const auto& x : condition.slabs())
    slabs.add({{"namespace", x.name.space_name}, {"rank", std::to_string(x.name.rank)}}, x.damaged ? 1.0 : 0.0);
  return {std::move(degraded), std::move(slabs)};
}

std::vector<metric_family> families_of(const memory_budget& memory) {
  metric_family limit("troupe_memory_limit_bytes", "registry.memory_bytes.");
  limit.add({}, memory.limit());
  metric_family used("troupe_memory_used_bytes", "Memory of slots, keys, leases and reservations.");
  used.add({}, memory.used());
  return {std::move(limit), std::move(used)};
}

std::vector<metric_family> families_of(const io::disk_budget& disk) {
  metric_family limit("troupe_made_slabs_limit_bytes", "storage.disk_bytes.");
  limit.add({}, disk.limit());
  metric_family used("troupe_made_slabs_used_bytes",
                     "What slab files of namespaces that clients made have of storage.disk_bytes.");
  used.add({}, disk.used());
  return {std::move(limit), std::move(used)};
}

std::vector<metric_family> families_of(const lmcache::counters& counts) {
  const auto read = [](const lmcache::counters::number& x) { return number(x.load(std::memory_order_relaxed)); };
  std::vector<metric_family> out;
  auto& requests = out.emplace_back("troupe_lmcache_requests_total", "Requests of LMCache's clients, by operation.",
                                    metric_family::kind::Counter);
  for (std::size_t i = 0; i < counts.requests.size(); ++i)
    requests.add({{"operation", std::string(to_string(static_cast<lmcache::wire::operation>(i)))}},
                 read(counts.requests[i]));
  const auto total = [&](const char* name, const char* help, const lmcache::counters::number& x) {
    out.emplace_back(name, help, metric_family::kind::Counter).add({}, read(x));
  };
  const auto present = [&](const char* name, const char* help, const lmcache::counters::number& x) {
    out.emplace_back(name, help).add({}, read(x));
  };
  total("troupe_lmcache_refused_total", "Requests of LMCache's clients that were answered with no.", counts.refused);
  auto& malformed = out.emplace_back("troupe_lmcache_malformed_total",
                                     "Messages of LMCache's clients that are as in no version that is served.",
                                     metric_family::kind::Counter);
  for (std::size_t i = 1; i < counts.malformed.size(); ++i)
    malformed.add({{"reason", std::string(to_string(static_cast<lmcache::problem>(i)))}}, read(counts.malformed[i]));
  auto& connections = out.emplace_back("troupe_lmcache_refused_connections_total",
                                       "Connections to LMCache's port that were closed.", metric_family::kind::Counter);
  for (std::size_t i = 0; i < counts.connections_refused.size(); ++i)
    connections.add({{"reason", std::string(lmcache::refused_connection_names[i])}},
                    read(counts.connections_refused[i]));
  total("troupe_lmcache_asked_chunks_total", "Chunks that lookups have asked for.", counts.asked_chunks);
  total("troupe_lmcache_found_chunks_total", "Chunks that lookups have found.", counts.found_chunks);
  total("troupe_lmcache_stored_pages_total", "Pages that LMCache's workers have stored.", counts.stored_pages);
  total("troupe_lmcache_retrieved_pages_total", "Pages that LMCache's workers have read.", counts.retrieved_pages);
  total("troupe_lmcache_expired_sessions_total", "Requests of engines whose locks ran out.", counts.expired_sessions);
  present("troupe_lmcache_clients", "Connections of LMCache's clients.", counts.clients);
  present("troupe_lmcache_instances", "Workers of LMCache that are registered.", counts.instances);
  present("troupe_lmcache_sessions", "Requests of engines that a lookup has begun.", counts.sessions);
  present("troupe_lmcache_locks", "Locks of chunks that lookups have found.", counts.locks);
  return out;
}

std::vector<metric_family> families_of_log() {
  metric_family dropped("troupe_log_dropped_lines_total",
                        "Lines of the log that were dropped, since nobody read it or it could not be written.",
                        metric_family::kind::Counter);
  dropped.add({}, log::dropped_lines());
  return {std::move(dropped)};
}

} // namespace troupe
