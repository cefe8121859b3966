#include "actors/node/reception/client_rights.hpp"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

constexpr std::uint64_t place(rank_number rank, slot_number slot) {
  return std::uint64_t{rank} << 32U | slot;
}

result<void> too_many(std::size_t got, const char* of_what, std::uint32_t most) {
  return fail(errc::limit_exceeded,
              std::to_string(got) + " " + of_what + " in one request; at most " + std::to_string(most));
}

} // namespace

result<void> client_rights::check(owner_id owner, const namespace_id& ns, std::size_t keys) const {
  if (owner != scope_.owner)
    return fail(errc::not_owner, "requests must carry the client's own owner id, which it got when it attached");
  if (ns != scope_.ns)
    return fail(errc::unknown_namespace, "requests must name the namespace to which the client attached");
  if (keys > scope_.batch_keys)
    return too_many(keys, "keys", scope_.batch_keys);
  return {};
}

result<void> client_rights::may(const match_request& x) const {
  return check(x.lease.owner, x.ns, x.keys.size());
}

result<void> client_rights::may(const locate_request& x) const {
  return check(x.lease.owner, x.ns, x.keys.size());
}

result<void> client_rights::may(const release_request& x) const {
  if (!x.kept_there.empty() && !scope_.reads_only)
    return fail(errc::not_owner, "only another node of the cluster may report pages that it keeps");
  return check(x.lease.owner, x.ns, std::max(x.kept_there.size(), x.retained.size()));
}

result<void> client_rights::may(const renew_request& x) const {
  return check(x.lease.owner, x.ns, 0);
}

result<void> client_rights::check_writer() const {
  if (scope_.reads_only)
    return fail(errc::not_owner, "a node of the cluster may look up and fetch pages here, but not write any");
  return {};
}

result<void> client_rights::may(const prefix_fetch_request& x) const {
  return check(scope_.owner, x.ns, x.keys.size());
}

result<void> client_rights::may(const search_peers_request& x) const {
  return check(scope_.owner, x.ns, x.keys.size());
}

result<void> client_rights::may(const fetch_pages_request& x) const {
  return check(scope_.owner, x.ns, std::max(x.keys.size(), x.parents.size()));
}

result<void> client_rights::may(const reuse_request& x) const {
  if (!scope_.reads_only)
    return fail(errc::not_owner, "only another node of the cluster may request reuse statistics");
  return check(scope_.owner, x.ns, 0);
}

result<void> client_rights::may(const describe_pages_request& x) const {
  if (auto allowed = check_writer(); !allowed)
    return allowed;
  return check(scope_.owner, x.ns, x.pages.keys.size());
}

result<void> client_rights::may(const reserve_request& x) const {
  if (auto allowed = check_writer(); !allowed)
    return allowed;
  return check(x.ticket.owner, x.ns, std::max(x.keys.size(), x.parents.size()));
}

result<void> client_rights::may(const finish_request& x) const {
  if (auto allowed = check_writer(); !allowed)
    return allowed;
  return check(x.ticket.owner, x.ns, x.pages.size());
}

result<void> client_rights::may(const invalidate_request& x) const {
  return check(scope_.owner, x.ns, std::max({x.pages.size(), x.reasons.size(), x.tiers.size()}));
}

void client_rights::reserved(rank_number rank, const reserve_reply& reply) {
  const std::lock_guard guard(mutex_);
  for (const auto& x : reply.results)
    if (x.code() == errc::ok)
      reserved_[place(rank, x.where.slot)] = x.where.generation;
}

void client_rights::finished(const finish_request& x) {
  const std::lock_guard guard(mutex_);
  for (const auto& page : x.pages)
    if (const auto i = reserved_.find(place(x.rank, page.where.slot));
        i != reserved_.end() && i->second == page.where.generation)
      reserved_.erase(i);
}

result<void> client_rights::may_fetch(const frame_request& x) const {
  if (x.pages.size() > scope_.batch_pages)
    return too_many(x.pages.size(), "pages", scope_.batch_pages);
  return {};
}

result<void> client_rights::may_place(rank_number rank, const frame_request& x) const {
  if (auto allowed = may_fetch(x); !allowed)
    return allowed;
  const std::lock_guard guard(mutex_);
  for (const auto& page : x.pages) {
    const auto i = reserved_.find(place(rank, page.where.slot));
    if (i == reserved_.end() || i->second != page.where.generation)
      return fail(errc::not_owner, "slot " + std::to_string(page.where.slot) + " of rank " + std::to_string(rank) +
                                       ", generation " + std::to_string(page.where.generation) +
                                       ", is not reserved for this client");
  }
  return {};
}

bool client_rights::end() noexcept {
  ended_.store(true);
  return had_memory_.load();
}

result<void> client_rights::begin_request(bool of_memory) {
  // Stored only if it is not set, because all actors that serve the client share this cache line.
  if (of_memory && !had_memory_.load())
    had_memory_.store(true);
  if (ended_.load())
    return fail(errc::unreachable, "the client is no longer attached");
  if (under_way_.fetch_add(1, std::memory_order_relaxed) < scope_.requests)
    return {};
  end_request();
  return fail(errc::limit_exceeded, std::to_string(scope_.requests) +
                                        " requests of this client are in progress, which is the limit "
                                        "(actors.max_requests); try again in a moment");
}

} // namespace troupe
