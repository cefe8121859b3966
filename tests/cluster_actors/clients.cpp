#include "tests/cluster_actors/clients.hpp"

#include "messages/answer_codes.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace troupe::cluster_actors {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

error not_attached() {
  return {errc::unreachable, "the connection to the node has ended"};
}

template <class Codes>
packed<std::uint8_t> as_answer(const Codes& codes) {
  packed<std::uint8_t> out;
  for (const auto x : codes)
    out.items.push_back(static_cast<std::uint8_t>(x));
  return out;
}

} // namespace

// -- sessions ---------------------------------------------------------------------------------------------------------

session_client::session_client(host& home, std::size_t to, const namespace_id& ns, staging_buffers memory)
    : home_(home), to_(to), ns_(ns), memory_(std::move(memory)) {}

void session_client::spawn() {
  auto& system = home_.in()->system();
  const auto self = shared_from_this();
  lookup_ = stub_as<lookup_actor>(system, [self](const simulation::passing& x) {
    if (x.content.match_elements<lookup_task>())
      self->on_lookup(x);
    else
      self->on_release(x);
  });
  for (rank_number rank = 0; rank < home_.world().p.ranks; ++rank)
    load_.push_back(stub_as<transfer_actor>(system, [self, rank](const auto& x) { self->on_load(rank, x); }));
  for (std::uint32_t i = 0; i < home_.world().p.shards; ++i)
    shards_.push_back(stub_as<client_shard_actor>(system, [self](const auto& x) { self->on_shard(x); }));
}

void session_client::attached_as(owner_id owner, std::uint64_t connection) {
  owner_ = owner;
  connection_ = connection;
}

void session_client::on_lookup(const simulation::passing& x) {
  if (owner_ == 0)
    return home_.later(microseconds(20), [x] { answer(x, to_caf(not_attached())); });
  const auto work = x.content.get_as<lookup_task>(0);
  auto& world = home_.world();
  if (!world.env.winding_down && world.random.one_in(40)) {
    world.env.count("fault: lookup refused");
    return home_.later(world.delay(), [x] { answer(x, to_caf(error{errc::busy, "too many lookups"})); });
  }
  home_.ask<lookup_result>(
      to_, "lookup", [owner = owner_, work](host& there) { return there.look_up(owner, work); },
      [x](const result<lookup_result>& found) {
        if (found)
          answer(x, *found);
        else
          answer(x, to_caf(found.error()));
      });
}

void session_client::on_release(const simulation::passing& x) {
  const bool retains = x.content.match_elements<retain_atom, ticket, packed<key_digest>>();
  if (!retains && !x.content.match_elements<release_atom, ticket, packed<key_digest>>())
    return;
  const auto lease = x.content.get_as<ticket>(1);
  const auto keys = x.content.get_as<packed<key_digest>>(2).items;
  auto& world = home_.world();
  answer(x);
  if (retains) {
    world.env.count("lease reduced");
    return home_.tell(to_, [lease, keys](host& there) { there.pages().retain(lease, keys); });
  }
  auto& there = world.hosts[to_]->pages();
  const auto known = there.leases().find(lease);
  for (const auto& key : keys) {
    world.env.count("kept here");
    const auto since = known == there.leases().end() ? timestamp{} : known->second.granted;
    if (!home_.pages().is_complete(ns_, key) && !home_.pages().lost_since(ns_, key, since))
      world.env.fail("kept", "a peer is notified of a page that was kept here, and there is none");
  }
  if (world.has(defect::report_all_as_kept) && known != there.leases().end())
    for (const auto& key : known->second.keys)
      if (!home_.pages().is_complete(ns_, key) && !home_.pages().lost_since(ns_, key, known->second.granted))
        world.env.fail("kept", "a peer is notified of a page that was kept here, and there is none");
  if (!world.has(defect::forget_releases))
    home_.tell(to_, [lease](host& owner) { owner.pages().release(lease); });
}

void session_client::on_shard(const simulation::passing& x) {
  if (!x.content.match_elements<reuse_request>())
    return;
  auto& world = home_.world();
  if (owner_ == 0)
    return home_.later(microseconds(20), [x] { answer(x, to_caf(not_attached())); });
  // One that does not answer is cancelled.
  if (!world.env.winding_down && world.random.one_in(10))
    return world.env.count("fault: silent shard");
  home_.ask<reuse_reply>(
      to_, "reuse", [owner = owner_](host& there) { return there.learned(owner); },
      [x](const result<reuse_reply>& reply) {
        if (reply)
          answer(x, *reply);
        else
          answer(x, to_caf(reply.error()));
      });
}

// -- loads ------------------------------------------------------------------------------------------------------------

void session_client::on_load(rank_number rank, const simulation::passing& x) {
  if (!x.content.match_elements<transfer_task>())
    return;
  if (owner_ == 0)
    return home_.later(microseconds(20), [x] { answer(x, to_caf(not_attached())); });
  auto& world = home_.world();
  const auto number = ++last_load_;
  running_load load{x, rank, x.content.get_as<transfer_task>(0), {}, {}, 0, std::nullopt};
  const auto pages = load.work.keys.size();
  load.codes.assign(pages, errc::cancelled);
  if (!world.env.winding_down && world.random.one_in(8))
    load.breaks_at = world.random.below(pages);
  const auto self = shared_from_this();
  home_.later(load.work.deadline, [self, number] {
    if (self->loads_.contains(number))
      self->home_.world().env.count("load timed out");
    self->end_load(number, errc::timeout);
  });
  const auto keys = load.work.keys.items;
  loads_.emplace(number, std::move(load));
  // Nothing comes of it until its time has passed.
  if (!world.env.winding_down && world.random.one_in(200))
    return world.env.count("fault: load stalled");
  home_.ask<std::vector<page_bytes>>(
      to_, "load", [owner = owner_, rank, keys](host& there) { return there.read(owner, rank, keys); },
      [self, number](const result<std::vector<page_bytes>>& read) { self->on_read(number, read); });
}

void session_client::on_read(std::uint64_t number, const result<std::vector<page_bytes>>& read) {
  const auto found = loads_.find(number);
  if (found == loads_.end())
    return;
  if (!read)
    return end_load(number, read.error().code);
  found->second.pages = *read;
  go_on(number);
}

bool session_client::write(const running_load& x, std::size_t at) {
  const auto& page = x.pages[at];
  auto& world = home_.world();
  const auto right = expected_page(world.hosts[to_]->of_cluster(), ns_, x.rank, x.work.keys[at], page.size());
  auto block = x.work.blocks[at];
  if (world.has(defect::mix_blocks))
    block = x.work.blocks[(at + 1) % x.work.blocks.size()];
  auto& memory = *memory_[x.rank];
  const auto frame = memory.target(block);
  auto* const to = frame ? frame->page : memory.blocks().data() + block * page.size();
  std::memcpy(to, page.data(), page.size());
  if (page != right && !world.has(defect::open_other_namespace)) {
    world.env.count("found damaged");
    return false;
  }
  if (frame)
    frame->arrived = io::stored_payload{page_encoding::raw, page.size(), {}};
  return true;
}

void session_client::go_on(std::uint64_t number) {
  const auto found = loads_.find(number);
  if (found == loads_.end())
    return;
  auto& x = found->second;
  auto& world = home_.world();
  if (x.next == x.codes.size())
    return end_load(number, errc::ok);
  const auto at = x.next++;
  if (x.breaks_at == at) {
    world.env.count("load failed in the middle");
    constexpr errc why[] = {errc::io_error, errc::timeout, errc::busy, errc::unreachable};
    return end_load(number, why[world.random.below(4)]);
  }
  if (x.pages[at].empty()) {
    world.env.count("not there any more");
    x.codes[at] = errc::not_found;
  } else if (world.has(defect::answer_loads_early) && x.next == x.codes.size()) {
    x.codes[at] = errc::ok;
    home_.later(world.random.skewed_time(microseconds(20), world.p.page_time),
                [self = shared_from_this(), late = x, at] { static_cast<void>(self->write(late, at)); });
  } else {
    x.codes[at] = write(x, at) ? errc::ok : errc::corrupt;
  }
  home_.later(world.random.skewed_time(microseconds(1), world.p.page_time),
              [self = shared_from_this(), number] { self->go_on(number); });
}

void session_client::end_load(std::uint64_t number, errc rest) {
  const auto ended = loads_.extract(number);
  if (ended.empty())
    return;
  auto& x = ended.mapped();
  auto& world = home_.world();
  if (rest != errc::ok)
    for (auto& code : x.codes)
      if (code == errc::cancelled)
        code = rest;
  if (world.has(defect::lose_loads) && world.random.one_in(4)) {
    loads_.emplace(number, std::move(x));
    return;
  }
  world.env.count("load ended");
  if (rest == errc::unreachable && world.random.one_in(2))
    return answer(x.request, to_caf(not_attached()));
  transfer_result out;
  out.results = as_answer(x.codes);
  answer(x.request, std::move(out));
}

void session_client::fail_loads() {
  std::vector<std::uint64_t> all;
  for (const auto& [number, x] : loads_)
    all.push_back(number);
  for (const auto number : all)
    end_load(number, errc::unreachable);
}

// -- attachment -------------------------------------------------------------------------------------------------------

void session_client::connection_lost(std::size_t to, std::uint64_t connection) {
  if (to == to_ && connection_ <= connection && owner_ != 0)
    attachment_ended(owner_);
}

void session_client::attachment_ended(owner_id owner) {
  if (owner != owner_ || closed_)
    return;
  home_.world().env.count("session lost its attachment");
  owner_ = 0;
  fail_loads();
  attach_later();
}

void session_client::attach_later() {
  if (std::exchange(attaching_, true))
    return;
  auto& world = home_.world();
  home_.later(world.random.skewed_time(milliseconds(10), world.p.backoff_max), [self = shared_from_this()] {
    auto& home = self->home_;
    if (self->closed_)
      return;
    const auto connection = home.world().connection(home.number(), self->to_);
    home.ask<attached>(
        self->to_, "attach",
        [from = home.number(), run = home.run(), connection, ns = self->ns_, in = home.of_cluster()](host& there) {
          return there.attach(from, run, connection, ns, in);
        },
        [self, connection](const result<attached>& reply) {
          self->attaching_ = false;
          if (reply && self->closed_)
            return self->home_.tell(self->to_, [owner = reply->owner](host& there) { there.detach(owner); });
          if (self->closed_)
            return;
          if (!reply)
            return self->attach_later();
          self->home_.world().env.count("session attached again");
          self->attached_as(reply->owner, connection);
        });
  });
}

void session_client::close() {
  closed_ = true;
  fail_loads();
  if (owner_ != 0)
    home_.tell(to_, [owner = owner_](host& there) { there.detach(owner); });
  owner_ = 0;
  forget();
}

void session_client::forget() {
  closed_ = true;
  loads_.clear();
  if (lookup_)
    stub_of(lookup_).forget();
  for (const auto& x : load_)
    stub_of(x).forget();
  for (const auto& x : shards_)
    stub_of(x).forget();
  lookup_ = nullptr;
  load_.clear();
  shards_.clear();
  memory_.clear();
}

// -- saves ------------------------------------------------------------------------------------------------------------

own_client::own_client(host& home, const namespace_id& ns, staging_buffers memory)
    : home_(home), ns_(ns), memory_(std::move(memory)) {}

void own_client::spawn() {
  for (rank_number rank = 0; rank < home_.world().p.ranks; ++rank) {
    save_.push_back(stub_as<transfer_actor>(
        home_.in()->system(), [self = shared_from_this(), rank](const auto& x) { self->on_save(rank, x); }));
    coming_.push_back(std::make_shared<cluster::inbound_transfers>());
  }
}

void own_client::on_save(rank_number rank, const simulation::passing& x) {
  if (!x.content.match_elements<transfer_task>())
    return;
  const auto number = ++last_save_;
  running_save save{x, rank, x.content.get_as<transfer_task>(0), {}, 0};
  save.codes.assign(save.work.keys.size(), errc::cancelled);
  const auto limit = save.work.deadline;
  saves_.emplace(number, std::move(save));
  const auto self = shared_from_this();
  home_.later(home_.world().delay() / 4, [self, number] { self->begin(number); });
  home_.later(limit, [self, number] { self->end_save(number, error{errc::timeout, "the deadline of the task"}); });
}

void own_client::begin(std::uint64_t number) {
  const auto found = saves_.find(number);
  if (found == saves_.end())
    return;
  auto& x = found->second;
  auto& world = home_.world();
  if (lost_)
    return end_save(number, not_attached());
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < x.codes.size(); ++i) {
    if (home_.pages().find(ns_, x.rank, x.work.keys[i]) != nullptr) {
      world.env.count("here already");
      x.codes[i] = errc::exists;
    } else if (!world.env.winding_down && world.random.one_in(50)) {
      world.env.count("fault: no room");
      x.codes[i] = errc::no_space;
      break;
    } else {
      wanted.push_back(i);
    }
  }
  if (wanted.empty())
    return end_save(number);
  // The frames may come in two portions.
  const auto first = world.random.one_in(2) ? wanted.size() : 1 + world.random.below(wanted.size());
  std::vector<std::size_t> rest(wanted.begin() + static_cast<std::ptrdiff_t>(first), wanted.end());
  wanted.resize(first);
  x.open_batches = rest.empty() ? 1 : 2;
  request(number, x, std::move(wanted));
  if (!rest.empty())
    request(number, x, std::move(rest));
}

void own_client::request(std::uint64_t number, running_save& of, std::vector<std::size_t> positions) {
  batch what{std::move(positions), {}};
  packed<key_digest> keys;
  packed<std::uint32_t> blocks;
  auto& world = home_.world();
  for (const auto i : what.positions) {
    keys.items.push_back(of.work.keys[i]);
    blocks.items.push_back(of.work.blocks[i]);
    if (!world.p.redirects)
      continue;
    const auto frame = std::make_shared<page_bytes>(world.p.page_bytes());
    what.frames.push_back(
        std::make_shared<cluster::target_frame>(cluster::target_frame{frame->data(), frame, std::nullopt}));
    memory_[of.rank]->redirect(of.work.blocks[i], what.frames.back());
  }
  // The answer comes in the turn of another actor, or when the process ends.
  const std::weak_ptr<own_client> weak = weak_from_this();
  const bool asked = coming_[of.rank]->ask(
      of.work.ready_event, keys, blocks, home_.world().now(),
      [weak, number, rank = of.rank, work = of.work, what](const result<transfer_result>& outcome) {
        const auto self = weak.lock();
        if (!self || self->closed_)
          return;
        self->detach_frames(rank, work, what);
        self->home_.later(self->home_.world().delay() / 4,
                          [self, number, what, outcome] { self->on_sent(number, what, outcome); });
      });
  if (asked)
    return;
  detach_frames(of.rank, of.work, what);
  on_sent(number, what, fail(errc::expired, "the request for these pages has expired"));
}

void own_client::detach_frames(rank_number rank, const transfer_task& work, const batch& what) const {
  if (!what.frames.empty())
    for (const auto i : what.positions)
      memory_[rank]->redirect(work.blocks[i], nullptr);
}

void own_client::on_sent(std::uint64_t number, const batch& what, const result<transfer_result>& outcome) {
  const auto found = saves_.find(number);
  if (found == saves_.end())
    return;
  auto& x = found->second;
  const bool keeps_all = home_.world().has(defect::save_failed_pages);
  bool is_missing = false;
  for (std::size_t i = 0; i < what.positions.size(); ++i) {
    const auto code = keeps_all ? errc::ok : code_at(outcome, i);
    // After a missing page no later one is kept.
    x.codes[what.positions[i]] = is_missing ? errc::cancelled : code;
    is_missing |= code != errc::ok;
    if (!is_missing)
      keep(x, what.positions[i], what, i);
  }
  if (--x.open_batches == 0)
    end_save(number);
}

void own_client::keep(const running_save& of, std::size_t position, const batch& what, std::size_t at) {
  auto& world = home_.world();
  const auto bytes = world.p.page_bytes();
  const auto* from = memory_[of.rank]->blocks().data() + of.work.blocks[position] * bytes;
  if (!what.frames.empty() && what.frames[at]->arrived)
    from = what.frames[at]->page;
  const auto& key = of.work.keys[position];
  page_bytes page(from, from + bytes);
  if (page != expected_page(home_.of_cluster(), ns_, of.rank, key, bytes))
    world.env.fail("bytes", "a page is saved whose bytes are not those of its key");
  if (world.has(defect::claim_saved_pages) && world.random.one_in(4))
    return;
  world.env.count("page saved");
  if (home_.has(ns_))
    static_cast<void>(home_.pages().store(ns_, of.rank, key, std::move(page)));
}

void own_client::end_save(std::uint64_t number, std::optional<error> failed) {
  const auto ended = saves_.extract(number);
  if (ended.empty())
    return;
  const auto& x = ended.mapped();
  if (failed && failed->code != errc::timeout)
    return answer(x.request, to_caf(*failed));
  transfer_result out;
  auto codes = x.codes;
  if (failed) {
    home_.world().env.count("save timed out");
    std::ranges::replace(codes, errc::cancelled, errc::timeout);
  }
  out.results = as_answer(codes);
  answer(x.request, std::move(out));
}

void own_client::namespace_removed(const namespace_id& ns) {
  if (ns != ns_)
    return;
  lost_ = true;
  std::vector<std::uint64_t> all;
  for (const auto& [number, x] : saves_)
    all.push_back(number);
  for (const auto number : all)
    end_save(number, not_attached());
}

void own_client::close() {
  namespace_removed(ns_);
  forget();
}

void own_client::forget() {
  closed_ = true;
  saves_.clear();
  for (const auto& x : save_)
    stub_of(x).forget();
  save_.clear();
  coming_.clear();
  memory_.clear();
}

} // namespace troupe::cluster_actors
