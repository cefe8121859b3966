// Random requests with tickets to one shard, each answer and the whole state compared with a naive model made of maps.

#include "tests/catch.hpp"
#include "tests/unit/registry_model.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace registry_model_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t ranks = 2;
constexpr std::uint64_t universe = 40;

using name_t = std::pair<ticket, rank_number>;

struct model_reservation {
  ticks deadline = 0;
  ticks lasts = 0;
  keys_t keys;
  std::vector<location> answers;
  bool waiting = true;
  plan_id plan = 0;
};

/// The naive shard with reservations of many keys, which end together.
class model : public naive_shard {
public:
  std::map<name_t, model_reservation> reservations;
  std::set<name_t> ended;
  std::set<plan_id> dropped;

  void drop_page(model_reservation& r, const key_digest& key, rank_number rank, errc code) {
    auto& p = *page(key, rank);
    if (p.where.generation != 0)
      notified_.abort.insert({rank, p.where});
    p = {};
    const auto at = std::find(r.keys.begin(), r.keys.end(), key) - r.keys.begin();
    r.answers[static_cast<std::size_t>(at)] = answer(code);
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

  void end_if(const std::function<bool(const ticket&, ticks)>& over) {
    std::erase_if(leases_, [&](const auto& l) { return over(l.first, l.second.deadline); });
    std::vector<name_t> ending;
    for (const auto& [name, r] : reservations)
      if (over(name.first, r.deadline))
        ending.push_back(name);
    for (const auto& name : ending)
      end(name);
    settle();
  }
};

class comparison {
public:
  explicit comparison(std::uint32_t seed) : random_(seed), real_(ranks, {.tick_work = 7, .hash_seed = seed}) {
    model_.ranks_ = {0, 1};
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
    REQUIRE(notified_ == model_.notified_);
    REQUIRE(real_.state.check_invariants() == "");
    std::map<key_digest, key_info> real;
    real_.state.for_each_key(real_.ns, [&](const key_info& info) { real[info.key] = info; });
    for (std::uint64_t n = 1; n <= universe; ++n) {
      INFO("key " << n);
      model_.compare_key(key_of(n), real);
    }
    REQUIRE(real_.state.stats().leases == model_.leases_.size());
  }

private:
  static constexpr ticks second = std::chrono::seconds(1) / coarse_clock::tick;

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  ticket some_ticket() { return {1 + below(3), 1 + below(4)}; }
  rank_number some_rank() { return static_cast<rank_number>(below(ranks)); }
  ticks some_time() { return second * (1 + static_cast<ticks>(below(6))); }
  std::int64_t seconds() const { return model_.time_ / second; }
  timestamp now() const { return at(seconds()); }

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
    while (expected < keys.size() && model_.is_complete(keys[expected]))
      ++expected;
    const auto reply = real_.state.match({real_.ns, lease, span_of(lease_for), keys}, now()).value();
    REQUIRE(reply.matched == expected);
    model_.hold(lease, {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(expected)}, model_.time_ + lease_for);
  }

  void locate() {
    const auto lease = some_ticket();
    const auto keys = some_path();
    const auto rank = some_rank();
    const auto lease_for = some_time();
    const auto reply = real_.state.locate({real_.ns, rank, lease, span_of(lease_for), keys}, now()).value();
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
    model_.hold(lease, found, model_.time_ + lease_for);
  }

  void release() {
    const auto lease = some_ticket();
    const auto keep = static_cast<std::uint32_t>(below(3));
    real_.release(lease, keep, seconds());
    const auto found = model_.leases_.find(lease);
    if (found == model_.leases_.end())
      return;
    if (keep == 0)
      model_.leases_.erase(found);
    else if (found->second.keys.size() > keep)
      found->second.keys.resize(keep);
    model_.settle();
  }

  void renew() {
    const auto lease = some_ticket();
    const auto lease_for = some_time();
    const auto found = model_.leases_.find(lease);
    REQUIRE(real_.state.renew({real_.ns, lease, span_of(lease_for)}, now()).has_value() ==
            (found != model_.leases_.end()));
    if (found != model_.leases_.end())
      found->second.deadline = std::max(found->second.deadline, model_.time_ + lease_for);
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
        real_.state.begin_reserve({real_.ns, name.second, name.first, span_of(expires_in), keys, parents}, now());
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
    model_reservation r{model_.time_ + expires_in, expires_in, keys, {}, true, plan.value().plan};
    std::uint32_t needed = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto& k = model_.keys_[keys[i]];
      const bool first = std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) ==
                         keys.begin() + static_cast<std::ptrdiff_t>(i);
      if (first && !parents.empty() && k.parent.is_null())
        k.parent = parents[i];
      auto& p = k.pages[name.second];
      r.answers.push_back(answer(p.state == model_page::live ? errc::exists : errc::busy));
      if (p.state != model_page::none)
        continue;
      p = {model_page::reserved, {}, false, 0, 0, name};
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

  void finish_reserve() {
    if (plans_.empty())
      return;
    const auto chosen = plans_.begin() + static_cast<std::ptrdiff_t>(below(plans_.size()));
    const auto [plan, name] = *chosen;
    plans_.erase(chosen);
    const auto slots = model_.some_slots(name.second, below(7));
    const auto reply = real_.state.finish_reserve(plan, slots, now());
    if (model_.dropped.erase(plan) > 0) {
      REQUIRE_FALSE(reply.has_value());
      REQUIRE(reply.error().code == errc::expired);
      for (const auto& where : slots)
        model_.notified_.unused.insert({name.second, where});
      return;
    }
    auto& r = model_.reservations.at(name);
    r.waiting = false;
    r.deadline = model_.time_ + r.lasts;
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
      model_.notified_.unused.insert({name.second, slots[next]});
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
        r.answers[static_cast<std::size_t>(i)] = answer(errc::exists);
        model_.publish(key, name.second);
        expected.push_back(errc::ok);
      }
    }
    REQUIRE(real_.commit(name.first, pages, name.second, seconds()) == expected);
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
    REQUIRE(real_.abort(name.first, pages, name.second, seconds()) == expected);
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
        model_.unpublish(key, rank, true);
      } else {
        expected.push_back(errc::stale);
      }
    }
    REQUIRE(codes(real_.state.invalidate({real_.ns, rank, pages}, now()).value()) == expected);
    model_.settle();
  }

  void evict() {
    const auto rank = some_rank();
    model_.evict_as(real_.state, real_.ns, rank, static_cast<std::uint32_t>(below(4)), now());
  }

  void pass_time() {
    model_.time_ += second * static_cast<ticks>(below(4));
    for (int i = 0; real_.state.tick(now()); ++i)
      REQUIRE(i < 1000);
    model_.end_if([&](const ticket&, ticks deadline) { return deadline <= model_.time_; });
  }

  void owner_dies() {
    const owner_id owner = 1 + below(3);
    bool more = real_.state.owner_died(owner, now());
    for (int i = 0; more; ++i) {
      REQUIRE(i < 1000);
      more = real_.state.tick(now());
    }
    model_.end_if([&](const ticket& name, ticks) { return name.owner == owner; });
  }

  void collect_outbox() {
    const auto out = real_.state.take_outbox();
    REQUIRE(out.children.empty());
    for (const auto& part : out.slots) {
      notified_.add(part);
      model_.take_back(part);
    }
  }

  std::mt19937_64 random_;
  one_registry real_;
  model model_;
  notified notified_;
  std::vector<std::pair<plan_id, name_t>> plans_;
};

} // namespace

TEST_CASE("registry model: a shard answers like a naive model", "[registry]") {
  const auto seed = GENERATE(range(0U, 60U));
  INFO("seed " << seed);
  comparison c(seed);
  for (int step = 0; step < 1000; ++step) {
    INFO("step " << step);
    c.step();
    c.compare();
  }
}

} // namespace registry_model_test
