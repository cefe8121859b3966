#include "tests/simulation/workload.hpp"

#include "tests/simulation/key_tree.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::simulation {

namespace {

/// The time that a task may take beyond its deadline: its timer, and messages inside of the process, also of a slow
/// one.
constexpr auto tolerance = std::chrono::seconds(1);

template <std::size_t N>
bool is_one_of(errc code, const std::array<errc, N>& of) {
  return std::find(of.begin(), of.end(), code) != of.end();
}

/// Results that only a faulty disk can cause.
constexpr std::array disk_codes{errc::corrupt, errc::identity_mismatch, errc::io_error, errc::no_space,
                                errc::slab_damaged};
constexpr std::array load_codes{errc::ok,          errc::not_found,      errc::stale,   errc::timeout,
                                errc::unreachable, errc::limit_exceeded, errc::expired, errc::shutting_down,
                                errc::io_error,    errc::slab_damaged,   errc::corrupt, errc::identity_mismatch,
                                errc::full};
constexpr std::array save_codes{errc::ok,           errc::exists,   errc::busy,           errc::full,
                                errc::expired,      errc::stale,    errc::timeout,        errc::unreachable,
                                errc::io_error,     errc::no_space, errc::limit_exceeded, errc::shutting_down,
                                errc::slab_damaged, errc::not_owner};

/// The content that an engine puts into the blocks of a cancelled save: no key of the tree.
key_digest content_after_cancel(const transfer_task& work) {
  return {~std::uint64_t{0}, work.tag};
}

} // namespace

workload::workload(environment& world, engine_host& by) : world_(world), client_(by), random_(world.random.fork()) {}

void workload::start() {
  waiting_ = 0;
  for (std::uint32_t i = 0; i < world_.p.sessions; ++i)
    next();
}

// -- what to do -------------------------------------------------------------------------------------------------------

workload::keys workload::make_path() {
  keys out(random_.number(1, std::min(world_.p.depth, world_.p.batch_keys)));
  key_digest parent;
  for (auto& key : out) {
    // The first branch is taken most often, so that there are hot prefixes and rare leaves.
    const auto branch = random_.one_in(2) ? 0 : random_.below(world_.p.branches);
    key = child_of(parent, branch);
    parent = key;
  }
  return out;
}

duration workload::make_deadline() {
  return random_.skewed_time(world_.p.task_deadline_min, world_.p.task_deadline_max);
}

void workload::next() {
  client_.after(random_.skewed_time(std::chrono::microseconds(50), world_.p.think_time), [this] {
    if (world_.winding_down)
      return;
    if (!client_.attached() && !random_.one_in(4)) {
      next();
      return;
    }
    switch (random_.below(8)) {
    case 0:
      save_something();
      break;
    case 1:
      load_something();
      break;
    default:
      begin_cycle();
    }
  });
}

void workload::begin_cycle() {
  auto c = std::make_shared<cycle>();
  c->path = make_path();
  c->epoch = client_.epoch();
  lookup_task work;
  work.keys = c->path;
  work.lease_for = random_.skewed_time(std::chrono::milliseconds(1), world_.p.lease_max);
  work.lease_for = std::min(work.lease_for, world_.p.lease_max);
  work.report_on_disk = c->path.front().lo % 2 == 0;
  const auto started = world_.now();
  const auto paused = client_.paused();
  ++waiting_;
  client_.lookup(work, [this, c, started, paused, lease_for = work.lease_for](const result<lookup_result>& found) {
    --waiting_;
    check_time(started, 3 * world_.p.request_timeout, paused, "lookup");
    if (!found) {
      check_refusal(found.error(), "lookup");
      next();
      return;
    }
    if (found->matched > c->path.size() || (found->matched > 0) != (found->lease.owner != 0))
      world_.fail("answers", "a lookup finds more than was asked for, or holds nothing of what it finds");
    world_.count("lookup: keys found", found->matched);
    c->matched = found->matched;
    c->lease = found->lease;
    c->held_until = started + lease_for;
    if (c->matched > 0)
      load_matched(c);
    else
      save_rest(c);
  });
}

void workload::load_matched(const std::shared_ptr<cycle>& c) {
  c->left = world_.p.ranks;
  const keys hit(c->path.begin(), c->path.begin() + c->matched);
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    load(rank, hit, c->held_until, c->epoch, [this, c] {
      if (--c->left == 0)
        save_rest(c);
    });
}

void workload::save_rest(const std::shared_ptr<cycle>& c) {
  if (c->matched == c->path.size()) {
    end_cycle(*c);
    return;
  }
  c->left = world_.p.ranks;
  const keys rest(c->path.begin() + c->matched, c->path.end());
  const auto parent = c->matched > 0 ? c->path[c->matched - 1] : key_digest{};
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    save(rank, rest, parent, [this, c] {
      if (--c->left == 0)
        end_cycle(*c);
    });
}

void workload::end_cycle(const cycle& c) {
  if (c.matched > 0 && !random_.one_in(6))
    client_.release(c.lease);
  next();
}

void workload::save_something() {
  auto path = make_path();
  const auto from = random_.below(path.size());
  const auto parent = from > 0 && !random_.one_in(4) ? path[from - 1] : key_digest{};
  path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(from));
  if (random_.one_in(16) && path.size() > 1 && path.size() < world_.p.batch_keys)
    path.push_back(path.front());
  save(random_.number(0, world_.p.ranks - 1), std::move(path), parent, [this] { next(); });
}

void workload::load_something() {
  auto path = make_path();
  if (random_.one_in(16) && path.size() > 1 && path.size() < world_.p.batch_keys)
    path.push_back(path.front());
  if (random_.one_in(8))
    path.assign(random_.number(2, 4), path.front()); // one page into several blocks
  if (random_.one_in(32))
    path.clear();
  if (random_.one_in(32))
    path.resize(world_.p.batch_keys + 1, child_of({}, 0));
  load(random_.number(0, world_.p.ranks - 1), std::move(path), timestamp::min(), 0, [this] { next(); });
}

// -- loads and saves --------------------------------------------------------------------------------------------------

std::vector<std::uint32_t> workload::take_blocks(rank_number rank, keys& what) {
  bool sound = true;
  auto blocks = client_.device_of(rank).take(static_cast<std::uint32_t>(what.size()), sound);
  if (!sound)
    world_.fail("blocks", "client " + std::to_string(client_.number()) + ", rank " + std::to_string(rank) +
                              ": a block was written that belonged to no task");
  what.resize(blocks.size());
  return blocks;
}

std::shared_ptr<workload::under_way> workload::watch(transfer_task& work) {
  work.tag = ++last_tag_;
  return std::make_shared<under_way>();
}

void workload::cancel_some_time(const std::shared_ptr<under_way>& x, std::function<void()> cancel) {
  if (!world_.p.cancels || !random_.one_in(4))
    return;
  const auto most = std::min<duration>(world_.p.task_deadline_max, 16 * (world_.p.disk_time + world_.p.network_delay));
  client_.after(random_.skewed_time(std::chrono::microseconds(10), most), [x, cancel = std::move(cancel)] {
    x->cancelled = true; // be it over or not
    cancel();
  });
}

void workload::load(rank_number rank, keys what, timestamp held_until, std::uint64_t epoch, then done) {
  transfer_task work;
  work.blocks = take_blocks(rank, what);
  work.keys = std::move(what);
  work.deadline = make_deadline();
  const auto how = watch(work);
  const auto started = world_.now();
  const auto paused = client_.paused();
  ++waiting_;
  client_.load(rank, work,
               [this, rank, work, how, held_until, epoch, started, paused, done](const result<transfer_result>& got) {
                 --waiting_;
                 check_time(started, work.deadline, paused, "load");
                 if (got)
                   check_load(rank, work, *got, epoch == client_.epoch() && world_.now() < held_until, *how);
                 else if (work.keys.size() <= world_.p.batch_keys || got.error().code != errc::limit_exceeded)
                   check_refusal(got.error(), "load");
                 client_.device_of(rank).give_back(work.blocks.items);
                 done();
               });
  cancel_some_time(how, [this, rank, tag = work.tag] { client_.cancel_load(rank, tag, [] {}); });
}

void workload::save(rank_number rank, keys what, const key_digest& parent, then done) {
  transfer_task work;
  work.blocks = take_blocks(rank, what);
  work.keys = std::move(what);
  work.parent = parent;
  work.deadline = make_deadline();
  if (world_.p.other_node && random_.one_in(3))
    work.origin = random_.one_in(4) ? page_origin::fetched : page_origin::transient;
  for (std::size_t i = 0; i < work.keys.size(); ++i)
    client_.device_of(rank).fill(work.blocks[i], work.keys[i]);
  const auto how = watch(work);
  const auto started = world_.now();
  const auto paused = client_.paused();
  ++waiting_;
  client_.save(rank, work, [this, rank, work, how, started, paused, done](const result<transfer_result>& got) {
    --waiting_;
    how->ended = true;
    check_time(started, work.deadline, paused, "save");
    if (got)
      check_save(rank, work, *got, *how);
    else
      check_refusal(got.error(), "save");
    client_.device_of(rank).give_back(work.blocks.items);
    done();
  });
  cancel_some_time(how, [this, rank, work, how] {
    client_.cancel_save(rank, work.tag, [this, rank, work, how] {
      if (how->ended)
        return;
      // The answer means that the blocks may be used for something else, also while the rest is written.
      how->overwritten = true;
      world_.count("cancel: blocks hold something else");
      for (const auto block : work.blocks)
        client_.device_of(rank).fill(block, content_after_cancel(work));
    });
  });
}

// -- what may come of it ----------------------------------------------------------------------------------------------

void workload::check_time(timestamp started, duration limit, duration paused_before, const char* what) {
  const auto paused = client_.paused() - paused_before;
  if (world_.now() > started + limit + paused + tolerance)
    world_.fail("deadlines", std::string("a ") + what + " is answered long after its deadline");
}

void workload::check_refusal(const error& why, const char* what) {
  world_.count(std::string(what).append(" refused"), why.code);
  if (why.code != errc::unreachable && why.code != errc::limit_exceeded && why.code != errc::timeout &&
      why.code != errc::shutting_down)
    world_.fail("codes", std::string("a ") + what + " is refused: " + to_string(why));
}

void workload::check_load(rank_number rank, const transfer_task& work, const transfer_result& got, bool held,
                          const under_way& how) {
  if (got.results.size() != work.keys.size()) {
    world_.fail("answers", "a load answers for another number of blocks");
    return;
  }
  for (std::size_t i = 0; i < work.keys.size(); ++i) {
    const auto code = static_cast<errc>(got.results[i]);
    const auto name = "load of " + to_string(work.keys[i]) + " on rank " + std::to_string(rank);
    world_.count("load", code);
    if ((!is_one_of(code, load_codes) && !(how.cancelled && code == errc::cancelled)) ||
        (!world_.p.bytes_at_risk() && is_one_of(code, disk_codes)))
      world_.fail("codes", name + " ends with what cannot be: " + std::string(to_string(code)));
    if (code == errc::ok && !client_.device_of(rank).holds(work.blocks[i], work.keys[i]))
      world_.fail("bytes", name + " is said to be fine, and the bytes are not what was saved");
    if (held && !world_.p.pages_at_risk() && (code == errc::not_found || code == errc::stale))
      world_.fail("leases", name + " finds nothing, although a lookup holds the key");
  }
}

void workload::check_save(rank_number rank, const transfer_task& work, const transfer_result& got,
                          const under_way& how) {
  if (got.results.size() != work.keys.size()) {
    world_.fail("answers", "a save answers for another number of blocks");
    return;
  }
  for (std::size_t i = 0; i < work.keys.size(); ++i) {
    const auto code = static_cast<errc>(got.results[i]);
    const auto name = "save of " + to_string(work.keys[i]) + " on rank " + std::to_string(rank);
    world_.count("save", code);
    // A page that is verified before the answer may have been corrupted.
    const bool found_out = world_.p.nemesis.corrupt_memory && world_.p.memory.kind == tier::strict &&
                           (code == errc::corrupt || code == errc::identity_mismatch);
    if ((!is_one_of(code, save_codes) && !found_out && !(how.cancelled && code == errc::cancelled)) ||
        (!world_.p.bytes_at_risk() && is_one_of(code, disk_codes)))
      world_.fail("codes", name + " ends with what cannot be: " + std::string(to_string(code)));
    if (!client_.device_of(rank).holds(work.blocks[i], how.overwritten ? content_after_cancel(work) : work.keys[i]))
      world_.fail("blocks", name + " has changed the block");
  }
}

// -- at the end -------------------------------------------------------------------------------------------------------

void workload::fill(std::function<void(bool)> done) {
  fill_next(0, 0, 0, std::move(done));
}

void workload::fill_next(rank_number rank, std::uint32_t first, std::uint32_t tries, std::function<void(bool)> done) {
  constexpr std::uint32_t tries_max = 50;
  const auto& p = world_.p;
  if (rank == p.ranks || tries == tries_max) {
    done(rank == p.ranks);
    return;
  }
  bool sound = true;
  transfer_task work;
  // A chain longer than the memory that is all there is keeps itself out: its tail holds what its head would need.
  const auto room = p.memory.kind == tier::memory_only ? std::max(1U, p.memory.frames_per_extent / 2) : p.slots;
  const auto most = std::min({p.batch_keys, p.reserved_pages_max, p.slots - first, room});
  work.blocks = client_.device_of(rank).take(most, sound);
  for (std::uint32_t i = 0; i < work.blocks.size(); ++i) {
    work.keys.items.push_back(child_of({1, rank + 1}, first + i));
    client_.device_of(rank).fill(work.blocks[i], work.keys[i]);
  }
  work.deadline = std::chrono::seconds(5);
  client_.save(rank, work, [this, rank, first, tries, work, done](const result<transfer_result>& got) {
    client_.device_of(rank).give_back(work.blocks.items);
    // Where memory is small, not all of them at a time.
    const auto is_stored = [](std::uint8_t code) { return code == 0 || static_cast<errc>(code) == errc::exists; };
    std::uint32_t stored = 0;
    while (got && stored < got->results.size() && is_stored(got->results[stored]))
      ++stored;
    if (stored < work.keys.size()) {
      client_.after(std::chrono::milliseconds(100), [this, rank, first, tries, stored, done] {
        fill_next(rank, first + stored, stored > 0 ? 0 : tries + 1, done);
      });
      return;
    }
    const auto next = first + static_cast<std::uint32_t>(work.keys.size());
    if (next == world_.p.slots)
      fill_next(rank + 1, 0, 0, done);
    else
      fill_next(rank, next, 0, done);
  });
}

} // namespace troupe::simulation
