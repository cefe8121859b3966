#include "actors/node/metrics/pages.hpp"

#include "actors/node/gateway/metadata_service.hpp"
#include "actors/support/ask.hpp"
#include "base/log.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

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
  /// By the name of the rank.
  std::map<std::string, rank_sum> ranks;
};

using labels = std::vector<prometheus::ClientMetric::Label>;

class family_writer {
public:
  family_writer(const char* name, const char* help, prometheus::MetricType type = prometheus::MetricType::Gauge)
      : family_{name, help, type, {}} {}

  void add(labels where, std::uint64_t value) {
    prometheus::ClientMetric x;
    x.label = std::move(where);
    x.gauge.value = static_cast<double>(value);
    x.counter.value = static_cast<double>(value);
    family_.metric.push_back(std::move(x));
  }
  prometheus::MetricFamily take() { return std::move(family_); }

private:
  prometheus::MetricFamily family_;
};

std::map<std::string, space_sum> sums_of(std::vector<namespace_info> spaces, const namespace_page_limits& limits) {
  // Those that stand on their own shall not change from page to page.
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
    for (const auto& rank : x.ranks) {
      const bool has_number = has_name && ranks < limits.ranks;
      ranks += has_number ? 1 : 0;
      sum.ranks[has_number ? std::to_string(rank.rank) : std::string{other}].add(rank, x.spec.geometry.page_bytes());
    }
  }
  return out;
}

} // namespace

metrics_page actors_page(caf::actor_system& system, node_actor node, metrics_actor metrics) {
  return
      [&system, node = std::move(node), metrics = std::move(metrics)](std::function<void(result<std::string>)> then) {
        const auto render = [&system, metrics, then = std::move(then)] {
          ask<std::string>(system, metrics, then, render_atom_v);
        };
        if (!node)
          return render();
        // The node tells the metrics actor before it answers. Without an answer, the numbers of before are better than
        // none.
        ask<node_stats>(
            system, node, [render](const result<node_stats>&) { render(); }, stats_atom_v);
      };
}

metrics_page log_page() {
  return [](std::function<void(result<std::string>)> then) {
    family_writer dropped("troupe_log_dropped_lines_total",
                          "Lines of the log that were dropped, since nobody read it or it could not be written.",
                          prometheus::MetricType::Counter);
    dropped.add({}, log::dropped_lines());
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, {dropped.take()});
    then(out.str());
  };
}

std::string namespaces_text(std::vector<namespace_info> spaces, const namespace_page_limits& limits) {
  family_writer keys("troupe_namespace_keys", "Keys with at least one page.");
  family_writer complete("troupe_namespace_complete_keys", "Keys with a page on every rank.");
  family_writer evicted("troupe_namespace_evicted_keys_total", "Keys that were evicted.",
                        prometheus::MetricType::Counter);
  family_writer leases("troupe_namespace_leases", "Leases held.");
  family_writer reservations("troupe_namespace_reservations", "Reservations open.");
  family_writer slots("troupe_namespace_slots",
                      "Slots of a rank by state; withheld: unpublished, but leased or protected.");
  family_writer bytes("troupe_namespace_live_bytes", "Bytes in live pages, where the size of a page is known.");
  for (const auto& [name, x] : sums_of(std::move(spaces), limits)) {
    const labels space{{"namespace", name}};
    keys.add(space, x.keys);
    complete.add(space, x.complete_keys);
    evicted.add(space, x.evicted_keys);
    leases.add(space, x.leases);
    reservations.add(space, x.reservations);
    for (const auto& [number, rank] : x.ranks) {
      const labels where{{"namespace", name}, {"rank", number}};
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
  std::vector<prometheus::MetricFamily> all;
  for (auto* x : {&keys, &complete, &evicted, &leases, &reservations, &slots, &bytes})
    all.push_back(x->take());
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

metrics_page condition_page(std::shared_ptr<const node_condition> condition, shared_budget memory) {
  return [condition = std::move(condition), memory = std::move(memory)](std::function<void(result<std::string>)> then) {
    std::vector<prometheus::MetricFamily> all;
    if (condition) {
      family_writer degraded("troupe_degraded", "1 while the node cannot do all it is there for, by reason.");
      for (std::uint8_t i = 0; i < trouble_count; ++i)
        degraded.add({{"reason", std::string(to_string(static_cast<trouble>(i)))}},
                     condition->has(static_cast<trouble>(i)) ? 1 : 0);
      family_writer slabs("troupe_slab_damaged", "1 where a slab file was removed or truncated.");
      for (const auto& x : condition->slabs())
        slabs.add({{"namespace", x.name.space_name}, {"rank", std::to_string(x.name.rank)}}, x.damaged ? 1 : 0);
      all.push_back(degraded.take());
      all.push_back(slabs.take());
    }
    if (memory) {
      family_writer limit("troupe_memory_limit_bytes", "registry.memory_bytes.");
      limit.add({}, memory->limit());
      family_writer used("troupe_memory_used_bytes", "Memory of slots, keys, leases and reservations.");
      used.add({}, memory->used());
      all.push_back(limit.take());
      all.push_back(used.take());
    }
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, all);
    then(out.str());
  };
}

metrics_page namespaces_page(std::shared_ptr<const metadata_service> service, const namespace_page_limits& limits) {
  return [service = std::move(service), limits](std::function<void(result<std::string>)> then) {
    service->describe({}, [limits, then = std::move(then)](result<std::vector<namespace_info>> all) {
      if (all)
        then(namespaces_text(std::move(*all), limits));
      else
        then(tl::unexpected<error>(std::move(all.error())));
    });
  };
}

} // namespace troupe
