#include "actors/node/supervisor/node_state.hpp"

#include "actors/node/namespaces/namespace_terms.hpp"

#include <algorithm>

namespace troupe {

node_state::node_state(options how) : options_(std::move(how)) {
  for (const auto& x : options_.namespaces)
    namespaces_.push_back({x, x.id(), namespace_entry::phase::open, true});
}

result<std::size_t> node_state::namespace_named(const std::string& name) const {
  const auto wanted = [&](const namespace_entry& x) {
    return x.state == namespace_entry::phase::open && (name.empty() || x.spec.name == name);
  };
  const auto found = std::ranges::find_if(namespaces_, wanted);
  if (found != namespaces_.end())
    return static_cast<std::size_t>(found - namespaces_.begin());
  std::string known;
  for (const auto& x : namespaces_)
    if (x.state == namespace_entry::phase::open)
      known.append(known.empty() ? "" : ", ").append(x.spec.name);
  if (known.empty())
    return fail(errc::unknown_namespace, "this node has no namespaces yet: an engine that attaches creates its "
                                         "own, and `troupe replay --make-namespace FILE` one from a file");
  return fail(errc::unknown_namespace, "no namespace '" + name + "' on this node; it has: " + known);
}

result<std::size_t> node_state::namespace_of(const caller& who) const {
  if (!who.ns)
    return namespace_named(who.namespace_name);
  const auto id = who.ns->id();
  // The name may differ: pages of one identity are exchangeable, whatever the name.
  for (std::size_t i = 0; i < namespaces_.size(); ++i)
    if (namespaces_[i].id == id && namespaces_[i].state == namespace_entry::phase::open)
      return i;
  for (const auto& x : namespaces_) {
    if (x.state == namespace_entry::phase::removed)
      continue;
    if (x.id == id)
      return fail(errc::busy, "namespace '" + x.spec.name + "' is being removed; try again in a moment");
    if (x.spec.name == who.ns->name)
      return fail(errc::identity_mismatch,
                  "namespace '" + x.spec.name + "' of this node has another identity: it differs in " +
                      differing_parts(x.spec, *who.ns) + "; use another name, or the same settings");
  }
  return fail(errc::unknown_namespace, "no namespace like '" + who.ns->name + "' on this node");
}

bool node_state::is_to_make(const caller& who) const {
  if (!who.make || !who.ns || !fits(who))
    return false;
  const auto found = namespace_of(who);
  return !found && found.error().code == errc::unknown_namespace;
}

std::vector<namespace_spec> node_state::open_namespaces() const {
  std::vector<namespace_spec> out;
  for (const auto& x : namespaces_)
    if (x.state == namespace_entry::phase::open)
      out.push_back(x.spec);
  return out;
}

std::optional<std::size_t> node_state::index_of(const namespace_id& ns) const {
  for (std::size_t i = 0; i < namespaces_.size(); ++i)
    if (namespaces_[i].id == ns && namespaces_[i].state != namespace_entry::phase::removed)
      return i;
  return std::nullopt;
}

std::size_t node_state::add_namespace(const namespace_spec& ns) {
  const auto free = std::ranges::find_if(
      namespaces_, [](const namespace_entry& x) { return x.state == namespace_entry::phase::removed; });
  if (free == namespaces_.end()) {
    namespaces_.push_back({ns, ns.id(), namespace_entry::phase::open, false});
    return namespaces_.size() - 1;
  }
  *free = {ns, ns.id(), namespace_entry::phase::open, false};
  return static_cast<std::size_t>(free - namespaces_.begin());
}

result<void> node_state::close_namespace(const namespace_id& ns, bool force, timestamp now) {
  const auto index = index_of(ns);
  if (!index || namespaces_[*index].own)
    return fail(errc::unknown_namespace, "no client has created such a namespace");
  std::vector<link_number> attached;
  for (const auto& [owner, x] : clients_)
    if (x.ns == *index)
      attached.push_back(x.link);
  if (!attached.empty() && !force)
    return fail(errc::busy, std::to_string(attached.size()) + " clients are attached to namespace '" +
                                namespaces_[*index].spec.name +
                                "'; wait until they have detached, or detach them with --force (?force=true)");
  for (const auto link : attached)
    disconnect(link, "its namespace is removed", now);
  namespaces_[*index].state = namespace_entry::phase::closed;
  return {};
}

void node_state::reopen_namespace(const namespace_id& ns) {
  if (const auto index = index_of(ns))
    namespaces_[*index].state = namespace_entry::phase::open;
}

void node_state::remove_namespace(const namespace_id& ns) {
  if (const auto index = index_of(ns))
    namespaces_[*index].state = namespace_entry::phase::removed;
}

error node_state::too_many() const {
  auto text = std::to_string(clients_.size()) + " clients are attached";
  if (!disconnected_.empty())
    text +=
        ", and " + std::to_string(disconnected_.size()) + " have disconnected but may still write to the node's memory";
  return {errc::limit_exceeded, text + ", which is the limit (io.max_clients)"};
}

result<node_state::arrival> node_state::attach(const caller& who, link_number link, timestamp now) {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (who.protocol != options_.protocol)
    return fail(errc::unsupported, "the client speaks protocol " + std::to_string(who.protocol) + ", this node " +
                                       std::to_string(options_.protocol));
  const auto ns = namespace_of(who);
  if (!ns)
    return tl::unexpected<error>(ns.error());
  // The link may be attached already: the answer to its earlier request was lost, or took too long.
  disconnect(link, "attached again", now);
  if (clients_.size() + disconnected_.size() >= options_.max_clients)
    return tl::unexpected(too_many());
  auto owner = options_.draw();
  while (owner == 0 || clients_.contains(owner) || disconnected_.contains(owner))
    owner = options_.draw();
  clients_.emplace(owner, client{link, who.name, *ns});
  return arrival{owner, *ns};
}

result<void> node_state::leave(owner_id owner, link_number link, timestamp now) {
  const auto i = clients_.find(owner);
  if (i == clients_.end() || i->second.link != link)
    return fail(errc::not_found, "no client with this owner id is attached by this link");
  disconnect(link, "detached", now);
  return {};
}

void node_state::disconnect(link_number link, const char* why, timestamp now) {
  const auto i = std::ranges::find_if(clients_, [&](const auto& x) { return x.second.link == link; });
  if (i == clients_.end())
    return;
  const auto owner = i->first;
  disconnected_clients_.push_back({owner, i->second.name, why});
  if (options_.end_asking(owner))
    disconnected_.emplace(owner, disconnected_client{std::move(i->second.name), now});
  else
    quiesced_owners_.push_back(owner);
  clients_.erase(i);
}

result<void> node_state::owner_quiesced(owner_id owner) {
  if (clients_.contains(owner))
    return fail(errc::busy,
                "this client is attached; it can be quiesced only after it has detached and its transfers have ended");
  if (disconnected_.erase(owner) > 0)
    quiesced_owners_.push_back(owner);
  return {};
}

std::vector<owner_id> node_state::take_quiesced() {
  if (!disconnected_clients_.empty())
    return {};
  return std::exchange(quiesced_owners_, {});
}

std::vector<owner_id> node_state::disconnected() const {
  std::vector<owner_id> out;
  for (const auto& [owner, x] : disconnected_)
    out.push_back(owner);
  return out;
}

std::size_t node_state::lingering_clients(timestamp now) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(disconnected_, [&](const auto& x) { return now >= later(x.second.since, linger_time); }));
}

std::vector<node_state::departure> node_state::take_overdue(timestamp now) {
  std::vector<departure> out;
  for (auto& [owner, x] : disconnected_)
    if (!x.overdue_notified && now >= later(x.since, quiesce_expected)) {
      x.overdue_notified = true;
      out.push_back({owner, x.name, "not quiesced"});
    }
  return out;
}

bool node_state::drain(std::size_t parts) noexcept {
  if (std::exchange(draining_, true))
    return false;
  busy_parts_ = parts;
  return true;
}

} // namespace troupe
