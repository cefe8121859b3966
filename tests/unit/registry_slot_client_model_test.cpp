// Random requests of slot clients, mixed with tickets and leases, to one shard of a namespace whose ranks are added one
// by one. Each answer, the whole state and the change feed are compared with a naive model of maps.

#include "tests/catch.hpp"
#include "tests/unit/registry_model.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <type_traits>

namespace registry_slot_client_model_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t universe = 24;

struct model_plan {
  rank_number rank = 0;
  ticks lasts = 0;
  keys_t keys;
  std::vector<location> answers;
};

class comparison : private naive_shard {
public:
  explicit comparison(std::uint32_t seed)
      : random_(seed), spec_(namespace_of(0)), ns_(spec_.id()),
        real_({.tick_work = 5, .max_clear_looks = 4, .change_feed = true, .hash_seed = seed}) {
    must(real_.add_namespace(spec_, {true, true, most_ranks}));
    real_.tick(now()); // time begins
    add_rank();
  }

  void step() {
    switch (below(24)) {
    case 0:
      return below(12) == 0 ? add_rank() : exists();
    case 1:
    case 2:
      return protect();
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
      return allocate();
    case 8:
    case 9:
    case 10:
    case 11:
      return finish();
    case 12:
    case 13:
    case 14:
    case 15:
      return confirm();
    case 16:
      return reclaim();
    case 17:
      return erase();
    case 18:
      return lease();
    case 19:
      return release();
    case 20:
      return reserve_with_ticket();
    case 21:
      return end_ticket();
    case 22:
      return below(60) == 0 ? clear() : evict();
    default:
      return pass_time();
    }
  }

  void compare() {
    settle();
    collect_outbox();
    REQUIRE(real_notified_ == notified_);
    REQUIRE(real_.check_invariants() == "");
    std::map<key_digest, key_info> real;
    real_.for_each_key(ns_, [&](const key_info& info) { real[info.key] = info; });
    std::map<std::pair<key_digest, rank_number>, slot_ref> live;
    std::uint64_t complete = 0;
    for (std::uint64_t n = 1; n <= universe; ++n) {
      const auto key = key_of(n);
      const bool known = keys_.contains(key);
      INFO("key " << n);
      compare_key(key, real);
      if (!real.contains(key))
        continue;
      const auto& info = real[key];
      const auto begun = static_cast<coarse_time>(time_ + 1);
      REQUIRE(std::max(info.protected_until, begun) ==
              std::max(static_cast<coarse_time>(protected_.contains(key) ? protected_[key] + 1 : 0), begun));
      complete += is_complete(key) ? 1 : 0;
      for (rank_number rank = 0; known && rank < most_ranks; ++rank)
        if (keys_[key].pages[rank].state == model_page::live)
          live[{key, rank}] = keys_[key].pages[rank].where;
    }
    REQUIRE(stored_ == live);
    const auto stats = real_.stats();
    REQUIRE(stats.complete_keys == complete);
    REQUIRE(stats.withheld_slots == withheld_.size());
    REQUIRE(stats.leases == leases_.size());
  }

  /// Starts a new run from the change feed.
  void restore() {
    registry_state next({.hash_seed = 5});
    must(next.add_namespace(spec_, {true, true, most_ranks}));
    for (const auto rank : ranks_)
      must(next.add_rank(ns_, rank, slots_per_rank));
    std::vector<stored_page> pages;
    for (const auto& [name, where] : stored_)
      pages.push_back({ns_, name.first, parents_stored_[name], where, name.second, 0});
    std::shuffle(pages.begin(), pages.end(), random_);
    REQUIRE(codes(next.restore(pages).value()) == codes_t(pages.size(), errc::ok));
    REQUIRE(next.restored().value().pages == pages.size());
    REQUIRE(next.check_invariants() == "");
    REQUIRE(next.stats().complete_keys == real_.stats().complete_keys);
    for (const auto& [name, where] : stored_) {
      const auto found = next.protect({ns_, name.second, false, span_of(1), keys_t{name.first}}, now()).value();
      REQUIRE(found.locations[0] == answer(errc::ok, where));
    }
  }

  std::uint64_t published() const noexcept { return published_; }
  std::uint64_t met_others() const noexcept { return met_others_; }
  std::uint64_t at_once() const noexcept { return at_once_; }

private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  timestamp now() const { return at(0) + span_of(time_); }
  rank_number some_rank() { return *std::next(ranks_.begin(), static_cast<std::ptrdiff_t>(below(ranks_.size()))); }
  ticks some_time() { return 1 + static_cast<ticks>(below(30)); }

  /// A path of the tree n → n / 2 with some key of it twice now and then.
  keys_t some_path() {
    keys_t keys;
    for (auto n = 1 + below(universe); n > 0 && keys.size() < 4; n /= 2)
      keys.insert(keys.begin(), key_of(n));
    if (below(4) == 0)
      keys.insert(keys.begin() + static_cast<std::ptrdiff_t>(below(keys.size() + 1)), keys[below(keys.size())]);
    return keys;
  }

  // -- requests

  void add_rank() {
    const auto rank = static_cast<rank_number>(below(most_ranks));
    must(real_.add_rank(ns_, rank, slots_per_rank));
    ranks_.insert(rank);
  }

  void exists() {
    const auto keys = some_path();
    const auto rank = below(2) == 0 ? all_ranks : some_rank();
    codes_t expected;
    for (const auto& key : keys) {
      const bool there = rank == all_ranks ? is_complete(key) : state(key, rank) == model_page::live;
      expected.push_back(there ? errc::ok : errc::not_found);
    }
    REQUIRE(codes(real_.exists({ns_, rank, keys}).value()) == expected);
  }

  void protect() {
    const auto keys = some_path();
    const auto rank = some_rank();
    const auto lasts = some_time();
    const bool complete_only = below(2) == 0;
    const auto reply = real_.protect({ns_, rank, complete_only, span_of(lasts), keys}, now()).value();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (state(keys[i], rank) != model_page::live || (complete_only && !is_complete(keys[i]))) {
        REQUIRE(reply.locations[i].code() == errc::not_found);
        continue;
      }
      REQUIRE(reply.locations[i] == answer(errc::ok, page(keys[i], rank)->where));
      protect_until(keys[i], time_ + lasts);
    }
    promise(rank, reply.locations.items, lasts);
  }

  /// Records that a reader knows these slots for `lasts`.
  void promise(rank_number rank, const std::vector<location>& notified, ticks lasts) {
    for (const auto& x : notified)
      if (x.where.generation != 0) {
        auto& until = promised_[{rank, x.where}];
        until = std::max(until, time_ + lasts);
      }
  }

  void allocate() {
    const auto keys = some_path();
    const auto rank = some_rank();
    const auto lasts = some_time();
    const bool may_wait = below(3) > 0;
    keys_t parents;
    if (below(3) > 0)
      for (const auto& key : keys)
        parents.push_back(key.hi > 1 && below(5) > 0 ? key_of(key.hi / 2) : key_digest{});
    const auto plan = real_.begin_allocate({ns_, rank, span_of(lasts), keys, parents}, now(), may_wait).value();
    for (const auto& key : keys) {
      const auto* p = page(key, rank);
      if (p != nullptr && p->state == model_page::waiting && may_wait) {
        ++met_others_;
        REQUIRE(plan.what == reserve_plan::kind::wait);
        REQUIRE(plan.plan == p->plan);
        return;
      }
      if (p != nullptr && p->state == model_page::allocated && p->deadline <= time_)
        drop_pages(key, rank);
    }
    model_plan expected{rank, lasts, keys, {}};
    std::set<key_digest> mine;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto& k = keys_[keys[i]];
      const bool first = std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) ==
                         keys.begin() + static_cast<std::ptrdiff_t>(i);
      if (first && !parents.empty() && k.parent.is_null())
        k.parent = parents[i];
      auto& p = k.pages[rank];
      expected.answers.push_back(answer(errc::busy));
      if (p.state == model_page::live) {
        expected.answers.back() = answer(errc::exists, p.where);
        protect_until(keys[i], time_ + lasts);
      } else if (p.state == model_page::allocated) {
        ++met_others_;
        p.shared = true;
        p.deadline = std::max(p.deadline, time_ + lasts);
        expected.answers.back() = answer(errc::ok, p.where);
      } else if (p.state == model_page::none) {
        p = {model_page::waiting, {}, false, 0, plan.plan};
        mine.insert(keys[i]);
      }
    }
    REQUIRE(plan.slots_needed == mine.size());
    if (mine.empty()) {
      REQUIRE(plan.what == reserve_plan::kind::answered);
      REQUIRE(plan.reply.results.items == expected.answers);
      promise(rank, expected.answers, lasts);
    } else {
      REQUIRE(plan.what == reserve_plan::kind::needs_slots);
      plans_[plan.plan] = expected;
    }
  }

  void finish() {
    if (plans_.empty())
      return;
    const auto chosen = std::next(plans_.begin(), static_cast<std::ptrdiff_t>(below(plans_.size())));
    const auto id = chosen->first;
    auto plan = chosen->second;
    plans_.erase(chosen);
    const auto slots = some_slots(plan.rank, below(5));
    const auto reply = real_.finish_reserve(id, slots, now()).value();
    std::size_t next = 0;
    for (std::size_t i = 0; i < plan.keys.size(); ++i)
      if (plan.answers[i].where.generation != 0)
        plan.answers[i] = promise_again(plan, plan.keys[i], plan.answers[i].where);
    for (std::size_t i = 0; i < plan.keys.size(); ++i) {
      auto* const found = page(plan.keys[i], plan.rank);
      if (found == nullptr || found->plan != id || plan.answers[i].code() != errc::busy)
        continue;
      auto& p = *found;
      if (p.state == model_page::waiting && next < slots.size()) {
        p.state = model_page::allocated;
        p.where = slots[next++];
        p.deadline = time_ + plan.lasts;
      }
      plan.answers[i] = p.state == model_page::allocated ? answer(errc::ok, p.where) : answer(errc::full);
    }
    for (const auto& key : plan.keys)
      if (state(key, plan.rank) == model_page::waiting && page(key, plan.rank)->plan == id)
        drop_pages(key, plan.rank);
    for (; next < slots.size(); ++next)
      notified_.unused.insert({plan.rank, slots[next]});
    REQUIRE(reply.results.items == plan.answers);
    promise(plan.rank, plan.answers, plan.lasts);
  }

  location promise_again(const model_plan& plan, const key_digest& key, slot_ref where) {
    auto* const p = page(key, plan.rank);
    if (p == nullptr || p->where != where)
      return answer(errc::busy);
    if (p->state == model_page::live) {
      protect_until(key, time_ + plan.lasts);
      return answer(errc::exists, where);
    }
    if (p->state != model_page::allocated || p->deadline <= time_)
      return answer(errc::busy);
    p->deadline = std::max(p->deadline, time_ + plan.lasts);
    return answer(errc::ok, where);
  }

  void confirm() {
    const auto keys = some_path();
    const auto rank = some_rank();
    confirm_request request{ns_, rank, {}};
    for (const auto& key : keys) {
      const auto* p = page(key, rank);
      auto slot = p != nullptr ? p->where.slot : 0;
      if (below(10) == 0)
        slot = static_cast<slot_number>(below(slots_per_rank + 2));
      request.pages.items.push_back({key, {slot, 0}});
    }
    const auto real = codes(real_.confirm(request, now()).value());
    codes_t expected;
    for (const auto& [key, where] : request.pages)
      expected.push_back(confirm_one(key, rank, where.slot));
    REQUIRE(real == expected);
  }

  errc confirm_one(const key_digest& key, rank_number rank, slot_number slot) {
    if (slot >= slots_per_rank)
      return errc::out_of_range;
    const auto* p = page(key, rank);
    switch (state(key, rank)) {
    case model_page::none:
      return errc::not_found;
    case model_page::waiting:
      return errc::stale;
    case model_page::reserved:
      return errc::not_owner;
    case model_page::live:
      return p->where.slot == slot ? errc::ok : errc::stale;
    default:
      break;
    }
    if (p->where.slot != slot)
      return errc::stale;
    if (p->deadline <= time_) {
      drop_pages(key, rank);
      return errc::expired;
    }
    if (p->shared)
      protect_until(key, p->deadline);
    else // the only writer reports that it has ended
      promised_.erase({rank, p->where});
    publish(key, rank);
    return errc::ok;
  }

  void reclaim() {
    const auto rank = some_rank();
    slots_t slots;
    for (auto n = below(4); n > 0; --n)
      slots.push_back(static_cast<slot_number>(below(slots_per_rank + 2)));
    const auto real = codes(real_.reclaim({ns_, rank, slots}, now()).value());
    codes_t expected;
    for (const auto slot : slots)
      expected.push_back(reclaim_one(rank, slot));
    REQUIRE(real == expected);
  }

  errc reclaim_one(rank_number rank, slot_number slot) {
    if (slot >= slots_per_rank)
      return errc::out_of_range;
    for (auto& [key, k] : keys_) {
      auto& p = k.pages[rank];
      if (p.where.generation == 0 || p.where.slot != slot)
        continue;
      if (p.state == model_page::reserved)
        return errc::not_owner;
      if (p.state == model_page::live)
        unpublish(key_digest(key), rank, true);
      else if (p.deadline <= time_)
        drop_pages(key_digest(key), rank);
      else if (p.shared)
        return errc::busy;
      else
        drop_later(key_digest(key), rank);
      return errc::ok;
    }
    return errc::not_found;
  }

  void erase() {
    const auto keys = some_path();
    const auto rank = below(2) == 0 ? all_ranks : some_rank();
    const auto real = codes(real_.erase({ns_, rank, keys}, now()).value());
    codes_t expected;
    for (const auto& key : keys)
      expected.push_back(erase_one(key, rank) > 0 ? errc::ok : errc::not_found);
    REQUIRE(real == expected);
  }

  void clear() {
    const auto rank = below(2) == 0 ? all_ranks : some_rank();
    std::uint64_t real = 0;
    clear_reply part;
    do {
      part = real_.clear({ns_, rank, part.next}, now()).value();
      real += part.pages;
    } while (part.more);
    std::uint64_t expected = 0;
    for (std::uint64_t n = 1; n <= universe; ++n)
      expected += erase_one(key_of(n), rank);
    REQUIRE(real == expected);
  }

  void lease() {
    const ticket name{1, 1 + below(3)};
    const auto keys = some_path();
    const auto rank = some_rank();
    const auto lasts = some_time();
    REQUIRE(real_.locate({ns_, rank, name, span_of(lasts), keys}, now()).has_value());
    if (leases_.contains(name) && leases_[name].deadline <= time_) {
      leases_.erase(name);
      settle();
    }
    keys_t found;
    for (const auto& key : keys)
      if (state(key, rank) == model_page::live)
        found.push_back(key);
    hold(name, found, time_ + lasts);
  }

  void release() {
    const ticket name{1, 1 + below(3)};
    must(real_.release({ns_, name, 0}, now()));
    leases_.erase(name);
    settle();
  }

  /// Reserves one key, whose slot is granted at once.
  void reserve_with_ticket() {
    const auto key = key_of(1 + below(universe));
    const auto rank = some_rank();
    const auto lasts = some_time();
    const ticket name{2, ++tickets_};
    const auto plan = real_.begin_reserve({ns_, rank, name, span_of(lasts), keys_t{key}, {}}, now()).value();
    if (state(key, rank) != model_page::none) {
      REQUIRE(plan.what == reserve_plan::kind::answered);
      REQUIRE(plan.reply.results[0].code() == (state(key, rank) == model_page::live ? errc::exists : errc::busy));
      return;
    }
    const auto slots = some_slots(rank, 1);
    REQUIRE(real_.finish_reserve(plan.plan, slots, now()).has_value());
    if (slots.empty())
      return;
    keys_[key].pages[rank] = {model_page::reserved, slots[0], false, time_ + lasts, 0};
    reserved_[name] = {key, rank};
  }

  void end_ticket() {
    if (reserved_.empty())
      return;
    const auto [name, what] = *reserved_.begin();
    reserved_.erase(name);
    const auto [key, rank] = what;
    auto& p = *page(key, rank);
    const finish_request request{ns_, rank, name, std::vector<page_ref>{{key, p.where}}};
    const bool late = p.deadline <= time_;
    if (below(2) == 0) {
      REQUIRE(codes(real_.commit(request, now()).value()) == codes_t{late ? errc::expired : errc::ok});
      if (!late)
        return publish(key, rank);
    } else {
      REQUIRE(codes(real_.abort(request, now()).value()) == codes_t{errc::ok});
    }
    drop_pages(key, rank);
  }

  void evict() {
    const auto rank = some_rank();
    evict_as(real_, ns_, rank, static_cast<std::uint32_t>(below(4)), now());
  }

  /// Sometimes there is no tick: expired entries are noticed by the next request.
  void pass_time() {
    time_ += static_cast<ticks>(below(12));
    if (below(3) == 0)
      return;
    for (int i = 0; real_.tick(now()); ++i)
      REQUIRE(i < 1000);
    std::erase_if(leases_, [&](const auto& l) { return l.second.deadline <= time_; });
    settle();
    for (std::uint64_t n = 1; n <= universe; ++n)
      for (rank_number rank = 0; rank < most_ranks; ++rank)
        if (const auto* p = page(key_of(n), rank); p != nullptr && p->deadline <= time_)
          if (p->state == model_page::allocated || p->state == model_page::reserved)
            drop_pages(key_of(n), rank);
    std::erase_if(reserved_,
                  [&](const auto& t) { return state(t.second.first, t.second.second) != model_page::reserved; });
    std::erase_if(withheld_, [&](const model_withheld& w) {
      const bool over = !w.leased && w.until <= time_;
      if (over)
        (!w.was_live ? notified_.abort : w.suspect ? notified_.suspect : notified_.release).insert({w.rank, w.where});
      return over;
    });
  }

  void collect_outbox() {
    const auto out = real_.take_outbox();
    REQUIRE(out.children.empty());
    for (const auto& part : out.slots) {
      real_notified_.add(part);
      take_back(part);
      for (const auto* batch : {&part.abort, &part.unused, &part.release, &part.suspect})
        for (const auto& where : batch->slots) {
          // A slot that is free at once must have no longer promise.
          if (!batch->rest)
            REQUIRE(promised_[{part.rank, where}] <= time_);
          at_once_ += batch->rest ? 0 : 1;
        }
    }
    for (const auto& change : out.changes)
      if (const auto* put = std::get_if<page_published>(&change)) {
        REQUIRE(stored_.insert({{put->page.key, put->page.rank}, put->page.where}).second);
        parents_stored_[{put->page.key, put->page.rank}] = put->page.parent;
      } else if (const auto* gone = std::get_if<page_unpublished>(&change)) {
        REQUIRE(stored_.erase({gone->key, gone->rank}) == 1);
      }
  }

  std::mt19937_64 random_;
  namespace_spec spec_;
  namespace_id ns_;
  registry_state real_;
  notified real_notified_;
  std::map<std::pair<key_digest, rank_number>, slot_ref> stored_;
  std::map<std::pair<key_digest, rank_number>, key_digest> parents_stored_;

  std::uint64_t tickets_ = 0;
  std::uint64_t met_others_ = 0;
  std::uint64_t at_once_ = 0;
  std::map<std::pair<rank_number, slot_ref>, ticks> promised_;
  std::map<plan_id, model_plan> plans_;
  std::map<ticket, std::pair<key_digest, rank_number>> reserved_;
};

} // namespace

TEST_CASE("registry slot client model: a shard answers slot clients like a naive model", "[registry]") {
  const auto seed = GENERATE(range(0U, 60U));
  INFO("seed " << seed);
  comparison c(seed);
  for (int step = 0; step < 1000; ++step) {
    INFO("step " << step);
    c.step();
    c.compare();
  }
  CHECK(c.published() > 30);
  CHECK(c.met_others() > 5);
  CHECK(c.at_once() > 5);
  c.restore();
}

} // namespace registry_slot_client_model_test
