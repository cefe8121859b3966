#include "actors/node/namespaces/rank_parts.hpp"

#include "actors/node/eviction/eviction_policies.hpp"
#include "actors/support/io_engine_options.hpp"
#include "base/log.hpp"
#include "config/memory_rules.hpp"
#include "io/page.hpp"
#include "io/slab/disk_budget.hpp"
#include "io/slab/renamed_slab.hpp"
#include "io/slab/slab_store.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <random>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

namespace fs = std::filesystem;

/// The time for which a slab may stay locked although its process has ended. The lock ends when the kernel has closed
/// the rings of a killed process, which is some time after the end of the process itself, and not before its writes
/// have ended. Five seconds were not enough on a busy disk.
constexpr auto slab_patience = std::chrono::seconds(30);

} // namespace

result<memory_share> memory_of(const rank_parts& rank, const shared_budget& memory) {
  const auto slots = rank.growth ? rank.growth->slots() : rank.slots;
  return memory_share::of(memory, slots * config::memory_per_slot,
                          "rank " + std::to_string(rank.rank) + " of namespace \"" + rank.worker->name.namespace_name +
                              "\" with " + std::to_string(slots) + " slots");
}

void take_memory_slots(rank_parts& rank, memory_share& share, const shared_budget& memory) {
  if (rank.memory_slots == 0)
    return;
  auto fit = rank.memory_slots;
  if (memory) {
    const auto half = memory->limit() / 2;
    fit = std::min(fit, (half - std::min(half, memory->used())) / config::memory_per_slot);
  }
  if (fit < rank.memory_slots)
    log::get("node")->warn("namespace '{}' rank {}: at most {} of {} pages can be kept in memory beyond the slab file, "
                           "because half of registry.memory_bytes is used; raise it to use all of memory.bytes",
                           rank.worker->name.namespace_name, rank.rank, fit, rank.memory_slots);
  auto& rules = rank.worker->options;
  rules.slots -= rank.memory_slots - fit;
  rules.memory_slots = rank.memory_slots = fit;
  share.set(share.bytes() + fit * config::memory_per_slot);
}

allocator_options options_for_rank(const rank_parts& rank, const config::node_config& options) {
  auto out = options_for_slots(static_cast<slot_number>(rank.slots + rank.memory_slots), options.storage.low_watermark,
                               options.storage.high_watermark);
  out.slots = static_cast<slot_number>(rank.slots);
  out.memory_slots = static_cast<slot_number>(rank.memory_slots);
  out.expected_slots = static_cast<slot_number>(rank.worker->options.expected_slab_slots);
  return out;
}

std::uint64_t pinned_bytes_max(const config::node_config& options, const io::arena_facts& arena,
                               std::uint64_t page_bytes) {
  return std::max(config::memory_of_client(options, arena.bytes), 2 * io::slot_bytes(page_bytes));
}

namespace {

/// The parts that every rank has.
rank_parts begin_rank(const config::node_config& options, const namespace_spec& ns, rank_number rank,
                      std::shared_ptr<io::extent_source> extents) {
  rank_parts out{0, rank, 0, 0, std::make_shared<io_worker_parts>()};
  auto& parts = *out.worker;
  parts.name = {ns.id(), ns.name, rank};
  parts.page_bytes = ns.geometry.page_bytes();
  parts.extents = std::move(extents);
  auto& rules = parts.options;
  rules.slot_bytes = io::slot_bytes(parts.page_bytes);
  rules.encoded_bytes = io::encoded_slot_bytes(parts.page_bytes);
  rules.deadline_max = options.io.deadline;
  rules.batch_pages_max = options.io.max_batch_pages;
  rules.pinned_bytes_max = pinned_bytes_max(options, parts.extents->info(), parts.page_bytes);
  rules.reads_max = options.io.max_pages_in_flight;
  rules.writes_max = options.io.queue_depth;
  rules.clients_max = options.io.max_clients;
  rules.first_pin = (pin_number{std::random_device{}()} << 32U) | std::random_device{}();
  return out;
}

/// The frames of a size that fit into all memory.
std::uint64_t frames_of(const io::arena_facts& arena, std::uint64_t bytes) {
  return arena.bytes / arena.extent_bytes * (arena.extent_bytes / bytes);
}

/// The most pages that fit into all memory, if all of them can be encoded.
std::uint64_t frames_max(const io_worker_parts& parts) {
  const auto& rules = parts.options;
  return frames_of(parts.extents->info(), rules.encoded_bytes > 0 ? rules.encoded_bytes : rules.slot_bytes);
}

void keep_in_memory(rank_parts& out) {
  auto& rules = out.worker->options;
  rules.memory_only = true;
  rules.slots = frames_max(*out.worker);
  out.slots = rules.slots;
  out.incarnation = fresh_incarnation();
  const auto whole = frames_of(out.worker->extents->info(), rules.slot_bytes);
  log::get("node")->info("rank opened: namespace '{}' rank {}, in memory only, at most {} pages of {} bytes{}",
                         out.worker->name.namespace_name, out.rank, whole, rules.slot_bytes,
                         rules.slots > whole ? ", " + std::to_string(rules.slots) + " if all can be encoded" : "");
}

/// The growth of a file, allowed only while this node may write it.
class gated_growth final : public io::store_growth {
public:
  gated_growth(std::shared_ptr<io::store_growth> file, std::shared_ptr<const write_gate> gate)
      : file_(std::move(file)), gate_(std::move(gate)) {}

  std::uint64_t slots() const noexcept override { return file_->slots(); }
  std::uint64_t slot_bytes() const noexcept override { return file_->slot_bytes(); }
  std::uint64_t granted() const noexcept override { return file_->granted(); }
  bool is_sparse() const noexcept override { return file_->is_sparse(); }
  io::slab_grant take_granted() override { return file_->take_granted(); }
  result<void> grow(std::uint64_t slots) override {
    auto may = may_grow();
    return may ? file_->grow(slots) : may;
  }
  result<void> extend(std::uint64_t slots) override {
    auto may = may_grow();
    return may ? file_->extend(slots) : may;
  }

private:
  result<void> may_grow() const { return gate_->check("let a slab file grow"); }

  const std::shared_ptr<io::store_growth> file_;
  const std::shared_ptr<const write_gate> gate_;
};

/// Whether the file belongs to a rank of the config, whatever its contents.
bool is_in_config(const config::node_config& options, const fs::path& file) {
  return std::ranges::any_of(options.namespaces, [&](const namespace_spec& ns) {
    for (rank_number rank = 0; rank < ns.world_size; ++rank)
      if (slab_path(options, ns, rank) == file)
        return true;
    return false;
  });
}

/// Takes over the slab file with the old name of a namespace that was renamed in the config. Otherwise its pages would
/// be lost, and its disk space would stay in use for ever. Only `data_dir` certainly belongs to this node alone; a file
/// in another directory is reported to the operator instead.
void adopt_renamed_slab(const config::node_config& options, const io::slab_spec& wanted, const write_gate& gate) {
  const auto found = io::find_renamed_slab(wanted);
  if (!found || is_in_config(options, *found) || !gate.check("rename '" + found->string() + "'"))
    return;
  const auto logger = log::get("node");
  const auto what = "slab file of namespace '" + wanted.namespace_name + "' has another name: " + found->string();
  const auto advice =
      "to keep its pages, stop the node and run: mv '" + found->string() + "' '" + wanted.path.string() + "'";
  if (wanted.path != options.data_dir / wanted.path.filename())
    return logger->warn("{}; a new, empty one is created; {}", what, advice);
  std::error_code failure;
  fs::rename(*found, wanted.path, failure);
  if (failure)
    return logger->warn("{}; it cannot be renamed: {}; {}", what, failure.message(), advice);
  logger->warn("{}; it was renamed to {}, and its pages are kept", what, wanted.path.string());
}

/// The disk space for slots of namespaces that clients make.
std::uint64_t made_slots_bytes(const config::node_config& options) {
  const auto all = keeps_made_slabs(options) ? options.storage.disk_bytes : 0;
  return all - std::min(all, io::slab_tail_bytes);
}

/// How many whole pages fit into it.
std::uint64_t made_pages_max(const config::node_config& options, std::uint64_t page_bytes) {
  return made_slots_bytes(options) / io::slot_bytes(page_bytes);
}

/// Opens the slab file of a rank. `slab`: its path and number of slots. `ranks`: how many the namespace has.
result<void> keep_in_slab(const config::node_config& options, rank_parts& out, io::slab_spec slab, std::uint32_t ranks,
                          thread_name engine_name, std::shared_ptr<const write_gate> gate) {
  auto& parts = *out.worker;
  auto& rules = parts.options;
  if (auto may = gate->check("open '" + slab.path.string() + "'"); !may)
    return may;
  io::slab_store_options wanted;
  wanted.direct = options.storage.direct;
  wanted.patience = slab_patience;
  slab.ns = parts.name.ns;
  slab.namespace_name = parts.name.namespace_name;
  slab.rank = out.rank;
  slab.slot_bytes = rules.slot_bytes;
  slab.sparse = slab.grows && rules.encoded_bytes > 0;
  wanted.slab = std::move(slab);
  adopt_renamed_slab(options, wanted.slab, *gate);
  auto& engine = wanted.engine;
  engine = engine_options_of(options);
  engine.name = engine_name;
  engine.gate = gate;
  engine.max_buffers = static_cast<std::uint32_t>(parts.extents->info().bytes / parts.extents->info().extent_bytes);
  // One more buffer for scrubbing.
  engine.max_buffers += options.storage.scrub_bytes_per_second > 0 ? 1 : 0;
  // No frame spans two extents.
  engine.usrbio.block_bytes = parts.extents->info().extent_bytes;
  const bool existed = fs::exists(wanted.slab.path);
  const auto target = std::make_shared<completion_target>();
  auto store = io::open_slab_store(wanted, [target](std::span<const io::completion> done) { target->deliver(done); });
  if (!store)
    return tl::unexpected<error>(store.error());
  const auto logger = log::get("node");
  if (existed && options.registry.durability == "none")
    logger->warn("{} holds pages of an earlier run; the registry starts empty, so none of them is served",
                 wanted.slab.path.string());
  const auto& traits = (*store)->traits();
  out.slots = traits.slots;
  out.incarnation = traits.incarnation;
  out.growth = (*store)->growth();
  if (out.growth)
    out.growth = std::make_shared<gated_growth>(out.growth, std::move(gate));
  auto notified = shared_place(options, traits.place, traits.incarnation);
  if (!notified)
    return tl::unexpected<error>(notified.error());
  out.slab = std::move(*notified);
  const auto first = out.growth ? std::to_string(out.growth->slots()) + " of at most " : std::string();
  logger->info("slab opened: namespace '{}' rank {}, {}{} slots of {} bytes in {}, {}", parts.name.namespace_name,
               out.rank, first, traits.slots, traits.slot_bytes, traits.place, (*store)->describe());
  rules.write_through = options.registry.durability == "strict";
  // A page whose save is answered only when it is on the disk needs a place there.
  // All ranks need a page of a key, so each has its part of the memory, and of the disk if their files grow.
  if (config::keeps_pages_beyond_disk(options))
    out.memory_slots = std::min(frames_max(parts) / ranks + 1, std::numeric_limits<slot_number>::max() - traits.slots);
  rules.slots = traits.slots + out.memory_slots;
  rules.whole_slots = traits.whole_slots;
  // A slot is read to its end, and a frame for encoded pages has less room.
  if (rules.whole_slots)
    rules.encoded_bytes = 0;
  rules.sparse = out.growth && out.growth->is_sparse();
  rules.memory_slots = out.memory_slots;
  rules.expected_slab_slots =
      out.growth ? std::max<std::uint64_t>(made_pages_max(options, parts.page_bytes) / ranks, 1) : traits.slots;
  rules.write_eagerly = options.memory.write_back != "on_eviction";
  rules.second_hit = options.memory.admission == "second_hit";
  rules.eviction = eviction_named(options.memory.eviction);
  rules.prefetch_pages_max =
      std::min(options.memory.prefetch_bytes, parts.extents->info().bytes / 4) / rules.slot_bytes;
  rules.prefetch_reads_max = std::max(options.io.queue_depth / 2, 1U);
  parts.target = target;
  parts.store = std::move(*store);
  return {};
}

} // namespace

result<rank_parts> open_rank(const config::node_config& options, std::size_t namespace_index, rank_number rank,
                             std::shared_ptr<io::extent_source> extents, std::shared_ptr<const write_gate> gate) {
  const auto& ns = options.namespaces[namespace_index];
  auto out = begin_rank(options, ns, rank, std::move(extents));
  out.ns = namespace_index;
  const auto& storage = options.storage.ranks[rank];
  out.worker->numa_node = storage.numa_node;
  if (storage.slab_bytes == 0 || !keeps_slabs(options)) {
    keep_in_memory(out);
    return out;
  }
  io::slab_spec slab;
  slab.path = slab_path(options, ns, rank);
  slab.slots = config::slab_slots(storage.slab_bytes, out.worker->page_bytes);
  auto kept = keep_in_slab(options, out, std::move(slab), ns.world_size,
                           thread_name("io-").with(std::to_string(namespace_index) + "-" + std::to_string(rank)),
                           std::move(gate));
  if (!kept)
    return tl::unexpected<error>(kept.error());
  return out;
}

std::uint64_t made_slots_max(const config::node_config& options, std::uint64_t page_bytes) {
  constexpr std::uint64_t numbers = std::numeric_limits<slot_number>::max();
  return std::min(made_slots_bytes(options) / io::least_slot_bytes(page_bytes), numbers);
}

result<rank_parts> open_made_rank(const config::node_config& options, const namespace_spec& ns, rank_number rank,
                                  std::uint64_t first_slots, std::shared_ptr<io::extent_source> extents,
                                  std::shared_ptr<const write_gate> gate) {
  auto out = begin_rank(options, ns, rank, std::move(extents));
  if (first_slots == 0) {
    keep_in_memory(out);
    return out;
  }
  io::slab_spec slab;
  slab.path = made_slabs(options) / made_slab_name(ns.id(), rank);
  slab.slots = made_slots_max(options, out.worker->page_bytes);
  slab.grows = true;
  slab.first_slots = first_slots;
  slab.spare_bytes = options.storage.spare_bytes;
  // The name is short because thread names have at most 15 characters.
  if (auto kept = keep_in_slab(options, out, std::move(slab), ns.world_size,
                               thread_name("io-made-").with(std::to_string(rank)), std::move(gate));
      !kept)
    return tl::unexpected<error>(kept.error());
  return out;
}

} // namespace troupe
