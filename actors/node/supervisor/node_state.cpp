#include "actors/node/supervisor/node_state.hpp"

#include <algorithm>

namespace troupe {

result<std::size_t> node_state::space_named(const std::string& name) const {
  const auto found =
      std::ranges::find_if(options_.spaces, [&](const namespace_spec& x) { return name.empty() || x.name == name; });
  if (found != options_.spaces.end())
    return static_cast<std::size_t>(found - options_.spaces.begin());
  std::string known;
  for (const auto& x : options_.spaces)
    known.append(known.empty() ? "" : ", ").append(x.name);
  return fail(errc::unknown_namespace, "no namespace '" + name + "' on this node; it has: " + known);
}

error node_state::too_many() const {
  auto text = std::to_string(clients_.size()) + " clients are attached";
  if (!departed_.empty())
    text += ", and of " + std::to_string(departed_.size()) +
            " that have gone it is not known yet that they leave the node's memory alone";
  return {errc::limit_exceeded, text + ", which is the limit (io.max_clients)"};
}

result<node_state::arrival> node_state::attach(const caller& who, link_number link, timestamp now) {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (who.protocol != options_.protocol)
    return fail(errc::unsupported, "the client speaks protocol " + std::to_string(who.protocol) + ", this node " +
                                       std::to_string(options_.protocol));
  const auto space = space_named(who.space_name);
  if (!space)
    return tl::unexpected<error>(space.error());
  // The answer to an earlier request of this link was lost, or took too long.
  depart(link, "attaches again", now);
  if (clients_.size() + departed_.size() >= options_.max_clients)
    return tl::unexpected(too_many());
  auto owner = options_.draw();
  while (owner == 0 || clients_.contains(owner) || departed_.contains(owner))
    owner = options_.draw();
  clients_.emplace(owner, client{link, who.name});
  return arrival{owner, *space};
}

result<void> node_state::leave(owner_id owner, link_number link, timestamp now) {
  const auto i = clients_.find(owner);
  if (i == clients_.end() || i->second.link != link)
    return fail(errc::not_found, "no client with this owner id is attached by this link");
  depart(link, "left", now);
  return {};
}

void node_state::depart(link_number link, const char* why, timestamp now) {
  const auto i = std::ranges::find_if(clients_, [&](const auto& x) { return x.second.link == link; });
  if (i == clients_.end())
    return;
  const auto owner = i->first;
  departures_.push_back({owner, i->second.name, why});
  if (options_.end_asking(owner))
    departed_.emplace(owner, departed_client{std::move(i->second.name), now});
  else
    rested_.push_back(owner);
  clients_.erase(i);
}

result<void> node_state::owner_at_rest(owner_id owner) {
  if (clients_.contains(owner))
    return fail(errc::busy, "this client is attached: it is at rest when it has left and its transfers have ended");
  if (departed_.erase(owner) > 0)
    rested_.push_back(owner);
  return {};
}

std::vector<owner_id> node_state::take_rested() {
  if (!departures_.empty())
    return {};
  return std::exchange(rested_, {});
}

std::vector<owner_id> node_state::departed() const {
  std::vector<owner_id> out;
  for (const auto& [owner, x] : departed_)
    out.push_back(owner);
  return out;
}

std::vector<node_state::departure> node_state::take_overdue(timestamp now) {
  std::vector<departure> out;
  for (auto& [owner, x] : departed_)
    if (!x.overdue_told && now >= later(x.since, rest_expected)) {
      x.overdue_told = true;
      out.push_back({owner, x.name, "has not come to rest"});
    }
  return out;
}

bool node_state::drain(std::size_t parts) noexcept {
  if (std::exchange(draining_, true))
    return false;
  restless_ = parts;
  return true;
}

} // namespace troupe
