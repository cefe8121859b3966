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

/// The bytes of frames that have pages, as far as they are known: frames have two sizes.
std::uint64_t bytes_of_frames(const io_stats& x, std::uint64_t frames) {
  return x.resident_pages == 0 ? 0 : frames * (x.resident_bytes / x.resident_pages);
}

// -- registry, allocator, io worker -----------------------------------------------------------------------------------

void show(metrics_state& to, const registry_stats& r) {
  to.set("troupe_keys", "Keys with at least one page.", {}, number(r.keys));
  to.set("troupe_complete_keys", "Keys with a page on every rank.", {}, number(r.complete_keys));
  to.set("troupe_evict_first_keys", "Keys that are evicted first because another node has them too.", {},
         number(r.evict_first_keys));
  to.set("troupe_leases", "Leases held.", {}, number(r.leases));
  to.set("troupe_reservations", "Reservations open.", {}, number(r.reservations));
  to.count("troupe_evicted_keys_total", "Keys evicted.", {}, number(r.evicted_keys));
  const auto invalidated = [&](const char* tier, std::uint64_t pages) {
    to.count("troupe_invalidated_pages_total", "Pages found corrupt, by the tier they were read from.",
             {{"tier", tier}}, number(pages));
  };
  invalidated("memory", r.invalidated_in_memory);
  invalidated("disk", r.invalidated_on_disk);
  invalidated("unknown", r.invalidated_pages - r.invalidated_in_memory - r.invalidated_on_disk);
  to.count("troupe_expired_leases_total", "Leases that expired.", {}, number(r.expired_leases));
  to.count("troupe_expired_reservations_total", "Reservations that expired.", {}, number(r.expired_reservations));
  to.count("troupe_refused_requests_total", "Registry requests refused.", {}, number(r.refused));
  to.count("troupe_reclaimed_pages_total", "Live pages that their writers returned.", {}, number(r.reclaimed_pages));
  to.count("troupe_erased_pages_total", "Pages that were erased or cleared.", {}, number(r.erased_pages));
  to.set("troupe_withheld_slots", "Slots of unpublished pages that leases or protection still hold.", {},
         number(r.withheld_slots));
  to.set("troupe_registry_bytes", "Memory of the registry.", {}, number(r.resident_bytes));
}

/// What concerns a part of the pages only.
void show_further(metrics_state& to, const rank_stats& x, const metric_labels& rank) {
  to.count("troupe_scrubbed_pages_total", "Pages read from the slab by the scrub.", rank, number(x.io.scrubbed_pages));
  to.count("troupe_scrub_unsound_pages_total", "Pages that the scrub found corrupt.", rank,
           number(x.io.scrub_unsound_pages));
  to.count("troupe_scrub_passes_total", "Complete passes of the scrub over the slab.", rank, number(x.io.scrub_passes));
  to.set("troupe_memory_unasked_bytes", "Pages in memory only that are not written until they are requested again.",
         rank, number(bytes_of_frames(x.io, x.io.unasked_pages)));
  to.count("troupe_dropped_pages_total",
           "Pages dropped from memory unwritten: not requested again, or without room beyond the slab.", rank,
           number(x.io.dropped_pages));
  to.count("troupe_prefetched_pages_total", "Pages read from the slab because a lookup found them.", rank,
           number(x.io.prefetched_pages));
  to.count("troupe_prefetch_hits_total", "Prefetched pages that were fetched later.", rank, number(x.io.prefetch_hits));
  to.count("troupe_prefetches_cancelled_total",
           "Prefetches cancelled because the lease ended or too many were waiting.", rank,
           number(x.io.prefetches_cancelled));
}

void show(metrics_state& to, const rank_stats& x) {
  const metric_labels rank{{"namespace", x.namespace_name}, {"rank", std::to_string(x.rank)}};
  const auto slots = [&](const char* name, std::uint64_t value) {
    auto labels = rank;
    labels.push_back({"state", name});
    to.set("troupe_slots", "Slots of the slab file and beyond it by state.", std::move(labels), number(value));
  };
  slots("free", x.slots.free);
  slots("reserved", x.slots.reserved);
  slots("live", x.slots.live);
  slots("quarantined", x.slots.quarantined);
  to.count("troupe_refused_slots_total", "Slots named by a caller that did not hold them.", rank,
           number(x.slots.refused));
  to.count("troupe_loaded_pages_total", "Pages that clients loaded.", rank, number(x.io.loaded_pages));
  to.count("troupe_saved_pages_total", "Pages that clients saved.", rank, number(x.io.saved_pages));
  to.count("troupe_saved_payload_bytes_total", "Bytes of the pages that clients saved.", rank,
           number(x.io.saved_payload_bytes));
  to.count("troupe_saved_stored_bytes_total", "Bytes in which these pages are stored.", rank,
           number(x.io.saved_stored_bytes));
  to.set("troupe_slab_limit_bytes", "Disk space that the pages of a sparse slab file may use.", rank,
         number(x.io.slab_bytes));
  to.set("troupe_slab_occupied_bytes", "Disk space that the slots of a sparse slab file occupy.", rank,
         number(x.io.slab_occupied_bytes));
  to.set("troupe_slab_page_bytes", "Disk space that the pages of a sparse slab file need.", rank,
         number(x.io.slab_page_bytes));
  to.count("troupe_read_bytes_total", "Bytes read.", rank, number(x.io.read_bytes));
  to.count("troupe_written_bytes_total", "Bytes written.", rank, number(x.io.written_bytes));
  to.count("troupe_failed_transfers_total", "Reads and writes that failed.", rank, number(x.io.failed));
  to.count("troupe_late_transfers_total", "Reads and writes past their deadline.", rank, number(x.io.timed_out));
  to.count("troupe_fenced_transfers_total", "Transfers of a slot's earlier owner that were refused.", rank,
           number(x.io.fenced));
  to.set("troupe_transfers_in_flight", "Reads and writes in progress.", rank, number(x.io.in_flight));
  to.set("troupe_memory_bytes", "Memory assigned to the rank for pages.", rank, number(x.io.memory_bytes));
  to.set("troupe_memory_extents", "Extents of the arena assigned to the rank.", rank, number(x.io.extents));
  to.set("troupe_memory_encoded_extents", "Extents of the rank with frames for encoded pages, which have more of them.",
         rank, number(x.io.encoded_extents));
  to.count("troupe_memory_extents_returned_total", "Extents that the rank returned for other ranks.", rank,
           number(x.io.returned_extents));
  const auto frames = [&](const char* name, std::uint64_t value) {
    auto labels = rank;
    labels.push_back({"state", name});
    to.set("troupe_memory_frames", "Frames in memory by state.", std::move(labels), number(value));
  };
  frames("clean", x.io.resident_pages - x.io.dirty_pages - x.io.memory_pages);
  frames("dirty", x.io.dirty_pages);
  frames("memory_only", x.io.memory_pages);
  frames("orphaned", x.io.orphaned_frames);
  to.set("troupe_memory_pinned_frames", "Frames in memory that a client may access.", rank, number(x.io.pinned_frames));
  to.set("troupe_memory_dirty_bytes", "Pages in memory that are still to be written.", rank,
         number(bytes_of_frames(x.io, x.io.dirty_pages)));
  to.set("troupe_memory_resident_bytes", "Pages in memory.", rank, number(x.io.resident_bytes));
  to.count("troupe_memory_hits_total", "Pages fetched that were in memory.", rank, number(x.io.memory_hits));
  to.count("troupe_memory_loads_total", "Pages fetched that were in memory without a prefetch.", rank,
           number(x.io.memory_loads));
  to.count("troupe_promoted_pages_total", "Pages read from the slab into memory.", rank, number(x.io.read_pages));
  to.count("troupe_demoted_pages_total", "Pages dropped from memory that remain in the slab.", rank,
           number(x.io.demotions));
  to.count("troupe_written_back_pages_total", "Pages written from memory to the slab.", rank,
           number(x.io.written_pages));
  to.count("troupe_damaged_memory_pages_total", "Pages in memory that were found corrupt before they were written.",
           rank, number(x.io.damaged_pages));
  show_further(to, x, rank);
}

// -- the cluster -----------------------------------------------------------------------------------------------------

void show(metrics_state& to, const etcd_stats& x) {
  if (x.endpoints.empty())
    return;
  to.set("troupe_etcd_up", "1 if the last request to etcd was answered.", {}, x.up ? 1.0 : 0.0);
  to.set("troupe_etcd_registered", "1 if this node is in the list of nodes in etcd.", {}, x.registered ? 1.0 : 0.0);
  to.set("troupe_etcd_listed_nodes", "Nodes in the list, including this one.", {}, number(x.listed));
  to.set("troupe_etcd_senseless_entries", "Entries of the list that are ignored because they are not nodes.", {},
         number(x.senseless));
  to.count("troupe_etcd_requests_total", "Requests to etcd.", {}, number(x.requests));
  to.count("troupe_etcd_failed_requests_total", "Requests to etcd that failed.", {}, number(x.failed));
  to.count("troupe_etcd_lost_leases_total", "Leases of this node in etcd that ended unexpectedly.", {},
           number(x.leases_lost));
}

/// Summed over dead nodes, because these change.
void show_adopted(metrics_state& to, const cluster_stats& cluster) {
  std::uint64_t own = 0;
  std::uint64_t keys = 0;
  for (const auto& x : cluster.adopted) {
    own += x.own ? 1 : 0;
    keys += x.keys;
  }
  to.set("troupe_adopted_nodes", "Dead nodes whose pages are read from their data directories.", {},
         number(cluster.adopted.size()));
  to.set("troupe_adopted_claims", "Adopted data directories on which this node has the claim.", {}, number(own));
  to.set("troupe_adopted_keys", "Keys in the indexes of adopted nodes.", {}, number(keys));
  to.count("troupe_adopted_pages_total", "Pages that were copied from slab files of dead nodes to this node.", {},
           number(cluster.adopted_pages));
  to.count("troupe_adopted_failed_pages_total", "Pages of dead nodes that could not be read or did not verify.", {},
           number(cluster.adopted_failed));
  to.count("troupe_claims_lost_total",
           "Claims on data directories of other nodes that were lost, for example because the node returned.", {},
           number(cluster.claims_lost));
}

void show(metrics_state& to, const cluster_stats& cluster) {
  show(to, cluster.etcd);
  if (!cluster.name.empty())
    show_adopted(to, cluster);
  // Peers from a list may change.
  to.forget_peers([&](const std::string& peer) {
    return std::ranges::any_of(cluster.peers, [&](const peer_stats& x) { return x.address == peer; });
  });
  for (const auto& x : cluster.peers) {
    if (x.self)
      continue;
    const metric_labels peer{{"peer", x.address}};
    to.set("troupe_peer_up", "1 if the peer is reachable.", peer, x.up ? 1.0 : 0.0);
    to.set("troupe_peer_lag_seconds", "Round-trip time of the last hello; 0 while the peer is unreachable.", peer,
           number(x.lag_us) / 1e6);
    to.set("troupe_peer_namespaces", "Namespaces whose pages can be fetched from the peer.", peer,
           number(x.namespaces));
    to.count("troupe_peer_asked_total", "Requests to the peer for keys that this node does not have.", peer,
             number(x.asked));
    to.count("troupe_peer_had_total", "Requests for which the peer had some of the keys.", peer, number(x.had));
    to.count("troupe_peer_late_total", "Requests that the peer did not answer in time.", peer, number(x.late));
    to.count("troupe_peer_pages_total", "Pages that were fetched from the peer to this node.", peer, number(x.pages));
    to.count("troupe_peer_bytes_total", "Bytes of these pages.", peer, number(x.bytes));
    to.count("troupe_peer_failed_pages_total", "Pages that could not be fetched from the peer.", peer,
             number(x.failed));
    to.set("troupe_peer_learned_keys", "Uses of keys observed at the peer that count for eviction here.", peer,
           number(x.learned_keys));
    to.count("troupe_peer_file_pages_total", "Fetched pages that were read from the peer's slab files.", peer,
             number(x.file_pages));
    to.count("troupe_peer_file_bytes_total", "Bytes of these pages.", peer, number(x.file_bytes));
    const auto refused = [&](const char* reason, std::uint64_t pages) {
      to.count("troupe_peer_refused_file_pages_total",
               "Pages that were not usable in the peer's slab files and were requested from the node.",
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
  both("troupe_remote_pages_total", "Pages moved between this node and memory of clients on other hosts.", x.put_pages,
       x.got_pages);
  both("troupe_remote_bytes_total", "Bytes of these pages, with their headers.", x.put_bytes, x.got_bytes);
  both("troupe_remote_failed_pages_total", "Such pages that did not arrive or did not verify.", x.put_failures,
       x.got_failures);
  to.count("troupe_remote_lost_clients_total", "How often the memory of an attached client on another host was lost.",
           {}, number(x.lost));
  to.count("troupe_remote_connections_lost_total",
           "Connections for pages that were lost while others to the same memory went on.", {}, number(x.streams_lost));
  to.count("troupe_remote_connections_reopened_total", "Those of them that were opened again.", {},
           number(x.streams_reopened));
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
  /// All other slots: free, or becoming or leaving free.
  std::uint64_t rest() const noexcept {
    const auto taken = live + reserved + withheld;
    return slots > taken ? slots - taken : 0;
  }
};

struct namespace_sum {
  std::uint64_t keys = 0;
  std::uint64_t complete_keys = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t leases = 0;
  std::uint64_t reservations = 0;
  lookup_counts lookups;
  /// By the name of the rank.
  std::map<std::string, rank_sum> ranks;
};

std::map<std::string, namespace_sum> sums_of(std::vector<namespace_info> namespaces, const series_limits& limits) {
  // Sorted, so that the namespaces with a name of their own stay the same from scrape to scrape.
  std::ranges::sort(namespaces, {}, [](const namespace_info& x) -> const std::string& { return x.spec.name; });
  std::map<std::string, namespace_sum> out;
  std::size_t ranks = 0;
  for (std::size_t i = 0; i < namespaces.size(); ++i) {
    const auto& x = namespaces[i];
    const bool has_name = i < limits.namespaces;
    auto& sum = out[has_name ? x.spec.name : std::string{other}];
    sum.keys += x.keys;
    sum.complete_keys += x.complete_keys;
    sum.evicted_keys += x.evicted_keys;
    sum.leases += x.leases;
    sum.reservations += x.reservations;
    sum.lookups.requests += x.lookups.requests;
    sum.lookups.add_keys(x.lookups);
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
  to.set("troupe_disconnected_clients", "Disconnected clients whose processes may still access the node's memory.", {},
         number(stats.disconnected_clients));
  show(to, stats.registry);
  show(to, stats.cluster);
  show(to, stats.remote);
  // Without this, series of ranks that are not served any more would keep their last value for ever.
  std::set<std::pair<std::string, std::string>> served;
  for (const auto& x : stats.ranks)
    served.emplace(x.namespace_name, std::to_string(x.rank));
  to.forget_ranks([&](const std::string& ns, const std::string& rank) { return served.contains({ns, rank}); });
  for (const auto& x : stats.ranks)
    show(to, x);
}

std::vector<metric_family> families_of(std::vector<namespace_info> namespaces, const series_limits& limits) {
  metric_family keys("troupe_namespace_keys", "Keys with at least one page.");
  metric_family complete("troupe_namespace_complete_keys", "Keys with a page on every rank.");
  metric_family evicted("troupe_namespace_evicted_keys_total", "Keys that were evicted.", metric_family::kind::Counter);
  metric_family lookups("troupe_namespace_lookups_total", "Lookups.", metric_family::kind::Counter);
  metric_family asked("troupe_namespace_asked_keys_total", "Keys that lookups requested.",
                      metric_family::kind::Counter);
  metric_family found("troupe_namespace_found_keys_total", "Keys that lookups found.", metric_family::kind::Counter);
  metric_family tiers("troupe_namespace_found_tier_keys_total",
                      "Keys that lookups found, by where their pages were: in memory, on disk, or fetched from a peer "
                      "for the lookup.",
                      metric_family::kind::Counter);
  metric_family leases("troupe_namespace_leases", "Leases held.");
  metric_family reservations("troupe_namespace_reservations", "Reservations open.");
  metric_family slots("troupe_namespace_slots",
                      "Slots of a rank by state; withheld: unpublished, but leased or protected.");
  metric_family bytes("troupe_namespace_live_bytes", "Bytes in live pages, where the size of a page is known.");
  for (const auto& [name, x] : sums_of(std::move(namespaces), limits)) {
    const metric_labels ns{{"namespace", name}};
    keys.add(ns, x.keys);
    complete.add(ns, x.complete_keys);
    evicted.add(ns, x.evicted_keys);
    lookups.add(ns, x.lookups.requests);
    asked.add(ns, x.lookups.asked_keys);
    found.add(ns, x.lookups.found_keys);
    const auto in_tier = [&](const char* tier, std::uint64_t value) {
      auto all = ns;
      all.push_back({"tier", tier});
      tiers.add(std::move(all), value);
    };
    in_tier("memory", x.lookups.memory_keys);
    in_tier("disk", x.lookups.disk_keys);
    in_tier("peer", x.lookups.peer_keys);
    leases.add(ns, x.leases);
    reservations.add(ns, x.reservations);
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
  return {std::move(keys),         std::move(complete), std::move(evicted), std::move(lookups),
          std::move(asked),        std::move(found),    std::move(tiers),   std::move(leases),
          std::move(reservations), std::move(slots),    std::move(bytes)};
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
      by("troupe_handshake_publications_total", "Payloads that engines published, by outcome.", "outcome",
         {{"added", x.published}, {"repeated", x.repeated}}),
      by("troupe_handshake_endings_total", "Engines that left the directory, by reason.", "reason",
         {{"replaced", x.replaced}, {"withdrawn", x.withdrawn}, {"expired", x.expired}}),
      one("troupe_handshake_heartbeats_total", "Heartbeats of engines.", counter, x.heartbeats),
      by("troupe_handshake_fetches_total", "Fetches by answer.", "outcome",
         {{"found", x.found},
          {"not_modified", x.not_modified},
          {"not_found", x.not_found},
          {"gone", x.gone},
          {"incompatible", x.incompatible}}),
      by("troupe_handshake_waits_total", "Fetches that waited, and those that ended without a result.", "outcome",
         {{"begun", x.waits}, {"timed_out", x.waits_timed_out}, {"cancelled", x.waits_cancelled}}),
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
      one("troupe_handshake_engines", "Published engines.", gauge, x.engines),
      one("troupe_handshake_ranks", "Published ranks of engines.", gauge, x.ranks),
      one("troupe_handshake_bytes", "Bytes of published payloads.", gauge, x.bytes),
      one("troupe_handshake_waiting", "Fetches that are waiting.", gauge, x.waiting),
      one("troupe_handshake_watches", "Open watches.", gauge, x.watches),
  };
}

std::vector<metric_family> families_of(const node_condition& condition) {
  metric_family degraded("troupe_degraded", "1 while the node is degraded, by reason.");
  for (std::uint8_t i = 0; i < trouble_count; ++i)
    degraded.add({{"reason", std::string(to_string(static_cast<trouble>(i)))}},
                 condition.has(static_cast<trouble>(i)) ? 1.0 : 0.0);
  metric_family slabs("troupe_slab_damaged", "1 if a slab file was removed or truncated.");
  for (const auto& x : condition.slabs())
    slabs.add({{"namespace", x.name.namespace_name}, {"rank", std::to_string(x.name.rank)}}, x.damaged ? 1.0 : 0.0);
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
                     "Bytes of storage.disk_bytes used by slab files of namespaces that clients made.");
  used.add({}, disk.used());
  return {std::move(limit), std::move(used)};
}

std::vector<metric_family> families_of(const lmcache::counters& counts) {
  const auto read = [](const lmcache::counters::number& x) { return number(x.load(std::memory_order_relaxed)); };
  std::vector<metric_family> out;
  auto& requests = out.emplace_back("troupe_lmcache_requests_total", "Requests of LMCache clients, by operation.",
                                    metric_family::kind::Counter);
  for (std::size_t i = 0; i < counts.requests.size(); ++i)
    requests.add({{"operation", std::string(to_string(static_cast<lmcache::protocol::operation>(i)))}},
                 read(counts.requests[i]));
  const auto total = [&](const char* name, const char* help, const lmcache::counters::number& x) {
    out.emplace_back(name, help, metric_family::kind::Counter).add({}, read(x));
  };
  const auto present = [&](const char* name, const char* help, const lmcache::counters::number& x) {
    out.emplace_back(name, help).add({}, read(x));
  };
  total("troupe_lmcache_refused_total", "Requests of LMCache clients that were refused.", counts.refused);
  auto& malformed = out.emplace_back("troupe_lmcache_malformed_total",
                                     "Messages of LMCache clients that are invalid in every supported version.",
                                     metric_family::kind::Counter);
  for (std::size_t i = 1; i < counts.malformed.size(); ++i)
    malformed.add({{"reason", std::string(to_string(static_cast<lmcache::problem>(i)))}}, read(counts.malformed[i]));
  auto& connections =
      out.emplace_back("troupe_lmcache_refused_connections_total", "Connections to the LMCache port that were refused.",
                       metric_family::kind::Counter);
  for (std::size_t i = 0; i < counts.connections_refused.size(); ++i)
    connections.add({{"reason", std::string(lmcache::refused_connection_names[i])}},
                    read(counts.connections_refused[i]));
  total("troupe_lmcache_asked_chunks_total", "Chunks that lookups requested.", counts.asked_chunks);
  total("troupe_lmcache_found_chunks_total", "Chunks that lookups found.", counts.found_chunks);
  total("troupe_lmcache_stored_pages_total", "Pages that LMCache workers stored.", counts.stored_pages);
  total("troupe_lmcache_retrieved_pages_total", "Pages that LMCache workers read.", counts.retrieved_pages);
  total("troupe_lmcache_expired_sessions_total", "Requests of engines whose locks expired.", counts.expired_sessions);
  present("troupe_lmcache_clients", "Connections of LMCache clients.", counts.clients);
  present("troupe_lmcache_instances", "Registered LMCache workers.", counts.instances);
  present("troupe_lmcache_sessions", "Requests of engines for which a lookup was made.", counts.sessions);
  present("troupe_lmcache_locks", "Locks on chunks that lookups found.", counts.locks);
  return out;
}

std::vector<metric_family> families_of(const events::counters& counts) {
  std::vector<metric_family> out;
  const auto total = [&](const char* name, const char* help, const events::counters::number& x) {
    out.emplace_back(name, help, metric_family::kind::Counter).add({}, number(x.load(std::memory_order_relaxed)));
  };
  const auto present = [&](const char* name, const char* help, const events::counters::number& x) {
    out.emplace_back(name, help).add({}, number(x.load(std::memory_order_relaxed)));
  };
  auto& published = out.emplace_back("troupe_events_published_total", "Pages that events named, by event.",
                                     metric_family::kind::Counter);
  published.add({{"event", "stored"}}, number(counts.stored.load(std::memory_order_relaxed)));
  published.add({{"event", "removed"}}, number(counts.removed.load(std::memory_order_relaxed)));
  published.add({{"event", "moved"}}, number(counts.moved.load(std::memory_order_relaxed)));
  total("troupe_events_batches_total", "Batches of events, empty ones included.", counts.batches);
  total("troupe_events_dropped_batches_total",
        "Batches that at least one subscriber did not get because it reads too slowly.", counts.dropped_batches);
  total("troupe_events_replays_total", "Requests for missed batches.", counts.replays);
  total("troupe_events_snapshots_total", "Requests for missed batches that got a snapshot.", counts.snapshots);
  total("troupe_events_failed_replays_total", "Requests for missed batches that were not answered to the end.",
        counts.failed_replays);
  total("troupe_events_refused_replays_total",
        "Requests for missed batches that were ignored: there were too many, or they were malformed.",
        counts.refused_replays);
  total("troupe_events_refused_descriptions_total",
        "Descriptions of pages that name another hash than the first one, or too many adapters.",
        counts.refused_descriptions);
  total("troupe_events_refused_connections_total",
        "Connections of subscribers that were closed: there were too many, or they had sent too much.",
        counts.refused_connections);
  total("troupe_events_overflows_total", "How often changes were dropped because the publisher did not keep up.",
        counts.overflows);
  present("troupe_events_pages", "Pages that subscribers can know.", counts.pages);
  present("troupe_events_pages_without_tokens", "Pages of these that snapshots leave out.",
          counts.pages_without_tokens);
  present("troupe_events_bytes", "Memory of these pages' descriptions.", counts.bytes);
  present("troupe_events_subscribers", "Connected subscribers.", counts.subscribers);
  present("troupe_events_last_batch", "Number of the last batch of the first stream.", counts.last_batch);
  return out;
}

std::vector<metric_family> families_of_log() {
  metric_family dropped("troupe_log_dropped_lines_total",
                        "Log lines that were dropped because the log was not read or could not be written.",
                        metric_family::kind::Counter);
  dropped.add({}, log::dropped_lines());
  return {std::move(dropped)};
}

} // namespace troupe
