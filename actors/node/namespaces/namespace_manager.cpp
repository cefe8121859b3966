#include "actors/node/namespaces/namespace_manager.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "base/log.hpp"
#include "base/size_text.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace troupe {

namespace {

/// The time that an io worker may take to end, which is until the last transfer of its engine has ended.
constexpr auto end_patience = std::chrono::seconds(30);

bool may_be_anew(const error& why) {
  return why.code == errc::slab_damaged || why.code == errc::identity_mismatch;
}

} // namespace

namespace_manager::namespace_manager(caf::actor_config& config, namespace_manager_options options)
    : namespace_manager_actor::base(config), options_(std::move(options)) {
  set_down_handler([this](caf::down_msg& down) { on_down(down); });
  set_exit_handler([this](caf::exit_msg& x) { leave(x.reason); });
}

namespace_manager::behavior_type namespace_manager::make_behavior() {
  return {
      [this](const open_namespace_request& x) { return open(x); },
      [this](const close_namespace_request& x) { return close(x.ns); },
      [this](grow_atom, const namespace_id& ns, rank_number rank, std::uint32_t wanted,
             std::uint32_t within_room) -> caf::result<std::uint32_t, std::uint32_t> {
        const auto [slots, granted] = grow(ns, rank, wanted, within_room);
        return {slots, granted};
      },
      [this](restored_atom) -> caf::result<void> {
        restoring_ = false;
        sweep();
        return caf::unit;
      },
      [this](caf::tick_atom) { look_at_endings(); },
  };
}

caf::result<served_namespace> namespace_manager::open(const open_namespace_request& wanted) {
  const auto id = wanted.spec.id();
  if (leaving_)
    return to_caf(error{errc::shutting_down, "the node is ending"});
  if (open_.contains(id))
    return to_caf(error{errc::exists, "namespace '" + wanted.spec.name + "' is open already"});
  // Files that an earlier removal left behind would otherwise be taken for this namespace's.
  if (!wanted.stored)
    remove_files(id);
  served_namespace out{wanted.spec, {}};
  ranks opened;
  for (rank_number rank = 0; rank < wanted.spec.world_size; ++rank) {
    auto made = open_one(wanted, rank, opened);
    if (made) {
      out.ranks.push_back(std::move(*made));
      continue;
    }
    auto promise = make_response_promise();
    end(opened,
        [this, request = promises_.add(promise), why = made.error(), id, stored = wanted.stored, tried = rank + 1] {
          leave_residence(id, tried);
          // Files of an earlier run are kept, because a later run may open them.
          if (!stored)
            remove_files(id);
          promises_.deliver(request, to_caf(why));
        });
    return promise;
  }
  if (options_.condition)
    for (const auto& x : opened)
      options_.condition->add_slab({id, wanted.spec.name, x.rank});
  open_.emplace(id, std::move(opened));
  return out;
}

caf::result<void> namespace_manager::close(const namespace_id& ns) {
  const auto found = open_.extract(ns);
  if (found.empty())
    return to_caf(error{errc::unknown_namespace, "no such namespace is open"});
  auto promise = make_response_promise();
  end(found.mapped(), [this, request = promises_.add(promise), ns, all = found.mapped()] {
    if (options_.condition)
      for (const auto& x : all)
        options_.condition->remove_slab(ns, x.rank);
    leave_residence(ns, static_cast<rank_number>(all.size()));
    remove_files(ns);
    promises_.deliver(request, caf::unit);
  });
  return promise;
}

std::set<std::string> namespace_manager::open_files(const namespace_id& ns, const ranks& opened) const {
  std::set<std::string> out;
  const auto note = [&](const namespace_id& id, const ranks& all) {
    for (const auto& x : all)
      out.insert(made_slab_name(id, x.rank));
  };
  for (const auto& [id, all] : open_)
    note(id, all);
  note(ns, opened);
  return out;
}

std::uint64_t namespace_manager::bytes_not_open(const namespace_id& ns, const ranks& opened) const {
  const auto open = open_files(ns, opened);
  std::uint64_t sum = 0;
  for (const auto& x : options_.files->list())
    if (x.ends_with(".slab") && !open.contains(x))
      sum += options_.files->bytes_of(x);
  return sum;
}

result<std::uint64_t> namespace_manager::first_slots(const namespace_spec& ns, rank_number rank,
                                                     const ranks& opened) const {
  const auto page = ns.geometry.page_bytes();
  const auto most = made_slots_max(*options_.config, page);
  // Existing pages have priority over future ones.
  const auto kept = restoring_ ? bytes_not_open(ns.id(), opened) : 0;
  const auto left = options_.disk->left();
  // The remaining space is also for the ranks that follow.
  const auto share = (left - std::min(kept, left)) / (ns.world_size - rank);
  const auto first =
      share < io::slab_tail_bytes ? 0 : io::next_slots(0, most, 0, io::slot_bytes(page), share - io::slab_tail_bytes);
  if (first >= io::growth_slots)
    return first;
  if (options_.config->registry.durability == "strict")
    return fail(errc::full, "there is no disk space left for pages of namespace '" + ns.name + "': of " +
                                size_text(options_.disk->limit()) + " " + size_text(options_.disk->left()) +
                                " are left (storage.disk_bytes); remove a namespace that is not needed");
  if (most > 0)
    log::get("node")->warn("namespace '{}' rank {}: no disk space left for it (storage.disk_bytes)", ns.name, rank);
  return std::uint64_t{0};
}

result<rank_parts> namespace_manager::open_parts(const open_namespace_request& wanted, rank_number rank,
                                                 const ranks& opened, std::uint64_t& disk_bytes) {
  const auto& ns = wanted.spec;
  const auto page = ns.geometry.page_bytes();
  const auto name = made_slab_name(ns.id(), rank);
  if (wanted.stored && made_slots_max(*options_.config, page) > 0 && options_.files->has(name)) {
    // Opens an existing file in its present size; a file that was removed meanwhile is created with one slot.
    auto found = options_.files->open(ns, rank, 1);
    if (found && found->growth) {
      disk_bytes = found->growth->granted() * io::slot_bytes(page) + io::slab_tail_bytes;
      if (options_.disk->take(disk_bytes))
        return found;
      disk_bytes = 0;
      log::get("node")->warn("{} is removed: it is larger than what is left of storage.disk_bytes", name);
      found = fail(errc::identity_mismatch, "too large");
    }
    if (!found && !may_be_anew(found.error()))
      return found;
    log::get("node")->warn("{}: its pages are lost", name);
    options_.files->remove(name);
  }
  return make_parts(wanted, rank, opened, disk_bytes);
}

result<rank_parts> namespace_manager::make_parts(const open_namespace_request& wanted, rank_number rank,
                                                 const ranks& opened, std::uint64_t& disk_bytes) {
  const auto& ns = wanted.spec;
  const auto slot = io::slot_bytes(ns.geometry.page_bytes());
  const auto first = first_slots(ns, rank, opened);
  if (!first)
    return tl::unexpected<error>(first.error());
  for (auto slots = *first;; slots = io::growth_slots) {
    const auto needed = slots == 0 ? 0 : slots * slot + io::slab_tail_bytes;
    if (!options_.disk->take(needed))
      return fail(errc::full, "the disk space for namespaces that clients create has just been used up");
    auto made = options_.files->open(ns, rank, slots);
    if (made) {
      disk_bytes = needed;
      return made;
    }
    options_.disk->give_back(needed);
    // A nearly full disk may have less left than a step of the usual size, so smaller steps are tried as well.
    if (made.error().code != errc::no_space)
      return made;
    if (slots > io::growth_slots)
      continue;
    // A stored namespace has lost this rank's pages, so none of its keys is complete. Its remaining pages are no reason
    // for the node not to start.
    if (!wanted.stored)
      return made;
    if (options_.config->registry.durability == "strict")
      return fail(errc::full, "its slab is missing, and cannot be recreated: " + made.error().text);
    log::get("node")->warn("namespace '{}' rank {}: {}; its pages are in memory only", ns.name, rank,
                           made.error().text);
    return options_.files->open(ns, rank, 0);
  }
}

result<served_rank> namespace_manager::open_one(const open_namespace_request& wanted, rank_number rank, ranks& opened) {
  const auto& config = *options_.config;
  const auto id = wanted.spec.id();
  std::uint64_t disk_bytes = 0;
  auto parts = open_parts(wanted, rank, opened, disk_bytes);
  if (!parts)
    return tl::unexpected<error>(parts.error());
  const auto slots = static_cast<slot_number>(parts->slots);
  auto memory = memory_of(*parts, options_.memory);
  if (!memory) {
    options_.disk->give_back(disk_bytes);
    return tl::unexpected<error>(memory.error());
  }
  take_memory_slots(*parts, *memory, options_.memory);
  auto rules = options_for_rank(*parts, config);
  rules.elastic = true;
  slab_grower_actor grower;
  if (parts->growth) {
    rules.there = static_cast<slot_number>(parts->growth->slots());
    rules.granted = static_cast<slot_number>(parts->growth->granted());
    grower = caf::actor_cast<slab_grower_actor>(this);
  }
  parts->worker->metrics = options_.meters;
  parts->worker->condition = options_.condition;
  parts->worker->options.scrub.pace = options_.pace;
  if (options_.residence)
    parts->worker->options.resident = options_.residence->add(id, rank, parts->slots + parts->memory_slots);
  parts->worker->broker = options_.broker;
  parts->worker->returns_memory = true;
  parts->worker->has_pages = wanted.stored && config.registry.durability != "none";
  try {
    const bool listens = parts->worker->options.listens();
    const auto worker = spawn_actor<io_worker>(system(), parts->worker);
    caf::anon_send(options_.broker, memory_holder{id, rank, worker});
    opened.push_back({rank, worker, {}, parts->growth, parts->slots, disk_bytes});
    auto& entry = opened.back();
    entry.memory = std::make_shared<std::vector<memory_share>>();
    entry.memory->push_back(std::move(*memory));
    entry.allocator = spawn_actor<allocator>(system(), rules, id, rank, worker, memory_share(), std::move(grower));
    // This is the first message that each of them gets. Shards get the allocator's handle with its rank.
    const registry_peers peers{options_.shards, {entry.allocator}, {id}, {rank}, {}};
    caf::anon_send(entry.allocator, bind_atom_v, peers);
    caf::anon_send(worker, bind_atom_v, peers);
    return served_rank{rank, slots, parts->incarnation, worker, entry.allocator, listens, parts->slab};
  } catch (const std::bad_alloc&) {
    // If the worker was added to `opened`, the space is given back together with that.
    if (opened.empty() || opened.back().rank != rank)
      options_.disk->give_back(disk_bytes);
    return fail(errc::no_memory, "the system has no memory left for " + std::to_string(slots) +
                                     " slots of namespace '" + wanted.spec.name + "'");
  }
}

namespace_manager::grown_slab namespace_manager::grow(const namespace_id& ns, rank_number rank, std::uint32_t wanted,
                                                      std::uint32_t within_room) {
  const auto found = open_.find(ns);
  if (found == open_.end() || rank >= found->second.size() || !found->second[rank].growth)
    return {};
  auto& x = found->second[rank];
  auto& growth = *x.growth;
  const auto there = growth.slots();
  const auto slot = growth.slot_bytes();
  const bool extends = within_room > 0 && growth.is_sparse();
  const auto next = extends ? std::min(there + within_room, x.slots_max)
                            : io::next_slots(there, x.slots_max, wanted, slot, options_.disk->left());
  std::optional<error> failure;
  // A nearly full disk may have less left than a step of the usual size, so smaller steps are tried as well.
  for (auto more = next - there; more > 0; more /= 2) {
    const auto bytes = extends ? 0 : more * slot;
    if (!options_.disk->take(bytes))
      continue;
    auto memory =
        memory_share::of(options_.memory, more * config::memory_per_slot, std::to_string(more) + " more slots");
    const auto grown = !memory   ? tl::unexpected<error>(memory.error())
                       : extends ? growth.extend(there + more)
                                 : growth.grow(there + more);
    if (grown) {
      x.disk_bytes += bytes;
      x.memory->push_back(std::move(*memory));
      if (std::exchange(x.could_not_grow, false) && options_.condition)
        options_.condition->ends(trouble::disk_full, ns, rank);
      return slab_of(x);
    }
    options_.disk->give_back(bytes);
    failure = grown.error();
  }
  if (failure) {
    const auto text = "rank " + std::to_string(rank) + ": " + failure->text +
                      "; until it can grow, older pages make room for new ones";
    if (!std::exchange(x.could_not_grow, true))
      log::get("node")->warn("{}", text);
    if (options_.condition)
      options_.condition->begins(trouble::disk_full, ns, rank, text);
  }
  return slab_of(x);
}

namespace_manager::grown_slab namespace_manager::slab_of(const open_rank_entry& x) {
  return {static_cast<std::uint32_t>(x.growth->slots()), static_cast<std::uint32_t>(x.growth->granted())};
}

void namespace_manager::leave_residence(const namespace_id& ns, rank_number count) {
  if (options_.residence)
    for (rank_number rank = 0; rank < count; ++rank)
      options_.residence->remove(ns, rank);
}

void namespace_manager::remove_files(const namespace_id& ns) {
  const auto prefix = to_string(ns) + ".rank-";
  for (const auto& x : options_.files->list())
    if (x.starts_with(prefix))
      options_.files->remove(x);
}

void namespace_manager::sweep() {
  std::set<std::string> kept;
  for (const auto& [id, all] : open_)
    for (const auto& x : all)
      if (x.growth)
        kept.insert(made_slab_name(id, x.rank));
  for (const auto& x : options_.files->list()) {
    if (kept.contains(x))
      continue;
    log::get("node")->info("{} is removed: its namespace is not kept", x);
    options_.files->remove(x);
  }
}

// -- ending of open namespaces ----------------------------------------------------------------------------------------

void namespace_manager::end(const ranks& all, std::function<void()> answer) {
  if (all.empty())
    return answer();
  const auto number = ++last_ending_;
  auto& x = endings_[number];
  x.answer = std::move(answer);
  std::uint64_t bytes = 0;
  std::vector<std::shared_ptr<std::vector<memory_share>>> memory;
  for (const auto& rank : all) {
    bytes += rank.disk_bytes;
    memory.push_back(rank.memory);
  }
  x.ended = [disk = options_.disk, bytes, memory] {
    disk->give_back(bytes);
    for (const auto& share : memory)
      share->clear();
  };
  x.patience_ends = clock().now() + end_patience;
  delayed_send(this, end_patience, caf::tick_atom_v);
  for (const auto& rank : all) {
    const auto worker = caf::actor_cast<caf::actor>(rank.worker);
    const auto allocator = caf::actor_cast<caf::actor>(rank.allocator);
    if (allocator)
      x.parts.push_back(allocator);
    x.parts.push_back(worker);
    x.left = x.parts.size();
    const auto both = [this, number, worker, allocator] {
      if (allocator)
        stop(number, allocator);
      stop(number, worker);
    };
    // An exit message overtakes earlier messages, such as the notice that a client is quiesced, which frees memory. So
    // the worker is first asked for its statistics, whose answer follows those messages.
    request(rank.worker, end_patience, stats_atom_v)
        .then([both](const io_stats&) { both(); }, [both](const caf::error&) { both(); });
  }
}

void namespace_manager::stop(std::uint64_t number, const caf::actor& which) {
  ending_of_.emplace(which.address(), number);
  monitor(which);
  send_exit(which, caf::exit_reason::user_shutdown);
}

void namespace_manager::on_down(const caf::down_msg& down) {
  const auto of = ending_of_.extract(down.source);
  if (of.empty())
    return;
  const auto found = endings_.find(of.mapped());
  if (--found->second.left > 0)
    return;
  const auto x = std::move(endings_.extract(found).mapped());
  x.ended();
  if (x.answer)
    x.answer();
  end_if_alone();
}

void namespace_manager::look_at_endings() {
  for (auto& [number, x] : endings_)
    if (x.answer && clock().now() >= x.patience_ends) {
      log::get("node")->error(
          "a part of a namespace has not ended in time; its memory and disk space stay in use until it does");
      std::exchange(x.answer, {})();
    }
}

void namespace_manager::leave(const caf::error& why) {
  if (leaving_)
    return;
  leaving_ = why;
  for (const auto& [id, all] : std::exchange(open_, {}))
    end(all, [] {});
  end_if_alone();
}

void namespace_manager::end_if_alone() {
  if (leaving_ && endings_.empty())
    quit(*leaving_);
}

void namespace_manager::on_exit() {
  promises_.fail_all({errc::shutting_down, "the node is ending"});
  // For the case that it ends without an exit message, and so has not waited for these.
  for (const auto& [id, all] : std::exchange(open_, {}))
    for (const auto& x : all) {
      if (x.allocator)
        send_exit(x.allocator, caf::exit_reason::user_shutdown);
      send_exit(x.worker, caf::exit_reason::user_shutdown);
    }
  for (const auto& [number, x] : std::exchange(endings_, {}))
    for (const auto& part : x.parts)
      send_exit(part, caf::exit_reason::user_shutdown);
  options_ = {};
}

} // namespace troupe
