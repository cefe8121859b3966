#include "tests/lmcache_transfers/world.hpp"

#include <algorithm>

/// Engines whose workers have several groups of layers: lookups, and what follows from their answers.

namespace troupe::lmcache_transfers {

namespace {

using lmcache::grouped_lookup;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t chunk_tokens = 4;
constexpr std::uint64_t grouped_documents = 4;
constexpr std::uint32_t chunks_max = 5;
/// The owner of the leases of lookups.
constexpr owner_id lookups_owner = 1'000'000'000;

} // namespace

// -- lookups ----------------------------------------------------------------------------------------------------------

void world::run_request(worker& x) {
  const auto r = std::make_shared<engine_request>();
  r->who = x.number;
  r->life = x.life;
  r->name = "e" + std::to_string(++last_request_);
  r->document = 100 + random_.below(grouped_documents);
  r->chunks = static_cast<std::uint32_t>(random_.number(1, chunks_max));
  r->computed = random_.one_in(2) ? 0 : static_cast<std::uint32_t>(random_.below(r->chunks * chunk_tokens));
  r->says = !rarely(6);
  r->scheduler = ++last_client_;
  if (rarely(15)) {
    count("no lookup");
    return store(r, 0);
  }
  const auto begin = r->computed / chunk_tokens;
  const auto lookup = sessions_.begin(r->scheduler, r->name, now_, r->says ? std::optional(begin) : std::nullopt);
  if (!lookup)
    return;
  count("looked up");
  r->lookup = *lookup;
  auto needs = x.groups;
  if (has(defect::look_up_full_group_alone))
    needs.resize(1);
  for (auto& group : needs)
    if (has(defect::look_up_short_windows) && group.window_chunks > 1)
      --group.window_chunks;
  grouped_lookup::terms how;
  for (const auto& group : needs)
    how.groups.push_back({namespace_id{}, group, 1});
  how.begin = begin;
  how.lease_for = std::chrono::minutes(60);
  r->rules.emplace(std::move(how), make_part(*r, operation::lookup, 0, r->chunks)->chunks.keys,
                   [this, request = r.get()](std::uint32_t) {
                     return request->leases.emplace_back(ticket{lookups_owner, ++last_request_});
                   });
  lookups_[r->lookup] = r;
  r->rules->start(now_);
  go_on(r);
  if (rarely(10))
    after(random_.skewed_time(milliseconds(1), seconds(2)), [this, r] {
      sessions_.client_disconnected(r->scheduler);
      end_unneeded();
    });
}

// Shards answer later, and act in the order of the messages.
void world::go_on(const engine_request_ptr& x) {
  for (auto& effect : x->rules->take_outbox()) {
    if (const auto* match = std::get_if<grouped_lookup::match>(&effect)) {
      auto wanted = match->request;
      if (has(defect::look_up_states_too_late) && match->group == 2)
        wanted.keys.items.insert(wanted.keys.items.begin(), wanted.keys.items.front());
      auto reply = nodes_[match->group + 1].match(wanted);
      reply.found.items.resize(match->request.keys.size());
      reply.matched = static_cast<std::uint32_t>(std::ranges::count(reply.found.items, 1));
      after(random_.skewed_time(milliseconds(1), seconds(1)),
            [this, x, lookup = match->lookup, part = match->part, reply] {
              x->rules->on_match(lookup, part, reply, now_);
              go_on(x);
            });
    } else if (const auto* release = std::get_if<grouped_lookup::release>(&effect)) {
      if (!has(defect::keep_all_leases))
        nodes_[release->group + 1].release(release->request);
    }
  }
  if (x->rules->outcome() && lookups_.erase(x->lookup) > 0)
    looked_up(x);
}

void world::looked_up(const engine_request_ptr& x) {
  const auto hit = x->rules->outcome()->hit;
  check_hit(*x);
  if (hit > x->computed / chunk_tokens)
    count("hit");
  sessions_.found(x->scheduler, x->name, x->lookup, {hit, 1, 1, x->lookup}, now_);
  leases_[x->lookup] = x;
  end_unneeded();
  const bool is_late = rarely(12);
  count(is_late ? "hit ignored" : "hit used");
  after(random_.skewed_time(milliseconds(1), seconds(2)), [this, x, hit, is_late] {
    const auto* const y = alive(x->who, x->life);
    if (y == nullptr || !y->is_settled)
      return sessions_.ended(x->scheduler, x->name);
    if (is_late)
      return store(x, 0);
    schedule(x, hit);
  });
}

void world::check_hit(const engine_request& x) {
  const auto& found = *x.rules->outcome();
  const auto keys = make_part(x, operation::lookup, 0, x.chunks)->chunks.keys;
  const auto& groups = workers_.at(x.who).groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::set<key_digest> leased;
    for (const auto& lease : x.leases)
      leased.merge(nodes_[g + 1].held(lease));
    // What is damaged is erased, also under a lease.
    for (auto i = lmcache::first_needed(groups[g], x.computed / chunk_tokens, found.hit); i < found.hit; ++i)
      if (leased.erase(keys[i]) == 0)
        broken("hits", "a hit of " + std::to_string(found.hit) + " chunks, of which group " + std::to_string(g) +
                           " has not what it needs");
    if (!leased.empty())
      broken("leases", "a lookup holds other pages than its hit needs");
  }
}

void world::end_unneeded() {
  for (const auto number : sessions_.take_cancelled())
    if (const auto node = lookups_.extract(number); !node.empty()) {
      count("lookup cancelled");
      node.mapped()->rules->cancel();
      go_on(node.mapped());
    }
  for (const auto number : sessions_.take_ended())
    if (const auto node = leases_.extract(number); !node.empty())
      for (const auto& lease : node.mapped()->rules->outcome()->leases)
        nodes_[lease.group + 1].release({{}, lease.lease, 0});
}

// -- what the engine does ---------------------------------------------------------------------------------------------

request_ptr world::make_part(const engine_request& x, operation what, std::uint32_t begin, std::uint32_t end) {
  auto out = *make_request(workers_.at(x.who), what, x.document, end);
  out.chunks.begin = begin;
  out.chunks.request = x.name;
  return std::make_shared<lmcache::incoming>(std::move(out));
}

void world::schedule(const engine_request_ptr& x, std::uint32_t hit) {
  if (rarely(20))
    sessions_.ended(x->scheduler, x->name);
  end_unneeded();
  hit > x->computed / chunk_tokens ? load(x, hit) : store(x, hit);
}

void world::load(const engine_request_ptr& x, std::uint32_t hit) {
  const auto& of = workers_.at(x->who);
  const auto begin = x->computed / chunk_tokens;
  const auto asked = ask(of, *make_part(*x, operation::prepare_retrieve, begin, hit));
  then_[asked.get()] = [this, x, hit](bool done) {
    if (done) {
      count("hit loaded");
      x->computed = std::max(x->computed, hit * chunk_tokens);
      return store(x, hit);
    }
    // It computes all again, with what its own cache has by now.
    count("hit not loaded");
    x->computed = random_.one_in(2) ? 0 : static_cast<std::uint32_t>(random_.below(x->chunks * chunk_tokens));
    store(x, 0);
  };
}

void world::store(const engine_request_ptr& x, std::uint32_t first) {
  const auto* const of = alive(x->who, x->life);
  const auto end = [this, x] {
    if (rarely(10))
      return;
    sessions_.ended(x->scheduler, x->name);
    end_unneeded();
  };
  if (of == nullptr || first >= x->chunks)
    return end();
  auto request = *make_part(*x, operation::prepare_store, first, x->chunks);
  stored_blocks blocks;
  const auto window = of->groups[1].window_chunks * chunk_tokens;
  blocks.first_live = x->computed - std::min(x->computed, window);
  request.skipped.resize(of->groups.size());
  for (auto i = first; i < x->chunks; ++i) {
    const auto tokens = (i + 1) * chunk_tokens;
    if (tokens == x->computed || (tokens > x->computed && (i + 1 == x->chunks || random_.one_in(2))))
      blocks.states.insert(i);
    else
      request.skipped[2].push_back(i - first);
    if (tokens <= blocks.first_live)
      request.skipped[1].push_back(i - first);
    else if (i * chunk_tokens < blocks.first_live)
      count("chunk without some blocks");
  }
  blocks_of_[x->name] = std::move(blocks);
  count("stored groups");
  then_[ask(*of, std::move(request)).get()] = [end](bool) { end(); };
}

content world::written_by(const lmcache::incoming& request, std::uint32_t group, std::uint32_t chunk,
                          const key_digest& key) const {
  const bool is_grouped = workers_.at(static_cast<worker_number>(*request.instance)).groups.size() > 1;
  const auto right = meaning(is_grouped ? group + 1 : 0, key);
  if (!is_grouped || group == 0)
    return right;
  const auto& blocks = blocks_of_.at(request.chunks.request);
  const auto at = request.chunks.begin + chunk;
  const bool has_all = group == 1 ? at * chunk_tokens >= blocks.first_live : blocks.states.contains(at);
  return has_all ? right : right + 500'000'000;
}

void world::check_loaded(const transfer_rules::prepared& x) {
  const auto& groups = workers_.at(made_.at(x.of).of).groups;
  const auto count_of = x.request->chunks.end - x.request->chunks.begin;
  std::set<std::pair<std::uint32_t, std::uint32_t>> needed;
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    for (auto i = lmcache::first_needed(groups[g], 0, count_of); i < count_of; ++i)
      needed.emplace(g, i);
  std::set<std::pair<std::uint32_t, std::uint32_t>> got;
  for (const auto& page : x.pages)
    got.emplace(page.group, page.chunk);
  if (got != needed || x.pages.size() != needed.size())
    broken("hits", "a retrieve brings other chunks than a hit needs");
}

void world::evict() {
  auto& node = nodes_[random_.below(nodes_.size())];
  if (node.index().empty())
    return;
  const auto at = static_cast<std::ptrdiff_t>(random_.below(node.index().size()));
  const auto key = std::next(node.index().begin(), at)->first;
  count(node.evict(key) ? "evicted" : "not evicted");
}

void world::fire(const request_ptr& x, bool done) {
  if (const auto next = then_.extract(x.get()); !next.empty())
    after(duration::zero(), [what = std::move(next.mapped()), done] { what(done); });
}

} // namespace troupe::lmcache_transfers
