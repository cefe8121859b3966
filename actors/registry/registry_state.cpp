#include "actors/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace troupe {

namespace {

std::optional<error> check_duration(duration x, duration most, std::string_view what) {
  if (x > duration::zero() && x <= most)
    return std::nullopt;
  return error{errc::invalid_argument, std::string(what) + " must be more than 0 and at most " +
                                           std::to_string(most.count()) + " ns, and is " + std::to_string(x.count())};
}

std::optional<error> check_ticket(const ticket& x) {
  if (x.owner != 0)
    return std::nullopt;
  return error{errc::invalid_argument, "the ticket's owner is 0, which stands for nobody; use the client's own id"};
}

template <class T>
void append_difference(std::string& out, std::string_view field, const T& ours, const T& theirs) {
  if (ours == theirs)
    return;
  if (!out.empty())
    out.append(", ");
  if constexpr (std::is_same_v<T, std::string>)
    out.append(field).append(" \"").append(ours).append("\" is not \"").append(theirs).append("\"");
  else
    out.append(field).append(" ").append(std::to_string(ours)).append(" is not ").append(std::to_string(theirs));
}

/// Which fields of the identity differ, and how.
std::string differences(const namespace_spec& ours, const namespace_spec& theirs) {
  std::string out;
  append_difference(out, "model", ours.model, theirs.model);
  append_difference(out, "revision", ours.revision, theirs.revision);
  append_difference(out, "dtype", ours.dtype, theirs.dtype);
  append_difference(out, "layout", ours.layout, theirs.layout);
  append_difference(out, "salt", ours.salt, theirs.salt);
  append_difference(out, "world_size", ours.world_size, theirs.world_size);
  append_difference(out, "layers", ours.geometry.layers, theirs.geometry.layers);
  append_difference(out, "parts", ours.geometry.parts, theirs.geometry.parts);
  append_difference(out, "heads", ours.geometry.heads, theirs.geometry.heads);
  append_difference(out, "head_size", ours.geometry.head_size, theirs.geometry.head_size);
  append_difference(out, "element_bytes", ours.geometry.element_bytes, theirs.geometry.element_bytes);
  append_difference(out, "block_tokens", ours.geometry.block_tokens, theirs.geometry.block_tokens);
  return out;
}

} // namespace

registry_state::registry_state(const registry_options& options) : options_(options) {
  assert(options_.shard < options_.shard_count);
}

registry_state::~registry_state() = default;

tl::unexpected<error> registry_state::refuse(error why) {
  ++refused_;
  return tl::unexpected<error>(std::move(why));
}

// -- namespaces and checks ------------------------------------------------------------------------------------------

result<void> registry_state::add_namespace(const namespace_spec& spec) {
  constexpr auto most_ranks = std::numeric_limits<std::uint16_t>::max();
  if (spec.world_size == 0 || spec.world_size > most_ranks)
    return refuse({errc::invalid_argument, "namespace \"" + spec.name + "\": world_size is " +
                                               std::to_string(spec.world_size) + ", and must be from 1 to " +
                                               std::to_string(most_ranks)});
  const auto id = spec.id();
  for (const auto& space : spaces_) {
    const auto& known = space->spec();
    if (space->id() != id && known.name != spec.name)
      continue;
    const auto different = differences(known, spec);
    if (!different.empty())
      return refuse({errc::identity_mismatch, "namespace \"" + spec.name + "\" is known as another one: " + different +
                                                  "; give it another name, or use the same settings"});
    if (space->id() == id)
      return {};
  }
  if (spaces_.size() >= options_.max_namespaces)
    return refuse({errc::limit_exceeded, "namespace \"" + spec.name + "\" would be one more than the " +
                                             std::to_string(options_.max_namespaces) + " that are allowed"});
  space_numbers_.emplace(id, static_cast<std::uint32_t>(spaces_.size()));
  spaces_.push_back(std::make_unique<key_space>(spec, options_.shard, options_.shard_count, options_.hash_seed));
  return {};
}

const key_space* registry_state::find_space(const namespace_id& id) const {
  const auto found = space_numbers_.find(id);
  return found == space_numbers_.end() ? nullptr : spaces_[found->second].get();
}

result<std::uint32_t> registry_state::space_number(const namespace_id& id) const {
  const auto found = space_numbers_.find(id);
  if (found == space_numbers_.end())
    return fail(errc::unknown_namespace, "no namespace " + to_string(id) + " in this registry; add it first");
  return found->second;
}

std::optional<error> registry_state::check_rank(const key_space& space, rank_number rank) const {
  if (rank < space.spec().world_size)
    return std::nullopt;
  return error{errc::out_of_range, "rank " + std::to_string(rank) + ": namespace \"" + space.spec().name +
                                       "\" has ranks 0 to " + std::to_string(space.spec().world_size - 1)};
}

std::optional<error> registry_state::check_batch(std::size_t n) const {
  if (n <= options_.max_batch)
    return std::nullopt;
  return error{errc::limit_exceeded, "a batch of " + std::to_string(n) + " keys; at most " +
                                         std::to_string(options_.max_batch) + " are allowed, send several"};
}

std::optional<error> registry_state::check_keys(std::span<const key_digest> keys) const {
  if (auto bad = check_batch(keys.size()))
    return bad;
  for (const auto& key : keys)
    if (key.is_null())
      return error{errc::invalid_argument, "the null key stands for none and cannot be stored or looked up"};
  return std::nullopt;
}

std::optional<error> registry_state::check_pages(std::span<const page_ref> pages) const {
  if (auto bad = check_batch(pages.size()))
    return bad;
  for (const auto& page : pages)
    if (page.key.is_null())
      return error{errc::invalid_argument, "the null key stands for none and has no page"};
  return std::nullopt;
}

// -- leases ---------------------------------------------------------------------------------------------------------

std::optional<lease_number> registry_state::live_lease(const ticket& name, timestamp now) {
  const auto number = leases_.find(name);
  if (!number || leases_.at(*number).deadline > now)
    return number;
  expire_lease(*number);
  return std::nullopt;
}

void registry_state::end_lease(lease_number number) {
  auto& l = leases_.at(number);
  spaces_[l.space]->give_back(l.entries);
  l.entries.clear();
  leases_.close(number);
}

void registry_state::expire_lease(lease_number number) {
  if (!leases_.at(number).doomed)
    ++expired_leases_;
  end_lease(number);
}

std::optional<error> registry_state::check_same_lease(std::uint32_t space, const ticket& name, timestamp now) {
  const auto number = live_lease(name, now);
  if (!number || leases_.at(*number).space == space)
    return std::nullopt;
  return error{errc::invalid_argument, "the lease " + std::to_string(name.owner) + "/" + std::to_string(name.sequence) +
                                           " holds keys of another namespace; use a ticket for each"};
}

std::optional<error> registry_state::take_lease(std::uint32_t space, const ticket& name, duration lease_for,
                                                std::span<const entry_index> entries, timestamp now) {
  auto number = live_lease(name, now);
  if (!number && entries.empty())
    return std::nullopt;
  const bool fresh = !number;
  if (fresh) {
    if (leases_.size() >= options_.max_leases)
      return error{errc::limit_exceeded, "all of " + std::to_string(options_.max_leases) + " leases are in use"};
    if (leases_.count(name.owner) >= options_.max_leases_per_owner)
      return error{errc::limit_exceeded, "the client holds " + std::to_string(options_.max_leases_per_owner) +
                                             " leases, the most that are allowed; release some"};
    number = leases_.open(name, space, now + lease_for);
  }
  auto& l = leases_.at(*number);
  if (!spaces_[space]->lease(entries, l.entries, options_.max_lease_keys)) {
    if (fresh)
      leases_.close(*number);
    return error{errc::limit_exceeded, "the lease would hold more than " + std::to_string(options_.max_lease_keys) +
                                           " keys; take several leases"};
  }
  if (now + lease_for > l.deadline)
    leases_.set_deadline(*number, now + lease_for);
  return std::nullopt;
}

result<match_reply> registry_state::match(const match_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  auto bad = check_ticket(request.lease);
  if (!bad)
    bad = check_duration(request.lease_for, options_.max_lease, "lease_for");
  if (!bad)
    bad = check_keys(request.keys.items);
  if (!bad)
    bad = check_same_lease(*space, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  used_.clear();
  spaces_[*space]->append_leading_complete(request.keys.items, used_);
  if (auto full = take_lease(*space, request.lease, request.lease_for, used_, now))
    return refuse(std::move(*full));
  spaces_[*space]->touch(used_);
  return match_reply{static_cast<std::uint32_t>(used_.size())};
}

result<locate_reply> registry_state::locate(const locate_request& request, timestamp now) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  auto& space = *spaces_[*number];
  auto bad = check_rank(space, request.rank);
  if (!bad)
    bad = check_ticket(request.lease);
  if (!bad)
    bad = check_duration(request.lease_for, options_.max_lease, "lease_for");
  if (!bad)
    bad = check_keys(request.keys.items);
  if (!bad)
    bad = check_same_lease(*number, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  const auto& keys = request.keys.items;
  found_.resize(keys.size());
  space.table().find(keys, found_);
  locate_reply reply;
  reply.locations.items.resize(keys.size());
  used_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto& out = reply.locations[i];
    out.status = static_cast<std::uint32_t>(errc::not_found);
    if (found_[i] == no_entry)
      continue;
    const auto cell = space.table().page(found_[i], request.rank);
    if (!cell.live())
      continue;
    out = {cell.where(), static_cast<std::uint32_t>(errc::ok)};
    used_.push_back(found_[i]);
  }
  if (auto full = take_lease(*number, request.lease, request.lease_for, used_, now))
    return refuse(std::move(*full));
  space.touch(used_);
  return reply;
}

result<void> registry_state::release(const release_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  auto bad = check_ticket(request.lease);
  if (!bad)
    bad = check_same_lease(*space, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number)
    return {};
  if (request.keep == 0) {
    end_lease(*number);
    return {};
  }
  auto& entries = leases_.at(*number).entries;
  if (request.keep < entries.size()) {
    spaces_[*space]->give_back(std::span(entries).subspan(request.keep));
    entries.resize(request.keep);
  }
  return {};
}

result<void> registry_state::renew(const renew_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  auto bad = check_ticket(request.lease);
  if (!bad)
    bad = check_duration(request.lease_for, options_.max_lease, "lease_for");
  if (!bad)
    bad = check_same_lease(*space, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number)
    return fail(errc::not_found, "the lease is gone: it expired, was released, or never held a key");
  if (now + request.lease_for > leases_.at(*number).deadline)
    leases_.set_deadline(*number, now + request.lease_for);
  return {};
}

// -- eviction, links, time ------------------------------------------------------------------------------------------

result<void> registry_state::link(const link_request& request, timestamp) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  bool all = true;
  for (const auto& change : request.changes)
    all = !change.parent.is_null() && spaces_[*space]->add_children(change.parent, change.delta) && all;
  if (!all)
    return refuse({errc::invalid_argument, "a change names no parent, or counts more children than there can be"});
  return {};
}

result<evict_reply> registry_state::evict(const evict_request& request, timestamp) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  auto& space = *spaces_[*number];
  if (auto bad = check_rank(space, request.rank))
    return refuse(std::move(*bad));
  const auto looks = std::min<std::uint64_t>(std::uint64_t{4} * request.wanted + 64, options_.max_eviction_looks);
  return space.evict(request.rank, request.wanted, static_cast<std::uint32_t>(looks));
}

bool registry_state::owner_died(owner_id owner, timestamp now) {
  leases_.doom(owner);
  reservations_.doom(owner);
  return tick(now);
}

bool registry_state::tick(timestamp now) {
  std::size_t left = options_.tick_work;
  while (left > 0) {
    const auto number = leases_.due(now);
    if (!number)
      break;
    // A long lease ends in several ticks, from its end. Meanwhile it counts as expired already.
    auto& l = leases_.at(*number);
    if (l.entries.size() > left) {
      const auto rest = l.entries.size() - left;
      spaces_[l.space]->give_back(std::span(l.entries).subspan(rest));
      l.entries.resize(rest);
      return true;
    }
    left -= std::max<std::size_t>(1, l.entries.size());
    expire_lease(*number);
  }
  while (left > 0) {
    const auto number = reservations_.due(now);
    if (!number)
      break;
    left -= std::min<std::size_t>(left, std::max<std::size_t>(1, reservations_.at(*number).pages.size()));
    expire_reservation(*number);
  }
  return leases_.due(now).has_value() || reservations_.due(now).has_value();
}

std::optional<timestamp> registry_state::next_deadline() const {
  const auto a = leases_.next_deadline();
  const auto b = reservations_.next_deadline();
  if (a && b)
    return std::min(*a, *b);
  return a ? a : b;
}

registry_outbox registry_state::take_outbox() {
  registry_outbox out;
  for (const auto& space : spaces_)
    space->outbox().drain_into(out);
  return out;
}

registry_stats registry_state::stats() const {
  registry_stats s;
  for (const auto& space : spaces_) {
    s.keys += space->keys();
    s.complete_keys += space->complete_keys();
    s.evicted_keys += space->evicted_keys();
    s.resident_bytes += space->resident_bytes();
  }
  s.leases = leases_.size();
  s.reservations = reservations_.pages();
  s.invalidated_pages = invalidated_pages_;
  s.expired_leases = expired_leases_;
  s.expired_reservations = expired_reservations_;
  s.refused = refused_;
  s.resident_bytes += leases_.resident_bytes() + reservations_.resident_bytes();
  return s;
}

std::uint64_t registry_state::keys() const {
  std::uint64_t n = 0;
  for (const auto& space : spaces_)
    n += space->keys();
  return n;
}

bool registry_state::is_complete(const namespace_id& id, const key_digest& key) const {
  const auto* space = find_space(id);
  if (space == nullptr)
    return false;
  const auto entry = space->table().find(key);
  return entry != no_entry && space->complete(entry);
}

} // namespace troupe
