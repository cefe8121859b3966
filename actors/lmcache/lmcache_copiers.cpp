#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/client/transfer/load_coordinator.hpp"
#include "actors/client/transfer/save_coordinator.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/lmcache/own_arena.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>

/// The executors of a worker's transfers: coordinators, as for Troupe's own engines, and a copy engine, or, if the
/// worker copies, this actor instead of one.

namespace troupe {

namespace {

/// How long a request for frames waits for pages to be read from the disk.
constexpr duration fetch_patience = std::chrono::seconds(20);

/// Parts of requests: as many as the rules start.
constexpr std::uint32_t tasks_max = 4096;

std::uint32_t in_pages(std::uint64_t bytes, std::uint64_t slot) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes / slot, std::numeric_limits<std::uint32_t>::max()));
}

} // namespace

client_worker_actor lmcache_server::worker_of(const instance_group& of, rank_number rank) {
  for (const auto& x : of.node->node.ranks)
    if (x.rank == rank)
      return x.worker;
  return {};
}

lmcache::transfer_rules::terms lmcache_server::terms_of(const instance_group& of) {
  const auto& limits = of.node->node.limits;
  const auto slot = io::slot_bytes(of.node->node.ns.geometry.page_bytes());
  return {limits.batch_keys, std::max(limits.batch_pages, 1U), in_pages(limits.pinned_bytes, slot), limits.reservation};
}

coordinator_binding lmcache_server::binding_of(const instance& of, const instance_group& group, rank_number rank,
                                               bool stores) const {
  const auto& node = group.node->node;
  const auto slot = io::slot_bytes(node.ns.geometry.page_bytes());
  coordinator_binding out;
  out.owner = node.owner;
  out.ticket_stream = 2 * rank + (stores ? 1 : 0);
  out.limits = node.limits;
  out.shards = node.shards;
  out.worker = worker_of(group, rank);
  out.window_pages = in_pages(node.limits.pinned_bytes, slot);
  // Both directions at once; a worker that copies itself does one after the other.
  if (of.memory)
    out.window_pages =
        std::max(in_pages(std::min(node.limits.pinned_bytes, parts_.extents->info().bytes / 4), slot) / 2, 1U);
  return out;
}

const lmcache_server::worker_rank* lmcache_server::rank_of(const instance_ptr& of, std::uint32_t group,
                                                           rank_number rank) {
  auto& own = of->groups[group];
  if (const auto known = own.ranks.find(rank); known != own.ranks.end())
    return &known->second;
  const auto& node = own.node->node;
  worker_rank made;
  if (of->memory) {
    auto engine = make_engine(*of, rank);
    if (!engine) {
      log::get("lmcache")->warn("instance {}: cannot copy: {}", of->id, to_string(engine.error()));
      return nullptr;
    }
    made.engine = std::move(*engine);
  }
  transfer::coordinator_options how;
  how.ns = own.ns;
  how.rank = rank;
  how.page_bytes = node.ns.geometry.page_bytes();
  how.slot_bytes = io::slot_bytes(how.page_bytes);
  how.batch_pages = std::max(node.limits.batch_pages, 1U);
  how.tasks_max = tasks_max;
  how.blocks_per_page = of->memory ? of->memory->blocks_per_page : 1;
  how.one_order = of->memory == nullptr;
  // A worker that registers anew may have freed the blocks that were gathered last.
  how.cancels_gathered = true;
  how.frame_patience = lmcache::transfer_rules::place_patience;
  const auto copier = caf::actor_cast<copy_engine_actor>(this);
  made.save = spawn_actor<save_coordinator>(system(), how, copier, request_time);
  how.all_or_none = true;
  how.frame_patience = fetch_patience;
  made.load = spawn_actor<load_coordinator>(system(), how, copier, request_time);
  for (const bool stores : {false, true})
    ask(stores ? made.save : made.load, bind_atom_v, binding_of(*of, own, rank, stores))
        .then([] {},
              [id = of->id](const caf::error& e) {
                log::get("lmcache")->warn("instance {}: cannot store or find pages: {}", id, from_caf(e).text);
              });
  return &own.ranks.emplace(rank, std::move(made)).first->second;
}

result<copy_engine_actor> lmcache_server::make_engine(const instance& of, rank_number rank) {
  copy_engine_options how;
  how.ns = of.first().ns;
  how.rank = rank;
  how.finder = std::make_shared<own_arena>(held_arena());
  auto state = std::make_shared<copy_engine_state>(
      how, of.mover, std::shared_ptr<const device_event_table>(of.events, &of.events->table()));
  const auto& facts = parts_.extents->info();
  arena_info arena;
  arena.bytes = facts.bytes;
  arena.extent_bytes = facts.extent_bytes;
  arena.name.items = facts.name;
  if (auto bound = state->bind(of.first().node->node.owner, arena); !bound)
    return tl::unexpected<error>(bound.error());
  return spawn_copy_engine(system(), std::move(state));
}

void lmcache_server::end_ranks(instance& of) {
  for (auto& group : of.groups)
    for (const auto& [number, x] : std::exchange(group.ranks, {})) {
      send_exit(x.save, caf::exit_reason::user_shutdown);
      send_exit(x.load, caf::exit_reason::user_shutdown);
      if (x.engine)
        send_exit(x.engine, caf::exit_reason::user_shutdown);
    }
  of.mover.reset();
}

// -- orders of the coordinators ---------------------------------------------------------------------------------------

caf::result<copy_reply> lmcache_server::carry_out(bool gathers, const copy_order& order) {
  const auto asks = [&](const auto& x) {
    return current_sender() == caf::actor_cast<caf::strong_actor_ptr>(gathers ? x.second.save : x.second.load);
  };
  const auto asks_here = [&](const instance_group& x) { return std::ranges::any_of(x.ranks, asks); };
  const auto known =
      std::ranges::find_if(instances_, [&](const auto& x) { return std::ranges::any_of(x.second->groups, asks_here); });
  if (known == instances_.end())
    return to_caf(error{errc::expired, "the registration of this request has ended"});
  const auto& of = known->second;
  if (of->memory)
    return copy(of, std::ranges::find_if(of->first().ranks, asks)->second.engine, gathers, order);
  if (std::ranges::any_of(order.items, &copy_item::in_encoded_frame))
    return to_caf(error{errc::unsupported, "workers read pages as they are, and these are encoded"});
  std::vector<lmcache::transfer_rules::placed_page> pages;
  for (const auto& x : order.items)
    pages.push_back({x.block, {x.key, x.where}, x.frame_offset});
  const auto number = ++last_order_;
  const auto out = orders_.emplace(number, make_response_promise()).first->second;
  transfers_.order(order.ready_event, number, std::move(pages), now());
  flush();
  return out;
}

// Lanes work on a worker's memory only with permission of the rules.
caf::result<copy_reply> lmcache_server::copy(const instance_ptr& of, const copy_engine_actor& engine, bool gathers,
                                             const copy_order& order) {
  if (!rules_.begin_work(of->number))
    return to_caf(error{errc::cancelled, "the registration has ended, or is ending"});
  const auto number = ++last_order_;
  const auto out = orders_.emplace(number, make_response_promise()).first->second;
  const auto ended = [this, number, of](auto&& reply) {
    if (auto node = orders_.extract(number); !node.empty())
      node.mapped().deliver(std::forward<decltype(reply)>(reply));
    rules_.end_work(of->number, now());
    flush();
  };
  const auto failed = [ended](const caf::error& e) { ended(e); };
  if (gathers)
    request(engine, until_answered, gather_atom_v, order)
        .then([ended](copy_reply& reply) { ended(std::move(reply)); }, failed);
  else
    request(engine, until_answered, scatter_atom_v, order)
        .then([ended](copy_reply& reply) { ended(std::move(reply)); }, failed);
  return out;
}

} // namespace troupe
