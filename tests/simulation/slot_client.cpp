#include "tests/simulation/slot_client.hpp"

#include "tests/simulation/key_tree.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr int tries_max = 3;

/// Longer than a request takes from the gateway to the end of a shard's turn.
constexpr auto inside_of_the_node = milliseconds(20);

} // namespace

slot_client::slot_client(environment& world, slot_node& node, slot_traffic& traffic, const slot_parameters& p,
                         std::uint32_t number)
    : world_(world), node_(node), traffic_(traffic), p_(p), random_(world.random.fork()),
      line_(world, node, p.request_timeout), number_(number) {}

void slot_client::start() {
  ++life_;
  running_ = true;
  for (std::uint32_t i = 0; i < p_.sessions; ++i)
    next();
}

void slot_client::start_anew() {
  ++life_;
  running_ = true;
  line_.ask<std::uint64_t>(
      "clear",
      [this](const metadata_service& service, slot_node::callback<std::uint64_t> done) {
        service.clear(p_.ns.id(), all_ranks, std::move(done));
      },
      [this](const std::optional<result<std::uint64_t>>& cleared) {
        if (cleared && *cleared)
          world_.count(**cleared > 0 ? "clear: of pages" : "clear: of none");
        register_anew(0);
      });
}

void slot_client::register_anew(rank_number rank) {
  if (rank >= p_.ranks) {
    for (std::uint32_t i = 0; i < p_.sessions; ++i)
      next();
    return;
  }
  line_.ask<void>(
      "register",
      [this, rank](const metadata_service& service, slot_node::callback<void> done) {
        const auto other = node_.slots(rank) == p_.slots ? p_.slots - 1 : p_.slots;
        service.register_rank(p_.ns.id(), rank, other, std::move(done));
      },
      [this, rank](std::optional<result<void>> answer) {
        // Not before it is cleared again, when another engine has saved pages meanwhile.
        if (answer)
          world_.count("register anew", *answer ? errc::ok : answer->error().code);
        register_anew(rank + 1);
      });
}

void slot_client::kill() {
  ++life_;
  running_ = false;
  line_.drop();
}

void slot_client::after(duration time, std::function<void()> run) {
  world_.schedule.after(time, [this, life = life_, run = std::move(run)] {
    if (life == life_)
      run();
    else
      world_.schedule.idle();
  });
}

// -- what to do -------------------------------------------------------------------------------------------------------

void slot_client::next() {
  after(random_.skewed_time(microseconds(50), p_.think_time), [this] {
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

slot_client::keys slot_client::make_path() {
  keys out(random_.number(1, p_.depth));
  key_digest parent;
  for (auto& key : out)
    parent = key = child_of(parent, random_.one_in(2) ? 0 : random_.below(p_.branches));
  return out;
}

key_digest slot_client::new_key() {
  return child_of({number_, 0x6f776e}, ++own_keys_);
}

void slot_client::save_path() {
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

void slot_client::save_own() {
  auto s = std::make_shared<save>();
  s->own = true;
  s->rank = random_.number(0, p_.ranks - 1);
  for (auto n = random_.number(1, 3); n > 0; --n)
    s->what.push_back(new_key());
  s->done = [this] { next(); };
  allocate(s, [this, s](bool answered) { answered ? write(s) : s->done(); });
}

void slot_client::load_path() {
  const auto what = make_path();
  const auto rank = random_.number(0, p_.ranks - 1);
  const auto sent = world_.now();
  const bool complete_only = random_.one_in(3);
  const auto protect = world_.has(defect::forget_protection) ? milliseconds(1) : p_.protect;
  ask<locations>(
      "protect", 1,
      [this, what, rank, complete_only, protect](const auto& service, auto then) {
        service.protect(p_.ns.id(), rank, complete_only, protect, 0, what, std::move(then));
      },
      [this, what, rank, sent](const std::optional<locations>& found) {
        for (std::size_t n = 0; found && n < what.size(); ++n) {
          const auto end =
              std::min<timestamp>(sent + p_.protect, world_.now() + random_.time(microseconds(1), p_.protect));
          if ((*found)[n].code() == errc::ok && end > world_.now())
            traffic_.read({what[n], rank, (*found)[n].where.slot}, world_.now(), end);
        }
        next();
      });
}

void slot_client::erase_path() {
  const auto what = make_path();
  const auto rank = random_.one_in(2) ? all_ranks : random_.number(0, p_.ranks - 1);
  ask<codes>(
      "erase", tries_max,
      [this, what, rank](const auto& service, auto then) { service.erase(p_.ns.id(), rank, what, std::move(then)); },
      [this](const std::optional<codes>& done) {
        for (const auto code : done.value_or(codes{}))
          world_.count("erase", static_cast<errc>(code));
        next();
      });
}

// -- asking -----------------------------------------------------------------------------------------------------------

template <class T>
void slot_client::ask(const char* name, int tries, slot_node::call<T> what,
                      std::function<void(std::optional<T>)> then) {
  line_.ask<T>(name, what, [this, name, tries, what, then](std::optional<result<T>> answer) {
    if (answer && *answer)
      return then(std::move(**answer));
    if (answer) {
      const auto& why = answer->error();
      if (why.code == errc::unknown_namespace || why.code == errc::out_of_range) {
        world_.count("request: of a rank that is not known");
        return initialise(0, [this, name, tries, what, then] { ask<T>(name, tries, what, then); });
      }
      // Slots were being asked for when the rank was registered anew.
      const bool overtaken = p_.new_sizes && why.code == errc::expired;
      if (!overtaken)
        world_.fail("codes", "a request is refused: " + to_string(why));
    }
    world_.count("request: no answer");
    if (tries <= 1)
      return then(std::nullopt);
    world_.count("request: repeated");
    ask<T>(name, tries - 1, what, then);
  });
}

void slot_client::initialise(rank_number rank, std::function<void()> then) {
  if (rank >= p_.ranks)
    return then();
  line_.ask<void>(
      "register",
      [this, rank](const metadata_service& service, slot_node::callback<void> done) {
        const auto id = p_.ns.id();
        const auto slots = node_.slots(rank);
        service.register_rank(id, rank, slots, [this, &service, id, rank, slots, done](result<void> registered) {
          if (registered || registered.error().code != errc::unknown_namespace || !node_.running())
            return done(std::move(registered));
          service.add_namespace(p_.ns, {.automatic = true, .slot_index = true, .max_ranks = p_.ranks},
                                [this, &service, id, rank, slots, done](result<void> added) {
                                  if (!added || !node_.running())
                                    return done(std::move(added));
                                  service.register_rank(id, rank, slots, done);
                                });
        });
      },
      [this, rank, then](std::optional<result<void>> answer) {
        if (answer)
          world_.count("register", *answer ? errc::ok : answer->error().code);
        const bool overtaken = answer && !*answer && p_.new_sizes && answer->error().code == errc::identity_mismatch;
        if (answer && !*answer && answer->error().code != errc::busy && !overtaken)
          world_.fail("codes", "a rank cannot be registered: " + to_string(answer->error()));
        initialise(rank + 1, then);
      });
}

// -- writing ----------------------------------------------------------------------------------------------------------

void slot_client::allocate(const save_ptr& s, std::function<void(bool)> then) {
  s->first_sent = world_.now();
  s->life = node_.life();
  ask<locations>(
      "allocate", tries_max,
      [this, s](const auto& service, auto answer) {
        service.allocate(p_.ns.id(), s->rank, p_.reservation, s->what, s->parents, std::move(answer));
      },
      [this, s, then](std::optional<locations> given) {
        if (given) {
          s->given = std::move(*given);
          for (const auto& x : s->given)
            world_.count("allocate", x.code());
        }
        then(given.has_value());
      });
}

void slot_client::write(const save_ptr& s) {
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

void slot_client::write_late(const save_ptr& s, std::size_t i) {
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
  // Abandoned while the write is still in progress.
  if (random_.one_in(2))
    s->failed.push_back(slot);
}

void slot_client::page_ended(const save_ptr& s, std::size_t i, bool well) {
  const auto& given = s->given[i];
  const bool doubted = p_.failing_writes && given.code() == errc::exists && random_.one_in(8);
  if (well && !doubted)
    s->written.push_back({s->what[i], {given.where.slot, 0}});
  else if (!random_.one_in(3))
    s->failed.push_back(given.where.slot);
  if (--s->left == 0)
    finish(s);
}

void slot_client::finish(const save_ptr& s) {
  const auto release = [this, s] { reclaim(s->rank, std::move(s->failed), [s] { s->done(); }); };
  if (s->written.empty())
    return release();
  confirm(s, s->written, [release](const auto&) { release(); });
}

void slot_client::confirm(const save_ptr& s, std::vector<page_ref> pages,
                          std::function<void(std::optional<codes>)> then) {
  ask<codes>(
      "confirm", tries_max,
      [this, s, pages](const metadata_service& service, slot_node::callback<codes> answer) {
        ++s->confirmations;
        // A confirmation that is late, or that the node's restart has overtaken, could be taken for that of another
        // writer, who has the same slot for the same key. Nothing in this protocol tells them apart.
        if (!s->own && (node_.life() != s->life || world_.now() + inside_of_the_node >= s->first_sent + p_.reservation))
          return answer(codes(pages.size(), static_cast<std::uint8_t>(errc::expired)));
        service.confirm(p_.ns.id(), s->rank, pages, [this, s, pages, answer](result<codes> x) {
          if (x && node_.running())
            node_.confirmed(s->rank, pages, *x);
          answer(std::move(x));
        });
      },
      std::move(then));
}

void slot_client::reclaim(rank_number rank, std::vector<slot_number> slots, std::function<void()> then) {
  if (slots.empty())
    return then();
  ask<codes>(
      "reclaim", tries_max,
      [this, rank, slots = std::move(slots)](const auto& service, auto answer) {
        service.reclaim(p_.ns.id(), rank, slots, std::move(answer));
      },
      [this, then](const std::optional<codes>& done) {
        for (const auto code : done.value_or(codes{}))
          world_.count("reclaim", static_cast<errc>(code));
        then();
      });
}

// -- the end ----------------------------------------------------------------------------------------------------------

void slot_client::fill(std::uint32_t count, duration limit, std::function<void()> done) {
  if (count == 0)
    return done();
  auto s = std::make_shared<save>();
  s->own = true;
  s->rank = count % p_.ranks;
  s->what = {new_key()};
  filled_.insert(s->what[0]);
  fill_one(s, world_.now() + limit, [this, count, limit, done = std::move(done)] { fill(count - 1, limit, done); });
}

void slot_client::fill_one(const save_ptr& s, timestamp until, std::function<void()> done) {
  allocate(s, [this, s, until, done = std::move(done)](bool answered) {
    if (answered && s->given[0].code() == errc::ok) {
      const page_ref page{s->what[0], {s->given[0].where.slot, 0}};
      const auto end = world_.now() + microseconds(10);
      traffic_.write({page.key, s->rank, page.where.slot}, world_.now(), end, true, [this, s, page, done](bool) {
        confirm(s, {page}, [this, s, done](const std::optional<codes>& x) {
          const auto code = x ? static_cast<errc>((*x)[0]) : errc::timeout;
          // Confirmed by a request whose answer was late, and evicted before it was repeated.
          const bool was_evicted = code == errc::not_found && s->confirmations > 1;
          if (code != errc::ok && !was_evicted)
            world_.fail("answers", "at the end: a page in time is not confirmed: " + std::string(to_string(code)));
          done();
        });
      });
      return;
    }
    if (world_.now() >= until)
      return world_.fail("room", "at the end: there is no room for new keys, though none is held");
    after(milliseconds(50), [this, s, until, done] { fill_one(s, until, done); });
  });
}

} // namespace troupe::simulation
