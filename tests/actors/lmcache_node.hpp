#pragma once

#include "actors/lmcache/lmcache_server.hpp"

#include <caf/actor_cast.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::test {

/// What a node answers to a client of its only shard and rank, both of which are this actor.
inline attach_reply attached_to(caf::event_based_actor* self, const attach_request& wanted) {
  const auto own = caf::actor_cast<caf::actor>(self);
  attach_reply out;
  out.owner = 7;
  out.ns = wanted.ns;
  out.ns_id = wanted.ns.id();
  out.limits.batch_keys = 64;
  out.limits.batch_pages = 8;
  out.limits.lease = std::chrono::minutes(1);
  out.limits.reservation = std::chrono::minutes(1);
  out.limits.pinned_bytes = std::uint64_t{1} << 20U;
  out.shards.push_back(caf::actor_cast<client_shard_actor>(own));
  out.ranks.push_back({0, 16, caf::actor_cast<client_worker_actor>(own)});
  return out;
}

/// Parts of a server on that node, which sends the number of each answered request to the test.
inline lmcache_server_parts server_parts(const caf::scoped_actor& self, const caf::actor& node,
                                         std::shared_ptr<lmcache_inbox> inbox,
                                         std::shared_ptr<io::extent_source> extents) {
  lmcache_server_parts out;
  out.answer = [notified = caf::actor_cast<caf::actor>(self)](const lmcache::incoming& to, std::optional<std::string>) {
    caf::anon_send(notified, to.number);
  };
  out.inbox = std::move(inbox);
  out.counters = std::make_shared<lmcache::counters>();
  out.node = caf::actor_cast<node_actor>(node);
  out.extents = std::move(extents);
  return out;
}

} // namespace troupe::test
