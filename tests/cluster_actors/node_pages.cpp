#include "tests/cluster_actors/node_pages.hpp"

#include "base/digest.hpp"
#include "tests/simulation/random.hpp"

#include <algorithm>

namespace troupe::cluster_actors {

page_bytes expected_page(const std::string& cluster, const namespace_id& ns, rank_number rank, const key_digest& key,
                         std::size_t bytes) {
  std::uint64_t seed = 0;
  for (const auto c : cluster)
    seed = mix(seed, static_cast<unsigned char>(c));
  for (const auto x : {ns.hi, ns.lo, std::uint64_t{rank}, key.hi, key.lo})
    seed = mix(seed, x);
  simulation::random_source random(seed);
  page_bytes out(bytes);
  for (auto& x : out)
    x = static_cast<std::byte>(random.next());
  return out;
}

bool node_pages::store(const namespace_id& ns, rank_number rank, const key_digest& key, page_bytes page) {
  auto& all = pages_[ns][key];
  all.resize(ranks_);
  if (!all[rank].empty())
    return false;
  all[rank] = std::move(page);
  return true;
}

const page_bytes* node_pages::find(const namespace_id& ns, rank_number rank, const key_digest& key) const {
  const auto in = pages_.find(ns);
  if (in == pages_.end())
    return nullptr;
  const auto found = in->second.find(key);
  return found == in->second.end() || found->second[rank].empty() ? nullptr : &found->second[rank];
}

bool node_pages::is_complete(const namespace_id& ns, const key_digest& key) const {
  for (rank_number rank = 0; rank < ranks_; ++rank)
    if (find(ns, rank, key) == nullptr)
      return false;
  return true;
}

std::size_t node_pages::keys(const namespace_id& ns) const {
  const auto in = pages_.find(ns);
  return in == pages_.end() ? 0 : in->second.size();
}

std::vector<std::pair<namespace_id, key_digest>> node_pages::all() const {
  std::vector<std::pair<namespace_id, key_digest>> out;
  for (const auto& [ns, keys] : pages_)
    for (const auto& [key, pages] : keys)
      out.emplace_back(ns, key);
  return out;
}

bool node_pages::lost_since(const namespace_id& ns, const key_digest& key, timestamp then) const {
  const auto found = lost_.find({ns, key});
  return found != lost_.end() && found->second >= then;
}

bool node_pages::evict(const namespace_id& ns, const key_digest& key, timestamp now) {
  for (const auto& [which, x] : leases_)
    if (x.ns == ns && x.until > now && x.keys.contains(key))
      return false;
  if (const auto in = pages_.find(ns); in != pages_.end() && in->second.erase(key) > 0)
    lost_[{ns, key}] = now;
  return true;
}

void node_pages::remove(const namespace_id& ns, timestamp now) {
  const auto in = pages_.extract(ns);
  if (in.empty())
    return;
  for (const auto& [key, pages] : in.mapped())
    lost_[{ns, key}] = now;
  std::erase_if(leases_, [&](const auto& x) { return x.second.ns == ns; });
}

void node_pages::damage(const namespace_id& ns, rank_number rank, const key_digest& key) {
  if (const auto in = pages_.find(ns); in != pages_.end())
    if (const auto found = in->second.find(key); found != in->second.end() && !found->second[rank].empty())
      found->second[rank].front() ^= std::byte{1};
}

void node_pages::retain(const ticket& which, const std::vector<key_digest>& keys) {
  if (const auto found = leases_.find(which); found != leases_.end())
    std::erase_if(found->second.keys, [&](const auto& x) { return std::ranges::find(keys, x) == keys.end(); });
}

void node_pages::release_all_of(owner_id owner) {
  std::erase_if(leases_, [&](const auto& x) { return x.second.owner == owner; });
}

} // namespace troupe::cluster_actors
