#include "actors/node/namespaces/namespace_making.hpp"

#include "actors/node/namespaces/shard_outcomes.hpp"

namespace troupe {

namespace {

const error all_well{errc::ok, {}};

/// Shards report how two identities differ, including salts, which attaching clients must not see.
error without_values(error x, const std::string& name) {
  if (x.code == errc::identity_mismatch)
    x.text = "namespace '" + name + "' exists with other settings; use another name, or the same settings";
  return x;
}

} // namespace

void namespace_making::know(const namespace_spec& ns) {
  auto& x = namespaces_[ns.id()];
  x.spec = ns;
  x.state = phase::served;
  x.opened = true;
  outbox_.emplace_back(served{ns.id(), ns.name, true});
}

bool namespace_making::serves(const namespace_id& ns) const {
  const auto found = namespaces_.find(ns);
  return found != namespaces_.end() && found->second.state == phase::served;
}

namespace_making::order_number namespace_making::expect(const namespace_id& ns) {
  orders_.emplace(++last_order_, ns);
  return last_order_;
}

void namespace_making::reply(request_number request, const namespace_id& ns, error outcome) {
  outbox_.emplace_back(answer{request, ns, std::move(outcome)});
}

void namespace_making::end(const namespace_id& ns, entry& x, const error& outcome) {
  for (const auto request : std::exchange(x.waiting, {}))
    reply(request, ns, outcome);
}

void namespace_making::make(request_number request, const namespace_spec& wanted) {
  const auto id = wanted.id();
  if (const auto known = namespaces_.find(id); known != namespaces_.end()) {
    auto& x = known->second;
    switch (x.state) {
    case phase::served:
      return reply(request, id, all_well);
    case phase::telling:
    case phase::opening:
    case phase::registering:
      x.waiting.push_back(request);
      return;
    case phase::half_removed:
      return reply(request, id, half_removed_error(x.spec.name));
    default:
      return reply(request, id,
                   {errc::busy, "namespace '" + x.spec.name + "' is being removed; try again in a moment"});
    }
  }
  if (const auto fits = options_.judge(wanted); !fits)
    return reply(request, id, fits.error());
  auto& x = namespaces_[id];
  x.spec = wanted;
  x.waiting.push_back(request);
  outbox_.emplace_back(report_namespace{expect(id), wanted});
}

void namespace_making::remove(request_number request, const namespace_id& ns, bool force) {
  const auto known = namespaces_.find(ns);
  if (known == namespaces_.end())
    return reply(request, ns, {errc::unknown_namespace, "no such namespace"});
  auto& x = known->second;
  switch (x.state) {
  case phase::served:
    x.waiting.push_back(request);
    x.state = phase::leaving;
    x.force = force;
    outbox_.emplace_back(leave_namespace{expect(ns), ns, force});
    return;
  case phase::telling:
  case phase::opening:
  case phase::registering:
    return reply(request, ns, {errc::busy, "namespace '" + x.spec.name + "' is being made; try again in a moment"});
  case phase::half_removed:
    x.waiting.push_back(request);
    x.state = phase::removing;
    outbox_.emplace_back(order_removal{expect(ns), ns, true});
    return;
  default:
    if (x.failure)
      return reply(request, ns,
                   {errc::busy, "namespace '" + x.spec.name + "' could not be made and is already being removed"});
    x.waiting.push_back(request); // shares the answer of the removal in progress
  }
}

void namespace_making::notified(order_number number, std::span<const error> outcomes) {
  const auto order = orders_.extract(number);
  if (order.empty())
    return;
  const auto& id = order.mapped();
  auto& x = namespaces_.at(id);
  switch (x.state) {
  case phase::telling:
    if (auto bad = first_error(outcomes); bad.code == errc::ok) {
      x.state = phase::opening;
      outbox_.emplace_back(open_namespace{expect(id), x.spec});
    } else if (any_good(outcomes)) {
      undo(id, x, without_values(std::move(bad), x.spec.name));
    } else {
      end(id, x, without_values(std::move(bad), x.spec.name));
      namespaces_.erase(id);
    }
    return;
  case phase::registering:
    if (auto bad = first_error(outcomes); bad.code != errc::ok)
      return undo(id, x, std::move(bad));
    x.state = phase::served;
    outbox_.emplace_back(served{id, x.spec.name, true});
    outbox_.emplace_back(note{"namespace made: '" + x.spec.name + "', with " + std::to_string(x.spec.world_size) +
                              (x.spec.world_size == 1 ? " rank" : " ranks") + ", for an attaching client"});
    return end(id, x, all_well);
  case phase::removing:
    if (const auto bad = first_error(outcomes, errc::unknown_namespace); bad.code != errc::ok) {
      x.begun = x.begun || any_gone(outcomes);
      return not_forgotten(id, x, bad);
    }
    outbox_.emplace_back(served{id, x.spec.name, false});
    return forgotten(id, x);
  case phase::forgetting:
    if (const auto bad = first_error(outcomes, errc::unknown_namespace); bad.code != errc::ok)
      outbox_.emplace_back(note{"a shard failed to remove namespace '" + x.spec.name + "': " + bad.text});
    return forgotten(id, x);
  default:
    return;
  }
}

void namespace_making::done(order_number number, const result<void>& outcome) {
  const auto order = orders_.extract(number);
  if (order.empty())
    return;
  const auto& id = order.mapped();
  auto& x = namespaces_.at(id);
  switch (x.state) {
  case phase::opening:
    if (!outcome)
      return undo(id, x, outcome.error());
    x.opened = true;
    x.state = phase::registering;
    outbox_.emplace_back(report_ranks{expect(id), id});
    return;
  case phase::leaving:
    if (!outcome)
      return stays(id, x, outcome.error());
    x.state = phase::removing;
    outbox_.emplace_back(order_removal{expect(id), id, x.force});
    return;
  case phase::closing:
    if (!outcome)
      outbox_.emplace_back(note{"namespace '" + x.spec.name + "' was not removed completely: " + outcome.error().text});
    return gone(id);
  default:
    return;
  }
}

void namespace_making::stays(const namespace_id& ns, entry& x, const error& why) {
  x.state = phase::served;
  outbox_.emplace_back(keep_namespace{ns});
  end(ns, x, why);
}

void namespace_making::not_forgotten(const namespace_id& ns, entry& x, const error& why) {
  if (!x.begun)
    return stays(ns, x, why);
  // A removal that some shards have begun cannot be undone, so the others follow.
  if (!std::exchange(x.force, true)) {
    outbox_.emplace_back(order_removal{expect(ns), ns, true});
    return;
  }
  x.state = phase::half_removed;
  const auto half_removed = half_removed_error(x.spec.name);
  outbox_.emplace_back(note{half_removed.text + ": " + why.text});
  end(ns, x, half_removed);
}

void namespace_making::undo(const namespace_id& ns, entry& x, error why) {
  x.state = phase::forgetting;
  x.failure = std::move(why);
  outbox_.emplace_back(order_removal{expect(ns), ns, true});
}

void namespace_making::forgotten(const namespace_id& ns, entry& x) {
  // Files are removed once no durable record refers to pages in them.
  if (!x.opened)
    return gone(ns);
  x.state = phase::closing;
  outbox_.emplace_back(close_namespace{expect(ns), ns});
}

void namespace_making::gone(const namespace_id& ns) {
  auto x = std::move(namespaces_.extract(ns).mapped());
  if (!x.failure)
    outbox_.emplace_back(note{"namespace removed: '" + x.spec.name + "'"});
  end(ns, x, x.failure ? *x.failure : all_well);
}

} // namespace troupe
