#include "tests/simulation/foreign_client.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

key_digest child_of(const key_digest& parent, std::uint64_t branch) {
  return chain_key(parent, std::as_bytes(std::span(&branch, 1)));
}

constexpr int tries_max = 3;

std::vector<location>& items_of(reserve_reply& x) {
  return x.results.items;
}
std::vector<location>& items_of(locate_reply& x) {
  return x.locations.items;
}
std::vector<std::uint8_t>& items_of(result_codes& x) {
  return x.results.items;
}

template <class T>
std::vector<T> at_positions(const std::vector<T>& all, const std::vector<std::uint32_t>& positions) {
  std::vector<T> out;
  for (const auto i : positions)
    if (i < all.size())
      out.push_back(all[i]);
  return out;
}

} // namespace

foreign_client::foreign_client(environment& world, network& net, foreign_node& serving, foreign_traffic& traffic,
                               const foreign_parameters& p, process_number process)
    : world_(world), net_(net), node_(serving), traffic_(traffic), p_(p), random_(world.random.fork()),
      process_(process) {}

void foreign_client::start() {
  ++life_;
  net_.start(process_);
  for (std::uint32_t i = 0; i < p_.sessions; ++i)
    next();
}

void foreign_client::kill() {
  ++life_;
  net_.kill(process_);
}

// -- what to do -------------------------------------------------------------------------------------------------------

void foreign_client::next() {
  net_.after(process_, random_.skewed_time(microseconds(50), p_.think_time), [this] {
    if (world_.winding_down)
      return;
    switch (random_.below(8)) {
    case 0:
    case 1:
      return save_own();
    case 2:
      if (p_.erasing)
        return erase_path();
      [[fallthrough]];
    case 3:
    case 4:
      return load_path();
    default:
      return save_path();
    }
  });
}

foreign_client::keys foreign_client::make_path() {
  keys out(random_.number(1, p_.depth));
  key_digest parent;
  for (auto& key : out)
    parent = key = child_of(parent, random_.one_in(2) ? 0 : random_.below(p_.branches));
  return out;
}

key_digest foreign_client::new_key() {
  return child_of({process_, 0x6f776e}, ++own_keys_);
}

void foreign_client::save_path() {
  auto s = std::make_shared<save>();
  s->rank = random_.number(0, p_.ranks - 1);
  s->what = make_path();
  if (random_.one_in(2)) {
    s->parents.assign(s->what.begin(), s->what.end() - 1);
    s->parents.insert(s->parents.begin(), key_digest{});
  }
  if (p_.untrue_parents && random_.one_in(3)) {
    // Rings, in one request or over several.
    const auto others = make_path();
    s->parents.clear();
    for (std::size_t i = 0; i < s->what.size(); ++i)
      s->parents.push_back(random_.one_in(2) ? s->what[(i + 1) % s->what.size()] : random_.pick(others));
  }
  s->done = [this] { next(); };
  allocate(s, [this, s](bool answered) { answered ? write(s) : s->done(); });
}

void foreign_client::save_own() {
  auto s = std::make_shared<save>();
  s->own = true;
  s->rank = random_.number(0, p_.ranks - 1);
  for (auto n = random_.number(1, 3); n > 0; --n)
    s->what.push_back(new_key());
  s->done = [this] { next(); };
  allocate(s, [this, s](bool answered) { answered ? write(s) : s->done(); });
}

void foreign_client::load_path() {
  const auto what = make_path();
  const auto rank = random_.number(0, p_.ranks - 1);
  const auto sent = world_.now();
  const bool complete_only = random_.one_in(3);
  ask<locate_reply, location>(
      by_shard(what), what.size(), 1,
      [this, what, rank, complete_only](std::uint32_t i, const auto& where, promise<locate_reply> answer) {
        node_.protect(i, {p_.space.id(), rank, complete_only, p_.protect, at_positions(what, where)}, answer);
      },
      [this, what, rank, sent](const result<std::vector<location>>& found) {
        for (std::size_t n = 0; found && n < what.size(); ++n) {
          const auto end =
              std::min<timestamp>(sent + p_.protect, world_.now() + random_.time(microseconds(1), p_.protect));
          if ((*found)[n].code() == errc::ok && end > world_.now())
            traffic_.read({what[n], rank, (*found)[n].where.slot}, world_.now(), end);
        }
        next();
      });
}

void foreign_client::erase_path() {
  const auto what = make_path();
  const auto rank = random_.one_in(2) ? all_ranks : random_.number(0, p_.ranks - 1);
  ask<result_codes, std::uint8_t>(
      by_shard(what), what.size(), tries_max,
      [this, what, rank](std::uint32_t i, const auto& where, promise<result_codes> answer) {
        node_.erase(i, {p_.space.id(), rank, at_positions(what, where)}, answer);
      },
      [this](const auto&) { next(); });
}

// -- asking -----------------------------------------------------------------------------------------------------------

std::vector<std::vector<std::uint32_t>> foreign_client::by_shard(const keys& what) const {
  std::vector<std::vector<std::uint32_t>> out(p_.shards);
  for (std::uint32_t n = 0; n < what.size(); ++n)
    out[shard_of(what[n], p_.shards)].push_back(n);
  return out;
}

template <class Reply, class Item>
void foreign_client::ask(std::vector<std::vector<std::uint32_t>> parts, std::size_t items, int tries,
                         std::function<void(std::uint32_t, const std::vector<std::uint32_t>&, promise<Reply>)> serve,
                         std::function<void(result<std::vector<Item>>)> then) {
  struct gathering {
    std::vector<Item> all;
    std::size_t waiting = 0;
    bool answered = true;
  };
  if (!net_.open(connection_))
    connection_ = net_.connect(
        process_, [] {}, [] {});
  auto shared = std::make_shared<gathering>();
  shared->all.resize(items);
  shared->waiting = p_.shards;
  const auto arrived = [this, shared, parts, items, tries, serve, then] {
    if (--shared->waiting > 0)
      return;
    if (shared->answered)
      return then(std::move(shared->all));
    world_.count("request: no answer");
    if (tries <= 1)
      return then(fail(errc::timeout, "no answer"));
    world_.count("request: repeated");
    ask<Reply, Item>(parts, items, tries - 1, serve, then);
  };
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    const auto where = parts[i];
    if (where.empty()) {
      net_.after(process_, microseconds(1), arrived);
      continue;
    }
    net_.request<Reply>(
        self(), foreign_node::shard(i), connection_ == local ? ~connection_id{0} : connection_, p_.request_timeout,
        "request", [i, where, serve](promise<Reply> answer) { serve(i, where, answer); },
        [this, shared, where, arrived](result<Reply> reply) {
          if (!reply) {
            if (reply.error().code != errc::timeout)
              world_.fail("a request is refused: " + to_string(reply.error()));
            shared->answered = false;
          } else if (items_of(*reply).size() != where.size()) {
            world_.fail("an answer has another number of items than the request");
          } else {
            for (std::size_t n = 0; n < where.size(); ++n)
              shared->all[where[n]] = items_of(*reply)[n];
          }
          arrived();
        });
  }
}

// -- writing ----------------------------------------------------------------------------------------------------------

void foreign_client::allocate(const save_ptr& s, std::function<void(bool)> then) {
  s->first_sent = world_.now();
  s->life = node_.life();
  ask<reserve_reply, location>(
      by_shard(s->what), s->what.size(), tries_max,
      [this, s](std::uint32_t i, const auto& where, promise<reserve_reply> answer) {
        node_.allocate(
            i, {p_.space.id(), s->rank, p_.reservation, at_positions(s->what, where), at_positions(s->parents, where)},
            answer);
      },
      [this, s, then](result<std::vector<location>> given) {
        if (given) {
          s->given = std::move(*given);
          for (const auto& x : s->given)
            world_.count("allocate", x.code());
        }
        then(given.has_value());
      });
}

void foreign_client::write(const save_ptr& s) {
  s->left = 1;
  const auto until = s->first_sent + p_.reservation;
  for (std::size_t i = 0; i < s->what.size(); ++i) {
    const auto& given = s->given[i];
    if (given.code() != errc::ok && given.code() != errc::exists)
      continue;
    if (s->own && given.code() == errc::ok && p_.late_writers && random_.one_in(2)) {
      write_late(s, i);
      continue;
    }
    const auto begin = world_.now() + random_.time(duration(0), p_.io_time);
    const auto end = begin + random_.time(microseconds(1), p_.io_time);
    if (end >= until) {
      s->failed.push_back(given.where.slot);
      continue;
    }
    const bool well = !p_.failing_writes || given.code() == errc::exists || !random_.one_in(8);
    ++s->left;
    traffic_.write({s->what[i], s->rank, given.where.slot}, begin, end, well, [this, s, i, life = life_](bool done) {
      if (life == life_)
        page_ended(s, i, done);
    });
  }
  if (--s->left == 0)
    finish(s);
}

void foreign_client::write_late(const save_ptr& s, std::size_t i) {
  const auto slot = s->given[i].where.slot;
  const auto promised = s->first_sent + p_.reservation;
  const auto end = promised + random_.time(duration(0), p_.rest - milliseconds(1));
  if (end <= world_.now())
    return;
  world_.count("late write");
  const auto begin = std::max<timestamp>(world_.now(), end - random_.time(microseconds(1), p_.reservation));
  const page_ref page{s->what[i], {slot, 0}};
  traffic_.write({s->what[i], s->rank, slot}, begin, end, true, [this, s, page, life = life_, promised](bool) {
    if (life != life_ || world_.now() < promised || !random_.one_in(2))
      return;
    // Mostly refused; the node may have begun to count a little later.
    confirm(s, {page}, [](const auto&) {});
  });
  // Given up while the write is still under way.
  if (random_.one_in(2))
    s->failed.push_back(slot);
}

void foreign_client::page_ended(const save_ptr& s, std::size_t i, bool well) {
  const auto& given = s->given[i];
  const bool doubted = p_.failing_writes && given.code() == errc::exists && random_.one_in(8);
  if (well && !doubted)
    s->written.push_back({s->what[i], {given.where.slot, 0}});
  else if (!random_.one_in(3))
    s->failed.push_back(given.where.slot);
  if (--s->left == 0)
    finish(s);
}

void foreign_client::finish(const save_ptr& s) {
  const auto release = [this, s] { reclaim(s->rank, std::move(s->failed), [s] { s->done(); }); };
  if (s->written.empty())
    return release();
  confirm(s, s->written, [release](const auto&) { release(); });
}

void foreign_client::confirm(const save_ptr& s, std::vector<page_ref> pages,
                             std::function<void(const std::vector<std::uint8_t>&)> then) {
  keys what;
  for (const auto& page : pages)
    what.push_back(page.key);
  ask<result_codes, std::uint8_t>(
      by_shard(what), what.size(), tries_max,
      [this, s, pages](std::uint32_t i, const auto& where, promise<result_codes> answer) {
        ++s->confirmations;
        // A confirmation that is late, or that the node's restart has overtaken, could be taken for that of another
        // writer, who has the same slot for the same key. Nothing on this wire tells them apart.
        if (!s->own && (node_.life() != s->life || world_.now() >= s->first_sent + p_.reservation))
          answer.deliver(
              result_codes{std::vector<std::uint8_t>(where.size(), static_cast<std::uint8_t>(errc::expired))});
        else
          node_.confirm(i, {p_.space.id(), s->rank, at_positions(pages, where)}, answer);
      },
      [then](const result<std::vector<std::uint8_t>>& codes) { then(codes ? *codes : std::vector<std::uint8_t>{}); });
}

void foreign_client::reclaim(rank_number rank, std::vector<slot_number> slots, std::function<void()> then) {
  if (slots.empty())
    return then();
  // Numbers name no shard: all are asked for all.
  std::vector<std::uint32_t> all(slots.size());
  for (std::uint32_t n = 0; n < all.size(); ++n)
    all[n] = n;
  const auto count = slots.size();
  ask<result_codes, std::uint8_t>(
      std::vector(p_.shards, all), count, tries_max,
      [this, rank, slots = std::move(slots)](std::uint32_t i, const auto&, promise<result_codes> answer) {
        node_.reclaim(i, {p_.space.id(), rank, slots}, answer);
      },
      [then](const auto&) { then(); });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void foreign_client::fill(std::uint32_t count, duration limit, std::function<void()> done) {
  if (count == 0)
    return done();
  auto s = std::make_shared<save>();
  s->own = true;
  s->rank = count % p_.ranks;
  s->what = {new_key()};
  filled_.insert(s->what[0]);
  fill_one(s, world_.now() + limit, [this, count, limit, done = std::move(done)] { fill(count - 1, limit, done); });
}

void foreign_client::fill_one(const save_ptr& s, timestamp until, std::function<void()> done) {
  allocate(s, [this, s, until, done = std::move(done)](bool answered) {
    if (answered && s->given[0].code() == errc::ok) {
      const page_ref page{s->what[0], {s->given[0].where.slot, 0}};
      const auto end = world_.now() + microseconds(10);
      traffic_.write({page.key, s->rank, page.where.slot}, world_.now(), end, true, [this, s, page, done](bool) {
        confirm(s, {page}, [this, s, done](const std::vector<std::uint8_t>& codes) {
          const auto code = codes.empty() ? errc::timeout : static_cast<errc>(codes[0]);
          // Confirmed by a request whose answer was late, and evicted before it was repeated.
          const bool was_evicted = code == errc::not_found && s->confirmations > 1;
          if (code != errc::ok && !was_evicted)
            world_.fail("at the end: a page in time is not confirmed");
          done();
        });
      });
      return;
    }
    if (world_.now() >= until) {
      world_.fail("at the end: there is no room for new keys, though nobody holds any");
      return;
    }
    net_.after(process_, milliseconds(50), [this, s, until, done] { fill_one(s, until, done); });
  });
}

} // namespace troupe::simulation
