#include "actors/node/namespaces/namespace_names.hpp"

#include <mutex>
#include <utility>

namespace troupe {

void namespace_names::add(const namespace_id& id, std::string name, bool kept_here) {
  const std::unique_lock guard{mutex_};
  const auto [known, is_new] = names_.try_emplace(id, std::move(name));
  if (is_new)
    ids_.insert_or_assign(known->second, id);
  if (kept_here)
    kept_here_.insert(id);
}

void namespace_names::remove(const namespace_id& id) {
  const std::unique_lock guard{mutex_};
  const auto known = names_.find(id);
  if (known == names_.end())
    return;
  ids_.erase(known->second);
  names_.erase(known);
  kept_here_.erase(id);
}

std::optional<namespace_id> namespace_names::find(std::string_view name) const {
  const std::shared_lock guard{mutex_};
  const auto known = ids_.find(name);
  return known == ids_.end() ? std::nullopt : std::optional{known->second};
}

bool namespace_names::kept_here(const namespace_id& id) const {
  const std::shared_lock guard{mutex_};
  return kept_here_.contains(id);
}

std::optional<std::string> namespace_names::name_of(const namespace_id& id) const {
  const std::shared_lock guard{mutex_};
  const auto known = names_.find(id);
  return known == names_.end() ? std::nullopt : std::optional{known->second};
}

std::size_t namespace_names::count_with_prefix(std::string_view prefix) const {
  const std::shared_lock guard{mutex_};
  std::size_t out = 0;
  for (auto at = ids_.lower_bound(prefix); at != ids_.end() && at->first.starts_with(prefix); ++at)
    ++out;
  return out;
}

} // namespace troupe
