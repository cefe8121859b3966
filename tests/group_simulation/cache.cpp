#include "tests/group_simulation/cache.hpp"

#include <algorithm>
#include <memory>

namespace troupe::group_simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

// -- lookups and leases -----------------------------------------------------------------------------------------------

bool cache::complete(const entry& x) const {
  const auto has = [](const std::optional<page_record>& each) { return each.has_value(); };
  return world_.has(defect::one_rank_complete) ? std::any_of(x.pages.begin(), x.pages.end(), has)
                                               : std::all_of(x.pages.begin(), x.pages.end(), has);
}

void cache::look_up(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer) {
  if (task.peers.what == peer_step::kind::search)
    search_peers(asker, group, task, std::move(answer));
  else if (task.peers.what == peer_step::kind::fetch)
    fetch(asker, group, task, std::move(answer));
  else
    look_up_here(asker, group, task, std::move(answer));
}

void cache::look_up_here(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer) {
  ++under_way_;
  // What is found is leased before the answer is there.
  const auto until_found = world_.random.skewed_time(milliseconds(1), milliseconds(world_.rarely(8) ? 2000 : 60));
  world_.after(until_found, [this, asker, group, task, answer = std::move(answer)]() mutable {
    const bool fails = world_.rarely(20);
    if (fails)
      world_.count("lookup failed");
    auto found = fails ? result<lookup_result>(fail(errc::timeout, "a shard did not answer"))
                       : result<lookup_result>(find(asker, group, task));
    const auto until_there = world_.random.skewed_time(milliseconds(1), milliseconds(world_.rarely(8) ? 3000 : 40));
    world_.after(until_there, [this, found = std::move(found), answer = std::move(answer)] {
      --under_way_;
      answer(found);
    });
  });
}

lookup_result cache::find(life_number asker, std::uint32_t group, const lookup_task& task) {
  lookup_result out;
  lease_record held{asker, group, {}, {}, false};
  // A node may accept fewer keys at once than it was asked for.
  const auto accepted = world_.rarely(30) ? world_.random.below(task.keys.size() + 1) : task.keys.size();
  for (const auto& key : std::span(task.keys.items).first(accepted)) {
    const auto i = entries_.find({group, key});
    const bool found = i != entries_.end() && complete(i->second);
    out.found.items.push_back(found ? 1 : 0);
    out.on_disk.items.push_back(found && world_.random.one_in(3) ? 1 : 0);
    if (found)
      held.keys.insert(key);
  }
  if (world_.rarely(20))
    out.on_disk.items.clear();
  out.has_peers = world_.made.peers;
  if (held.keys.empty())
    return out;
  if (world_.rarely(20))
    out.lease_for = task.lease_for / 4;
  held.expires = world_.now() + (out.lease_for > duration::zero() ? out.lease_for : task.lease_for);
  out.matched = static_cast<std::uint32_t>(held.keys.size());
  out.lease = {1, ++last_lease_};
  leases_.emplace(out.lease, std::move(held));
  return out;
}

// -- pages of peers ---------------------------------------------------------------------------------------------------

void cache::search_peers(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer) {
  ++under_way_;
  if (!world_.made.peers)
    world_.broken("engine", "peers are searched, and there are none");
  const auto time = world_.random.skewed_time(milliseconds(1), milliseconds(world_.rarely(8) ? 2500 : 60));
  world_.after(time, [this, asker, group, task, answer = std::move(answer)]() mutable {
    lookup_result out;
    search_record held{asker, group, {}, false};
    const bool fails = world_.rarely(15);
    for (const auto& key : task.keys) {
      const bool has = !fails && others_.contains({group, key});
      out.found.items.push_back(has ? 1 : 0);
      if (has)
        held.keys.insert(key);
    }
    if (!held.keys.empty()) {
      out.search = ++last_search_;
      searches_.emplace(out.search, std::move(held));
    }
    world_.count(fails ? "search failed" : out.search != 0 ? "found at peers" : "not found at peers");
    const auto until_there = world_.random.skewed_time(milliseconds(1), milliseconds(world_.rarely(8) ? 3000 : 40));
    world_.after(until_there, [this, fails, out = std::move(out), answer = std::move(answer)] {
      --under_way_;
      answer(fails ? result<lookup_result>(fail(errc::timeout, "the peers did not answer")) : out);
    });
  });
}

void cache::fetch(life_number asker, std::uint32_t group, const lookup_task& task, lookup_answer answer) {
  ++under_way_;
  const auto search = searches_.extract(task.peers.search);
  if (search.empty())
    world_.broken("leases", "a fetch names a search that nothing is held for");
  else
    for (const auto& key : task.keys)
      if (!search.mapped().keys.contains(key))
        world_.broken("fetched", "a fetch names a page that no peer has");
  const auto time = world_.random.skewed_time(milliseconds(1), milliseconds(world_.rarely(6) ? 2500 : 120));
  world_.after(time, [this, asker, group, task, answer = std::move(answer)]() mutable {
    --under_way_;
    // A page that does not come ends the fetch.
    bool whole = !world_.rarely(12);
    for (std::size_t i = 0; whole && i < task.keys.size(); ++i)
      whole = fetch_page(group, task.keys[i]);
    world_.count(whole ? "fetched" : "fetched in part");
    look_up_here(asker, group, task, std::move(answer));
  });
}

bool cache::fetch_page(std::uint32_t group, const key_digest& key) {
  const auto meant = meant_.find(key);
  if (meant == meant_.end() || !others_.contains({group, key}))
    return false;
  if (world_.rarely(12)) {
    world_.count("damaged at a peer");
    others_.erase({group, key});
    return false;
  }
  auto& x = entries_[{group, key}];
  x.pages.resize(world_.made.ranks());
  for (std::uint32_t rank = 0; rank < x.pages.size(); ++rank)
    if (!x.pages[rank])
      x.pages[rank] = page_record{right_bytes(group, rank, meant->second), false};
  fallen_.erase({group, key});
  return true;
}

std::vector<content> cache::right_bytes(std::uint32_t group, std::uint32_t rank,
                                        const std::vector<content>& prefixes) const {
  std::vector<content> out;
  const auto stage = world_.made.groups[group].stage;
  for (const auto table : world_.made.groups[group].tables) {
    if (world_.made.groups[group].kind == group_kind::state)
      out.push_back(kv(table, stage, rank, prefixes.back()));
    else
      for (const auto each : prefixes)
        out.push_back(kv(table, stage, rank, each));
  }
  return out;
}

void cache::delivered_search(std::uint64_t search) {
  if (const auto i = searches_.find(search); i != searches_.end())
    i->second.known = true;
}

void cache::end_search(std::uint64_t search) {
  if (searches_.erase(search) == 0)
    world_.broken("leases", "a search is released that nothing is held for");
}

bool cache::has_search(life_number asker) const {
  return std::any_of(searches_.begin(), searches_.end(),
                     [&](const auto& each) { return each.second.asker == asker && each.second.known; });
}

void cache::serve_elsewhere(const std::vector<key_digest>& keys) {
  if (keys.empty())
    return;
  const auto& made = world_.made;
  const auto pages = static_cast<std::uint32_t>(1 + world_.random.below(keys.size()));
  for (std::uint32_t g = 0; g < made.groups.size(); ++g)
    for (std::uint32_t i = 0; i < pages; ++i) {
      const bool needed = i >= first_page(made, g, pages * made.page_tokens);
      if (needed ? !world_.random.one_in(12) : world_.random.one_in(4))
        others_.insert({g, keys[i]});
    }
  world_.count("served elsewhere");
}

void cache::delivered(const ticket& lease) {
  if (const auto i = leases_.find(lease); i != leases_.end())
    i->second.known = true;
}

void cache::release(const ticket& lease) {
  if (world_.has(defect::leak_lease) && lease.sequence % 4 == 0)
    return;
  if (leases_.erase(lease) == 0)
    world_.broken("leases", "a lease is released twice");
}

void cache::retain(const ticket& lease, const std::vector<key_digest>& keys) {
  const auto i = leases_.find(lease);
  if (i == leases_.end())
    return world_.broken("leases", "a lease is retained that was released");
  std::set<key_digest> kept;
  for (const auto& key : keys) {
    if (world_.has(defect::retain_too_little) && key == keys.front() && keys.size() > 1)
      continue;
    if (!i->second.keys.contains(key))
      world_.broken("leases", "a key is retained that is not leased");
    kept.insert(key);
  }
  i->second.keys = std::move(kept);
}

std::optional<std::set<key_digest>> cache::leased(life_number asker, std::uint32_t group) const {
  std::set<key_digest> out;
  for (const auto& [name, x] : leases_)
    if (x.asker == asker && x.group == group && x.known) {
      if (world_.now() >= x.expires)
        return std::nullopt;
      out.insert(x.keys.begin(), x.keys.end());
    }
  return out;
}

bool cache::is_leased(const place& where) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& each) {
    const auto& x = each.second;
    return x.group == where.first && x.expires > world_.now() && x.keys.contains(where.second);
  });
}

bool cache::was_promised(std::uint32_t group, const key_digest& key) const {
  const auto i = entries_.find({group, key});
  if (i == entries_.end())
    return fallen_.contains({group, key});
  const auto& all = i->second.pages;
  return std::all_of(all.begin(), all.end(), [](const auto& each) { return each.has_value(); }) ||
         fallen_.contains({group, key});
}

// -- transfers --------------------------------------------------------------------------------------------------------

duration cache::time_of_transfer() {
  return world_.random.skewed_time(milliseconds(1), world_.rarely(10) ? seconds(4) : seconds(0) + milliseconds(150));
}

void cache::load(std::uint32_t worker, std::uint32_t group, const transfer_task& task, task_answer answer) {
  ++under_way_;
  // Page by page, so that others happen in between; a task may fail as a whole after some of them.
  const auto fails_after = world_.rarely(25) ? world_.random.below(task.keys.size() + 1) : task.keys.size() + 1;
  const bool lost = fails_after <= task.keys.size() && world_.random.below(2) == 0;
  auto out = std::make_shared<transfer_result>();
  auto time = time_of_transfer();
  const auto per_page = world_.made.blocks_per_page(group);
  for (std::size_t i = 0; i < std::min<std::size_t>(fails_after, task.keys.size()); ++i) {
    time += milliseconds(world_.random.below(8));
    world_.after(time, [this, worker, group, task, i, out, per_page] {
      const auto blocks = std::span(task.blocks.items).subspan(i * per_page, per_page);
      out->results.items.push_back(static_cast<std::uint8_t>(load_page(worker, group, task.keys[i], blocks)));
    });
  }
  world_.after(time, [this, group, task, out, fails_after, lost, per_page, answer = std::move(answer)] {
    --under_way_;
    const bool fails = fails_after <= task.keys.size();
    for (std::size_t i = 0; i < task.keys.size(); ++i)
      if (!lost && (fails || out->results[i] != 0))
        for (std::size_t b = i * per_page; b < (i + 1) * per_page; ++b)
          if (const auto block = task.blocks[b]; block != null_block && pool_.loaded_for(block) != 0)
            on_failed_page(pool_.loaded_for(block), group, task.keys[i]);
    world_.count(lost ? "load: node unreachable" : fails ? "load: all failed" : "load");
    if (lost)
      answer(fail(errc::unreachable, "the node was lost during a load"));
    else if (fails)
      answer(fail(errc::timeout, "the load did not end in time"));
    else
      answer(*out);
  });
}

errc cache::load_page(std::uint32_t worker, std::uint32_t group, const key_digest& key,
                      std::span<const block_id> blocks) {
  const auto i = entries_.find({world_.has(defect::swapped_stages) ? twin_of(group) : group, key});
  const auto rank = world_.made.rank_of(worker);
  if (i == entries_.end() || !i->second.pages[rank]) {
    world_.count("load: not found");
    return errc::not_found;
  }
  if (i->second.pages[rank]->damaged) {
    world_.count("load: damaged");
    fallen_.insert(i->first);
    entries_.erase(i);
    return errc::corrupt;
  }
  const auto& page = i->second.pages[rank]->bytes;
  const auto size = page.size() / blocks.size();
  for (std::size_t b = 0; b < blocks.size(); ++b)
    if (blocks[b] != null_block)
      write(worker, blocks[b], std::span(page).subspan(b * size, size));
  return errc::ok;
}

std::uint32_t cache::twin_of(std::uint32_t group) const {
  const auto& made = world_.made;
  const auto& x = made.groups[group];
  for (std::uint32_t g = 0; g < made.groups.size(); ++g) {
    const auto& other = made.groups[g];
    if (other.stage != x.stage && other.kind == x.kind && other.tables == x.tables)
      return g;
  }
  return group;
}

void cache::write(std::uint32_t worker, block_id block, std::span<const content> bytes) {
  if (block >= pool_.size() || block == empty_block || pool_.loaded_for(block) == 0)
    return world_.broken("writes", "a load writes block " + std::to_string(block) + ", which is not allocated for one");
  std::copy(bytes.begin(), bytes.end(), pool_.memory(worker, block).begin());
}

void cache::save(std::uint32_t worker, std::uint32_t group, const transfer_task& task, task_answer answer) {
  ++under_way_;
  const auto fails_after = world_.rarely(25) ? world_.random.below(task.keys.size() + 1) : task.keys.size() + 1;
  auto out = std::make_shared<transfer_result>();
  auto time = time_of_transfer();
  const auto per_page = world_.made.blocks_per_page(group);
  for (std::size_t i = 0; i < std::min<std::size_t>(fails_after, task.keys.size()); ++i) {
    time += milliseconds(world_.random.below(8));
    world_.after(time, [this, worker, group, task, i, out, per_page] {
      const auto blocks = std::span(task.blocks.items).subspan(i * per_page, per_page);
      const auto code = world_.rarely(25)   ? errc::busy
                        : world_.rarely(25) ? errc::io_error
                                            : save_page(worker, group, task.keys[i], blocks);
      world_.count("save: " + std::string(to_string(code)));
      out->results.items.push_back(static_cast<std::uint8_t>(code));
    });
  }
  world_.after(time, [this, task, out, fails_after, answer = std::move(answer)] {
    --under_way_;
    if (fails_after <= task.keys.size()) {
      world_.count("save: all failed");
      return answer(fail(errc::timeout, "the save did not end in time"));
    }
    answer(*out);
  });
}

errc cache::save_page(std::uint32_t worker, std::uint32_t group, const key_digest& key,
                      std::span<const block_id> blocks) {
  auto& x = entries_[{group, key}];
  x.pages.resize(world_.made.ranks());
  auto& page_of_rank = x.pages[world_.made.rank_of(worker)];
  if (page_of_rank)
    return errc::exists;
  page_record made;
  const auto size = world_.made.groups[group].kind == group_kind::state ? 1 : world_.made.groups[group].block_tokens;
  for (const auto block : blocks) {
    if (block >= pool_.size()) {
      world_.broken("pages", "a page is saved out of a block that does not exist");
      return errc::out_of_range;
    }
    const auto bytes = pool_.memory(worker, block).first(size);
    made.bytes.insert(made.bytes.end(), bytes.begin(), bytes.end());
  }
  check(worker, group, key, made.bytes);
  page_of_rank = std::move(made);
  if (complete(x))
    fallen_.erase({group, key});
  return errc::ok;
}

void cache::check(std::uint32_t worker, std::uint32_t group, const key_digest& key, const std::vector<content>& bytes) {
  const auto meant = meant_.find(key);
  if (meant == meant_.end())
    return world_.broken("pages", "a page is saved under a key that no request has");
  const auto right = right_bytes(group, world_.made.rank_of(worker), meant->second);
  if (bytes != right)
    world_.broken("pages", "worker " + std::to_string(worker) + " saves a page of group " + std::to_string(group) +
                               " that is not what its key stands for");
}

// -- faults -----------------------------------------------------------------------------------------------------------

void cache::evict_some() {
  for (auto i = others_.begin(); i != others_.end();)
    i = world_.random.one_in(12) ? others_.erase(i) : std::next(i);
  for (auto i = entries_.begin(); i != entries_.end();)
    if (world_.random.one_in(6) && !is_leased(i->first)) {
      // Mostly the whole page, at times that of one rank.
      world_.count("evicted");
      if (world_.made.stages > 1)
        world_.count("evicted in one stage");
      if (i->second.pages.size() > 1 && world_.random.one_in(3)) {
        world_.count("evicted at one rank");
        i->second.pages[world_.random.below(i->second.pages.size())].reset();
        ++i;
      } else
        i = entries_.erase(i);
    } else
      ++i;
}

void cache::damage_one() {
  if (entries_.empty())
    return;
  auto i = entries_.begin();
  std::advance(i, static_cast<std::ptrdiff_t>(world_.random.below(entries_.size())));
  auto& page_of_rank = i->second.pages[world_.random.below(i->second.pages.size())];
  if (!page_of_rank)
    return;
  page_of_rank->damaged = true;
  world_.count("damaged");
  if (world_.made.stages > 1)
    world_.count("damaged in one stage");
}

} // namespace troupe::group_simulation
