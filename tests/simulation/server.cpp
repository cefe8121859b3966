#include "tests/simulation/server.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/eviction/eviction_policies.hpp"
#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/memory/memory_broker.hpp"
#include "actors/node/reception/reception.hpp"
#include "actors/node/registry/registry.hpp"
#include "io/page.hpp"
#include "tests/simulation/device.hpp"
#include "tests/simulation/slot_text.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::simulation {

namespace {

/// Whether a client's process has ended, as the node may ask the kernel.
class simulated_watch final : public watched_process {
public:
  simulated_watch(const environment& world, const process_table& processes, std::int32_t number)
      : world_(world), processes_(processes), number_(number) {}

  bool gone() override { return processes_.gone(number_, world_.now()); }

private:
  const environment& world_;
  const process_table& processes_;
  std::int32_t number_;
};

/// Shards look for expired leases, and for leases of dead clients, every 200 ms, and release many of them in portions.
constexpr auto notices_within = std::chrono::seconds(1);

} // namespace

server::server(environment& world)
    : world_(world), random_(world.random.fork()), ns_(world.p.ns.id()),
      slot_bytes_(io::slot_bytes(world.p.ns.geometry.page_bytes())), frames_(world, disks_, slot_bytes_),
      asked_pages_(world), memory_(world, frames_, slot_bytes_), pages_(world.p.ranks, world.p.all_slots()),
      book_(world.p.shards), evictions_(world.p.ranks, world.p.shards) {
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    disks_.push_back(std::make_unique<disk>(world_, rank, slot_bytes_));
  frames_.ask_of_leases([this](const key_digest& key) {
    return !book_.holder_of(shard_of(key, world_.p.shards), key, world_.now()).empty();
  });
}

server::~server() {
  kill();
}

// -- life and death ---------------------------------------------------------------------------------------------------

template <class Handle>
Handle server::tapped(const Handle& behind, tap_rules rules) {
  auto out = put_tap(in_->system(), in_->keep(behind), std::move(rules));
  taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(out));
  return out;
}

registry_options server::options_of_shard(std::uint32_t i) const {
  const auto& p = world_.p;
  registry_options out;
  out.shard = i;
  out.shard_count = p.shards;
  out.max_batch = p.batch_keys;
  out.max_lease = p.lease_max;
  out.max_reservation = p.reservation_max * (world_.has(defect::long_reservations) ? 10 : 1);
  out.max_leases = p.leases_max;
  out.max_leases_per_owner = p.leases_per_owner;
  out.max_reserved_pages = p.reserved_pages_max;
  out.tick_work = p.tick_work;
  out.max_eviction_looks = p.eviction_looks;
  out.hash_seed = run_;
  out.residence = residence_;
  out.tells_workers = p.memory.second_hit || p.memory.prefetch_pages > 0;
  out.children_hold = std::chrono::hours(100); // the message was true
  out.await_fetched = p.lease_max / 2;
  return out;
}

void server::spawn_rank(rank_number rank, const metrics_actor& meters) {
  const auto& p = world_.p;
  auto parts = std::make_shared<io_worker_parts>();
  parts->name = {ns_, p.ns.name, rank};
  parts->page_bytes = p.ns.geometry.page_bytes();
  parts->extents = memory_.source(rank);
  parts->broker = broker_;
  auto& r = ranks_[rank];
  if (p.memory.kind != tier::memory_only) {
    parts->target = std::make_shared<completion_target>();
    auto store = std::make_unique<disk_store>(world_, *disks_[rank], pages_, frames_, asked_pages_, rank, slot_bytes_,
                                              [target = parts->target](auto done) { target->deliver(done); });
    r.store = store.get();
    parts->store = std::move(store);
  }
  parts->metrics = meters;
  auto& io = parts->options;
  io.slots = p.all_slots();
  io.memory_slots = p.memory_slots;
  io.slot_bytes = slot_bytes_;
  io.memory_only = p.memory.kind == tier::memory_only;
  io.write_through = p.memory.kind == tier::strict;
  io.write_eagerly = p.memory.kind != tier::on_eviction;
  io.deadline_max = p.io_deadline;
  io.batch_pages_max = p.batch_pages;
  io.pinned_bytes_max = p.pinned_pages * slot_bytes_;
  io.waiting_max = p.memory.waiting_max;
  io.reads_max = p.memory.reads_max;
  io.writes_max = p.memory.writes_max;
  io.write_retry = p.memory.write_retry;
  io.second_hit = p.memory.second_hit;
  // Not drawn, so that the worlds of a seed stay as they were.
  io.eviction = eviction_policies[p.slots % eviction_policies.size()].make;
  io.commit_time = p.memory.commit_time;
  io.prefetch_pages_max = p.memory.prefetch_pages;
  io.prefetch_reads_max = p.memory.prefetch_reads_max;
  io.prefetch_waiting_max = p.memory.prefetch_waiting_max;
  if (p.memory.scrub_interval > duration::zero()) {
    const std::chrono::duration<double> interval(p.memory.scrub_interval);
    if (!scrub_pace_)
      scrub_pace_ = std::make_shared<scrub_pace>(
          static_cast<std::uint64_t>(static_cast<double>(slot_bytes_) / interval.count()) + 1);
    io.scrub.pace = scrub_pace_;
    io.scrub.pass_pause = p.memory.scrub_pause;
    io.scrub.listed_max = 4;
  }
  io.first_pin = random_.next() >> 32U;
  io.resident = residence_->add(ns_, rank, p.all_slots());
  r.worker = tapped(spawn_actor<io_worker>(in_->system(), parts),
                    {[this, rank](passing& x) { return to_worker(rank, x); },
                     [this, rank](const passing& x, caf::message& a) { return from_worker(rank, x, a); }});
  if (r.store != nullptr)
    r.store->on_other_page = [this, rank](const page_ref& page) { say_unsound(rank, page); };
  caf::anon_send(broker_, memory_holder{ns_, rank, r.worker});
  allocator_options slots;
  slots.slots = p.slots;
  slots.memory_slots = p.memory_slots;
  slots.low_watermark = p.low_watermark;
  slots.high_watermark = p.high_watermark;
  slots.max_parked = p.parked_max;
  // Only as many are used as there are frames for their pages, which are nowhere else.
  slots.elastic = p.memory.kind == tier::memory_only;
  slots.first_generation = static_cast<generation_number>(random_.next() & 0x3fffffffU);
  r.allocator = tapped(spawn_actor<allocator>(in_->system(), slots, ns_, rank, r.worker),
                       {[this, rank](passing& x) { return to_allocator(rank, x); },
                        [this, rank](const passing& x, caf::message& a) { return from_allocator(rank, x, a); }});
}

void server::start() {
  const auto& p = world_.p;
  world_.trace("node starts");
  for (const auto& d : disks_)
    if (d->damaged())
      d->replace();
  ++run_;
  draining_ = false;
  in_ = std::make_unique<process>(world_, "the node");
  residence_ = std::make_shared<page_residence>();
  memory_.begin_run();
  frames_.begin(memory_.memory(), [this] {
    // The rest of a pause that it is in.
    const auto left = in_ && in_->goes_on() > world_.now() ? in_->goes_on() - world_.now() : duration{};
    return in_ ? in_->paused_in_all() - left : duration{};
  });
  const auto meters = caf::actor_cast<metrics_actor>(make_deaf(in_->system()));
  for (std::uint32_t i = 0; i < p.shards; ++i) {
    const auto real = spawn_actor<registry>(in_->system(), options_of_shard(i), std::vector{p.ns}, meters, nullptr);
    shard_ids_.push_back(real.id());
    shards_.push_back(tapped(real, {[this, i](passing& x) { return to_shard(i, x); },
                                    [this, i](const passing& x, caf::message& a) { return from_shard(i, x, a); }}));
  }
  gave_back_in_.assign(p.shards, 0);
  children_elsewhere_.assign(p.shards, {});
  shard_stats_.assign(p.shards, std::nullopt);
  ranks_.resize(p.ranks);
  memory_broker_options rules;
  rules.keep_at_least = p.memory.keep_at_least;
  rules.age_margin = p.memory.age_margin;
  broker_ =
      in_->keep(spawn_actor<memory_broker>(in_->system(), memory_.source_of_broker(), rules, p.memory.give_patience));
  for (rank_number rank = 0; rank < p.ranks; ++rank)
    spawn_rank(rank, meters);
  bind(meters);
  plan_other_node();
}

void server::bind(const metrics_actor& meters) {
  const auto& p = world_.p;
  registry_peers peers;
  node_children children;
  children.served = {p.ns};
  peers.shards = shards_;
  for (const auto& x : shards_)
    children.add_shard(x);
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    peers.allocators.push_back(ranks_[rank].allocator);
    peers.namespaces.push_back(ns_);
    peers.ranks.push_back(rank);
    peers.workers.push_back(ranks_[rank].worker);
    children.add_rank({0, rank, p.slots, ranks_[rank].worker, ranks_[rank].allocator});
  }
  children.add_metrics(meters);
  children.extents = memory_.source(0);
  asker_ = asker::make(in_->system());
  for (const auto& x : shards_) {
    caf::anon_send(x, bind_atom_v, peers);
    for (rank_number rank = 0; rank < p.ranks; ++rank)
      caf::anon_send(x, add_rank_request{ns_, rank, p.slots, ranks_[rank].allocator, 0});
  }
  for (const auto& x : peers.allocators)
    caf::anon_send(x, bind_atom_v, peers);
  for (const auto& x : ranks_)
    caf::anon_send(x.worker, bind_atom_v, peers);
  auto options = std::make_shared<config::node_config>();
  options->statistics_interval = duration::zero();
  options->memory.client_bytes = p.pinned_pages * slot_bytes_;
  options->io.max_batch_pages = p.batch_pages;
  options->registry.max_batch_keys = p.batch_keys;
  options->registry.lease_max = p.lease_max;
  options->registry.reservation_deadline = p.reservation_max;
  options->drain_timeout = std::chrono::seconds(30);
  node_ = spawn_actor<troupe::node>(in_->system(), options, children, [this](std::int32_t x) { return watch(x); });
  in_->keep(node_);
  reception_ = spawn_actor<troupe::reception>(in_->system(), node_);
}

result<std::unique_ptr<watched_process>> server::watch(std::int32_t number) {
  if (processes_.gone(number, world_.now()))
    return fail(errc::unreachable, "there is no process " + std::to_string(number));
  return std::make_unique<simulated_watch>(world_, processes_, number);
}

void server::check_what_is_left() {
  pages_.for_each_committed([this](rank_number rank, const page_ref& page) {
    if (frames_.may_be_gone(rank, page.where))
      return;
    const auto bytes = disks_[rank]->content(page.where);
    const io::page_identity is{ns_, page.key, rank, page.where, world_.p.ns.geometry.page_bytes()};
    const bool there = io::verify_page(bytes, is) == errc::ok;
    world_.count(there ? "crash: a page is on disk" : "crash: a page was in memory only");
    if (there && std::memcmp(bytes.data() + io::page_header_bytes, page_of(page.key, rank, is.payload_bytes).data(),
                             is.payload_bytes) != 0)
      world_.fail("bytes", text_of(rank, page.where) + " is left behind with other bytes than were saved");
    if (!there && world_.p.memory.kind == tier::strict && !world_.p.disks_lie())
      world_.fail("strict", text_of(rank, page.where) + " was answered as stored, and is not on the disk of a node "
                                                        "that was killed");
  });
}

void server::kill() {
  if (!running())
    return;
  world_.trace("node is killed");
  for (const auto& x : ranks_)
    if (x.store != nullptr)
      x.store->cut_off();
  for (const auto& d : disks_)
    d->crash();
  check_what_is_left();
  for (const auto& x : std::exchange(lines_, {}))
    x->forget(line::node);
  for (const auto& x : taps_)
    static_cast<tap*>(x->get())->forget();
  taps_.clear();
  static_cast<asker*>(asker_->get())->forget();
  asker_ = nullptr;
  held_children_.clear();
  late_word_.reset();
  may_go_.clear();
  evicted_.clear();
  evictions_ = test::eviction_ledger(world_.p.ranks, world_.p.shards);
  parents_.clear();
  said_parents_.clear();
  first_parents_.clear();
  disputed_.clear();
  shards_.clear();
  shard_ids_.clear();
  ranks_.clear();
  broker_ = nullptr;
  node_ = nullptr;
  reception_ = nullptr;
  in_.reset();
  asked_.clear();
  asked_pages_.begin();
  memory_.end_run();
  frames_.begin({}, {});
  pages_.clear();
  book_ = lease_book(world_.p.shards);
  evict_first_.clear();
  words_left_out_.clear();
  transient_left_out_.clear();
}

void server::add_line(std::shared_ptr<line> x) {
  std::erase_if(lines_, [](const auto& y) { return y->ended(line::node); });
  lines_.push_back(std::move(x));
}

void server::drain(duration limit) {
  if (!running() || std::exchange(draining_, true))
    return;
  world_.trace("node drains");
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(node_), caf::make_message(drain_atom_v),
            [this](caf::message&) { world_.count("node has drained"); });
  world_.schedule.after(limit, [this, run = run_] {
    if (run == run_)
      kill();
    else
      world_.schedule.idle();
  });
}

std::optional<std::uint32_t> server::shard_of_sender(const caf::strong_actor_ptr& sender) const {
  if (sender)
    for (std::uint32_t i = 0; i < shard_ids_.size(); ++i)
      if (shard_ids_[i] == sender->id())
        return i;
  return std::nullopt;
}

// -- erased keys, and leases ------------------------------------------------------------------------------------------

owner_id server::erase_something() {
  if (!running())
    return 0;
  std::optional<lease_book::holding> found;
  const auto rank = static_cast<rank_number>(random_.below(world_.p.ranks));
  if (const auto where = disks_[rank]->busiest_slot(); where && !random_.one_in(4))
    found = book_.key_at(rank, *where);
  if (!found)
    found = book_.any_key(static_cast<std::uint32_t>(random_.below(world_.p.shards)), random_.next());
  if (!found)
    return 0;
  const auto i = shard_of(found->key, world_.p.shards);
  world_.trace("key is erased", {i, found->key.lo});
  world_.count("fault: erased key");
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]),
            caf::make_message(erase_request{ns_, all_ranks, std::vector{found->key}}), [this](caf::message& answer) {
              if (const auto done = answer_as<result_codes>(answer); !done)
                world_.fail("codes", "a shard refuses to erase a key: " + to_string(done.error()));
            });
  return found->owner;
}

void server::say_something_stray() {
  if (!running())
    return;
  const auto rank = static_cast<rank_number>(random_.below(world_.p.ranks));
  const bool fetch = random_.one_in(2);
  const auto whose = frames_.any_pin(rank, fetch, random_.next());
  const auto pin = whose ? whose->first : random_.next();
  const owner_id by = random_.next();
  world_.count(whose ? "fault: a client names another's pin" : "fault: a client names an unknown pin");
  auto& out = *static_cast<asker*>(asker_->get());
  const auto to = caf::actor_cast<caf::strong_actor_ptr>(ranks_[rank].worker);
  if (fetch)
    out.ask(to, caf::make_message(unpin_atom_v, by, pin), [](caf::message&) {});
  else
    out.ask(to, caf::make_message(fill_atom_v, by, fill_request{pin, {}, world_.p.io_deadline}), [](caf::message&) {});
}

timestamp server::noticed_before() const {
  return world_.now() - notices_within - in_->paused_in_all();
}

void server::ask_what_is_held() {
  auto& by = *static_cast<asker*>(asker_->get());
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    shard_stats_[i].reset();
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(stats_atom_v),
           [this, i](caf::message& answer) {
             const auto stats = answer_as<registry_stats>(answer);
             if (!stats)
               return;
             shard_stats_[i] = *stats;
             const auto before = noticed_before();
             const auto [least, most] = book_.count(i, world_.now(), before);
             if (stats->leases < least || stats->leases > most)
               world_.fail("leases", "shard " + std::to_string(i) + " has " + std::to_string(stats->leases) +
                                         " leases, and there are " + std::to_string(least) + " to " +
                                         std::to_string(most));
             check_evict_first(i, *stats);
             book_.forget(i, before);
           });
    if (const auto held = book_.any_key(i, random_.next()))
      ask_who_holds(i, held->key);
  }
  for (auto& r : ranks_) {
    r.stats.reset();
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(r.allocator), caf::make_message(stats_atom_v),
           [this](caf::message& answer) {
             const auto x = answer_as<allocator_stats>(answer);
             const bool all = world_.p.memory.kind != tier::memory_only;
             if (x && (x->free + x->reserved + x->live + x->quarantined != x->total ||
                       x->total > world_.p.all_slots() || (all && x->total < world_.p.slots)))
               world_.fail("slots", "slots by state do not add up to all slots of an allocator");
           });
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(r.worker), caf::make_message(stats_atom_v),
           [&r](caf::message& answer) {
             if (const auto stats = answer_as<io_stats>(answer))
               r.stats = *stats;
           });
  }
}

void server::ask_who_holds(std::uint32_t i, const key_digest& key) {
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(key_request{ns_, key}),
            [this, i, key](caf::message& answer) {
              const auto found = answer_as<key_reply>(answer);
              if (!found)
                return;
              const auto before = noticed_before();
              const auto [least, most] = book_.count_of(i, key, world_.now(), before);
              if (found->leases < least || found->leases > most)
                world_.fail("leases", "key " + to_string(key) + " is held by " + std::to_string(found->leases) +
                                          " leases of its shard, and there are " + std::to_string(least) + " to " +
                                          std::to_string(most));
            });
}

bool server::has_said_what_is_held() const {
  return std::all_of(shard_stats_.begin(), shard_stats_.end(), [](const auto& x) { return x.has_value(); }) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const auto& x) { return x.stats.has_value(); });
}

std::string server::check_quiesced() const {
  if (!running())
    return "the node is not there";
  if (auto wrong = pages_.quiesced(); !wrong.empty())
    return wrong;
  for (std::uint32_t i = 0; i < shard_stats_.size(); ++i) {
    const auto& x = shard_stats_[i];
    if (!x || x->leases > 0 || x->reservations > 0 || x->withheld_slots > 0)
      return "shard " + std::to_string(i) + (x ? " holds leases, reservations or slots" : " does not answer");
  }
  for (rank_number rank = 0; rank < ranks_.size(); ++rank)
    if (auto wrong = check_memory_quiesced(rank); !wrong.empty())
      return "rank " + std::to_string(rank) + ": " + wrong;
  return frames_.quiesced();
}

std::string server::check_memory_quiesced(rank_number rank) const {
  const auto& x = ranks_[rank].stats;
  if (!x || x->in_flight > 0 || disks_[rank]->in_flight() > 0)
    return "transfers are under way";
  if (x->pinned_frames > 0 || x->orphaned_frames > 0)
    return std::to_string(x->pinned_frames) + " frames are pinned, and " + std::to_string(x->orphaned_frames) +
           " orphaned";
  // A resident page is that of some slot in use: all other frames are free.
  if (const auto live = pages_.live(rank); x->resident_pages > live)
    return std::to_string(x->resident_pages) + " pages are in memory, of " + std::to_string(live) + " that there are";
  const bool dirty = x->dirty_pages > x->unasked_pages && !disks_[rank]->damaged();
  if (dirty && (world_.p.memory.kind == tier::strict || world_.p.memory.kind == tier::eager))
    return std::to_string(x->dirty_pages) + " pages are not written";
  return {};
}

} // namespace troupe::simulation
