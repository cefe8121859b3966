// Several shards with their allocators, joined by queues that deliver in random order: slots are conserved, each live
// slot belongs to one key, and the counts of children are exact, whatever overtakes what.

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/allocator/eviction_shares.hpp"
#include "tests/catch.hpp"
#include "tests/eviction_ledger.hpp"
#include "tests/unit/registry_support.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace registry_shards_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint32_t shards = 3;
constexpr std::uint32_t ranks = 2;
constexpr std::uint32_t slots_per_rank = 40;

class cluster {
public:
  /// With `fifo`, messages between two parties stay in order, as between actors; without, only those that carry slots
  /// do, and changes of children between shards arrive in any order.
  cluster(std::uint32_t seed, bool fifo) : random_(seed), fifo_(fifo), spec_(namespace_of(ranks)), ns_(spec_.id()) {
    for (std::uint32_t s = 0; s < shards; ++s) {
      registries_.push_back(std::make_unique<registry_state>(
          registry_options{.shard = s, .shard_count = shards, .tick_work = 16, .hash_seed = seed}));
      must(registries_.back()->add_namespace(spec_, {.slot_index = true}));
      for (rank_number rank = 0; rank < ranks; ++rank)
        must(registries_.back()->add_rank(ns_, rank, slots_per_rank));
    }
    for (rank_number r = 0; r < ranks; ++r)
      allocators_.push_back(std::make_unique<allocator_state>(
          allocator_options{.slots = slots_per_rank, .low_watermark = 6, .high_watermark = 12, .max_parked = 8}));
    evictions_.resize(ranks);
    shares_.assign(ranks, eviction_shares(shards));
  }

  void step() {
    switch (below(12)) {
    case 0:
      return save();
    case 1:
      return load();
    case 10:
      return save_as_slot_client();
    case 11:
      return load_without_lease();
    case 2:
      seconds_ += static_cast<std::int64_t>(below(3));
      return tick();
    case 3:
      if (below(20) == 0)
        owner_dies();
      return;
    default:
      return deliver();
    }
  }

  /// The invariants at any moment.
  void check() {
    for (const auto& registry : registries_)
      REQUIRE(registry->check_invariants() == "");
    for (rank_number rank = 0; rank < ranks; ++rank) {
      REQUIRE(allocators_[rank]->check_invariants() == "");
      std::map<slot_number, int> holders;
      for_each_slot(rank, [&](slot_ref where, registry_state::page_use) {
        REQUIRE(++holders[where.slot] == 1);
        REQUIRE(allocators_[rank]->state_of(where.slot) != allocator_state::slot_state::free);
        REQUIRE(allocators_[rank]->generation_of(where.slot) == where.generation);
      });
      const auto s = allocators_[rank]->stats();
      REQUIRE(s.free + s.reserved + s.live + s.quarantined == slots_per_rank);
      REQUIRE(s.refused == 0);
    }
  }

  /// Delivers everything, lets everything expire, and checks that both sides agree exactly.
  void quiesce() {
    for (int round = 0; round < 3; ++round) {
      drain();
      seconds_ += 1000;
      tick();
    }
    drain();
    check();
    for (rank_number rank = 0; rank < ranks; ++rank) {
      std::set<slot_number> live;
      for_each_slot(rank, [&](slot_ref where, registry_state::page_use use) {
        REQUIRE(use == registry_state::page_use::live);
        live.insert(where.slot);
      });
      REQUIRE(allocators_[rank]->stats().reserved == 0);
      REQUIRE(allocators_[rank]->stats().quarantined == 0);
      REQUIRE(allocators_[rank]->stats().live == live.size());
      for (const auto slot : live)
        REQUIRE(allocators_[rank]->state_of(slot) == allocator_state::slot_state::live);
    }
    REQUIRE(waiting_ == 0); // every take was answered
    check_children();
  }

  /// Evicts until nothing is left: no key, no ghost, no slot.
  void evict_everything() {
    for (int round = 0; round < 20; ++round)
      for (std::uint32_t s = 0; s < shards; ++s)
        for (rank_number rank = 0; rank < ranks; ++rank) {
          REQUIRE(registries_[s]->evict({ns_, rank, 1000}, now()).has_value());
          flush_shard(s);
          drain();
        }
    for (const auto& registry : registries_)
      registry->for_each_key(ns_, [](const key_info& info) {
        INFO("key " << info.key.hi << " with " << info.children << " children, " << info.live << " pages, "
                    << info.leases << " leases, " << info.reserved << " reservations");
        CHECK(false);
      });
    for (const auto& allocator : allocators_)
      REQUIRE(allocator->stats().free == slots_per_rank);
  }

  std::uint64_t committed() const noexcept { return committed_; }
  std::uint64_t confirmed() const noexcept { return confirmed_; }
  std::uint64_t evicted() const {
    std::uint64_t n = 0;
    for (const auto& registry : registries_)
      n += registry->stats().evicted_keys;
    return n;
  }

private:
  using action = std::function<void()>;

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  timestamp now() const { return at(seconds_); }
  ticket next_ticket() { return {1 + below(4), ++sequence_}; }

  /// Channels are named by sender and receiver: shards 0 …, allocators 100 …, io workers 200 …, clients 300 ….
  void send(int from, int to, action what) { channels_[{from, to}].push_back(std::move(what)); }
  static int party(std::uint32_t base, std::uint32_t n) { return static_cast<int>(base + n); }

  void deliver() {
    std::vector<std::deque<action>*> busy;
    for (auto& [name, queue] : channels_)
      if (!queue.empty())
        busy.push_back(&queue);
    if (busy.empty())
      return;
    auto& queue = *busy[below(busy.size())];
    const auto what = std::move(queue.front());
    queue.pop_front();
    std::erase_if(channels_, [](const auto& c) { return c.second.empty(); });
    what();
  }

  void drain() {
    const auto pending = [&] {
      return std::any_of(channels_.begin(), channels_.end(), [](const auto& c) { return !c.second.empty(); });
    };
    for (int i = 0; pending(); ++i) {
      REQUIRE(i < 100000);
      deliver();
    }
  }

  /// A path of a tree in which each node has three children, so that prefixes are shared.
  keys_t some_path() {
    std::vector<std::uint64_t> path;
    for (auto n = 1 + below(60); n > 0; n = (n - 1) / 3) {
      path.insert(path.begin(), n);
      if (n == 1)
        break;
    }
    keys_t keys;
    for (const auto n : path)
      keys.push_back(key_of(n));
    return keys;
  }

  void save() {
    const auto keys = some_path();
    const auto parents = chain_parents(keys);
    const auto ticket = next_ticket();
    for (rank_number rank = 0; rank < ranks; ++rank)
      for (std::uint32_t s = 0; s < shards; ++s) {
        reserve_request request{ns_, rank, ticket, std::chrono::seconds(5), {}, {}};
        for (std::size_t i = 0; i < keys.size(); ++i)
          if (shard_of(keys[i], shards) == s) {
            request.keys.items.push_back(keys[i]);
            request.parents.items.push_back(parents[i]);
          }
        if (!request.keys.empty())
          send(party(300, 0), party(0, s), [this, s, request] { reserve(s, request); });
      }
  }

  void reserve(std::uint32_t s, const reserve_request& request) {
    const auto plan = registries_[s]->begin_reserve(request, now()).value();
    flush_shard(s);
    if (plan.what == reserve_plan::kind::needs_slots)
      take(s, request, plan);
  }

  void take(std::uint32_t s, const reserve_request& request, const reserve_plan& plan) {
    const auto id = ++takes_;
    ++waiting_;
    plans_[id] = {s, plan.plan, request};
    send(party(0, s), party(100, request.rank), [this, id, n = plan.slots_needed, rank = request.rank] {
      allocators_[rank]->take(id, n, now() + std::chrono::seconds(2), now());
      flush_allocator(rank);
    });
  }

  void granted(std::uint64_t id, const std::vector<slot_ref>& slots) {
    --waiting_;
    const auto [s, plan, request] = plans_.at(id);
    plans_.erase(id);
    const auto reply = registries_[s]->finish_reserve(plan, slots, now());
    flush_shard(s);
    if (!reply)
      return;
    if (request.ticket.owner == 0)
      return write_as_slot_client(s, request, *reply);
    finish_request finish{ns_, request.rank, request.ticket, {}};
    for (std::size_t i = 0; i < request.keys.size(); ++i)
      if (reply->results[i].code() == errc::ok)
        finish.pages.items.push_back({request.keys[i], reply->results[i].where});
    const auto fate = below(8); // some writers fail, some never come back
    if (fate == 0)
      return;
    send(party(300, 0), party(0, s), [this, s = s, finish, fate] {
      if (fate == 1) {
        REQUIRE(registries_[s]->abort(finish, now()).has_value());
      } else {
        const auto done = registries_[s]->commit(finish, now()).value();
        for (const auto code : done.results)
          committed_ += code == 0 ? 1 : 0;
      }
      flush_shard(s);
    });
  }

  void save_as_slot_client() {
    const auto keys = some_path();
    const auto parents = chain_parents(keys);
    const auto rank = static_cast<rank_number>(below(ranks));
    for (std::uint32_t s = 0; s < shards; ++s) {
      reserve_request request{ns_, rank, {}, std::chrono::seconds(5), {}, {}};
      for (std::size_t i = 0; i < keys.size(); ++i)
        if (shard_of(keys[i], shards) == s) {
          request.keys.items.push_back(keys[i]);
          request.parents.items.push_back(parents[i]);
        }
      send(party(303, 0), party(0, s), [this, s, request] {
        const auto plan = registries_[s]
                              ->begin_allocate({ns_, request.rank, request.expires_in, request.keys, request.parents},
                                               now(), below(2) == 0)
                              .value();
        flush_shard(s);
        if (plan.what == reserve_plan::kind::needs_slots)
          take(s, request, plan);
        else if (plan.what == reserve_plan::kind::answered)
          write_as_slot_client(s, request, plan.reply);
      });
    }
  }

  /// The writer uses the slots, perhaps together with others, until it is done or its time has passed.
  void write_as_slot_client(std::uint32_t s, const reserve_request& request, const reserve_reply& reply) {
    const auto fate = below(8); // some never come back
    if (fate > 0)
      send(party(303, 1), party(0, s), [this, s, request, reply, fate, until = seconds_ + 5] {
        confirm_request written{ns_, request.rank, {}};
        for (std::size_t i = 0; i < request.keys.size(); ++i)
          if (const auto code = reply.results[i].code(); code == errc::ok || code == errc::exists)
            written.pages.items.push_back({request.keys[i], reply.results[i].where});
        if (seconds_ < until)
          for (const auto& page : written.pages)
            check_held(request.rank, page.where);
        if (fate < 6)
          confirmed_ += count_ok(registries_[s]->confirm(written, now()).value());
        flush_shard(s);
        if (fate > 4)
          reclaim(request.rank, written);
      });
  }

  void check_held(rank_number rank, slot_ref where) {
    const auto& allocator = *allocators_[rank];
    REQUIRE(allocator.generation_of(where.slot) == where.generation);
    REQUIRE(allocator.state_of(where.slot) != allocator_state::slot_state::free);
    REQUIRE(allocator.state_of(where.slot) != allocator_state::slot_state::quarantined);
  }

  static std::uint64_t count_ok(const result_codes& reply) {
    return static_cast<std::uint64_t>(std::count(reply.results.begin(), reply.results.end(), 0));
  }

  /// The plans of all shards by number: at most one shard knows each.
  void reclaim(rank_number rank, const confirm_request& written) {
    reclaim_request request{ns_, rank, {}};
    for (const auto& page : written.pages)
      request.slots.items.push_back(page.where.slot);
    std::vector<int> known(request.slots.size(), 0);
    for (std::uint32_t s = 0; s < shards; ++s) {
      const auto reply = registries_[s]->reclaim(request, now()).value();
      flush_shard(s);
      for (std::size_t i = 0; i < known.size(); ++i)
        known[i] += static_cast<errc>(reply.results[i]) != errc::not_found ? 1 : 0;
    }
    for (const auto n : known)
      REQUIRE(n <= 1);
  }

  void load_without_lease() {
    const auto keys = some_path();
    const auto rank = static_cast<rank_number>(below(ranks));
    for (std::uint32_t s = 0; s < shards; ++s) {
      keys_t mine;
      std::copy_if(keys.begin(), keys.end(), std::back_inserter(mine),
                   [&](const auto& key) { return shard_of(key, shards) == s; });
      send(party(304, 0), party(0, s), [this, s, mine, rank, erases = below(4) == 0] {
        const auto found = registries_[s]->protect({ns_, rank, false, std::chrono::seconds(4), mine}, now()).value();
        flush_shard(s);
        send(party(304, 0), party(0, s), [this, s, mine, rank, erases, found, until = seconds_ + 4] {
          if (erases)
            REQUIRE(registries_[s]->erase({ns_, all_ranks, mine}, now()).has_value());
          flush_shard(s);
          send(party(304, 0), party(0, s), [this, rank, found, until] {
            for (const auto& x : found.locations)
              if (seconds_ < until && x.code() == errc::ok)
                check_held(rank, x.where);
          });
        });
      });
    }
  }

  void load() {
    const auto keys = some_path();
    const auto lease = next_ticket();
    const auto rank = static_cast<rank_number>(below(ranks));
    const auto fate = below(6);
    for (std::uint32_t s = 0; s < shards; ++s) {
      keys_t mine;
      std::copy_if(keys.begin(), keys.end(), std::back_inserter(mine),
                   [&](const auto& key) { return shard_of(key, shards) == s; });
      send(party(301, 0), party(0, s), [this, s, mine, lease, rank, fate] {
        const auto found = registries_[s]->locate({ns_, rank, lease, std::chrono::seconds(4), mine}, now()).value();
        flush_shard(s);
        // Leased pages keep their slots: to be seen when the reader is done.
        send(party(301, 0), party(0, s), [this, s, mine, lease, rank, fate, found, until = seconds_ + 4] {
          if (seconds_ < until)
            for (const auto& x : found.locations)
              if (x.code() == errc::ok)
                check_held(rank, x.where);
          if (fate == 0) {
            invalidate(s, rank, mine, found);
          }
          if (fate != 1) // else it expires
            must(registries_[s]->release({ns_, lease, 0}, now()));
          flush_shard(s);
        });
      });
    }
  }

  void invalidate(std::uint32_t s, rank_number rank, const keys_t& keys, const locate_reply& found) {
    std::vector<page_ref> pages;
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (found.locations[i].code() == errc::ok)
        pages.push_back({keys[i], found.locations[i].where});
    REQUIRE(registries_[s]->invalidate({ns_, rank, pages}, now()).has_value());
  }

  void tick() {
    for (std::uint32_t s = 0; s < shards; ++s) {
      while (registries_[s]->tick(now()))
        flush_shard(s);
      flush_shard(s);
    }
    for (rank_number rank = 0; rank < ranks; ++rank) {
      allocators_[rank]->tick(now());
      flush_allocator(rank);
    }
  }

  void owner_dies() {
    const owner_id owner = 1 + below(4);
    for (std::uint32_t s = 0; s < shards; ++s)
      send(party(302, 0), party(0, s), [this, s, owner] {
        for (bool more = registries_[s]->owner_died(owner, now()); more;)
          more = registries_[s]->tick(now());
        flush_shard(s);
      });
  }

  void flush_shard(std::uint32_t s) {
    auto out = registries_[s]->take_outbox();
    for (const auto& part : out.slots) {
      ledger_.evicted(part.rank, part.release.slots.size());
      send(party(0, s), party(100, part.rank), [this, part] {
        auto& allocator = *allocators_[part.rank];
        for (const auto& codes : {allocator.publish(part.publish.slots.items), allocator.abort(part.abort.slots.items),
                                  allocator.abort(part.unused.slots.items), allocator.release(part.release.slots.items),
                                  allocator.release(part.suspect.slots.items)})
          for (const auto code : codes)
            REQUIRE(code == errc::ok);
        shares_[part.rank].released(part.release.progress);
        ledger_.heard(part.rank, part.release.slots.size());
        flush_allocator(part.rank);
      });
    }
    for (const auto& children : out.children) {
      // Each message has its own channel if they may overtake each other.
      const auto from = fifo_ ? party(0, s) : party(1000, ++children_sent_);
      send(from, party(0, children.shard), [this, children] {
        must(registries_[children.shard]->count_children(children.request, now()));
        flush_shard(children.shard);
      });
    }
  }

  void flush_allocator(rank_number rank) {
    auto out = allocators_[rank]->take_outbox();
    for (const auto& answer : out.answers) {
      const auto s = std::get<0>(plans_.at(answer.request));
      send(party(100, rank), party(0, s),
           [this, id = answer.request, slots = answer.reply.slots.items] { granted(id, slots); });
    }
    if (!out.fence.empty())
      send(party(100, rank), party(200, rank), [this, rank, slots = out.fence] {
        send(party(200, rank), party(100, rank), [this, rank, slots] {
          for (const auto code : allocators_[rank]->fenced(slots))
            REQUIRE(code == errc::ok);
          flush_allocator(rank);
        });
      });
    if (out.evict > 0) {
      const auto shares = shares_[rank].divide(out.evict);
      evictions_[rank] = {static_cast<std::uint32_t>(shards - std::ranges::count(shares, 0U)), 0, false};
      for (std::uint32_t s = 0; s < shards; ++s) {
        if (shares[s] == 0)
          continue;
        const evict_request request{ns_, rank, shares[s], shares_[rank].forced(), shares_[rank].seen(s)};
        ledger_.asked(rank, request.wanted);
        send(party(100, rank), party(0, s), [this, rank, s, request] {
          const auto before = registries_[s]->stats().evicted_keys;
          const auto reply = registries_[s]->evict(request, now()).value();
          flush_shard(s);
          REQUIRE(ledger_.answered(rank, registries_[s]->stats().evicted_keys > before) == "");
          send(party(0, s), party(100, rank), [this, rank, s, reply] {
            shares_[rank].answered(s, reply);
            evicted_by_one(rank, reply);
          });
        });
      }
    }
  }

  void evicted_by_one(rank_number rank, const evict_reply& reply) {
    auto& e = evictions_[rank];
    e.freed += reply.slots;
    e.more = e.more || reply.more;
    if (--e.waiting > 0)
      return;
    allocators_[rank]->eviction_done(e.freed, e.more || shares_[rank].hopeful());
    flush_allocator(rank);
  }

  template <class F>
  void for_each_slot(rank_number rank, F&& f) {
    for (const auto& registry : registries_)
      registry->for_each_slot(ns_, [&](rank_number r, slot_ref where, registry_state::page_use use) {
        if (r == rank)
          f(where, use);
      });
  }

  void check_children() {
    std::map<key_digest, std::int32_t> counted;
    std::map<key_digest, std::int32_t> actual;
    for (const auto& registry : registries_)
      registry->for_each_key(ns_, [&](const key_info& info) {
        if (info.children != 0)
          counted[info.key] = info.children;
        if (!info.parent.is_null())
          ++actual[info.parent];
      });
    REQUIRE(counted == actual);
  }

  struct eviction {
    std::uint32_t waiting = 0;
    std::uint64_t freed = 0;
    bool more = false;
  };

  std::mt19937_64 random_;
  bool fifo_;
  namespace_spec spec_;
  namespace_id ns_;
  std::vector<std::unique_ptr<registry_state>> registries_;
  std::vector<std::unique_ptr<allocator_state>> allocators_;
  std::vector<eviction> evictions_;
  std::vector<eviction_shares> shares_;
  eviction_ledger ledger_{ranks, shards};
  std::map<std::pair<int, int>, std::deque<action>> channels_;
  std::map<std::uint64_t, std::tuple<std::uint32_t, plan_id, reserve_request>> plans_;
  std::int64_t seconds_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t takes_ = 0;
  std::uint32_t children_sent_ = 0;
  std::uint64_t waiting_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t confirmed_ = 0;
};

} // namespace

TEST_CASE("registry shards: shards and allocators conserve slots and count children in any order of messages",
          "[registry]") {
  const auto fifo = GENERATE(true, false);
  const auto seed = GENERATE(range(0U, 40U));
  INFO("seed " << seed << ", in order " << fifo);
  cluster c(seed, fifo);
  for (int step = 0; step < 2000; ++step) {
    INFO("step " << step);
    c.step();
    if (step % 10 == 0)
      c.check();
  }
  c.quiesce();
  CHECK(c.committed() > 20);
  CHECK(c.confirmed() > 20);
  CHECK(c.evicted() > 0);
  c.evict_everything();
}

} // namespace registry_shards_test
