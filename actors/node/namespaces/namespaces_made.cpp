#include "actors/node/namespaces/namespaces.hpp"
#include "actors/support/gather.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

/// Namespaces that clients make and whose pages the node keeps.

namespace troupe {

caf::result<served_namespace> namespaces::make(const make_namespace_request& x) {
  const auto id = x.spec.id();
  if (!making_.knows(id) && state_.knows(id))
    return to_caf(error{errc::identity_mismatch, "namespace '" + x.spec.name +
                                                     "' has its pages in files of its engines, and no "
                                                     "client can attach to it; use another salt and another name"});
  auto promise = make_response_promise();
  const auto request = promises_.add(promise);
  makers_.insert(request);
  making_.make(request, x.spec);
  flush();
  return promise;
}

caf::result<void> namespaces::add_again(const add_namespace_request& x) {
  if (!making_.serves(x.spec.id()))
    return to_caf(error{errc::busy, "this namespace is being made or removed; try again in a moment"});
  auto promise = make_response_promise();
  ask_shards<add_namespace_request>({x}, [this, request = promises_.add(promise)](const auto& outcomes) {
    const auto bad = std::ranges::find_if(outcomes, [](const error& o) { return o.code != errc::ok; });
    if (bad == outcomes.end())
      promises_.deliver(request, caf::unit);
    else
      promises_.deliver(request, to_caf(*bad));
  });
  return promise;
}

caf::result<void> namespaces::remove(const remove_namespace_request& x) {
  return decide([&](auto request) {
    if (making_.knows(x.ns))
      making_.remove(request, x.ns, x.force);
    else
      state_.remove(request, x);
  });
}

void namespaces::made_notified(making::order_number number, const std::vector<error>& outcomes) {
  making_.notified(number, outcomes);
  flush();
}

void namespaces::made_done(making::order_number number, const result<void>& outcome) {
  making_.done(number, outcome);
  flush();
}

void namespaces::perform(making::report_namespace& x) {
  ask_shards<add_namespace_request>(
      {{x.spec, {.origin = namespace_origin::client}}},
      [this, number = x.number](const auto& outcomes) { made_notified(number, outcomes); });
}

void namespaces::perform(making::open_namespace& x) {
  const auto id = x.spec.id();
  request(options_.keeper, caf::infinite, open_namespace_request{x.spec, false})
      .then(
          [this, id, number = x.number](const served_namespace& ns) {
            made_.insert_or_assign(id, ns);
            made_done(number, {});
          },
          [this, number = x.number](const caf::error& e) { made_done(number, failed<void>(e)); });
}

void namespaces::perform(making::report_ranks& x) {
  std::vector<add_rank_request> all;
  for (const auto& rank : made_.at(x.ns).ranks)
    all.push_back({x.ns, rank.rank, rank.slots, rank.allocator, rank.incarnation,
                   rank.listens ? rank.worker : io_worker_actor{}});
  ask_shards(all, [this, number = x.number](const auto& outcomes) { made_notified(number, outcomes); });
}

void namespaces::perform(making::leave_namespace& x) {
  if (!node_)
    return made_done(x.number, fail(errc::busy, "the node is starting; try again in a moment"));
  request(node_, caf::infinite, leave_namespace_request{x.ns, x.force})
      .then([this, number = x.number] { made_done(number, {}); },
            [this, number = x.number](const caf::error& e) { made_done(number, failed<void>(e)); });
}

void namespaces::perform(making::order_removal& x) {
  remove_everywhere({x.ns, x.force},
                    [this, number = x.number](const auto& outcomes) { made_notified(number, outcomes); });
}

void namespaces::perform(making::keep_namespace& x) {
  if (node_)
    request(node_, caf::infinite, bind_atom_v, x.ns).then([] {}, [](const caf::error&) {});
}

void namespaces::perform(making::close_namespace& x) {
  const auto close = [this, number = x.number, ns = x.ns] {
    made_.erase(ns);
    request(options_.keeper, caf::infinite, close_namespace_request{ns})
        .then([this, number] { made_done(number, {}); },
              [this, number](const caf::error& e) { made_done(number, failed<void>(e)); });
  };
  // The node stops watching actors that are about to end.
  if (node_)
    request(node_, caf::infinite, unbind_atom_v, x.ns).then(close, [close](const caf::error&) { close(); });
  else
    close();
}

void namespaces::perform(making::served& x) {
  if (x.is)
    options_.names->add(x.ns, x.name, true);
  else
    options_.names->remove(x.ns);
}

void namespaces::perform(making::answer& x) {
  const bool maker = makers_.erase(x.request) > 0;
  if (x.outcome.code != errc::ok)
    promises_.deliver(x.request, to_caf(x.outcome));
  else if (maker)
    promises_.deliver(x.request, made_.at(x.ns));
  else
    promises_.deliver(x.request, caf::unit);
}

void namespaces::perform(making::note& x) {
  log::get("namespaces")->info("{}", x.text);
}

} // namespace troupe
