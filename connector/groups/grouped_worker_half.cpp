#include "connector/groups/grouped_worker_half.hpp"

#include "gpu/kv_layout.hpp"

#include <string>
#include <utility>

namespace troupe::connector {

result<void> grouped_worker_half::register_kv_caches(const kv_cache_view& cache) {
  if (groups_.size() != 1)
    return fail(errc::invalid_argument, "one KV cache for " + std::to_string(groups_.size()) + " groups of layers");
  return register_groups({cache});
}

result<void> grouped_worker_half::register_groups(const std::vector<kv_cache_view>& caches) {
  if (caches.size() != groups_.size())
    return fail(errc::invalid_argument, std::to_string(caches.size()) + " KV caches for " +
                                            std::to_string(groups_.size()) + " groups of layers");
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (auto done = groups_[g]->register_kv_caches(caches[g]); !done) {
      // A model without one of its groups has no hits, so the others do not stay registered.
      for (std::size_t before = 0; before < g; ++before)
        if (auto undone = groups_[before]->unregister_kv_caches(); !undone)
          done.error().text += "; " + undone.error().text;
      return done;
    }
  return {};
}

result<void> grouped_worker_half::unregister_kv_caches() {
  result<void> out;
  for (const auto& group : groups_)
    if (auto done = group->unregister_kv_caches(); !done && out)
      out = std::move(done);
  return out;
}

result<void> grouped_worker_half::attached() const {
  for (const auto& group : groups_)
    if (auto state = group->attached(); !state)
      return state;
  return {};
}

void grouped_worker_half::bind_connector_metadata(connector_metadata metadata) {
  std::vector<connector_metadata> parts(groups_.size());
  for (auto& op : metadata.loads) {
    if (op.group >= groups_.size())
      continue;
    if (!op.synchronous())
      ++loads_[op.request].missing;
    parts[op.group].loads.push_back(std::move(op));
  }
  for (auto& op : metadata.stores)
    if (op.group < groups_.size())
      parts[op.group].stores.push_back(std::move(op));
  for (auto& part : parts)
    part.preempted = metadata.preempted;
  // Only a load keeps a finished request, and its end is reported anyway.
  for (std::size_t g = 0; g < groups_.size(); ++g)
    groups_[g]->bind_connector_metadata(std::move(parts[g]));
}

void grouped_worker_half::clear_connector_metadata() {
  for (const auto& group : groups_)
    group->clear_connector_metadata();
}

void grouped_worker_half::handle_preemptions(const connector_metadata& metadata) {
  if (metadata.preempted.empty())
    return;
  for (const auto& group : groups_)
    group->handle_preemptions(metadata);
}

void grouped_worker_half::start_load_kv(void* ready) {
  for (const auto& group : groups_)
    group->start_load_kv(ready);
}

void grouped_worker_half::wait_for_save(void* ready) {
  for (const auto& group : groups_)
    group->wait_for_save(ready);
}

finished_requests grouped_worker_half::get_finished(std::span<const std::string_view> finished) {
  finished_requests out;
  for (const auto& group : groups_) {
    auto said = group->get_finished(finished);
    for (auto& name : said.sent)
      out.sent.push_back(std::move(name));
    for (const auto& name : said.failed)
      if (const auto load = loads_.find(name); load != loads_.end())
        load->second.failed = true;
    for (const auto& name : said.received) {
      const auto load = loads_.find(name);
      if (load == loads_.end() || --load->second.missing > 0)
        continue;
      if (load->second.failed)
        out.failed.push_back(name);
      out.received.push_back(name);
      loads_.erase(load);
    }
  }
  return out;
}

std::vector<block_id> grouped_worker_half::get_block_ids_with_load_errors() {
  // Blocks of several groups are not told apart by the engine, which goes by requests.
  for (const auto& group : groups_)
    group->get_block_ids_with_load_errors();
  return {};
}

std::vector<store_outcome> grouped_worker_half::build_connector_worker_meta() {
  std::vector<store_outcome> out;
  for (const auto& group : groups_)
    for (auto& outcome : group->build_connector_worker_meta())
      out.push_back(std::move(outcome));
  return out;
}

connector_stats grouped_worker_half::get_kv_connector_stats() {
  connector_stats out;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    auto own = groups_[g]->get_kv_connector_stats();
    const auto times = g == counts_.group ? counts_.per_block : 0;
    own.hit_tokens *= times;
    own.disk_tokens *= times;
    out.aggregate(own);
  }
  return out;
}

void grouped_worker_half::shutdown() {
  for (const auto& group : groups_)
    group->shutdown();
}

} // namespace troupe::connector
