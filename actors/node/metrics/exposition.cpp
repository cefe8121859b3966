#include "actors/node/metrics/exposition.hpp"

#include "actors/support/ask.hpp"

#include <iterator>
#include <utility>

namespace troupe {

metrics_source source_of(caf::actor_system& system, node_actor node, metrics_actor metrics) {
  return [&system, node = std::move(node), metrics = std::move(metrics)](metrics_callback then) {
    const auto render = [&system, metrics, then = std::move(then)] {
      ask<std::string>(system, metrics, then, render_atom_v);
    };
    if (!node)
      return render();
    // The node updates the metrics actor before it answers. If it does not answer, the earlier values are rendered.
    ask<node_stats>(
        system, node, [render](const result<node_stats>&) { render(); }, stats_atom_v);
  };
}

metrics_source source_of_log() {
  return [](const metrics_callback& then) { then(to_text(families_of_log())); };
}

metrics_source source_of_namespaces(describe_function describe, const series_limits& limits) {
  return [describe = std::move(describe), limits](metrics_callback then) {
    describe([limits, then = std::move(then)](result<std::vector<namespace_info>> all) {
      if (all)
        then(to_text(families_of(std::move(*all), limits)));
      else
        then(tl::unexpected<error>(std::move(all.error())));
    });
  };
}

metrics_source source_of(caf::actor_system& system, directory_actor directory) {
  return [&system, directory = std::move(directory)](metrics_callback then) {
    ask<handshake_stats>(
        system, directory,
        [then = std::move(then)](const result<handshake_stats>& x) {
          then(x ? result<std::string>(to_text(families_of(*x))) : tl::unexpected<error>(x.error()));
        },
        stats_atom_v);
  };
}

metrics_source source_of(std::shared_ptr<const node_condition> condition, shared_budget memory,
                         std::shared_ptr<const io::disk_budget> disk) {
  return [condition = std::move(condition), memory = std::move(memory),
          disk = std::move(disk)](const metrics_callback& then) {
    std::vector<metric_family> all;
    const auto add = [&all](std::vector<metric_family> some) {
      all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
    };
    if (condition)
      add(families_of(*condition));
    if (memory)
      add(families_of(*memory));
    if (disk)
      add(families_of(*disk));
    then(to_text(all));
  };
}

metrics_source source_of_lmcache(std::shared_ptr<const lmcache::counters> counts) {
  return [counts = std::move(counts)](const metrics_callback& then) { then(to_text(families_of(*counts))); };
}

metrics_source source_of_events(std::shared_ptr<const events::counters> counts) {
  return [counts = std::move(counts)](const metrics_callback& then) { then(to_text(families_of(*counts))); };
}

} // namespace troupe
