#pragma once

#include "actors/node/io_worker/io_worker.hpp"
#include "io/page.hpp"
#include "io/arena_name.hpp"
#include "io/slab_store.hpp"
#include "tests/actors/sim.hpp"
#include "tests/io_faults/fault_engine.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <map>

/// An io worker on a real slab, with an engine that does what the test says.

namespace troupe::test {

struct io_worker_world : sim {
  static constexpr std::uint64_t slot_size = 8192;
  static constexpr std::uint64_t slots = 8;

  scratch_directory directory;
  probe metrics{system()};
  fault_engine* engine = nullptr;
  io_worker_actor worker;
  std::map<std::uint64_t, std::shared_ptr<io::shared_memory>> mapped;

  io_worker_world() {
    auto parts = std::make_shared<io_worker_parts>();
    auto slab = io::slab_file::open({slab_path(), {1, 2}, "small", 0, slot_size, slots}, false);
    REQUIRE(slab);
    parts->target = std::make_shared<completion_target>();
    auto made = std::make_unique<fault_engine>(
        [target = parts->target](std::span<const io::completion> done) { target->deliver(done); });
    engine = made.get();
    parts->store = io::slab_store::make(std::move(*slab), std::move(made)).value();
    parts->name = {{1, 2}, "small", 0};
    parts->buffers = std::make_unique<io::segment_source>(*parts->store);
    parts->options.slots = slots;
    parts->options.slot_bytes = slot_size;
    parts->options.alignment = io::page_alignment;
    parts->options.deadline_max = std::chrono::seconds(10);
    parts->options.segment_bytes_max = 16 * slot_size;
    parts->metrics = metrics.as<metrics_actor>();
    worker = spawn<io_worker>(std::move(parts));
  }

  std::filesystem::path slab_path() const { return directory / "small.slab"; }

  segment_info open(owner_id owner = 1, std::uint64_t bytes = 8 * slot_size) {
    const auto info = ask(worker, open_segment_atom_v, owner, bytes, std::int32_t{-1}).value<segment_info>();
    auto memory = io::arena_finder{}.find(info.bytes, info.name.items);
    REQUIRE(memory);
    mapped[info.segment] = *memory;
    return info;
  }

  std::span<std::byte> buffer(std::uint64_t segment, std::uint64_t n) {
    return mapped.at(segment)->bytes().subspan(n * slot_size, slot_size);
  }

  static io_batch batch(std::uint64_t segment, std::vector<io_item> items) {
    return {segment, std::chrono::seconds(5), std::move(items)};
  }
  static io_item item(slot_number slot, std::uint64_t buffer, generation_number generation = 1) {
    return {{slot, generation}, buffer * slot_size, slot_size};
  }

  static std::vector<errc> codes_of(const answer& x) {
    std::vector<errc> out;
    for (const auto code : x.value<io_reply>().results)
      out.push_back(static_cast<errc>(code));
    return out;
  }

  io_stats stats() { return ask(worker, stats_atom_v).value<io_stats>(); }

  void hold_all() {
    engine->set_plan([](const io::request&, std::uint64_t) {
      fault out;
      out.held = true;
      return out;
    });
  }

  /// Lets the engine end what it holds, as far as its thread is concerned, and the worker hear of it.
  void release_all() {
    engine->release_all();
    run();
  }
};

} // namespace troupe::test
