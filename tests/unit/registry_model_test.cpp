// Random requests to one shard, each answer and the whole state compared with a naive model made of maps.

#include "tests/catch.hpp"
#include "tests/unit/registry_support.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t ranks = 2;
constexpr std::uint64_t universe = 40;

using codes_t = std::vector<errc>;
using name_t = std::pair<ticket, rank_number>;

struct model_page {
  enum { none, reserved, live } state = none;
  slot_ref where; // generation 0 while slots are being asked for
  name_t writer;
};

struct model_key {
  key_digest parent;
  model_page pages[ranks];
  std::vector<std::pair<rank_number, slot_ref>> withheld;
};

struct model_lease {
  timestamp deadline;
  std::vector<key_digest> keys;
};

struct model_reservation {
  timestamp deadline;
  duration lasts{};
  keys_t keys;
  std::vector<location> answers;
  bool waiting = true;
  plan_id plan = 0;
};

struct told {
  std::multiset<std::tuple<rank_number, slot_ref>> publish, abort, release;
  bool operator==(const told&) const = default;
};

class model {
public:
  std::map<key_digest, model_key> keys;
  std::map<ticket, model_lease> leases;
  std::map<name_t, model_reservation> reservations;
  std::set<name_t> ended;
  std::set<plan_id> dropped;
  told out;

  bool leased(const key_digest& key) const { return lease_count(key) > 0; }

  std::uint32_t lease_count(const key_digest& key) const {
    return static_cast<std::uint32_t>(
        std::count_if(leases.begin(), leases.end(), [&](const auto& l) { return holds(l.second, key); }));
  }

  std::int32_t children(const key_digest& key) const {
    return static_cast<std::int32_t>(
        std::count_if(keys.begin(), keys.end(), [&](const auto& k) { return k.second.parent == key; }));
  }

  std::uint32_t pages(const key_digest& key, int state) const {
    const auto found = keys.find(key);
    if (found == keys.end())
      return 0;
    return static_cast<std::uint32_t>(std::count_if(std::begin(found->second.pages), std::end(found->second.pages),
                                                    [&](const model_page& p) { return p.state == state; }));
  }

  model_page* page(const key_digest& key, rank_number rank) {
    const auto found = keys.find(key);
    return found == keys.end() ? nullptr : &found->second.pages[rank];
  }

  bool evictable(const key_digest& key) const {
    return pages(key, model_page::live) > 0 && pages(key, model_page::reserved) == 0 && !leased(key) &&
           children(key) == 0;
  }

  /// Forgets keys that nothing holds, and releases what nothing withholds any more.
  void settle() {
    for (auto i = keys.begin(); i != keys.end();) {
      if (!leased(i->first)) {
        for (const auto& [rank, where] : i->second.withheld)
          out.release.insert({rank, where});
        i->second.withheld.clear();
      }
      const bool held = leased(i->first) || pages(i->first, model_page::none) < ranks;
      i = held ? std::next(i) : keys.erase(i);
    }
  }

  void hold(const ticket& name, const keys_t& wanted, timestamp deadline) {
    if (wanted.empty() && leases.count(name) == 0)
      return;
    auto& lease = leases[name];
    lease.deadline = std::max(lease.deadline, deadline);
    for (const auto& key : wanted)
      if (!holds(lease, key))
        lease.keys.push_back(key);
  }

  void drop_page(model_reservation& r, const key_digest& key, rank_number rank, errc code) {
    auto& p = *page(key, rank);
    if (p.where.generation != 0)
      out.abort.insert({rank, p.where});
    p = {};
    const auto at = std::find(r.keys.begin(), r.keys.end(), key) - r.keys.begin();
    r.answers[static_cast<std::size_t>(at)] = {{}, static_cast<std::uint32_t>(code)};
  }

  bool owns(const name_t& name, const key_digest& key) {
    const auto* p = page(key, name.second);
    return p != nullptr && p->state == model_page::reserved && p->writer == name;
  }

  void close_if_ended(const name_t& name) {
    const auto found = reservations.find(name);
    if (found == reservations.end())
      return;
    for (const auto& key : found->second.keys)
      if (owns(name, key))
        return;
    if (found->second.waiting)
      dropped.insert(found->second.plan);
    ended.insert(name);
    reservations.erase(found);
  }

  void end(const name_t& name) {
    auto& r = reservations.at(name);
    for (const auto& key : std::set<key_digest>(r.keys.begin(), r.keys.end()))
      if (owns(name, key))
        drop_page(r, key, name.second, errc::expired);
    close_if_ended(name);
  }

  void end_if(const std::function<bool(const ticket&, timestamp)>& over) {
    for (auto i = leases.begin(); i != leases.end();)
      i = over(i->first, i->second.deadline) ? leases.erase(i) : std::next(i);
    std::vector<name_t> ending;
    for (const auto& [name, r] : reservations)
      if (over(name.first, r.deadline))
        ending.push_back(name);
    for (const auto& name : ending)
      end(name);
    settle();
  }

private:
  static bool holds(const model_lease& lease, const key_digest& key) {
    return std::find(lease.keys.begin(), lease.keys.end(), key) != lease.keys.end();
  }
};

class comparison {
public:
  explicit comparison(std::uint32_t seed) : random_(seed), real_(ranks, {.tick_work = 7, .hash_seed = seed}) {
    for (auto& n : generations_)
      n = std::vector<generation_number>(12, 0);
  }

  void step() {
    switch (below(14)) {
    case 0:
    case 1:
      return match();
    case 2:
      return locate();
    case 3:
      return release();
    case 4:
    case 5:
      return begin_reserve();
    case 6:
    case 7:
      return finish_reserve();
    case 8:
    case 9:
      return commit();
    case 10:
      return abort();
    case 11:
      return below(2) == 0 ? invalidate() : renew();
    case 12:
      return evict();
    default:
      return below(8) == 0 ? owner_dies() : pass_time();
    }
  }

  void compare() {
    collect_outbox();
    REQUIRE(told_ == model_.out);
    REQUIRE(real_.state.check_invariants() == "");
    std::map<key_digest, key_info> real;
    real_.state.for_each_key(real_.space, [&](const key_info& info) { real[info.key] = info; });
    for (std::uint64_t n = 1; n <= universe; ++n) {
      const auto key = key_of(n);
      const auto known = model_.keys.count(key) > 0;
      const auto ghost = !known && model_.children(key) > 0;
      INFO("key " << n);
      REQUIRE(real.count(key) == (known || ghost ? 1 : 0));
      if (!known && !ghost)
        continue;
      const auto& info = real[key];
      REQUIRE(info.ghost == ghost);
      REQUIRE(info.children == model_.children(key));
      REQUIRE(info.leases == model_.lease_count(key));
      REQUIRE(info.live == model_.pages(key, model_page::live));
      REQUIRE(info.reserved == model_.pages(key, model_page::reserved));
      REQUIRE(info.parent == (known ? model_.keys[key].parent : key_digest{}));
    }
    REQUIRE(real_.state.stats().leases == model_.leases.size());
  }

private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  ticket some_ticket() { return {1 + below(3), 1 + below(4)}; }
  rank_number some_rank() { return static_cast<rank_number>(below(ranks)); }
  duration some_time() { return std::chrono::seconds(1 + below(6)); }
  timestamp now() const { return at(seconds_); }

  /// A path of the tree n → n / 2, from somewhere on, with a key of another path now and then.
  keys_t some_path() {
    keys_t keys;
    for (auto n = 1 + below(universe); n > 0 && keys.size() < 5; n /= 2)
      keys.insert(keys.begin(), key_of(n));
    if (below(6) == 0)
      keys.insert(keys.begin() + static_cast<std::ptrdiff_t>(below(keys.size() + 1)), key_of(1 + below(universe)));
    return keys;
  }

  static key_digest parent_of(const key_digest& key) { return key.hi > 1 ? key_of(key.hi / 2) : key_digest{}; }

  /// Page names, mostly right ones.
  std::vector<page_ref> some_pages(rank_number rank) {
    std::vector<page_ref> pages;
    for (const auto& key : some_path()) {
      const auto* p = model_.page(key, rank);
      auto where = p != nullptr ? p->where : slot_ref{};
      if (below(12) == 0)
        where = {static_cast<slot_number>(below(12)), static_cast<generation_number>(below(3))};
      pages.push_back({key, where});
    }
    return pages;
  }

  void match() {
    const auto lease = some_ticket();
    const auto keys = some_path();
    const auto lease_for = some_time();
    std::size_t expected = 0;
    while (expected < keys.size() && model_.pages(keys[expected], model_page::live) == ranks)
      ++expected;
    const auto reply = real_.state.match({real_.space, lease, lease_for, keys}, now()).value();
    REQUIRE(reply.matched == expected);
    model_.hold(lease, {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(expected)}, now() + lease_for);
  }

  void locate() {
    const auto lease = some_ticket();
    const auto keys = some_path();
    const auto rank = some_rank();
    const auto lease_for = some_time();
    const auto reply = real_.state.locate({real_.space, rank, lease, lease_for, keys}, now()).value();
    keys_t found;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto* p = model_.page(keys[i], rank);
      const bool live = p != nullptr && p->state == model_page::live;
      REQUIRE(reply.locations[i].code() == (live ? errc::ok : errc::not_found));
      if (!live)
        continue;
      REQUIRE(reply.locations[i].where == p->where);
      found.push_back(keys[i]);
    }
    model_.hold(lease, found, now() + lease_for);
  }

  void release() {
    const auto lease = some_ticket();
    const auto keep = static_cast<std::uint32_t>(below(3));
    real_.release(lease, keep, seconds_);
    const auto found = model_.leases.find(lease);
    if (found == model_.leases.end())
      return;
    if (keep == 0)
      model_.leases.erase(found);
    else if (found->second.keys.size() > keep)
      found->second.keys.resize(keep);
    model_.settle();
  }

  void renew() {
    const auto lease = some_ticket();
    const auto lease_for = some_time();
    const auto found = model_.leases.find(lease);
    REQUIRE(real_.state.renew({real_.space, lease, lease_for}, now()).has_value() == (found != model_.leases.end()));
    if (found != model_.leases.end())
      found->second.deadline = std::max(found->second.deadline, now() + lease_for);
  }

  void begin_reserve() {
    const name_t name{some_ticket(), some_rank()};
    auto keys = some_path();
    const auto known = model_.reservations.find(name);
    if (known != model_.reservations.end() && below(2) == 0)
      keys = known->second.keys;
    const auto expires_in = some_time();
    keys_t parents;
    if (below(3) > 0)
      for (const auto& key : keys)
        parents.push_back(below(5) > 0 ? parent_of(key) : key_digest{});
    const auto plan =
        real_.state.begin_reserve({real_.space, name.second, name.first, expires_in, keys, parents}, now());
    if (known != model_.reservations.end()) {
      REQUIRE(plan.has_value() == (known->second.keys == keys));
      if (!plan)
        return;
      REQUIRE((plan->what == reserve_plan::kind::pending) == known->second.waiting);
      if (known->second.waiting)
        REQUIRE(plan->plan == known->second.plan);
      else
        REQUIRE(plan->reply.results.items == known->second.answers);
      return;
    }
    model_reservation r{now() + expires_in, expires_in, keys, {}, true, plan.value().plan};
    std::uint32_t needed = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto& k = model_.keys[keys[i]];
      const bool first = std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) ==
                         keys.begin() + static_cast<std::ptrdiff_t>(i);
      if (first && !parents.empty() && k.parent.is_null())
        k.parent = parents[i];
      auto& p = k.pages[name.second];
      r.answers.push_back({{}, static_cast<std::uint32_t>(p.state == model_page::live ? errc::exists : errc::busy)});
      if (p.state != model_page::none)
        continue;
      p = {model_page::reserved, {}, name};
      ++needed;
    }
    if (needed == 0) {
      REQUIRE(plan->what == reserve_plan::kind::answered);
      REQUIRE(plan->reply.results.items == r.answers);
      return;
    }
    REQUIRE(plan->what == reserve_plan::kind::needs_slots);
    REQUIRE(plan->slots_needed == needed);
    model_.reservations[name] = r;
    plans_.push_back({r.plan, name});
  }

  std::vector<slot_ref> some_slots(rank_number rank, std::uint64_t n) {
    std::vector<slot_ref> slots;
    for (slot_number slot = 0; slot < generations_[rank].size() && slots.size() < n; ++slot)
      if (held_[rank].count(slot) == 0) {
        held_[rank].insert(slot);
        slots.push_back({slot, ++generations_[rank][slot]});
      }
    return slots;
  }

  void finish_reserve() {
    if (plans_.empty())
      return;
    const auto chosen = plans_.begin() + static_cast<std::ptrdiff_t>(below(plans_.size()));
    const auto [plan, name] = *chosen;
    plans_.erase(chosen);
    const auto slots = some_slots(name.second, below(7));
    const auto reply = real_.state.finish_reserve(plan, slots, now());
    if (model_.dropped.erase(plan) > 0) {
      REQUIRE_FALSE(reply.has_value());
      REQUIRE(reply.error().code == errc::expired);
      for (const auto& where : slots)
        model_.out.abort.insert({name.second, where});
      return;
    }
    auto& r = model_.reservations.at(name);
    r.waiting = false;
    r.deadline = now() + r.lasts;
    std::size_t next = 0;
    std::set<key_digest> done; // later occurrences in the batch were busy
    for (std::size_t i = 0; i < r.keys.size(); ++i) {
      if (!model_.owns(name, r.keys[i]) || !done.insert(r.keys[i]).second)
        continue;
      if (next < slots.size()) {
        model_.page(r.keys[i], name.second)->where = slots[next];
        r.answers[i] = {slots[next++], 0};
      } else {
        model_.drop_page(r, r.keys[i], name.second, errc::full);
      }
    }
    for (; next < slots.size(); ++next)
      model_.out.abort.insert({name.second, slots[next]});
    REQUIRE(reply.value().results.items == r.answers);
    model_.close_if_ended(name);
    model_.settle();
  }

  void commit() {
    const name_t name{some_ticket(), some_rank()};
    const auto pages = some_pages(name.second);
    codes_t expected;
    const bool open = model_.reservations.count(name) > 0;
    const bool ended = model_.ended.count(name) > 0;
    for (const auto& [key, where] : pages) {
      auto* p = model_.page(key, name.second);
      if (p == nullptr || p->state == model_page::none) {
        expected.push_back(open || ended ? errc::expired : errc::not_found);
      } else if (p->state == model_page::live) {
        expected.push_back(p->where == where ? errc::ok : ended ? errc::expired : errc::stale);
      } else if (p->writer != name) {
        expected.push_back(ended ? errc::expired : errc::not_owner);
      } else if (where.generation == 0 || where != p->where) {
        expected.push_back(errc::stale);
      } else {
        auto& r = model_.reservations.at(name);
        const auto i = std::find(r.keys.begin(), r.keys.end(), key) - r.keys.begin();
        r.answers[static_cast<std::size_t>(i)] = {{}, static_cast<std::uint32_t>(errc::exists)};
        p->state = model_page::live;
        model_.out.publish.insert({name.second, where});
        expected.push_back(errc::ok);
      }
    }
    REQUIRE(real_.commit(name.first, pages, name.second, seconds_) == expected);
    model_.close_if_ended(name);
  }

  void abort() {
    const name_t name{some_ticket(), some_rank()};
    auto pages = some_pages(name.second);
    if (below(4) == 0)
      pages.clear();
    const bool open = model_.reservations.count(name) > 0;
    const bool known = open || model_.ended.count(name) > 0;
    codes_t expected;
    for (const auto& [key, where] : pages) {
      auto* p = model_.page(key, name.second);
      const auto state = p != nullptr ? p->state : model_page::none;
      if (model_.owns(name, key)) {
        const bool right = where.generation == 0 || where == p->where;
        expected.push_back(right ? errc::ok : errc::stale);
        if (right)
          model_.drop_page(model_.reservations.at(name), key, name.second, errc::expired);
      } else if (state == model_page::live && p->where == where) {
        expected.push_back(errc::not_owner);
      } else if (known) {
        expected.push_back(errc::ok);
      } else {
        expected.push_back(state == model_page::none ? errc::not_found : errc::not_owner);
      }
    }
    REQUIRE(real_.abort(name.first, pages, name.second, seconds_) == expected);
    if (pages.empty() && open)
      model_.end(name);
    model_.close_if_ended(name);
    model_.settle();
  }

  void invalidate() {
    const auto rank = some_rank();
    const auto pages = some_pages(rank);
    codes_t expected;
    for (const auto& [key, where] : pages) {
      auto* p = model_.page(key, rank);
      if (p == nullptr || p->state == model_page::none) {
        expected.push_back(errc::not_found);
      } else if (p->state == model_page::live && p->where == where) {
        expected.push_back(errc::ok);
        model_.keys[key].withheld.emplace_back(rank, where);
        *p = {};
      } else {
        expected.push_back(errc::stale);
      }
    }
    REQUIRE(codes(real_.state.invalidate({real_.space, rank, pages}, now()).value()) == expected);
    model_.settle();
  }

  void evict() {
    const auto rank = some_rank();
    const auto wanted = static_cast<std::uint32_t>(below(4));
    std::set<key_digest> before;
    for (const auto& [key, k] : model_.keys)
      if (model_.pages(key, model_page::live) > 0)
        before.insert(key);
    const auto reply = real_.state.evict({real_.space, rank, wanted}, now()).value();
    real_.state.for_each_key(real_.space, [&](const key_info& info) {
      if (info.live > 0)
        before.erase(info.key);
    });
    // What went had to go in some order, children first.
    std::uint32_t slots = 0;
    while (!before.empty()) {
      const auto victim =
          std::find_if(before.begin(), before.end(), [&](const auto& key) { return model_.evictable(key); });
      REQUIRE(victim != before.end());
      auto& k = model_.keys.at(*victim);
      for (rank_number r = 0; r < ranks; ++r)
        if (k.pages[r].state == model_page::live) {
          model_.out.release.insert({r, k.pages[r].where});
          slots += r == rank ? 1 : 0;
        }
      model_.keys.erase(*victim);
      before.erase(victim);
    }
    REQUIRE(reply.slots == slots);
    REQUIRE(slots <= wanted);
    if (!reply.more && slots < wanted)
      for (const auto& [key, k] : model_.keys)
        REQUIRE_FALSE(model_.evictable(key));
    if (reply.more)
      REQUIRE(real_.state.keys() > 0);
  }

  void pass_time() {
    seconds_ += static_cast<std::int64_t>(below(4));
    for (int i = 0; real_.state.tick(now()); ++i)
      REQUIRE(i < 1000);
    model_.end_if([&](const ticket&, timestamp deadline) { return deadline <= now(); });
  }

  void owner_dies() {
    const owner_id owner = 1 + below(3);
    bool more = real_.state.owner_died(owner, now());
    for (int i = 0; more; ++i) {
      REQUIRE(i < 1000);
      more = real_.state.tick(now());
    }
    model_.end_if([&](const ticket& name, timestamp) { return name.owner == owner; });
  }

  void collect_outbox() {
    const auto out = real_.state.take_outbox();
    REQUIRE(out.children.empty());
    for (const auto& part : out.slots) {
      for (const auto& where : part.publish.slots)
        told_.publish.insert({part.rank, where});
      for (const auto* batch : {&part.abort, &part.unused, &part.release, &part.suspect})
        for (const auto& where : batch->slots) {
          const bool reserved = batch == &part.abort || batch == &part.unused;
          (reserved ? told_.abort : told_.release).insert({part.rank, where});
          REQUIRE(held_[part.rank].erase(where.slot) == 1);
        }
    }
  }

  std::mt19937_64 random_;
  one_registry real_;
  model model_;
  told told_;
  std::int64_t seconds_ = 0;
  std::vector<std::pair<plan_id, name_t>> plans_;
  std::vector<generation_number> generations_[ranks];
  std::set<slot_number> held_[ranks];
};

} // namespace

TEST_CASE("a shard answers as a naive model does", "[registry]") {
  const auto seed = GENERATE(range(0U, 60U));
  INFO("seed " << seed);
  comparison c(seed);
  for (int step = 0; step < 1000; ++step) {
    INFO("step " << step);
    c.step();
    c.compare();
  }
}
