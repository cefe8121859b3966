#pragma once

#include "actors/node/io_worker/io_worker.hpp"
#include "io/page.hpp"
#include "io/slab/slab_store.hpp"
#include "tests/actors/sim.hpp"
#include "tests/io_faults/fault_engine.hpp"
#include "tests/memory_extents.hpp"
#include "tests/unit/io_support.hpp"

#include <algorithm>
#include <vector>

/// An io worker on a real slab, with an engine that does what the test says.

namespace troupe::test {

struct io_worker_world : sim {
  static constexpr std::uint64_t page_size = 4096;
  static constexpr std::uint64_t slot_size = 8192;
  static constexpr std::uint64_t slots = 8;
  static constexpr std::uint32_t frames_per_extent = 4;

  scratch_directory directory;
  probe metrics{system()};
  probe shard{system()};
  fault_engine* engine = nullptr;
  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(4U, frames_per_extent* slot_size);
  io_worker_actor worker;

  static io_worker_options through(bool write_through) {
    io_worker_options out;
    out.write_through = write_through;
    return out;
  }

  explicit io_worker_world(bool write_through = false) : io_worker_world(through(write_through)) {}

  explicit io_worker_world(const io_worker_options& rules) {
    extents->limit(1);
    auto parts = std::make_shared<io_worker_parts>();
    auto slab = io::slab_file::open({slab_path(), {1, 2}, "small", 0, slot_size, slots}, false);
    REQUIRE(slab);
    parts->target = std::make_shared<completion_target>();
    auto made = std::make_unique<fault_engine>(
        [target = parts->target](std::span<const io::completion> done) { target->deliver(done); });
    engine = made.get();
    parts->store = io::slab_store::make(std::move(*slab), std::move(made)).value();
    parts->name = {{1, 2}, "small", 0};
    parts->page_bytes = page_size;
    parts->extents = extents;
    parts->numa_node = 3;
    parts->options = rules;
    parts->options.slots = slots;
    parts->options.slot_bytes = slot_size;
    parts->options.deadline_max = std::chrono::seconds(10);
    parts->options.pinned_bytes_max = 16 * slot_size;
    parts->metrics = metrics.as<metrics_actor>();
    worker = spawn<io_worker>(std::move(parts));
  }

  /// Tells the worker of a shard.
  void bind() {
    registry_peers peers;
    peers.shards.push_back(shard.as<registry_actor>());
    REQUIRE(ask(worker, bind_atom_v, peers).code() == errc::ok);
  }

  std::filesystem::path slab_path() const { return directory / "small.slab"; }

  static page_ref page(slot_number slot, generation_number generation = 1) {
    return {key_digest{slot, generation}, {slot, generation}};
  }
  static frame_request request(std::vector<page_ref> pages, duration patience = std::chrono::seconds(5)) {
    return {packed<page_ref>{std::move(pages)}, patience};
  }
  static fill_request all_gathered(pin_number pin, std::size_t pages) {
    return {pin, packed<std::uint8_t>{std::vector<std::uint8_t>(pages)}, std::chrono::seconds(5)};
  }

  std::span<std::byte> frame(const page_frame& x) { return extents->memory().subspan(x.offset, slot_size); }

  /// Does the work of a client's copy engine.
  void gather(const page_ref& what, const page_frame& where, std::byte byte) {
    std::ranges::fill(frame(where).subspan(io::page_header_bytes, page_size), byte);
    io::seal_page(frame(where), {{1, 2}, what.key, 0, what.where, page_size});
  }
  bool holds(const page_ref& what, const page_frame& where, std::byte byte) {
    const auto payload = frame(where).subspan(io::page_header_bytes, page_size);
    return io::verify_page(frame(where), {{1, 2}, what.key, 0, what.where, page_size}) == errc::ok &&
           std::ranges::all_of(payload, [&](std::byte x) { return x == byte; });
  }

  frame_reply place(std::vector<page_ref> pages, owner_id owner = 1) {
    return ask(worker, place_atom_v, owner, request(std::move(pages))).value<frame_reply>();
  }
  frame_reply fetch(std::vector<page_ref> pages, owner_id owner = 1) {
    return ask(worker, fetch_atom_v, owner, request(std::move(pages))).value<frame_reply>();
  }
  std::vector<errc> fill(pin_number pin, std::size_t pages, owner_id owner = 1) {
    return codes_of(ask(worker, fill_atom_v, owner, all_gathered(pin, pages)));
  }
  void unpin(pin_number pin, owner_id owner = 1) { REQUIRE(ask(worker, unpin_atom_v, owner, pin).code() == errc::ok); }

  /// Saves pages, all bytes of which are `byte`.
  void save(const std::vector<page_ref>& pages, std::byte byte) {
    const auto placed = place(pages);
    REQUIRE(codes_of(placed) == std::vector(pages.size(), errc::ok));
    for (std::size_t i = 0; i < pages.size(); ++i)
      gather(pages[i], placed.frames[i], byte);
    REQUIRE(fill(placed.pin, pages.size()) == std::vector(pages.size(), errc::ok));
  }

  static std::vector<errc> codes_of(const frame_reply& x) {
    std::vector<errc> out;
    for (const auto& f : x.frames)
      out.push_back(f.code());
    return out;
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

  /// Completes the I/O that the engine holds and delivers the completions to the worker.
  void release_all() {
    engine->release_all();
    run();
  }
};

} // namespace troupe::test
