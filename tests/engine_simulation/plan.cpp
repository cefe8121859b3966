#include "tests/engine_simulation/plan.hpp"

#include "tests/simulation/random.hpp"

#include <algorithm>

namespace troupe::engine_simulation {
namespace {

using troupe::simulation::random_source;

constexpr std::string_view fault_names[fault_count] = {"lost answers",  "late answers",  "failed reads",
                                                       "failed writes", "corrupt pages", "evictions",
                                                       "full cache",    "task timeouts"};

constexpr std::string_view scopes[][2] = {{"", ""}, {"adapter", ""}, {"", "tenant"}, {"adapter", "tenant"}};

void choose_sizes(plan& p, random_source& random) {
  auto& engine = p.engine;
  engine.block_tokens = 4;
  engine.max_model_len = random.number(32, 72);
  engine.num_speculative_tokens = random.one_in(3) ? random.number(1, 3) : 0;
  engine.async_scheduling = random.one_in(2);
  engine.max_num_batched_tokens = random.number(8, 48);
  engine.max_num_seqs = random.number(2, 6);
  engine.enable_prefix_caching = !random.one_in(6);
  engine.vocabulary = 64;
  const auto longest = (engine.max_model_len + 3) / 4;
  engine.num_blocks = 1 + longest + random.number(0, longest * 2);
  const std::uint32_t layouts[][2] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {2, 2}, {4, 1}, {1, 1}};
  const auto& layout = layouts[random.below(std::size(layouts))];
  p.ranks = layout[0];
  p.workers_per_rank = layout[1];
  const auto blocks_per_page = std::uint32_t{1} << random.below(3);

  auto& s = p.scheduler;
  s.ns = {1, 2};
  s.keys.source = random.one_in(4) ? connector::key_source::engine_hashes : connector::key_source::rolling_chunk_hash;
  engine.report_block_hashes = s.keys.source == connector::key_source::engine_hashes;
  s.keys.block_tokens = engine.block_tokens;
  s.keys.blocks_per_page = blocks_per_page;
  s.workers = p.workers();
  s.writers = p.ranks;
  s.lookup_keys_max = random.one_in(2) ? random.number(1, 6) : 4096;
  s.lookups_max = random.one_in(3) ? random.number(1, 3) : 256;
  s.lease = tick * (p.calm ? 100'000'000 : random.number(500, 5000));
  s.lookup_patience = tick * (p.calm ? 100'000'000 : random.number(200, 2000));
  s.store_attempts_max = random.number(1, 3);
  s.store_pages_max = random.one_in(3) ? random.number(1, 3) : 4096;
  s.save_generated = !random.one_in(6);

  p.worker.blocks_per_page = blocks_per_page;
  p.worker.block_tokens = engine.block_tokens;
  p.worker.task_keys_max = random.one_in(3) ? random.number(1, 3) : 4096;
  p.worker.tasks_max = random.one_in(2) ? random.number(1, 3) : 64;

  p.cache.capacity = random.number(8, 160);
  p.cache.delay_max = static_cast<std::uint32_t>(std::uint64_t{4} << random.below(9));
  p.cache.hook_max = random.number(1, 8);
}

/// Differences between engines in the order and the meaning of hooks.
void choose_steps(plan& p) {
  random_source random(mix(p.seed, 0x7374657073));
  auto& engine = p.engine;
  engine.late_saves = random.one_in(engine.num_speculative_tokens > 0 ? 2 : 6);
  engine.resumed_are_new = random.one_in(2);
  engine.load_failures_by_request = random.one_in(4);
  engine.requires_kv_delivery = random.one_in(6);
  if (random.one_in(4))
    engine.kv_load_failure_policy = engine::load_failure_policy::fail;
  // Results computed from a failed load can be reverted only if nothing else has been scheduled since.
  p.scheduler.synchronous_loads = random.one_in(2) && !engine.async_scheduling;
  p.scheduler.min_load_tokens = random.one_in(4) ? random.number(1, 24) : 0;
  p.scheduler.events = connector::event_detail::all;
}

void choose_disk_hits(plan& p) {
  random_source random(mix(p.seed, 0x6469736b));
  auto& pace = p.scheduler.pace;
  pace.rule = static_cast<connector::disk_hits>(random.below(3));
  pace.step_tokens_min = random.number(1, 12);
  pace.half_life = tick * random.number(10, 10'000);
  pace.explore_every = random.number(1, 6);
  pace.explore_tokens = random.number(0, 32);
  pace.first_look_tokens = random.number(0, 32);
  pace.computing_guess = tick * random.number(0, 100);
  p.scheduler.reads_ahead_max = random.number(0, 4);
}

/// Requests share prefixes, follow each other up, and differ in what must keep their KV apart.
class request_source {
public:
  request_source(const plan& p, random_source& random) : plan_(p), random_(random) {
    for (std::uint32_t i = 0, n = random.number(1, 3); i < n; ++i) {
      auto& prefix = prefixes_.emplace_back();
      for (std::uint32_t k = 0; k < p.engine.max_model_len; ++k)
        prefix.push_back(random.number(0, 63));
    }
    scopes_ = random.number(1, 4);
  }

  engine::request_spec make(std::uint32_t number) {
    engine::request_spec out;
    out.id = "r" + std::to_string(number);
    const auto room = plan_.engine.max_model_len - plan_.engine.num_speculative_tokens - 1;
    out.max_tokens = random_.number(1, random_.one_in(3) ? room / 2 : 12);
    out.output_tokens = random_.one_in(3) ? random_.number(1, out.max_tokens) : out.max_tokens;
    const auto prompt_max = room - out.max_tokens;
    if (!earlier_.empty() && random_.one_in(3)) {
      const auto& before = earlier_[random_.below(earlier_.size())];
      out.lora = before.lora;
      out.cache_salt = before.cache_salt;
      out.prompt = engine::make_course(before,
                                       static_cast<std::uint32_t>(before.prompt.size()) +
                                           std::min(before.output_tokens, before.max_tokens),
                                       plan_.engine.vocabulary)
                       .tokens;
    } else {
      const auto& scope = scopes[random_.below(scopes_)];
      out.lora = scope[0];
      out.cache_salt = scope[1];
      const auto& prefix = random_.pick(prefixes_);
      out.prompt.assign(prefix.begin(), prefix.begin() + random_.number(0, prompt_max));
      out.cacheable = !random_.one_in(30);
      if (random_.one_in(12))
        out.multimodal.push_back({random_.number(0, 20), 4, random_.one_in(2) ? "cat" : "dog"});
    }
    for (auto n = random_.number(1, 6); n > 0; --n)
      out.prompt.push_back(random_.number(0, 63));
    if (out.prompt.size() > prompt_max)
      out.prompt.resize(std::max<std::size_t>(1, prompt_max));
    if (out.multimodal.empty())
      earlier_.push_back(out);
    return out;
  }

private:
  const plan& plan_;
  random_source& random_;
  std::vector<std::vector<engine::token_id>> prefixes_;
  std::uint64_t scopes_ = 1;
  std::vector<engine::request_spec> earlier_;
};

void add_faults(plan& p, random_source& random) {
  for (std::size_t i = 0; i < fault_count; ++i) {
    if (!random.one_in(3))
      continue;
    action x;
    x.what = action::kind::disturb;
    x.which = static_cast<fault>(i);
    x.step = random.number(0, p.steps / 2);
    x.until = random.number(x.step, p.steps);
    x.rate_ppm = 10'000U << random.below(6);
    p.actions.push_back(std::move(x));
  }
  for (auto n = random.one_in(3) ? random.number(1, 3) : 0; n > 0; --n) {
    action x;
    x.what = action::kind::kill_node;
    x.step = random.number(0, p.steps);
    x.until = x.step + random.number(0, 12);
    x.loses_index = random.one_in(2);
    p.actions.push_back(std::move(x));
  }
  for (auto n = random.one_in(3) ? random.number(1, 4) : 0; n > 0; --n) {
    action x;
    x.what = action::kind::evict_all;
    x.step = random.number(0, p.steps);
    p.actions.push_back(std::move(x));
  }
  if (random.one_in(12)) {
    action x;
    x.what = action::kind::reset_cache;
    x.step = random.number(0, p.steps);
    x.reset_running = random.one_in(2);
    p.actions.push_back(std::move(x));
  }
  for (auto n = random.one_in(4) ? random.number(1, 6) : 0; n > 0; --n) {
    action x;
    x.what = action::kind::reset_prefix_cache;
    x.step = random.number(0, p.steps);
    x.reset_running = !random.one_in(3);
    p.actions.push_back(std::move(x));
  }
}

} // namespace

plan make_plan(std::uint64_t seed, std::uint32_t steps) {
  random_source random(mix(seed, 0x656e67696e65));
  plan p;
  p.seed = seed;
  p.steps = steps;
  p.calm = seed % 8 == 7;
  p.shut_down = random.one_in(16);
  choose_sizes(p, random);
  random_source late(mix(seed, 0x6c617465));
  p.late_writes_max = late.one_in(2) ? 0 : static_cast<std::uint32_t>(std::uint64_t{4} << late.below(6));
  random_source window(mix(seed, 0x77696e646f77));
  p.engine.sliding_window = window.one_in(4) ? window.number(2, 24) : 0;
  choose_steps(p);
  choose_disk_hits(p);
  request_source requests(p, random);
  const auto pause = random.number(1, 8);
  std::uint32_t number = 0;
  for (std::uint32_t step = 0; step < steps; step += random.number(0, 2 * pause)) {
    action x;
    x.step = step;
    // At times a name is used again, which only an engine can do that has forgotten the request.
    x.request = requests.make(random.one_in(8) ? number / 2 : number++);
    if (random.one_in(4)) {
      action stop;
      stop.what = action::kind::abort;
      stop.step = step + random.number(0, random.one_in(2) ? 6 : 40);
      stop.id = x.request.id;
      p.actions.push_back(std::move(stop));
    }
    p.actions.push_back(std::move(x));
  }
  if (!p.calm)
    add_faults(p, random);
  std::stable_sort(p.actions.begin(), p.actions.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return p;
}

std::string action::describe() const {
  auto text = "step " + std::to_string(step) + ": ";
  switch (what) {
  case kind::add:
    text += "request " + request.id + " with " + std::to_string(request.prompt.size()) + " tokens, says " +
            std::to_string(std::min(request.output_tokens, request.max_tokens)) + " of at most " +
            std::to_string(request.max_tokens);
    if (!request.lora.empty())
      text += ", " + request.lora;
    if (!request.cache_salt.empty())
      text += ", " + request.cache_salt;
    if (!request.multimodal.empty())
      text += ", with an image";
    if (!request.cacheable)
      text += ", not cacheable";
    return text;
  case kind::abort:
    return text + "abort " + id;
  case kind::disturb:
    return text + std::string(fault_names[static_cast<std::size_t>(which)]) + " until " + std::to_string(until) + ", " +
           std::to_string(rate_ppm / 10'000) + " of 100";
  case kind::kill_node:
    return text + "the node dies until " + std::to_string(until) + (loses_index ? ", and forgets its pages" : "");
  case kind::evict_all:
    return text + "everything without holders is evicted";
  case kind::reset_cache:
    return text + "the engine resets the cache" + (reset_running ? ", and preempts all" : "");
  case kind::reset_prefix_cache:
    return text + "the engine forgets its prefixes" + (reset_running ? ", and preempts all" : "");
  }
  return text;
}

std::string plan::describe() const {
  const auto n = [](auto x) { return std::to_string(x); };
  std::string text = n(ranks) + " ranks, " + n(workers_per_rank) + " workers each, " + n(worker.blocks_per_page) +
                     " blocks a page, " + n(engine.num_blocks - 1) + " blocks for requests up to " +
                     n(engine.max_model_len) + " tokens, " + n(engine.max_num_seqs) + " at a time, " +
                     n(engine.max_num_batched_tokens) + " tokens a step, " + n(engine.num_speculative_tokens) +
                     " drafts";
  if (engine.async_scheduling)
    text += ", late outputs";
  if (engine.late_saves)
    text += ", late saves";
  if (scheduler.synchronous_loads)
    text += ", loads within steps";
  if (engine.load_failures_by_request)
    text += ", failures by request";
  if (engine.kv_load_failure_policy == engine::load_failure_policy::fail)
    text += ", failures end requests";
  if (!engine.enable_prefix_caching)
    text += ", no prefix cache";
  if (engine.sliding_window > 0)
    text += ", a window of " + n(engine.sliding_window);
  if (late_writes_max > 0)
    text += ", writes up to " + n(late_writes_max) + " ticks late";
  text += "; cache of " + n(cache.capacity) + " keys, phases up to " + n(cache.delay_max) + " ticks, " +
          n(scheduler.lookup_keys_max) + " keys a lookup, " + n(worker.task_keys_max) + " keys a task, " +
          n(worker.tasks_max) + " tasks";
  if (scheduler.pace.rule != connector::disk_hits::always)
    text += scheduler.pace.rule == connector::disk_hits::never ? ", nothing from the disk"
                                                               : ", the disk where it is faster";
  if (calm)
    text += ", calm";
  if (shut_down)
    text += ", shut down in the end";
  return text;
}

} // namespace troupe::engine_simulation
