#include "tests/group_simulation/engine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::group_simulation {

namespace {

bool has_states(const shape& made) {
  return std::any_of(made.groups.begin(), made.groups.end(),
                     [](const page_group& x) { return x.kind == group_kind::state; });
}

} // namespace

step engine::schedule() {
  step out;
  auto budget = world_.made.step_tokens;
  schedule_running(out, budget);
  if (out.preempted.empty() || world_.random.one_in(3))
    schedule_waiting(out, budget);
  return out;
}

std::uint32_t engine::tokens_of_step(const request& x, std::uint32_t budget) const {
  auto count = std::min(budget, x.tokens() - x.computed);
  const auto page = world_.made.page_tokens;
  const auto boundary = (x.computed + count) / page * page;
  if (has_states(world_.made) && !world_.made.checkpoints && boundary > x.computed)
    count = boundary - x.computed;
  return count;
}

void engine::schedule_running(step& out, std::uint32_t& budget) {
  for (std::size_t i = 0; i < running_.size() && budget > 0;) {
    auto& x = *running_[i];
    auto count = tokens_of_step(x, budget);
    count += draft(x, budget - count);
    auto added = allocate(x, x.computed + count);
    while (!added && running_.back() != &x) {
      preempt(*running_.back(), out);
      added = allocate(x, x.computed + count);
    }
    if (!added) {
      preempt(x, out);
      return;
    }
    budget -= count;
    add_part(x, out, count, false, std::move(*added));
    ++i;
  }
}

std::uint32_t engine::draft(request& x, std::uint32_t most) {
  x.drafts.clear();
  x.accepted = 0;
  if (world_.made.drafts == 0 || x.computed + 1 != x.tokens())
    return 0;
  // One token more follows from what is accepted.
  const auto room = std::min(most, x.end - x.tokens() - 1);
  const auto count = std::min(room, static_cast<std::uint32_t>(world_.random.below(world_.made.drafts + 1)));
  x.accepted = static_cast<std::uint32_t>(world_.random.below(count + 1));
  for (std::uint32_t i = 0; i < count; ++i)
    x.drafts.push_back(mix(x.with_drafts(x.prefix.size() + i - 1), i < x.accepted ? 77 : 78));
  if (count > 0)
    world_.count(x.accepted < count ? "draft rejected" : "drafts accepted");
  return count;
}

void engine::preempt(request& x, step& out) {
  x.drafts.clear();
  x.accepted = 0;
  world_.count("preempted");
  world_.trace("is preempted", x.name, x.computed);
  std::erase(running_, &x);
  free_all(x);
  x.now = request::phase::waiting;
  x.computed = 0;
  waiting_.push_front(&x);
  out.preempted.push_back(x.name);
}

void engine::schedule_waiting(step& out, std::uint32_t& budget) {
  // Requests that were loaded keep others waiting with the blocks that they have.
  std::stable_partition(waiting_.begin(), waiting_.end(),
                        [](const request* x) { return x->now == request::phase::loaded; });
  // Requests that wait for the connector are passed over.
  for (std::size_t i = 0; i < waiting_.size() && budget > 0;) {
    auto& x = *waiting_[i];
    if (x.now == request::phase::loading) {
      ++i;
      continue;
    }
    const auto before = waiting_.size();
    if (!start(x, out, budget, i))
      return;
    if (waiting_.size() == before)
      ++i;
  }
}

bool engine::start(request& x, step& out, std::uint32_t& budget, std::size_t position) {
  if (x.now == request::phase::waiting) {
    const auto computed = computed_prefix(x);
    const auto hit = scheduler_.match(x, computed);
    if (!hit.tokens)
      return true;
    if (*hit.tokens > 0)
      return begin_load(x, computed, *hit.tokens);
    if (!place(x, computed, computed))
      return false;
    x.computed = computed;
  }
  const auto count = tokens_of_step(x, budget);
  const auto added = allocate(x, x.computed + count);
  if (!added) {
    if (x.now == request::phase::waiting) {
      free_all(x);
      x.computed = 0;
    }
    return false;
  }
  scheduler_.allocated(x, x.tables, 0);
  world_.trace("runs", x.name, x.computed, count);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(position));
  running_.push_back(&x);
  x.now = request::phase::running;
  budget -= count;
  add_part(x, out, count, true, {});
  return true;
}

bool engine::has_room_for(const request& x) const {
  std::uint32_t needed = 1;
  for (const auto* each : waiting_)
    if (each == &x || each->now != request::phase::waiting)
      for (std::uint32_t t = 0; t < world_.made.tables(); ++t)
        needed += each->end / world_.made.block_tokens(t) + 2;
  return needed <= pool_.size();
}

bool engine::begin_load(request& x, std::uint32_t computed, std::uint32_t external) {
  const auto last = computed + external;
  if (last >= x.tokens()) {
    // An engine would go back by one token; the checks have reported it.
    return false;
  }
  if (!has_room_for(x) || !place(x, computed, last))
    return false;
  x.load_first = computed;
  x.load_last = last;
  x.now = request::phase::loading;
  for (auto& table : x.tables)
    for (const auto block : table)
      if (block != empty_block && !pool_.has_name(block))
        pool_.set_loaded_for(block, x.life);
  world_.trace("loads", x.name, computed, external);
  world_.count(computed > 0 ? "load behind a prefix" : "load from the start");
  scheduler_.allocated(x, x.tables, external);
  return true;
}

std::uint32_t engine::computed_prefix(const request& x) const {
  if (!world_.made.prefix_caching)
    return 0;
  const auto& made = world_.made;
  const auto whole = [&](std::uint32_t length) {
    for (std::uint32_t t = 0; t < made.tables(); ++t) {
      const auto size = made.block_tokens(t);
      for (auto i = first_needed(made.group_of(t), length) / size; i < length / size; ++i)
        if (!pool_.find({t, x.prefix[std::size_t{i + 1} * size]}))
          return false;
    }
    return true;
  };
  for (auto length = (x.tokens() - 1) / made.page_tokens * made.page_tokens; length > 0; length -= made.page_tokens)
    if (whole(length))
      return length;
  return 0;
}

bool engine::place(request& x, std::uint32_t computed, std::uint32_t length) {
  const auto& made = world_.made;
  std::uint32_t fresh = 0;
  for (std::uint32_t t = 0; t < made.tables(); ++t) {
    const auto size = made.block_tokens(t);
    auto& table = x.tables[t];
    table.assign(length / size, empty_block);
    for (auto i = first_needed(made.group_of(t), length) / size; i < length / size; ++i)
      if ((i + 1) * size <= computed) {
        table[i] = *pool_.find({t, x.prefix[std::size_t{i + 1} * size]});
        pool_.use(table[i]);
      } else
        ++fresh;
  }
  if (fresh > pool_.available()) {
    free_all(x);
    return false;
  }
  for (std::uint32_t t = 0; t < made.tables(); ++t) {
    const auto size = made.block_tokens(t);
    for (auto i = first_needed(made.group_of(t), length) / size; i < length / size; ++i)
      if (x.tables[t][i] == empty_block)
        x.tables[t][i] = pool_.take();
  }
  return true;
}

void engine::free_passed(request& x) {
  for (std::uint32_t t = 0; t < x.tables.size(); ++t) {
    auto& table = x.tables[t];
    const auto end = first_needed(world_.made.group_of(t), x.computed) / world_.made.block_tokens(t);
    for (std::uint32_t i = 0; i < std::min<std::size_t>(end, table.size()); ++i)
      if (table[i] != empty_block) {
        pool_.free(std::exchange(table[i], empty_block));
        world_.count("passed block freed");
      }
  }
}

std::vector<std::uint32_t> engine::positions_written(const request& x, std::uint32_t table, std::uint32_t last) const {
  const auto size = world_.made.block_tokens(table);
  std::vector<std::uint32_t> out;
  if (world_.made.group_of(table).kind != group_kind::state) {
    for (auto i = x.computed / size; i <= (last - 1) / size; ++i)
      out.push_back(i);
    return out;
  }
  // The running state, and the last boundary inside of the step.
  const auto boundary = last / size * size;
  if (world_.made.checkpoints && boundary > x.computed && boundary < last)
    out.push_back(boundary / size - 1);
  out.push_back((last - 1) / size);
  return out;
}

std::optional<engine::tables> engine::allocate(request& x, std::uint32_t last) {
  free_passed(x);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> missing;
  for (std::uint32_t t = 0; t < x.tables.size(); ++t)
    for (const auto i : positions_written(x, t, last))
      if (i >= x.tables[t].size() || x.tables[t][i] == empty_block)
        missing.emplace_back(t, i);
  if (missing.size() > pool_.available())
    return std::nullopt;
  tables added(x.tables.size());
  for (std::uint32_t t = 0; t < x.tables.size(); ++t) {
    const auto before = x.tables[t].size();
    const auto size = std::max<std::size_t>(before, (last - 1) / world_.made.block_tokens(t) + 1);
    x.tables[t].resize(size, empty_block);
    for (const auto& [table, i] : missing)
      if (table == t)
        x.tables[t][i] = pool_.take();
    added[t].assign(x.tables[t].begin() + static_cast<std::ptrdiff_t>(before), x.tables[t].end());
  }
  return added;
}

void engine::add_part(request& x, step& out, std::uint32_t count, bool whole_tables, tables added) {
  step_part part;
  part.who = &x;
  part.computed = x.computed;
  part.scheduled = count;
  part.is_new = whole_tables && !x.has_run;
  part.resumed = whole_tables && x.has_run;
  part.blocks = whole_tables ? x.tables : std::move(added);
  const auto last = x.computed + count;
  const auto page = world_.made.page_tokens;
  const auto boundary = last / page * page;
  const bool written = boundary > x.computed && (boundary == last || world_.made.checkpoints);
  for (std::uint32_t t = 0; t < x.tables.size(); ++t) {
    if (world_.made.group_of(t).kind != group_kind::state || !written)
      continue;
    if (world_.random.one_in(world_.made.offers_left_out)) {
      world_.count("state not offered");
      continue;
    }
    world_.count("state offered");
    part.offers.push_back({t, x.tables[t][boundary / page - 1], boundary});
  }
  x.has_run = true;
  out.parts.push_back(std::move(part));
}

} // namespace troupe::group_simulation
