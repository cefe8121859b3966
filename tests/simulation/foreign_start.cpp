// How a simulated node starts over what earlier runs have left, as actors/node/supervisor/index_restore.cpp starts a
// real one.

#include "actors/node/supervisor/restore_plan.hpp"
#include "store/epoch_file.hpp"
#include "tests/simulation/foreign_node.hpp"

#include <utility>

namespace troupe::simulation {

namespace {

constexpr std::chrono::sys_seconds today{};

} // namespace

void foreign_node::start() {
  world_.trace("node starts");
  ++life_;
  net_.start(node_process);
  kind_ = run_kind::durable;
  if (p_.other_runs && random_.one_in(3))
    kind_ = random_.one_in(2) ? run_kind::without_index : run_kind::taken_name;
  while (!begin())
    world_.count("fault: killed while it started");
  check_restored();
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    flush_shard(i);
    keep_ticking_shard(i);
  }
  for (rank_number rank = 0; rank < p_.ranks; ++rank)
    keep_ticking_allocator(rank);
}

void foreign_node::kill() {
  if (!running())
    return;
  world_.trace("node is killed");
  net_.kill(node_process);
  store_.crash();
  parts_.reset();
  if (!keeps_index())
    answered_.clear();
}

void foreign_node::make_parts() {
  parts_ = std::make_unique<parts>();
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    registry_options options;
    options.shard = i;
    options.shard_count = p_.shards;
    options.change_feed = true;
    options.hash_seed = random_.next();
    options.promised = world_.has(defect::forget_promises) ? duration::zero() : p_.promised();
    options.children_hold = world_.has(defect::endless_children) ? std::chrono::hours(100) : p_.children_hold;
    parts_->shards.emplace_back().state = std::make_unique<registry_state>(options);
  }
  for (rank_number rank = 0; rank < p_.ranks; ++rank) {
    allocator_options slots;
    slots.slots = p_.slots;
    slots.low_watermark = p_.low_watermark;
    slots.high_watermark = p_.high_watermark;
    // Few, so that generations of different runs meet.
    slots.first_generation = static_cast<generation_number>(random_.below(8));
    slots.fenced = false;
    slots.rest = p_.rest;
    parts_->ranks.emplace_back().allocator = std::make_unique<allocator_state>(slots);
  }
}

void foreign_node::make_known(rank_number rank, incarnation_number incarnation) {
  for (std::uint32_t i = 0; i < p_.shards; ++i)
    if (!registry(i).add_namespace(p_.space, {true, true, p_.ranks}) ||
        !registry(i).add_rank(space_, rank, p_.slots, incarnation))
      world_.fail("a registry shard refuses the namespace or a rank");
}

bool foreign_node::begin() {
  make_parts();
  if (keeps_index())
    return restore();
  world_.count("run: without the index");
  for (rank_number rank = 0; rank < p_.ranks; ++rank)
    make_known(rank, random_.next());
  for (std::uint32_t i = 0; i < p_.shards; ++i)
    (void)registry(i).restored();
  answered_.clear();
  epoch_ = random_.next();
  return true;
}

bool foreign_node::restore() {
  store::node_identity kept;
  for (const auto& [key, value] : store_.records())
    if (key.starts_with(store::first_of(store::table::identity)))
      kept = store::decode_identity(key, value).value();
  restore_terms terms;
  terms.continues = world_.has(defect::forget_epoch) || store::continues_epoch(kept.epoch, kept.next_epoch, epoch_);
  terms.fresh = [this] { return random_.next(); };
  if (!terms.continues && life_ > 1) {
    world_.count("store: not of the last run");
    answered_.clear();
  }
  restore_plan plan(std::move(terms));
  if (!read_store(plan) || dies_now())
    return false;
  end_restoring();
  store_.apply_now(plan.take_changes());
  if (dies_now())
    return false;
  const auto next = random_.next();
  const auto note = [&](incarnation_number epoch, incarnation_number next_epoch) {
    kept.epoch = epoch;
    kept.next_epoch = next_epoch;
    store::write_batch batch;
    batch.put(kept);
    store_.apply_now(batch);
  };
  note(store::continues_epoch(kept.epoch, kept.next_epoch, epoch_) ? *epoch_ : 0, next);
  if (dies_now())
    return false;
  epoch_ = next;
  if (dies_now())
    return false;
  note(next, 0);
  for (rank_number rank = 0; rank < p_.ranks; ++rank)
    if (!parts_->ranks[rank].known)
      make_known(rank, random_.next()); // as an engine does that gets 404
  return true;
}

bool foreign_node::dies_now() {
  if (!p_.kill_node || !random_.one_in(12))
    return false;
  parts_.reset();
  return true;
}

bool foreign_node::read_store(restore_plan& plan) {
  const auto records = store_.records(); // as a snapshot: shards write meanwhile
  for (const auto& [key, value] : records) {
    if (key.starts_with(store::first_of(store::table::namespaces))) {
      if (plan.admit(store::decode_namespace(key, value).value()) && kind_ == run_kind::taken_name) {
        world_.count("run: with another registration");
        plan.set_aside(space_, "the name was taken, for a moment");
        answered_.clear();
      }
    } else if (key.starts_with(store::first_of(store::table::ranks))) {
      const auto rank = store::decode_rank(key, value).value();
      if (const auto incarnation = plan.admit(rank)) {
        make_known(rank.rank, *incarnation);
        parts_->ranks[rank.rank].known = true;
      }
    }
  }
  std::vector<stored_page> believed;
  for (const auto& [key, value] : records) {
    if (!key.starts_with(store::first_of(store::table::pages)))
      continue;
    auto page = store::decode_page(key, value).value();
    if (world_.has(defect::forget_incarnation))
      for (const auto& [rank_key, rank_value] : records)
        if (rank_key.starts_with(store::first_of(store::table::ranks)))
          if (const auto rank = store::decode_rank(rank_key, rank_value).value(); rank.rank == page.rank)
            page.incarnation = rank.incarnation;
    if (plan.admit(page))
      believed.push_back({page.space, page.key, page.parent, page.where, page.rank, 0});
  }
  for (std::uint32_t i = 0; i < p_.shards; ++i)
    settle_shard(i);
  if (dies_now())
    return false;
  for (const auto& page : believed)
    give_back(page);
  return true;
}

void foreign_node::give_back(const stored_page& page) {
  const std::vector<stored_page> one{page};
  const auto codes = registry(shard_of(page.key, p_.shards)).restore(one);
  const auto code = codes ? static_cast<errc>(codes->results[0]) : errc::internal;
  if (code != errc::ok && code != errc::stale)
    return;
  world_.count("store: restored page");
  const std::vector<slot_ref> where{page.where};
  auto& rank = parts_->ranks[page.rank];
  if (rank.allocator->restore(where)[0] != errc::ok)
    rank.refused.push_back(page.where);
}

void foreign_node::end_restoring() {
  for (rank_number rank = 0; rank < p_.ranks; ++rank) {
    auto& refused = parts_->ranks[rank].refused;
    const auto lost = parts_->ranks[rank].allocator->restored();
    refused.insert(refused.end(), lost.begin(), lost.end());
    if (!refused.empty())
      world_.fail("restart", "two pages of the store have one slot");
    for (std::uint32_t i = 0; i < p_.shards && parts_->ranks[rank].known; ++i)
      if (!registry(i).drop_restored(space_, rank, refused))
        world_.fail("a shard refuses to drop restored pages");
  }
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    if (!registry(i).restored())
      world_.fail("a shard refuses to end restoring");
    settle_shard(i);
  }
}

void foreign_node::settle_shard(std::uint32_t i) {
  auto out = registry(i).take_outbox();
  auto& log = parts_->shards[i].log;
  log.append(out.changes, out.sequence, today);
  while (auto batch = log.begin_write()) {
    store_.apply_now(*batch);
    log.written();
  }
  if (!out.slots.empty())
    world_.fail("a shard gives slots back before service has begun");
  for (auto& children : out.children)
    if (!registry(children.shard).count_children(children.request, world_.now()))
      world_.fail("a shard refuses changes of children");
}

void foreign_node::check_restored() const {
  for (const auto& [name, slot] : answered_)
    if (!is_live(name.first, name.second, slot))
      world_.fail("restart", "key " + to_string(name.first) + " was confirmed, and a crash has taken it back");
  for (const auto& shard : parts_->shards)
    shard.state->for_each_key(space_, [&](const key_info& info) {
      const auto key = shard.state->look_up({space_, info.key}, world_.now());
      if (key)
        for (const auto& page : key->pages)
          if (disks_[page.rank].content(page.where.slot) != info.key)
            world_.fail("restart",
                        "key " + to_string(info.key) + " comes back from the store with a page that is not its own");
    });
}

} // namespace troupe::simulation
