#include "base/digest.hpp"
#include "tests/group_simulation/engine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::group_simulation {

using std::chrono::milliseconds;
using std::chrono::seconds;

engine::engine(world& w)
    : world_(w), pool_(w), cache_(w, pool_), scheduler_(w, cache_, pool_),
      aggregator_(w.has(defect::one_worker_is_enough) ? 1 : w.made.workers) {
  for (std::uint32_t i = 0; i < w.made.workers; ++i)
    workers_.push_back(make_worker(w, cache_, i));
  cache_.on_failed_page = [this](life_number life, std::uint32_t group, const key_digest& key) {
    for (const auto& [name, x] : requests_)
      if (x->life == life) {
        x->bad.insert({group, key});
        x->known.erase({group, key});
      }
  };
}

engine::~engine() = default;

void engine::run(std::uint64_t steps) {
  auto& random = world_.random;
  for (std::uint64_t i = 0; i < steps && !world_.failed(); ++i) {
    ++world_.out.steps;
    if (requests_.size() < 8 && random.one_in(3))
      add_request();
    faults();
    one_step();
    world_.pass(random.one_in(60) ? random.skewed_time(seconds(1), seconds(10))
                                  : random.skewed_time(milliseconds(1), milliseconds(60)));
  }
  world_.calm = true;
  for (const auto& worker : workers_)
    for (auto* half : worker.groups)
      half->attach();
  // Steps go on while anything is under way, as vLLM's do.
  for (std::uint32_t i = 0; !world_.failed(); ++i) {
    one_step();
    world_.pass(milliseconds(50));
    const bool quiet = requests_.empty() && world_.quiet() && scheduler_.quiet();
    if (quiet && i > 3)
      break;
    if (i > 5000)
      world_.broken("ends", std::to_string(requests_.size()) + " requests and " + std::to_string(cache_.under_way()) +
                                " transfers have not ended, or reports are missing");
  }
  one_step();
  one_step();
  if (!world_.failed())
    check_in_the_end();
}

void engine::faults() {
  auto& random = world_.random;
  if (random.one_in(20))
    abort_one();
  if (random.one_in(8))
    cache_.evict_some();
  if (random.one_in(12))
    cache_.damage_one();
  if (world_.made.peers && !requests_.empty() && random.one_in(4)) {
    const auto which = std::next(requests_.begin(), static_cast<std::ptrdiff_t>(random.below(requests_.size())));
    cache_.serve_elsewhere(which->second->keys);
  }
  if (random.one_in(80)) {
    world_.count("detached");
    for (auto* half : workers_[random.below(workers_.size())].groups)
      if (!random.one_in(3))
        half->detach();
  } else if (random.one_in(6))
    for (const auto& worker : workers_)
      for (auto* half : worker.groups)
        half->attach();
}

// -- one step ---------------------------------------------------------------------------------------------------------

void engine::one_step() {
  const auto planned = schedule();
  const auto said = scheduler_.build(planned);
  // With asynchronous scheduling the output of the step before comes only now.
  if (world_.made.late_output)
    while (!outputs_.empty()) {
      take_output(aggregator_.aggregate(outputs_.front()));
      outputs_.pop_front();
    }
  execute(planned, said);
  end_of_step(planned);
  if (!world_.made.late_output)
    while (!outputs_.empty()) {
      take_output(aggregator_.aggregate(outputs_.front()));
      outputs_.pop_front();
    }
}

void engine::execute(const step& of, const connector::connector_metadata& said) {
  auto& outputs = outputs_.emplace_back();
  for (std::uint32_t w = 0; w < workers_.size(); ++w) {
    auto& half = *workers_[w].half;
    half.handle_preemptions(said);
    half.bind_connector_metadata(said);
    world_.pass(milliseconds(world_.random.below(3)));
    for (const auto& part : of.parts)
      check_read(w, *part.who, part.computed, "bytes");
    for (const auto& part : of.parts)
      forward(w, part);
    half.start_load_kv(nullptr);
    world_.pass(milliseconds(world_.random.below(3)));
    half.wait_for_save(nullptr);
    auto ended = half.get_finished({});
    forget_others(w, said, ended);
    world_.pass(milliseconds(world_.random.below(3)));
    connector::worker_output out;
    out.sent = std::move(ended.sent);
    out.received = std::move(ended.received);
    out.failed = std::move(ended.failed);
    out.load_errors = half.get_block_ids_with_load_errors();
    out.stores = half.build_connector_worker_meta();
    outputs.push_back(std::move(out));
    half.clear_connector_metadata();
  }
}

void engine::forget_others(std::uint32_t worker, const connector::connector_metadata& said,
                           connector::finished_requests& ended) const {
  if (!world_.has(defect::silent_stage))
    return;
  const auto is_of_others = [&](const std::string& name) {
    return std::none_of(said.loads.begin(), said.loads.end(), [&](const connector::load_op& op) {
      return op.request == name && world_.made.has_group(worker, op.group);
    });
  };
  for (const auto& op : said.loads)
    if (is_of_others(op.request))
      std::erase(ended.received, op.request);
}

void engine::forward(std::uint32_t worker, const step_part& part) {
  for (std::uint32_t t = 0; t < part.who->tables.size(); ++t)
    if (world_.made.has_table(worker, t))
      write(worker, part, t);
}

void engine::write(std::uint32_t worker, const step_part& part, std::uint32_t table) {
  const auto& x = *part.who;
  const auto rank = world_.made.rank_of(worker);
  const auto stage = world_.made.stage_of(worker);
  const auto size = world_.made.block_tokens(table);
  const auto last = part.computed + part.scheduled;
  if (world_.made.group_of(table).kind == group_kind::state) {
    for (const auto i : positions_written(x, table, last))
      pool_.memory(worker, x.tables[table][i])[0] = kv(table, stage, rank, x.prefix[std::min((i + 1) * size, last)]);
    return;
  }
  for (auto i = part.computed; i < last; ++i)
    pool_.memory(worker, x.tables[table][i / size])[i % size] = kv(table, stage, rank, x.with_drafts(i + 1));
}

void engine::check_read(std::uint32_t worker, const request& x, std::uint32_t computed, std::string_view property) {
  for (std::uint32_t t = 0; t < x.tables.size(); ++t)
    if (computed > 0 && world_.made.has_table(worker, t))
      check_tokens(worker, x, t, computed, property);
}

void engine::check_tokens(std::uint32_t worker, const request& x, std::uint32_t table, std::uint32_t computed,
                          std::string_view property) {
  const auto& group = world_.made.group_of(table);
  const auto size = group.block_tokens;
  const auto rank = world_.made.rank_of(worker);
  const auto stage = world_.made.stage_of(worker);
  const auto wrong = [&](std::uint32_t token) {
    world_.broken(property, x.name + " goes on behind token " + std::to_string(computed) + ", and worker " +
                                std::to_string(worker) + " has something else for token " + std::to_string(token) +
                                " in table " + std::to_string(table));
  };
  const auto block_of = [&](std::uint32_t token) {
    return token / size < x.tables[table].size() ? x.tables[table][token / size] : empty_block;
  };
  if (group.kind == group_kind::state) {
    const auto block = block_of(computed - 1);
    if (block == empty_block || pool_.memory(worker, block)[0] != kv(table, stage, rank, x.prefix[computed]))
      wrong(computed - 1);
    return;
  }
  for (auto i = first_needed(group, computed); i < computed; ++i)
    if (block_of(i) == empty_block ||
        pool_.memory(worker, block_of(i))[i % size] != kv(table, stage, rank, x.prefix[i + 1]))
      return wrong(i);
}

std::uint32_t engine::take_drafts(request& x) {
  x.prefix.insert(x.prefix.end(), x.drafts.begin(), x.drafts.begin() + x.accepted);
  const auto rejected = static_cast<std::uint32_t>(x.drafts.size()) - x.accepted;
  x.drafts.clear();
  x.accepted = 0;
  return rejected;
}

void engine::end_of_step(const step& of) {
  for (const auto& part : of.parts) {
    auto& x = *part.who;
    const auto from = x.computed;
    x.computed += part.scheduled - take_drafts(x);
    name_blocks(x, from, x.computed);
    world_.count("tokens computed");
    if (x.computed < x.tokens())
      continue;
    x.prefix.push_back(mix(x.prefix.back(), 77));
    extend(x);
    if (x.tokens() < x.end)
      continue;
    world_.trace("ends", x.name, x.tokens());
    world_.count("ended");
    finish(x);
  }
}

void engine::name_blocks(request& x, std::uint32_t from, std::uint32_t last) {
  if (!world_.made.prefix_caching)
    return;
  for (std::uint32_t t = 0; t < x.tables.size(); ++t) {
    const auto size = world_.made.block_tokens(t);
    const bool state = world_.made.group_of(t).kind == group_kind::state;
    const bool written = last % size == 0 || world_.made.checkpoints;
    for (auto i = state && last >= size ? last / size - 1 : from / size; i < last / size; ++i)
      if (x.tables[t][i] != empty_block && (!state || (written && (i + 1) * size > from)))
        pool_.give_name(x.tables[t][i], {t, x.prefix[std::size_t{i + 1} * size]});
  }
}

// -- reports ----------------------------------------------------------------------------------------------------------

void engine::take_output(const connector::worker_output& output) {
  scheduler_.report(output);
  if (!output.load_errors.empty())
    world_.broken("engine", "blocks are reported as not loaded, which ends an engine with several groups");
  if (!output.sent.empty())
    world_.broken("engine", output.sent.front() + " is reported as sent, for which no engine waits");
  for (const auto& name : output.received) {
    auto* x = find(name);
    const bool failed = std::find(output.failed.begin(), output.failed.end(), name) != output.failed.end();
    if (x != nullptr && x->now == request::phase::loading)
      load_ended(*x, failed);
    else if (x != nullptr && x->now == request::phase::leaving)
      forget(*x);
    else
      world_.broken("engine", name + " is reported as received, and does not wait for a load");
  }
}

void engine::load_ended(request& x, bool failed) {
  world_.trace(failed ? "was not loaded" : "is loaded", x.name, x.load_first, x.load_last);
  world_.count(failed ? "request: load failed" : "request: loaded");
  scheduler_.received(x);
  for (const auto& table : x.tables)
    for (const auto block : table)
      if (block != empty_block && pool_.loaded_for(block) == x.life)
        pool_.set_loaded_for(block, 0);
  if (failed) {
    ++x.failed_loads;
    free_all(x);
    x.now = request::phase::waiting;
    return;
  }
  for (std::uint32_t w = 0; w < workers_.size(); ++w)
    check_read(w, x, x.load_last, "loaded");
  x.computed = x.load_last;
  x.now = request::phase::loaded;
  name_blocks(x, x.load_first, x.load_last);
}

void engine::check_in_the_end() {
  std::size_t tasks = aggregator_.waiting() + cache_.under_way();
  for (const auto& worker : workers_)
    for (const auto* half : worker.groups)
      tasks += half->tasks();
  const auto& rules = scheduler_.rules();
  if (scheduler_.held() > 0)
    world_.broken("holds", std::to_string(scheduler_.held()) + " blocks are still held");
  if (cache_.leases() > 0 || rules.leases_held() > 0)
    world_.broken("leases", std::to_string(cache_.leases()) + " leases are left");
  if (cache_.searches() > 0)
    world_.broken("leases", "peers still hold pages for " + std::to_string(cache_.searches()) + " searches");
  if (tasks + rules.tracked_requests() + rules.open_transfers() > 0)
    world_.broken("ends", std::to_string(tasks) + " tasks, " + std::to_string(rules.tracked_requests()) +
                              " requests and " + std::to_string(rules.open_transfers()) + " transfers are left");
  if (pool_.available() != pool_.size() - 1)
    world_.broken("engine", "blocks are missing in the pool");
}

} // namespace troupe::group_simulation
