#include "actors/node/supervisor/space_keeper.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <string>
#include <sys/stat.h>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// An io worker ends when the last transfer of its engine has.
constexpr auto end_patience = std::chrono::seconds(30);

bool may_be_anew(const error& why) {
  return why.code == errc::slab_damaged || why.code == errc::identity_mismatch;
}

void remove_file(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (failed)
    log::get("node")->warn("cannot remove {}: {}", path.string(), failed.message());
}

} // namespace

space_keeper::space_keeper(caf::actor_config& config, space_keeper_options options)
    : space_keeper_actor::base(config), options_(std::move(options)) {}

space_keeper::behavior_type space_keeper::make_behavior() {
  return {
      [this](const open_space_request& x) -> caf::result<served_space> { return to_caf(open(x)); },
      [this](const close_space_request& x) -> caf::result<void> {
        const auto found = open_.extract(x.space);
        if (found.empty())
          return to_caf(error{errc::unknown_namespace, "no such namespace is open"});
        end(found.mapped());
        for (const auto& rank : found.mapped()) {
          options_.disk->give_back(rank.disk_bytes);
          if (options_.condition)
            options_.condition->remove_slab(x.space, rank.rank);
        }
        remove_files(x.space);
        return caf::unit;
      },
      [this](grow_atom, const namespace_id& space, rank_number rank, std::uint32_t wanted) {
        return grow(space, rank, wanted);
      },
      [this](restored_atom) -> caf::result<void> {
        restoring_ = false;
        sweep();
        return caf::unit;
      },
  };
}

result<served_space> space_keeper::open(const open_space_request& wanted) {
  const auto id = wanted.spec.id();
  if (open_.contains(id))
    return fail(errc::exists, "namespace '" + wanted.spec.name + "' is open already");
  // What a removal could not remove would be taken for this one's.
  if (!wanted.stored)
    remove_files(id);
  served_space out{wanted.spec, {}};
  ranks opened;
  for (rank_number rank = 0; rank < wanted.spec.world_size; ++rank) {
    auto made = open_one(wanted, rank, opened);
    if (made) {
      out.ranks.push_back(std::move(*made));
      continue;
    }
    end(opened);
    for (const auto& x : opened)
      options_.disk->give_back(x.disk_bytes);
    // Files of an earlier run may be opened by another one.
    if (!wanted.stored)
      remove_files(id);
    return tl::unexpected<error>(made.error());
  }
  if (options_.condition)
    for (const auto& x : opened)
      options_.condition->add_slab({id, wanted.spec.name, x.rank});
  open_.emplace(id, std::move(opened));
  return out;
}

std::uint64_t space_keeper::bytes_not_open(const namespace_id& space, const ranks& opened) const {
  std::set<fs::path> open;
  const auto note = [&](const namespace_id& id, const ranks& all) {
    for (const auto& x : all)
      open.insert(made_slab_path(*options_.config, id, x.rank).filename());
  };
  for (const auto& [id, all] : open_)
    note(id, all);
  note(space, opened);
  std::uint64_t sum = 0;
  std::error_code none;
  for (const auto& x : fs::directory_iterator(made_slabs(*options_.config), none)) {
    struct stat status {};
    if (x.path().extension() == ".slab" && !open.contains(x.path().filename()) &&
        ::stat(x.path().c_str(), &status) == 0)
      sum += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return sum;
}

result<std::uint64_t> space_keeper::first_slots(const namespace_spec& space, rank_number rank,
                                                const ranks& opened) const {
  const auto page = space.geometry.page_bytes();
  const auto most = made_slots_max(*options_.config, page);
  // Pages that are there come before those that may come.
  const auto kept = restoring_ ? bytes_not_open(space.id(), opened) : 0;
  const auto left = options_.disk->left();
  // What is left is for the ranks that follow as well.
  const auto share = (left - std::min(kept, left)) / (space.world_size - rank);
  const auto first =
      share < io::slab_tail_bytes ? 0 : io::next_slots(0, most, 0, io::slot_bytes(page), share - io::slab_tail_bytes);
  if (first >= io::growth_slots)
    return first;
  if (options_.config->registry.durability == "strict")
    return fail(errc::full, "there is no disk space left for pages of namespace '" + space.name + "': of " +
                                std::to_string(options_.disk->limit()) + " bytes " +
                                std::to_string(options_.disk->left()) +
                                " are left (storage.disk_bytes); remove a namespace that nobody needs");
  if (most > 0)
    log::get("node")->warn("namespace '{}' rank {}: no disk space left for it (storage.disk_bytes)", space.name, rank);
  return std::uint64_t{0};
}

result<rank_parts> space_keeper::open_parts(const open_space_request& wanted, rank_number rank, const ranks& opened,
                                            std::uint64_t& disk_bytes) {
  const auto& config = *options_.config;
  const auto& space = wanted.spec;
  const auto slot = io::slot_bytes(space.geometry.page_bytes());
  const auto path = made_slab_path(config, space.id(), rank);
  if (wanted.stored && made_slots_max(config, space.geometry.page_bytes()) > 0 && fs::exists(path)) {
    // As large as it was to begin with: if it was removed meanwhile, it is made with nothing.
    auto found = open_made_rank(config, space, rank, 1, options_.extents);
    if (found && found->growth) {
      disk_bytes = found->growth->slots() * slot + io::slab_tail_bytes;
      if (options_.disk->take(disk_bytes))
        return found;
      disk_bytes = 0;
      log::get("node")->warn("{} is larger than what is left of storage.disk_bytes, and goes", path.string());
      found = fail(errc::identity_mismatch, "too large");
    }
    if (!found && !may_be_anew(found.error()))
      return found;
    log::get("node")->warn("{}: its pages are lost", path.string());
    remove_file(path);
  }
  const auto first = first_slots(space, rank, opened);
  if (!first)
    return tl::unexpected<error>(first.error());
  for (auto slots = *first;; slots = io::growth_slots) {
    const auto needed = slots == 0 ? 0 : slots * slot + io::slab_tail_bytes;
    if (!options_.disk->take(needed))
      return fail(errc::full, "the disk space for namespaces that clients make has just been used up");
    auto made = open_made_rank(config, space, rank, slots, options_.extents);
    if (made) {
      disk_bytes = needed;
      return made;
    }
    options_.disk->give_back(needed);
    // A step that is worth while may be more than a disk has left that is nearly full.
    if (made.error().code != errc::no_space || slots <= io::growth_slots)
      return made;
  }
}

result<served_rank> space_keeper::open_one(const open_space_request& wanted, rank_number rank, ranks& opened) {
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
  auto rules = options_for_slots(slots, config.storage.low_watermark, config.storage.high_watermark);
  rules.elastic = true;
  slab_grower_actor grower;
  if (parts->growth) {
    rules.there = static_cast<slot_number>(parts->growth->slots());
    grower = caf::actor_cast<slab_grower_actor>(this);
  }
  parts->worker->metrics = options_.meters;
  parts->worker->condition = options_.condition;
  parts->worker->broker = options_.broker;
  parts->worker->returns_memory = true;
  try {
    const bool listens = parts->worker->options.listens();
    const auto worker = spawn_actor<io_worker>(system(), parts->worker);
    caf::anon_send(options_.broker, memory_borrower{id, rank, worker});
    opened.push_back({rank, worker, {}, parts->growth, parts->slots, disk_bytes});
    auto& entry = opened.back();
    entry.allocator = spawn_actor<allocator>(system(), rules, id, rank, worker, std::move(*memory), std::move(grower));
    // The first message that each of them gets. Shards learn of the allocator with its rank.
    const registry_peers peers{options_.shards, {entry.allocator}, {id}, {rank}, {}};
    caf::anon_send(entry.allocator, bind_atom_v, peers);
    caf::anon_send(worker, bind_atom_v, peers);
    return served_rank{rank, slots, parts->incarnation, worker, entry.allocator, listens};
  } catch (const std::bad_alloc&) {
    // With the worker, it is given back with what was opened.
    if (opened.empty() || opened.back().rank != rank)
      options_.disk->give_back(disk_bytes);
    return fail(errc::no_space, "the system has no memory left for " + std::to_string(slots) + " slots of namespace '" +
                                    wanted.spec.name + "'");
  }
}

std::uint32_t space_keeper::grow(const namespace_id& space, rank_number rank, std::uint32_t wanted) {
  const auto found = open_.find(space);
  if (found == open_.end() || rank >= found->second.size() || !found->second[rank].growth)
    return 0;
  auto& x = found->second[rank];
  auto& growth = *x.growth;
  const auto there = growth.slots();
  const auto slot = growth.slot_bytes();
  auto next = io::next_slots(there, x.slots_max, wanted, slot, options_.disk->left());
  // A step that is worth while may be more than a disk has left that is nearly full.
  for (const auto step : {next, std::min(next, there + std::max<std::uint64_t>(wanted, 1))}) {
    const auto bytes = (step - there) * slot;
    if (step == there || !options_.disk->take(bytes))
      break;
    const auto grown = growth.grow(step);
    if (grown) {
      x.disk_bytes += bytes;
      x.disk_was_full = false;
      break;
    }
    options_.disk->give_back(bytes);
    if (!std::exchange(x.disk_was_full, true))
      log::get("node")->warn("rank {}: {}; until there is, older pages make room", rank, grown.error().text);
  }
  return static_cast<std::uint32_t>(growth.slots());
}

void space_keeper::end(const ranks& all) {
  caf::scoped_actor self{system()};
  for (const auto& x : all) {
    // An exit overtakes what was sent before: the word that a client is at rest, and with it the memory is free.
    self->request(x.worker, end_patience, stats_atom_v).receive([](const io_stats&) {}, [](const caf::error&) {});
    const auto stop = [&](const auto& actor) {
      if (!actor)
        return;
      self->monitor(actor);
      self->send_exit(actor, caf::exit_reason::user_shutdown);
      self->receive([](const caf::down_msg&) {},
                    caf::after(end_patience) >> [] { log::get("node")->error("a part of a namespace does not end"); });
    };
    stop(x.allocator);
    stop(x.worker);
  }
}

void space_keeper::remove_files(const namespace_id& space) {
  const auto folder = made_slabs(*options_.config);
  const auto prefix = to_string(space) + ".rank-";
  std::error_code none;
  for (const auto& x : fs::directory_iterator(folder, none))
    if (x.path().filename().string().starts_with(prefix))
      remove_file(x.path());
}

void space_keeper::sweep() const {
  std::set<fs::path> kept;
  for (const auto& [id, all] : open_)
    for (const auto& x : all)
      if (x.growth)
        kept.insert(made_slab_path(*options_.config, id, x.rank).filename());
  std::error_code none;
  for (const auto& x : fs::directory_iterator(made_slabs(*options_.config), none)) {
    const auto name = x.path().filename();
    const auto text = name.string();
    const bool a_slab =
        text.find(".rank-") != std::string::npos && (text.ends_with(".slab") || text.ends_with(".slab.new"));
    if (!a_slab || kept.contains(name) || !x.is_regular_file(none))
      continue;
    log::get("node")->info("{} is of a namespace that is not kept, and goes", x.path().string());
    remove_file(x.path());
  }
}

void space_keeper::on_exit() {
  for (const auto& [id, all] : std::exchange(open_, {}))
    end(all);
  options_ = {};
}

} // namespace troupe
