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

result<node_state::arrival> node_state::attach(const caller& who, link_number link) {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (who.protocol != options_.protocol)
    return fail(errc::unsupported, "the client speaks protocol " + std::to_string(who.protocol) + ", this node " +
                                       std::to_string(options_.protocol));
  const auto space = space_named(who.space_name);
  if (!space)
    return tl::unexpected<error>(space.error());
  // The answer to an earlier request of this link was lost, or took too long.
  depart(link, "attaches again");
  if (clients_.size() >= options_.max_clients)
    return fail(errc::limit_exceeded,
                std::to_string(clients_.size()) + " clients are attached, which is the limit (io.max_clients)");
  auto owner = options_.draw();
  while (owner == 0 || clients_.contains(owner))
    owner = options_.draw();
  clients_.emplace(owner, client{link, who.name});
  return arrival{owner, *space};
}

result<void> node_state::leave(owner_id owner, link_number link) {
  const auto i = clients_.find(owner);
  if (i == clients_.end() || i->second.link != link)
    return fail(errc::not_found, "no client with this owner id is attached by this link");
  depart(link, "left");
  return {};
}

void node_state::depart(link_number link, const char* why) {
  const auto i = std::ranges::find_if(clients_, [&](const auto& x) { return x.second.link == link; });
  if (i == clients_.end())
    return;
  departures_.push_back({i->first, std::move(i->second.name), why});
  clients_.erase(i);
}

bool node_state::drain(std::size_t parts) noexcept {
  if (std::exchange(draining_, true))
    return false;
  restless_ = parts;
  return true;
}

} // namespace troupe
