#include "connector/groups/grouped_worker_half.hpp"

#include "gpu/kv_layout.hpp"

#include <string>
#include <utility>

namespace troupe::connector {

result<void> grouped_worker_half::register_kv_caches(const kv_cache_view& cache) {
  return register_groups({cache});
}

result<void> grouped_worker_half::register_groups(const std::vector<kv_cache_view>& caches) {
  std::vector<worker_half*> own;
  each([&](worker_half& group) { own.push_back(&group); });
  if (caches.size() != own.size())
    return fail(errc::invalid_argument,
                std::to_string(caches.size()) + " KV caches for " + std::to_string(own.size()) + " groups of layers");
  for (std::size_t g = 0; g < own.size(); ++g)
    if (auto done = own[g]->register_kv_caches(caches[g]); !done) {
      // A model without one of its groups has no hits, so the others do not stay registered.
      for (std::size_t before = 0; before < g; ++before)
        if (auto undone = own[before]->unregister_kv_caches(); !undone)
          done.error().text += "; " + undone.error().text;
      return done;
    }
  return {};
}

result<void> grouped_worker_half::unregister_kv_caches() {
  result<void> out;
  each([&](worker_half& group) {
    if (auto done = group.unregister_kv_caches(); !done && out)
      out = std::move(done);
  });
  return out;
}

result<void> grouped_worker_half::attached() const {
  result<void> out;
  each([&](worker_half& group) {
    if (auto state = group.attached(); !state && out)
      out = std::move(state);
  });
  return out;
}

void grouped_worker_half::bind_connector_metadata(connector_metadata metadata) {
  std::vector<connector_metadata> parts(groups_.size());
  const auto is_own = [&](std::uint32_t group) { return group < groups_.size() && groups_[group] != nullptr; };
  std::vector<std::string> named;
  for (auto& op : metadata.loads) {
    if (op.group >= groups_.size())
      continue;
    if (!op.synchronous() && loads_.try_emplace(op.request).second)
      named.push_back(op.request);
    if (!is_own(op.group))
      continue;
    if (!op.synchronous())
      ++loads_[op.request].missing;
    parts[op.group].loads.push_back(std::move(op));
  }
  for (auto& name : named)
    if (const auto load = loads_.find(name); load->second.missing == 0) {
      loads_.erase(load);
      of_others_.push_back(std::move(name));
    }
  for (auto& op : metadata.stores)
    if (is_own(op.group))
      parts[op.group].stores.push_back(std::move(op));
  for (auto& part : parts)
    part.preempted = metadata.preempted;
  // Only a load keeps a finished request, and its end is reported anyway.
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g])
      groups_[g]->bind_connector_metadata(std::move(parts[g]));
}

void grouped_worker_half::clear_connector_metadata() {
  each([](worker_half& group) { group.clear_connector_metadata(); });
}

void grouped_worker_half::handle_preemptions(const connector_metadata& metadata) {
  if (!metadata.preempted.empty())
    each([&](worker_half& group) { group.handle_preemptions(metadata); });
}

void grouped_worker_half::start_load_kv(void* ready) {
  each([&](worker_half& group) { group.start_load_kv(ready); });
}

void grouped_worker_half::wait_for_save(void* ready) {
  each([&](worker_half& group) { group.wait_for_save(ready); });
}

finished_requests grouped_worker_half::get_finished(std::span<const std::string_view> finished) {
  finished_requests out;
  out.received = std::exchange(of_others_, {});
  each([&](worker_half& group) {
    auto said = group.get_finished(finished);
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
  });
  return out;
}

std::vector<block_id> grouped_worker_half::get_block_ids_with_load_errors() {
  // Blocks of several groups are not told apart by the engine, which goes by requests.
  each([](worker_half& group) { group.get_block_ids_with_load_errors(); });
  return {};
}

std::vector<store_outcome> grouped_worker_half::build_connector_worker_meta() {
  std::vector<store_outcome> out;
  each([&](worker_half& group) {
    for (auto& outcome : group.build_connector_worker_meta())
      out.push_back(std::move(outcome));
  });
  return out;
}

connector_stats grouped_worker_half::get_kv_connector_stats() {
  connector_stats out;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g])
      continue;
    auto own = groups_[g]->get_kv_connector_stats();
    const auto times = g == counts_.group ? counts_.per_block : 0;
    own.hit_tokens *= times;
    own.disk_tokens *= times;
    out.aggregate(own);
  }
  return out;
}

void grouped_worker_half::shutdown() {
  each([](worker_half& group) { group.shutdown(); });
}

} // namespace troupe::connector
