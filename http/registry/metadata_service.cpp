#include "http/registry/metadata_service.hpp"

#include "actors/support/ask.hpp"
#include "actors/support/asking_round.hpp"
#include "actors/support/gather.hpp"
#include "actors/support/shard_batches.hpp"
#include "actors/support/stats_sum.hpp"
#include "base/identifiers.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

using codes = metadata_service::codes;
using locations = metadata_service::locations;

template <class T>
using callback = metadata_service::callback<T>;

template <class T>
std::vector<T> at_positions(const std::vector<T>& all, std::span<const std::uint32_t> positions) {
  std::vector<T> out;
  if (all.empty())
    return out;
  out.reserve(positions.size());
  for (const auto i : positions)
    out.push_back(all[i]);
  return out;
}

std::vector<std::uint8_t>& items_of(result_codes& x) {
  return x.results.items;
}
std::vector<std::uint8_t>& items_of(finish_reply& x) {
  return x.results.items;
}
std::vector<location>& items_of(locate_reply& x) {
  return x.locations.items;
}
std::vector<location>& items_of(reserve_reply& x) {
  return x.results.items;
}

/// Checks that a shard answered with the requested number of items.
template <class Reply>
result<Reply> of_length(result<Reply> reply, std::size_t expected) {
  if (reply && items_of(*reply).size() != expected)
    return fail(errc::internal, "a registry shard answered with another number of items than requested");
  return reply;
}

/// The positions of a shard's part in the batch; empty where the part is the whole batch.
using positions = std::optional<std::span<const std::uint32_t>>;

/// Sends each shard its part of `items`, and joins the parts of `Reply`. `request(part, positions)` makes the message,
/// which follows `verb`, where there is one.
template <class Reply, class Out, class Item, class MakeRequest, class... Verb>
void split(caf::actor_system& system, const std::vector<registry_actor>& shards, std::vector<Item> items,
           callback<std::vector<Out>> then, MakeRequest request, Verb... verb) {
  if (items.empty()) {
    then(std::vector<Out>{});
    return;
  }
  if (shards.size() == 1) {
    const auto expected = items.size();
    ask<Reply>(
        system, shards[0],
        [expected, then = std::move(then)](result<Reply> reply) {
          then(of_length(std::move(reply), expected).map([](Reply&& x) { return std::move(items_of(x)); }));
        },
        verb..., request(std::move(items), positions{}));
    return;
  }
  auto parts = transfer::split_by_shard(items, static_cast<std::uint32_t>(shards.size()));
  const auto joined = gather_from_threads(parts.size(), std::vector<Out>(items.size()), std::move(then));
  for (auto& part : parts) {
    auto message = request(std::move(part.items), positions(part.positions));
    ask<Reply>(
        system, shards[part.shard],
        [joined, where = std::move(part.positions)](result<Reply> reply) {
          reply = of_length(std::move(reply), where.size());
          if (!reply)
            return joined->part_failed(std::move(reply.error()));
          for (std::size_t i = 0; i < where.size(); ++i)
            joined->value()[where[i]] = items_of(*reply)[i];
          joined->part_done();
        },
        verb..., std::move(message));
  }
}

std::vector<key_digest> part_of(std::vector<key_digest>& all, const positions& where) {
  return where ? at_positions(all, *where) : std::move(all);
}

/// Sends the same message to every shard. All must answer; `add(value, reply)` adds one answer to the value, while no
/// other call does.
template <class Reply, class T, class Add, class... Request>
void ask_all(caf::actor_system& system, const std::vector<registry_actor>& shards, T value,
             std::type_identity_t<callback<T>> then, Add add, const Request&... request) {
  const auto joined = gather_from_threads(shards.size(), std::move(value), std::move(then));
  for (const auto& shard : shards)
    ask<Reply>(
        system, shard,
        [joined, add](result<Reply> reply) {
          if (auto added = joined->locked([&](T& sum) -> result<void> { return add(sum, reply); }); !added)
            joined->part_failed(std::move(added.error()));
          else
            joined->part_done();
        },
        request...);
}

/// Adds a valid answer, and passes on an error.
template <class Add>
auto if_ok(Add add) {
  return [add](auto& sum, auto& reply) -> result<void> {
    if (!reply)
      return tl::unexpected<error>(std::move(reply.error()));
    add(sum, *reply);
    return {};
  };
}

} // namespace

metadata_service::metadata_service(caf::actor_system& system, std::vector<registry_actor> shards,
                                   namespaces_actor namespaces, std::shared_ptr<const namespace_names> names,
                                   std::vector<namespace_id> own)
    : system_(system), shards_(std::make_shared<const std::vector<registry_actor>>(std::move(shards))),
      namespaces_(std::move(namespaces)), names_(std::move(names)), own_(std::move(own)) {}

template <class T>
bool metadata_service::refuse_writer(const namespace_id& ns, const callback<T>& then) const {
  if (std::ranges::find(own_, ns) == own_.end() && !names_->kept_here(ns))
    return false;
  then(fail(errc::not_owner, "pages of this namespace lie in slab files that only the node writes: save through a "
                             "client that attaches to it, or create a namespace for files of your own"));
  return true;
}

void metadata_service::exists(const namespace_id& ns, rank_number rank, std::vector<key_digest> keys,
                              callback<codes> then) const {
  const asking_round::short_question question(keys.size());
  split<result_codes>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions&) {
    return exists_request{ns, rank, std::move(part)};
  });
}

void metadata_service::protect(const namespace_id& ns, rank_number rank, bool complete_only, duration protect_for,
                               std::uint32_t readers_share, std::vector<key_digest> keys,
                               callback<locations> then) const {
  const asking_round::short_question question(keys.size());
  split<locate_reply>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions&) {
    return protect_request{ns, rank, complete_only, protect_for, std::move(part), readers_share};
  });
}

void metadata_service::allocate(const namespace_id& ns, rank_number rank, duration expires_in,
                                std::vector<key_digest> keys, std::vector<key_digest> parents,
                                callback<locations> then) const {
  if (refuse_writer(ns, then))
    return;
  split<reserve_reply>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions& where) {
    return allocate_request{ns, rank, expires_in, std::move(part), part_of(parents, where)};
  });
}

void metadata_service::confirm(const namespace_id& ns, rank_number rank, std::vector<page_ref> pages,
                               callback<codes> then) const {
  if (refuse_writer(ns, then))
    return;
  split<result_codes>(system_, *shards_, std::move(pages), std::move(then), [&](auto part, const positions&) {
    return confirm_request{ns, rank, std::move(part)};
  });
}

void metadata_service::reclaim(const namespace_id& ns, rank_number rank, std::vector<slot_number> slots,
                               callback<codes> then) const {
  if (refuse_writer(ns, then))
    return;
  if (slots.empty()) {
    then(codes{});
    return;
  }
  ask_all<result_codes>(
      system_, *shards_, codes(slots.size(), static_cast<std::uint8_t>(errc::not_found)), std::move(then),
      [](codes& all, result<result_codes>& reply) -> result<void> {
        reply = of_length(std::move(reply), all.size());
        if (!reply)
          return tl::unexpected<error>(std::move(reply.error()));
        for (std::size_t i = 0; i < all.size(); ++i)
          all[i] = static_cast<std::uint8_t>(reclaim_sum(errc_from_wire(all[i]), errc_from_wire(reply->results[i])));
        return {};
      },
      reclaim_request{ns, rank, slots});
}

void metadata_service::erase(const namespace_id& ns, rank_number rank, std::vector<key_digest> keys,
                             callback<codes> then) const {
  split<result_codes>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions&) {
    return erase_request{ns, rank, std::move(part)};
  });
}

namespace {

/// Clears one shard in steps until nothing is left. Each answer comes by message, so this is no recursion.
void clear_on(caf::actor_system& system, const registry_actor& shard, clear_request next,
              std::shared_ptr<shared_gathering<std::uint64_t>> joined) {
  ask<clear_reply>(
      system, shard,
      [&system, shard, next, joined](result<clear_reply> reply) {
        if (!reply)
          return joined->part_failed(std::move(reply.error()));
        joined->locked([&](std::uint64_t& pages) { pages += reply->pages; });
        if (!reply->more)
          return joined->part_done();
        auto following = next;
        following.from = reply->next;
        clear_on(system, shard, following, joined);
      },
      next);
}

} // namespace

void metadata_service::clear(const namespace_id& ns, rank_number rank, callback<std::uint64_t> then) const {
  const auto joined = gather_from_threads(shards_->size(), std::uint64_t{0}, std::move(then));
  for (const auto& shard : *shards_)
    clear_on(system_, shard, {ns, rank, 0}, joined);
}

void metadata_service::locate(const namespace_id& ns, rank_number rank, const ticket& lease, duration lease_for,
                              const lease_bounds& bounds, std::vector<key_digest> keys,
                              callback<locations> then) const {
  const asking_round::short_question question(keys.size());
  split<locate_reply>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions&) {
    return locate_request{ns, rank, lease, lease_for, std::move(part), bounds};
  });
}

namespace {

/// Sends every shard a request about its part of a lease or reservation, which exists on each shard that had keys of
/// it. If no shard knows it, `then` gets not_found with `otherwise`.
template <class Reply, class... Request>
void ask_parts(caf::actor_system& system, const std::vector<registry_actor>& shards, callback<void> then,
               const char* otherwise, const Request&... request) {
  ask_all<Reply>(
      system, shards, false,
      [then = std::move(then), otherwise](result<bool> anywhere) {
        if (!anywhere)
          return then(tl::unexpected<error>(std::move(anywhere.error())));
        if (!*anywhere)
          return then(fail(errc::not_found, otherwise));
        then({});
      },
      [](bool& anywhere, result<Reply>& reply) -> result<void> {
        anywhere = anywhere || reply.has_value();
        if (!reply && reply.error().code != errc::not_found)
          return tl::unexpected<error>(std::move(reply.error()));
        return {};
      },
      request...);
}

constexpr const char* no_lease = "no such lease: it was released, has expired, or belongs to another caller";

} // namespace

void metadata_service::release(const namespace_id& ns, const ticket& lease, callback<void> then) const {
  ask_parts<void>(system_, *shards_, std::move(then), no_lease, release_request{ns, lease, 0, 0, true});
}

void metadata_service::renew(const namespace_id& ns, const ticket& lease, duration lease_for,
                             callback<void> then) const {
  ask_parts<void>(system_, *shards_, std::move(then), no_lease, renew_request{ns, lease, lease_for});
}

void metadata_service::reserve(const namespace_id& ns, rank_number rank, const ticket& reservation, duration expires_in,
                               std::vector<key_digest> keys, std::vector<key_digest> parents,
                               callback<locations> then) const {
  if (refuse_writer(ns, then))
    return;
  split<reserve_reply>(system_, *shards_, std::move(keys), std::move(then), [&](auto part, const positions& where) {
    return reserve_request{ns, rank, reservation, expires_in, std::move(part), part_of(parents, where)};
  });
}

void metadata_service::commit(const namespace_id& ns, rank_number rank, const ticket& reservation,
                              std::vector<page_ref> pages, callback<codes> then) const {
  if (refuse_writer(ns, then))
    return;
  split<finish_reply>(
      system_, *shards_, std::move(pages), std::move(then),
      [&](auto part, const positions&) {
        return finish_request{ns, rank, reservation, std::move(part), true};
      },
      commit_atom_v);
}

void metadata_service::abort(const namespace_id& ns, rank_number rank, const ticket& reservation,
                             std::vector<page_ref> pages, callback<codes> then) const {
  if (refuse_writer(ns, then))
    return;
  if (pages.empty()) // everything under the ticket, on all shards
    return ask_parts<finish_reply>(
        system_, *shards_,
        [then = std::move(then)](const result<void>& ended) { then(ended.map([] { return codes{}; })); },
        "nothing is reserved under this ticket: it was aborted, has expired, or belongs to another caller",
        abort_atom_v, finish_request{ns, rank, reservation, {}, true});
  split<finish_reply>(
      system_, *shards_, std::move(pages), std::move(then),
      [&](auto part, const positions&) {
        return finish_request{ns, rank, reservation, std::move(part)};
      },
      abort_atom_v);
}

namespace {

/// The result of a lookup on one shard.
struct matched_part {
  std::uint32_t shard = 0;
  std::vector<std::uint32_t> positions;
  std::uint32_t matched = 0;
  std::uint32_t uses = 0;
  /// A shard in this state has leased nothing for this request.
  std::optional<error> refused;
};

} // namespace

void metadata_service::match(const namespace_id& ns, const ticket& lease, duration lease_for,
                             const lease_bounds& bounds, std::vector<key_digest> keys,
                             callback<std::uint32_t> then) const {
  if (keys.empty()) {
    then(std::uint32_t{0});
    return;
  }
  auto batches = transfer::split_by_shard(keys, shard_count());
  std::vector<matched_part> parts;
  parts.reserve(batches.size());
  for (auto& x : batches)
    parts.push_back({x.shard, std::move(x.positions), 0, 0, std::nullopt});
  const auto trim = [&system = system_, shards = shards_, ns, lease](const matched_part& x, std::uint32_t keep) {
    if (x.matched <= keep)
      return;
    // What could not be released, or is kept because the lease was used again, ends with the lease.
    ask<void>(
        system, (*shards)[x.shard], [](const result<void>&) {}, release_request{ns, lease, keep, x.uses});
  };
  const auto joined = gather_from_threads(
      batches.size(), std::move(parts),
      [total = keys.size(), trim, then = std::move(then)](const result<std::vector<matched_part>>& all) {
        if (!all)
          return then(tl::unexpected<error>(all.error()));
        const auto refused = std::ranges::find_if(*all, [](const matched_part& x) { return x.refused.has_value(); });
        const auto matched = refused == all->end() ? transfer::matched_prefix(*all, total) : 0;
        for (const auto& x : *all)
          trim(x, transfer::positions_within(x.positions, matched));
        if (refused != all->end())
          return then(tl::unexpected<error>(*refused->refused));
        then(matched);
      });
  // After the last request was sent, the joined value may be freed at any moment, so nothing here reads it.
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto asked = static_cast<std::uint32_t>(batches[i].items.size());
    ask<match_reply>(
        system_, (*shards_)[batches[i].shard],
        [joined, i, asked](result<match_reply> reply) {
          auto& mine = joined->value()[i];
          if (reply) {
            mine.matched = std::min(reply->matched, asked);
            mine.uses = reply->uses;
          } else {
            mine.refused = std::move(reply.error());
          }
          joined->part_done();
        },
        match_request{ns, lease, lease_for, std::move(batches[i].items), bounds});
  }
}

void metadata_service::add_namespace(const namespace_spec& spec, const namespace_options& options,
                                     callback<void> then) const {
  ask<void>(system_, namespaces_, std::move(then), add_namespace_request{spec, options});
}

void metadata_service::remove_namespace(const namespace_id& ns, bool force, callback<void> then) const {
  ask<void>(system_, namespaces_, std::move(then), remove_namespace_request{ns, force});
}

void metadata_service::register_rank(const namespace_id& ns, rank_number rank, std::uint32_t slots,
                                     callback<void> then) const {
  ask<void>(system_, namespaces_, std::move(then), register_rank_request{ns, rank, slots});
}

namespace {

void add_to(std::vector<namespace_info>& sum, const std::vector<namespace_info>& part) {
  for (const auto& x : part) {
    const auto same =
        std::find_if(sum.begin(), sum.end(), [&](const namespace_info& y) { return y.spec.name == x.spec.name; });
    if (same == sum.end()) {
      sum.push_back(x);
      continue;
    }
    same->keys += x.keys;
    same->complete_keys += x.complete_keys;
    same->evicted_keys += x.evicted_keys;
    same->leases = std::max(same->leases, x.leases);                               // a lease has a part on every shard
    same->lookups.requests = std::max(same->lookups.requests, x.lookups.requests); // as above
    same->lookups.add_keys(x.lookups);
    same->reservations = std::max(same->reservations, x.reservations);
    for (std::size_t i = 0; i < std::min(same->ranks.size(), x.ranks.size()); ++i) {
      auto& mine = same->ranks[i];
      mine.slots = std::max(mine.slots, x.ranks[i].slots);
      mine.pages += x.ranks[i].pages;
      mine.reserved += x.ranks[i].reserved;
      mine.withheld += x.ranks[i].withheld;
    }
  }
}

} // namespace

void metadata_service::describe(const namespace_id& ns, callback<std::vector<namespace_info>> then) const {
  ask_all<describe_reply>(system_, *shards_, std::vector<namespace_info>{}, std::move(then),
                          if_ok([](std::vector<namespace_info>& sum, describe_reply& x) { add_to(sum, x.namespaces); }),
                          describe_request{ns});
}

void metadata_service::look_up(const namespace_id& ns, const key_digest& key, callback<key_reply> then) const {
  ask<key_reply>(system_, (*shards_)[shard_of(key, shard_count())], std::move(then), key_request{ns, key});
}

void metadata_service::stats(callback<registry_stats> then) const {
  ask_all<registry_stats>(system_, *shards_, registry_stats{}, std::move(then),
                          if_ok([](registry_stats& sum, registry_stats& x) { sum += x; }), stats_atom_v);
}

} // namespace troupe
