#include "actors/node/io_worker/io_worker.hpp"
#include "io/arena_name.hpp"
#include "tests/actors/sim.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace page_store_test {

using namespace troupe;
using namespace troupe::test;

// An io worker over a store of pages that is no slab file: it asks for nothing but what io/page_store.hpp promises.

namespace {

constexpr std::uint64_t slot_size = 1024;
constexpr std::uint64_t slots = 4;

/// What a test sees of a store that its worker owns.
struct store_watch {
  std::atomic<bool> sound{true};
  std::atomic<std::size_t> buffers{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> gone{false};
};

/// Pages in memory, moved by whoever submits.
class memory_pages final : public io::page_store {
public:
  memory_pages(std::shared_ptr<store_watch> watch, io::completion_sink sink)
      : watch_(std::move(watch)), sink_(std::move(sink)) {}
  ~memory_pages() override { watch_->gone = true; }

  const io::page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte>) override {
    ++watch_->buffers;
    return ++last_buffer_;
  }
  void remove_buffer(std::uint32_t) override { --watch_->buffers; }
  void submit(std::span<const io::page_request> requests) override {
    std::vector<io::completion> done;
    for (const auto& x : requests) {
      auto* const page = pages_.data() + x.where.slot * slot_size;
      if (x.op == io::operation::write)
        std::memcpy(page, x.data, x.length);
      else
        std::memcpy(x.data, page, x.length);
      done.push_back({x.tag, errc::ok, 0});
    }
    sink_(done);
  }
  void stop() override { watch_->stopped = true; }
  result<void> health() const override {
    return watch_->sound ? result<void>{} : fail(errc::slab_damaged, "the memory is gone");
  }
  std::string describe() const override { return "memory"; }

private:
  std::shared_ptr<store_watch> watch_;
  io::completion_sink sink_;
  io::page_store_traits traits_{slots, slot_size, 512, false, 1, "memory"};
  std::vector<std::byte> pages_ = std::vector<std::byte>(slots * slot_size);
  std::uint32_t last_buffer_ = 0;
};

struct memory_world : sim {
  std::shared_ptr<store_watch> watch = std::make_shared<store_watch>();
  std::shared_ptr<node_condition> condition = std::make_shared<node_condition>();
  io_worker_actor worker;
  std::shared_ptr<io::shared_memory> memory;
  segment_info segment;

  memory_world() {
    auto parts = std::make_shared<io_worker_parts>();
    parts->target = std::make_shared<completion_target>();
    parts->store = std::make_unique<memory_pages>(
        watch, [target = parts->target](std::span<const io::completion> done) { target->deliver(done); });
    parts->buffers = std::make_unique<io::segment_source>(*parts->store);
    const auto& traits = parts->store->traits();
    parts->name = {{1, 2}, "small", 0};
    parts->condition = condition;
    parts->options.slots = traits.slots;
    parts->options.slot_bytes = traits.slot_bytes;
    parts->options.alignment = traits.alignment;
    parts->options.deadline_max = std::chrono::seconds(10);
    parts->options.segment_bytes_max = 1 << 20;
    worker = spawn<io_worker>(std::move(parts));
    segment =
        ask(worker, open_segment_atom_v, owner_id{1}, std::uint64_t{8192}, std::int32_t{-1}).value<segment_info>();
    auto found = io::arena_finder{}.find(segment.bytes, segment.name.items);
    REQUIRE(found);
    memory = *found;
  }

  template <class Verb>
  errc transfer(Verb verb, slot_ref where, std::uint64_t offset, std::uint64_t length = slot_size) {
    const io_batch batch{segment.segment, std::chrono::seconds(5), {std::vector<io_item>{{where, offset, length}}}};
    return static_cast<errc>(ask(worker, verb, batch).template value<io_reply>().results[0]);
  }
};

} // namespace

TEST_CASE_METHOD(memory_world, "io worker: any store of pages will do, with an alignment of its own", "[io_worker]") {
  std::ranges::fill(memory->bytes().first(slot_size), std::byte{0x5a});
  CHECK(transfer(write_atom_v, {3, 1}, 0) == errc::ok);
  CHECK(transfer(read_atom_v, {3, 1}, 512, 512) == errc::ok);
  CHECK(transfer(read_atom_v, {3, 1}, 4096) == errc::ok);
  CHECK(std::ranges::equal(memory->bytes().subspan(4096, slot_size), memory->bytes().first(slot_size)));
  CHECK(transfer(read_atom_v, {3, 1}, 256, 512) == errc::invalid_argument);
  CHECK(transfer(read_atom_v, {3, 1}, 0, 256) == errc::invalid_argument);
  CHECK(transfer(read_atom_v, {4, 1}, 0) == errc::out_of_range);
}

TEST_CASE_METHOD(memory_world, "io worker: a store that is not sound any more makes the node degraded", "[io_worker]") {
  CHECK(transfer(write_atom_v, {0, 1}, 0) == errc::ok);
  watch->sound = false;
  advance(std::chrono::seconds(2));
  CHECK(condition->has(trouble::slab_damaged));
  CHECK(condition->ready().error().text.find("the memory is gone") != std::string::npos);
  CHECK(transfer(write_atom_v, {0, 1}, 0) == errc::slab_damaged);
  CHECK(transfer(read_atom_v, {0, 1}, 0) == errc::ok);
}

TEST_CASE_METHOD(memory_world, "io worker: a store is stopped before it is given up", "[io_worker]") {
  CHECK(watch->buffers == 1);
  REQUIRE(ask(worker, close_segment_atom_v, segment.segment).code() == errc::ok);
  CHECK(watch->buffers == 0);
  CHECK_FALSE(watch->stopped);
  end(worker);
  CHECK(watch->stopped);
  CHECK(watch->gone);
}

} // namespace page_store_test
