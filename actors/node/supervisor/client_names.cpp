#include "actors/node/supervisor/client_names.hpp"

namespace troupe {

void client_names::attached(owner_id owner, const std::string& name) {
  const std::lock_guard guard(mutex_);
  all_.insert_or_assign(owner, known{name, true});
}

void client_names::disconnected(owner_id owner) {
  const std::lock_guard guard(mutex_);
  const auto found = all_.find(owner);
  if (found == all_.end() || !found->second.is_attached)
    return;
  found->second.is_attached = false;
  keep_for_a_while(owner);
}

void client_names::called(owner_id owner, const std::string& name) {
  const std::lock_guard guard(mutex_);
  // Most callers are known.
  if (all_.contains(owner))
    return;
  all_.emplace(owner, known{name, false});
  keep_for_a_while(owner);
}

void client_names::keep_for_a_while(owner_id owner) {
  others_.push_back(owner);
  if (others_.size() <= others_most_)
    return;
  all_.erase(others_.front());
  others_.pop_front();
}

std::string client_names::name_of(owner_id owner) const {
  const std::lock_guard guard(mutex_);
  const auto found = all_.find(owner);
  return found == all_.end() ? std::string() : found->second.name;
}

std::vector<owner_id> client_names::owners_of(std::string_view name) const {
  const std::lock_guard guard(mutex_);
  std::vector<owner_id> out;
  for (const auto& [owner, x] : all_)
    if (x.name == name)
      out.push_back(owner);
  return out;
}

} // namespace troupe
