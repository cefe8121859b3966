#include "actors/node/io_worker/io_worker.hpp"
#include "io/page.hpp"
#include "tests/actors/sim.hpp"
#include "tests/catch.hpp"
#include "tests/memory_extents.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

namespace page_store_test {

using namespace troupe;
using namespace troupe::test;

// An io worker over a store of pages that is no slab file: it asks for nothing but what io/slab/page_store.hpp
// promises.

namespace {

constexpr std::uint64_t page_size = 1024;
constexpr std::uint64_t slot_size = io::slot_bytes(page_size);
constexpr slot_number slots = 4;

/// The view of a test on a store that its worker owns.
struct store_watch {
  std::atomic<bool> sound{true};
  std::atomic<std::size_t> buffers{0};
  std::atomic<bool> stopped{false};
  std::atomic<bool> gone{false};
};

/// Pages in memory, moved by the thread that submits.
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
    return watch_->sound ? result<void>{} : fail(errc::slab_damaged, "the memory is lost");
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
  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(1U, 2 * slot_size);
  io_worker_actor worker;

  memory_world() {
    auto parts = std::make_shared<io_worker_parts>();
    parts->target = std::make_shared<completion_target>();
    parts->store = std::make_unique<memory_pages>(
        watch, [target = parts->target](std::span<const io::completion> done) { target->deliver(done); });
    parts->extents = extents;
    const auto& traits = parts->store->traits();
    parts->name = {{1, 2}, "small", 0};
    parts->page_bytes = page_size;
    parts->condition = condition;
    parts->options.slots = traits.slots;
    parts->options.slot_bytes = traits.slot_bytes;
    parts->options.deadline_max = std::chrono::seconds(10);
    parts->options.pinned_bytes_max = 1 << 20;
    worker = spawn<io_worker>(std::move(parts));
  }

  static page_ref page(slot_number slot) { return {key_digest{slot, 1}, {slot, 1}}; }
  static frame_request request(const page_ref& x) { return {packed<page_ref>{{x}}, std::chrono::seconds(5)}; }

  std::span<std::byte> frame(const page_frame& x) { return extents->memory().subspan(x.offset, slot_size); }

  errc save(const page_ref& x, std::byte byte) {
    const auto placed = ask(worker, place_atom_v, owner_id{1}, request(x)).value<frame_reply>();
    if (placed.frames[0].code() != errc::ok)
      return placed.frames[0].code();
    std::ranges::fill(frame(placed.frames[0]), byte);
    io::seal_page(frame(placed.frames[0]), {{1, 2}, x.key, 0, x.where, page_size});
    const fill_request filled{placed.pin, packed<std::uint8_t>{{std::uint8_t{0}}}, std::chrono::seconds(5)};
    return static_cast<errc>(ask(worker, fill_atom_v, owner_id{1}, filled).value<io_reply>().results[0]);
  }

  /// A byte of the page, if it is that page.
  std::optional<std::byte> load(const page_ref& x) {
    const auto found = ask(worker, fetch_atom_v, owner_id{1}, request(x)).value<frame_reply>();
    if (found.frames[0].code() != errc::ok ||
        io::verify_page(frame(found.frames[0]), {{1, 2}, x.key, 0, x.where, page_size}) != errc::ok)
      return std::nullopt;
    const auto out = frame(found.frames[0])[io::page_header_bytes];
    REQUIRE(ask(worker, unpin_atom_v, owner_id{1}, found.pin).code() == errc::ok);
    return out;
  }
};

} // namespace

TEST_CASE_METHOD(memory_world, "io worker: works with any implementation of the page store", "[io_worker]") {
  for (slot_number slot = 0; slot < slots; ++slot)
    CHECK(save(page(slot), static_cast<std::byte>(slot)) == errc::ok);
  for (slot_number slot = 0; slot < slots; ++slot)
    CHECK(load(page(slot)) == static_cast<std::byte>(slot));
  CHECK(save(page(slots), std::byte{}) == errc::out_of_range);
}

TEST_CASE_METHOD(memory_world, "io worker: a damaged store makes the node degraded", "[io_worker]") {
  CHECK(save(page(0), std::byte{7}) == errc::ok);
  watch->sound = false;
  advance(std::chrono::seconds(2));
  CHECK(condition->has(trouble::slab_damaged));
  CHECK(condition->ready().error().text.find("the memory is lost") != std::string::npos);
  CHECK(save(page(1), std::byte{7}) == errc::slab_damaged);
  CHECK(load(page(0)) == std::byte{7});
}

TEST_CASE_METHOD(memory_world, "io worker: a store is stopped before it is destroyed", "[io_worker]") {
  CHECK(watch->buffers == 0);
  CHECK(save(page(0), std::byte{7}) == errc::ok);
  CHECK(watch->buffers == 1);
  CHECK_FALSE(watch->stopped);
  end(worker);
  CHECK(watch->stopped);
  CHECK(watch->gone);
}

} // namespace page_store_test
