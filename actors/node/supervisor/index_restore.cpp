#include "actors/node/supervisor/index_restore.hpp"

#include "actors/node/namespaces/slab_places.hpp"
#include "actors/node/supervisor/blocking_calls.hpp"
#include "actors/node/supervisor/description_restore.hpp"
#include "actors/node/supervisor/restore_plan.hpp"
#include "base/log.hpp"
#include "store/epoch_file.hpp"
#include "store/rocksdb_store.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <span>
#include <string>

namespace troupe {

namespace {

/// Erasures are written when they reach this size, or at the end. So a whole index can be erased without a list of all
/// erasures in memory.
constexpr std::size_t most_change_bytes = std::size_t{1} << 20U;

using rank_name = std::pair<namespace_id, rank_number>;

restore_terms terms_of(const config::node_config& options, bool continues, std::span<const known_rank> own_ranks) {
  restore_terms out;
  out.continues = continues;
  out.forget_absent = options.registry.forget_absent;
  out.wires = options.hf3fs;
  for (const auto& x : options.namespaces)
    out.own.insert(x.id());
  for (const auto& x : own_ranks)
    out.own_ranks[{x.ns, x.rank}] = x.incarnation;
  return out;
}

void end_ranks(const known_namespaces& known) {
  for (const auto& x : known.ranks)
    caf::anon_send_exit(x.allocator, caf::exit_reason::user_shutdown);
}

/// A reader of the whole store, which it reads once. A shard works on one batch while the next is being read.
class restorer final : public store::load_visitor {
public:
  /// `events`: where changes of described keys go; null where the node publishes none.
  restorer(caf::actor_system& system, store::metadata_store& from, const namespaces_config& shards, restore_terms terms,
           const events::feed* events)
      : system_(system), store_(from), shards_(shards), events_(events), plan_(std::move(terms)),
        feeds_(shards.shards.size()) {}

  restorer(const restorer&) = delete;
  restorer& operator=(const restorer&) = delete;
  /// Allocators that were spawned and not passed on would never end.
  ~restorer() override { end_ranks(known_); }

  /// To be called before anything is read.
  result<void> add_own(std::span<const known_rank> ranks) {
    for (const auto& x : ranks)
      if (auto added = add_rank(x); !added)
        return added;
    return {};
  }

  result<void> on_namespace(const store::namespace_record& record) override {
    if (!plan_.admit(record))
      return {};
    if (origin_of(record) == store::stored_origin::client)
      return serve(record);
    const auto origin =
        origin_of(record) == store::stored_origin::protocol ? namespace_origin::protocol : namespace_origin::api;
    add_namespace_request known{
        record.spec, {record.mode == store::world_size_mode::automatic, record.slot_index, record.max_ranks, origin}};
    if (const auto added = add_namespace(known); !added || !*added)
      return added ? result<void>{} : tl::unexpected<error>(added.error());
    known_.namespaces.push_back(std::move(known));
    return {};
  }

  result<void> on_rank(const store::rank_record& record) override {
    const auto incarnation = plan_.admit(record);
    if (!incarnation)
      return {};
    const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(record.slots, shards_.max_slots));
    // An error fails the start: a node that served only what fits would lose the other pages.
    auto made = spawn_unfenced_allocator(system_, shards_, {record.ns, record.rank, slots}, name_of(record.ns));
    if (!made)
      return tl::unexpected<error>(made.error());
    known_.ranks.push_back({record.ns, record.rank, slots, std::move(*made), *incarnation});
    return add_rank(known_.ranks.back());
  }

  result<void> on_pages(std::span<const store::page_record> pages) override {
    for (const auto& x : pages) {
      if (!plan_.admit(x))
        continue;
      auto& feed = feeds_[shard_of(x.key, static_cast<std::uint32_t>(feeds_.size()))];
      feed.next.push_back({x.ns, x.key, x.parent, x.where, x.rank, 0});
      if (feed.next.size() == restored_pages_max)
        if (auto sent = send(feed); !sent)
          return sent;
    }
    return plan_.change_bytes() < most_change_bytes ? result<void>{} : commit_and_wait(store_, plan_.take_changes());
  }

  result<void> on_handshake(const store::handshake_engine_record& record) override {
    known_.handshakes.engines.push_back(record);
    return {};
  }

  result<void> on_handshake(const store::handshake_rank_record& record) override {
    known_.handshakes.ranks.push_back(record);
    return {};
  }

  void on_progress(std::uint64_t pages_read, std::uint64_t expected) override {
    if (expected > 0)
      log::get("node")->info("restoring the index: {} of about {} pages", pages_read, expected);
  }

  /// Ends the restore after all pages: unclaimed slots are free, untrusted records are erased from the store, and
  /// service may begin.
  result<known_namespaces> finish() {
    for (auto& feed : feeds_) {
      auto ended = send(feed);
      if (ended)
        ended = take_answer(feed);
      if (!ended)
        return tl::unexpected<error>(ended.error());
    }
    for (auto& [name, rank] : slots_)
      if (auto ended = finish_rank(name, rank); !ended)
        return tl::unexpected<error>(ended.error());
    if (auto erased = commit_and_wait(store_, plan_.take_changes()); !erased)
      return tl::unexpected<error>(erased.error());
    const auto described = restore_descriptions(system_, store_, shards_.shards, events_);
    if (!described)
      return tl::unexpected<error>(described.error());
    if (described->keys + described->erased > 0)
      log::get("node")->info("events: {} keys of the index are published as engines described them; {} descriptions of "
                             "keys that no longer exist were erased",
                             described->keys, described->erased);
    restore_report sum;
    for (const auto& shard : shards_.shards) {
      const auto report = ask_and_wait<restore_report>(system_, shard, restored_atom_v);
      if (!report)
        return tl::unexpected<error>(report.error());
      sum.pages += report->pages;
      sum.keys += report->keys;
      sum.displaced += report->displaced;
      sum.refused += report->refused;
    }
    report(sum);
    return std::exchange(known_, {});
  }

private:
  /// The name of an admitted namespace.
  std::string name_of(const namespace_id& ns) const {
    const auto found =
        std::ranges::find_if(known_.namespaces, [&](const add_namespace_request& x) { return x.spec.id() == ns; });
    return found == known_.namespaces.end() ? to_string(ns) : found->spec.name;
  }

  void report(const restore_report& sum) const {
    const auto logger = log::get("node");
    logger->info("index restored: {} pages of {} keys", sum.pages, sum.keys);
    if (const auto n = plan_.left_aside(); n > 0)
      logger->warn("{} stored pages dropped: the index is not the one that the last run on this data_dir kept, so "
                   "their slots may have been written since",
                   n);
    if (plan_.outlived() > 0)
      logger->warn("{} stored pages dropped: their ranks were registered again, or their slab files no longer exist",
                   plan_.outlived());
    if (sum.displaced + sum.refused > 0)
      logger->warn("{} stored pages dropped: other pages claim their slots as well, or there are no such slots",
                   sum.displaced + sum.refused);
    for (const auto& x : plan_.absent())
      logger->warn("namespace '{}' of the index is not served: {}; {}", x.name, x.reason, fate_of(x));
  }

  static std::string fate_of(const restore_plan::absent_namespace& x) {
    const auto pages = std::to_string(x.pages) + " pages";
    if (x.forgotten)
      return "it is erased, with " + pages;
    return (x.erased ? "its " + pages + " are erased, its ranks are kept" : "its " + pages + " are kept") +
           "; to erase it completely, start once with --set registry.forget_absent=true";
  }

  /// The pages for one shard: a batch that it works on, and the next one.
  struct shard_feed {
    std::vector<stored_page> next;
    std::vector<stored_page> sent;
    std::future<result<result_codes>> answer;
  };

  /// Registers a namespace; false if that is rejected, which the plan then knows.
  result<bool> add_namespace(const add_namespace_request& known) {
    for (const auto& shard : shards_.shards)
      if (auto added = ask_and_wait<void>(system_, shard, known); !added) {
        const auto& why = added.error();
        // All shards know the same namespaces, so the first one rejects it before any other has accepted.
        if (why.code != errc::identity_mismatch && why.code != errc::limit_exceeded &&
            why.code != errc::invalid_argument)
          return tl::unexpected<error>(why);
        plan_.set_aside(known.spec.id(), why.text);
        return false;
      }
    return true;
  }

  /// Serves a namespace that a client has created, with those of its files from the previous run that still exist.
  result<void> serve(const store::namespace_record& record) {
    const auto opened =
        ask_and_wait<served_namespace>(system_, shards_.keeper, open_namespace_request{record.spec, true});
    // A disk, file or memory that is missing now may be there at the next start, so the start fails: a node that served
    // only what fits would lose the other pages.
    if (!opened && opened.error().code != errc::full)
      return tl::unexpected<error>(opened.error());
    if (!opened) {
      plan_.set_aside(record.id, opened.error().text);
      return {};
    }
    const auto added = add_namespace({record.spec, {.origin = namespace_origin::client}});
    // The start fails, and the next one finds the files; closing the namespace would remove them.
    if (!added)
      return tl::unexpected<error>(added.error());
    if (!*added)
      return ask_and_wait<void>(system_, shards_.keeper, close_namespace_request{record.id});
    for (const auto& x : opened->ranks) {
      plan_.serve(record.id, x.rank, x.incarnation);
      if (auto notified = add_rank({record.id, x.rank, x.slots, x.allocator, x.incarnation},
                                   x.listens ? x.worker : io_worker_actor{});
          !notified)
        return notified;
    }
    known_.made.push_back(*opened);
    return {};
  }

  struct rank_slots {
    allocator_actor allocator;
    std::vector<slot_ref> claimed;
    /// Claims that the allocator rejected.
    std::vector<slot_ref> refused;
  };

  /// `listener`: an io worker that is notified of leases, and that the shards do not know yet.
  result<void> add_rank(const known_rank& x, const io_worker_actor& listener = {}) {
    slots_[{x.ns, x.rank}].allocator = x.allocator;
    const add_rank_request wanted{x.ns, x.rank, x.slots, x.allocator, x.incarnation, listener};
    for (const auto& shard : shards_.shards)
      if (auto added = ask_and_wait<void>(system_, shard, wanted); !added)
        return added;
    return {};
  }

  result<void> send(shard_feed& x) {
    if (auto before = take_answer(x); !before || x.next.empty())
      return before;
    x.sent = std::exchange(x.next, {});
    x.next.reserve(restored_pages_max);
    const auto shard = static_cast<std::size_t>(&x - feeds_.data());
    x.answer = begin_ask<result_codes>(system_, shards_.shards[shard], restore_request{x.sent});
    return {};
  }

  result<void> take_answer(shard_feed& x) {
    if (!x.answer.valid())
      return {};
    const auto reply = x.answer.get();
    if (!reply)
      return tl::unexpected<error>(reply.error());
    for (std::size_t i = 0; i < std::min(reply->results.size(), x.sent.size()); ++i) {
      // Where two pages claim a slot (`stale`), the allocator gets both claims, so that a third page in another shard
      // does not get the slot. Pages rejected for other reasons claim nothing.
      const auto code = errc_from_wire(reply->results[i]);
      if (code != errc::ok && code != errc::stale)
        continue;
      const auto& page = x.sent[i];
      auto& rank = slots_[{page.ns, page.rank}];
      rank.claimed.push_back(page.where);
      if (rank.claimed.size() == restored_pages_max)
        if (auto notified = claim(rank); !notified)
          return notified;
    }
    return {};
  }

  result<void> claim(rank_slots& rank) {
    if (rank.claimed.empty())
      return {};
    const slot_batch batch{std::exchange(rank.claimed, {})};
    const auto reply = ask_and_wait<slot_results>(system_, rank.allocator, restore_atom_v, batch);
    if (!reply)
      return tl::unexpected<error>(reply.error());
    for (std::size_t i = 0; i < std::min(reply->results.size(), batch.slots.size()); ++i)
      if (reply->results[i] != static_cast<std::uint8_t>(errc::ok))
        rank.refused.push_back(batch.slots[i]);
    return {};
  }

  /// Ends the restore of one rank. If two shards claimed one slot, which only the allocator sees, neither page is
  /// trusted.
  result<void> finish_rank(const rank_name& name, rank_slots& rank) {
    if (auto notified = claim(rank); !notified)
      return notified;
    const auto lost = ask_and_wait<slot_batch>(system_, rank.allocator, restored_atom_v);
    if (!lost)
      return tl::unexpected<error>(lost.error());
    rank.refused.insert(rank.refused.end(), lost->slots.begin(), lost->slots.end());
    for (std::span<const slot_ref> left = rank.refused; !left.empty();) {
      const auto part = left.first(std::min(left.size(), restored_pages_max));
      left = left.subspan(part.size());
      const drop_restored_request dropped{name.first, name.second, {{part.begin(), part.end()}}};
      for (const auto& shard : shards_.shards)
        if (auto done = ask_and_wait<result_codes>(system_, shard, dropped); !done)
          return tl::unexpected<error>(done.error());
    }
    return {};
  }

  caf::actor_system& system_;
  store::metadata_store& store_;
  const namespaces_config& shards_;
  const events::feed* events_;
  restore_plan plan_;
  std::map<rank_name, rank_slots> slots_;
  std::vector<shard_feed> feeds_;
  known_namespaces known_;
};

} // namespace

result<std::shared_ptr<store::metadata_store>> open_index(const config::node_config& options,
                                                          std::shared_ptr<const write_gate> gate) {
  if (options.registry.durability == "none")
    return nullptr;
  store::rocksdb_store_options wanted;
  wanted.directory = index_directory(options);
  wanted.level = options.registry.durability == "strict" ? store::durability::strict : store::durability::relaxed;
  wanted.sync_interval = options.registry.sync_interval;
  wanted.gate = std::move(gate);
  auto opened = store::rocksdb_store::open(wanted);
  if (!opened)
    return tl::unexpected<error>(opened.error());
  return std::shared_ptr<store::metadata_store>(std::move(*opened));
}

result<known_namespaces> restore_index(caf::actor_system& system, store::metadata_store& from,
                                       const namespaces_config& shards, const config::node_config& options,
                                       std::span<const known_rank> own_ranks, const write_gate& gate,
                                       const events::feed* events) {
  const auto found = store::read_epoch(options.data_dir);
  if (!found)
    return tl::unexpected<error>(found.error());
  const auto& kept = from.identity();
  const bool continues = store::continues_epoch(kept.epoch, kept.next_epoch, *found);
  restorer visitor(system, from, shards, terms_of(options, continues, own_ranks), events);
  if (auto added = visitor.add_own(own_ranks); !added)
    return tl::unexpected<error>(added.error());
  if (auto loaded = from.load(visitor); !loaded)
    return tl::unexpected<error>(loaded.error());
  auto known = visitor.finish();
  if (!known)
    return known;
  known->handshakes.believed = continues;
  // The index is now accurate. From here on it belongs to the previous epoch, or to the next one; once the new epoch is
  // in its file, only to that one. A crash at any moment leaves an index that belongs to the epoch in the file, and
  // never one that is ignored.
  const auto next = fresh_incarnation();
  const auto note = [&](incarnation_number epoch, incarnation_number next_epoch) {
    auto identity = from.identity();
    identity.epoch = epoch;
    identity.next_epoch = next_epoch;
    store::write_batch batch;
    batch.put(identity);
    return commit_and_wait(from, std::move(batch));
  };
  auto noted = note(continues ? **found : 0, next);
  if (noted)
    noted = store::write_epoch(options.data_dir, next, gate);
  if (noted)
    noted = note(next, 0);
  if (!noted) {
    end_ranks(*known);
    return tl::unexpected<error>(noted.error());
  }
  return known;
}

result<void> leave_index_aside(const config::node_config& options, const write_gate& gate) {
  return store::write_epoch(options.data_dir, fresh_incarnation(), gate);
}

} // namespace troupe
