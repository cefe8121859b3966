#include "actors/node/index_restore.hpp"

#include "actors/ask.hpp"
#include "base/log.hpp"
#include "store/rocksdb_store.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <string>

namespace troupe {

namespace {

/// Pages in one message to a shard, slots in one to an allocator.
constexpr std::size_t batch_pages = 8192;

template <class Reply, class Handle, class... Ts>
std::future<result<Reply>> begin_ask(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  auto answered = std::make_shared<std::promise<result<Reply>>>();
  auto out = answered->get_future();
  ask<Reply>(
      system, to, [answered](result<Reply> reply) { answered->set_value(std::move(reply)); }, std::forward<Ts>(xs)...);
  return out;
}

template <class Reply, class Handle, class... Ts>
result<Reply> ask_and_wait(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  return begin_ask<Reply>(system, to, std::forward<Ts>(xs)...).get();
}

using rank_name = std::pair<namespace_id, rank_number>;

/// Reads the store once. A shard works on one batch while the next is being read.
class restorer final : public store::load_visitor {
public:
  restorer(caf::actor_system& system, const namespaces_config& shards)
      : system_(system), shards_(shards), lanes_(shards.shards.size()) {}

  /// Before anything is read.
  result<void> add_own(std::span<const namespace_spec> spaces, std::span<const known_rank> ranks) {
    for (const auto& x : spaces)
      served_.insert(x.id());
    for (const auto& x : ranks)
      if (auto added = add_rank(x); !added)
        return added;
    return {};
  }

  result<void> on_namespace(const store::namespace_record& record) override {
    if (served_.contains(record.id))
      return {};
    if (!record.slot_index) {
      log::get("node")->warn("the index has namespace '{}', which the config does not have any more: none of its pages "
                             "is served",
                             record.spec.name);
      return {};
    }
    add_namespace_request known{
        record.spec, {record.mode == store::world_size_mode::automatic, record.slot_index, record.max_ranks}};
    for (const auto& shard : shards_.shards)
      if (auto added = ask_and_wait<void>(system_, shard, known); !added)
        return added;
    served_.insert(record.id);
    known_.spaces.push_back(std::move(known));
    return {};
  }

  result<void> on_rank(const store::rank_record& record) override {
    if (!served_.contains(record.space) || slots_.contains({record.space, record.rank}))
      return {};
    const auto slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(record.slots, shards_.max_slots));
    auto allocator = spawn_foreign_allocator(system_, shards_, {record.space, record.rank, slots});
    for (const auto& shard : shards_.shards)
      if (auto added =
              ask_and_wait<void>(system_, shard, add_rank_request{record.space, record.rank, slots, allocator});
          !added)
        return added;
    slots_[{record.space, record.rank}].allocator = allocator;
    known_.ranks.push_back({record.space, record.rank, slots, allocator});
    return {};
  }

  result<void> on_pages(std::span<const store::page_record> pages) override {
    for (const auto& x : pages) {
      if (!served_.contains(x.space))
        continue;
      auto& lane = lanes_[shard_of(x.key, static_cast<std::uint32_t>(lanes_.size()))];
      lane.next.push_back({x.space, x.key, x.parent, x.where, x.rank, 0});
      if (lane.next.size() == batch_pages)
        if (auto sent = send(lane); !sent)
          return sent;
    }
    return {};
  }

  void on_progress(std::uint64_t pages_read, std::uint64_t expected) override {
    log::get("node")->info("restoring the index: {} of about {} pages", pages_read, expected);
  }

  /// After all pages: what nobody claimed is free, and service may begin.
  result<known_namespaces> finish() {
    for (auto& lane : lanes_) {
      auto ended = send(lane);
      if (ended)
        ended = take_answer(lane);
      if (!ended)
        return tl::unexpected<error>(ended.error());
    }
    for (auto& [name, rank] : slots_)
      if (auto ended = finish_rank(name, rank); !ended)
        return tl::unexpected<error>(ended.error());
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
    const auto logger = log::get("node");
    logger->info("the index has {} pages of {} keys", sum.pages, sum.keys);
    if (sum.displaced + sum.refused > 0)
      logger->warn("{} stored pages are not served: {} whose slots others have, {} of no rank or slot that there is",
                   sum.displaced + sum.refused, sum.displaced, sum.refused);
    return std::move(known_);
  }

private:
  struct shard_lane {
    std::vector<stored_page> next;
    std::vector<stored_page> sent;
    std::future<result<result_codes>> answer;
  };

  struct rank_slots {
    allocator_actor allocator;
    std::vector<slot_ref> claimed;
    /// Claims that the allocator did not accept.
    std::vector<slot_ref> refused;
  };

  result<void> add_rank(const known_rank& x) {
    slots_[{x.space, x.rank}].allocator = x.allocator;
    for (const auto& shard : shards_.shards)
      if (auto added = ask_and_wait<void>(system_, shard, add_rank_request{x.space, x.rank, x.slots, x.allocator});
          !added)
        return added;
    return {};
  }

  result<void> send(shard_lane& x) {
    if (auto before = take_answer(x); !before || x.next.empty())
      return before;
    x.sent = std::exchange(x.next, {});
    x.next.reserve(batch_pages);
    const auto shard = static_cast<std::size_t>(&x - lanes_.data());
    x.answer = begin_ask<result_codes>(system_, shards_.shards[shard], restore_request{x.sent});
    return {};
  }

  result<void> take_answer(shard_lane& x) {
    if (!x.answer.valid())
      return {};
    const auto reply = x.answer.get();
    if (!reply)
      return tl::unexpected<error>(reply.error());
    for (std::size_t i = 0; i < std::min(reply->results.size(), x.sent.size()); ++i) {
      if (reply->results[i] != static_cast<std::uint8_t>(errc::ok))
        continue;
      const auto& page = x.sent[i];
      auto& rank = slots_[{page.space, page.rank}];
      rank.claimed.push_back(page.where);
      if (rank.claimed.size() == batch_pages)
        if (auto told = claim(rank); !told)
          return told;
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

  /// Two shards may have claimed one slot, of which the allocator alone hears: the lesser claim goes.
  result<void> finish_rank(const rank_name& name, rank_slots& rank) {
    if (auto told = claim(rank); !told)
      return told;
    const auto lost = ask_and_wait<slot_batch>(system_, rank.allocator, restored_atom_v);
    if (!lost)
      return tl::unexpected<error>(lost.error());
    rank.refused.insert(rank.refused.end(), lost->slots.begin(), lost->slots.end());
    if (rank.refused.empty())
      return {};
    for (const auto& shard : shards_.shards)
      if (auto dropped = ask_and_wait<result_codes>(system_, shard,
                                                    drop_restored_request{name.first, name.second, {rank.refused}});
          !dropped)
        return tl::unexpected<error>(dropped.error());
    return {};
  }

  caf::actor_system& system_;
  const namespaces_config& shards_;
  std::set<namespace_id> served_;
  std::map<rank_name, rank_slots> slots_;
  std::vector<shard_lane> lanes_;
  known_namespaces known_;
};

} // namespace

result<std::shared_ptr<store::metadata_store>> open_index(const config::node_config& options) {
  if (options.registry.durability == "none")
    return nullptr;
  store::rocksdb_store_options wanted;
  wanted.directory = options.data_dir / "index";
  wanted.level = options.registry.durability == "strict" ? store::durability::strict : store::durability::relaxed;
  wanted.sync_interval = options.registry.sync_interval;
  auto opened = store::rocksdb_store::open(wanted);
  if (!opened)
    return tl::unexpected<error>(opened.error());
  return std::shared_ptr<store::metadata_store>(std::move(*opened));
}

result<known_namespaces> restore_index(caf::actor_system& system, store::metadata_store& from,
                                       const namespaces_config& shards, std::span<const namespace_spec> own,
                                       std::span<const known_rank> own_ranks) {
  restorer visitor(system, shards);
  if (auto added = visitor.add_own(own, own_ranks); !added)
    return tl::unexpected<error>(added.error());
  if (auto loaded = from.load(visitor); !loaded)
    return tl::unexpected<error>(loaded.error());
  return visitor.finish();
}

} // namespace troupe
