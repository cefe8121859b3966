#include "tests/actors/registry_support.hpp"
#include "tests/catch.hpp"

#include <deque>

namespace registry_durable_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// A store that writes when the test calls `write`.
class patient_store final : public store::metadata_store {
public:
  const store::node_identity& identity() const noexcept override { return identity_; }

  result<void> commit(store::write_batch&& batch, store::commit_callback done) override {
    if (refuse.code != errc::ok)
      return tl::unexpected<error>(refuse);
    waiting.emplace_back(std::move(batch), std::move(done));
    return {};
  }
  result<store::load_summary> load(store::load_visitor&, unsigned) override { return store::load_summary{}; }
  result<std::uint64_t>
  load_descriptions(const std::function<result<void>(std::span<const store::description_record>)>&) override {
    return std::uint64_t{0};
  }
  result<void> close() override { return {}; }
  store::store_stats stats() const override { return {}; }

  /// Ends the write that is under way; how many records it had.
  std::size_t write(const result<void>& outcome = {}) {
    REQUIRE(waiting.size() == 1); // one at a time
    auto [batch, done] = std::move(waiting.front());
    waiting.pop_front();
    done(outcome);
    return batch.records();
  }

  std::deque<std::pair<store::write_batch, store::commit_callback>> waiting;
  error refuse{errc::ok, {}};

private:
  store::node_identity identity_;
};

/// One shard with a store, and a probe for its allocator.
struct durable_world : sim {
  namespace_spec ns = small_namespace();
  probe slots{system()};
  probe metrics{system()};
  std::shared_ptr<patient_store> disk = std::make_shared<patient_store>();
  registry_actor shard;

  durable_world() : durable_world(registry_options{}) {}
  explicit durable_world(registry_options how) {
    how.change_feed = true;
    shard = spawn<registry>(how, std::vector{ns}, metrics.as<metrics_actor>(), disk);
    const registry_peers peers{{shard}, {slots.as<allocator_actor>()}, {ns.id()}, {0}};
    REQUIRE(ask(shard, bind_atom_v, peers).code() == errc::ok);
    disk->write(); // the namespace
    run();
  }

  /// Reserves one key at a slot.
  finish_request reserve(std::uint64_t n, slot_number slot) {
    const reserve_request wanted{
        ns.id(), 0, {7, n}, std::chrono::seconds(30), test_task(1, n).keys, packed<key_digest>{}};
    const auto number = begin(shard, wanted);
    const auto asked = slots.take_one<take_atom, std::uint32_t, duration>();
    slots.reply(asked, caf::make_message(take_reply{std::vector{slot_ref{slot, 5}}}));
    run();
    const auto granted = client().answer_to(number).value<reserve_reply>();
    REQUIRE(granted.results[0].code() == errc::ok);
    return {ns.id(), 0, {7, n}, std::vector{page_ref{wanted.keys[0], granted.results[0].where}}};
  }

  /// Reserves and commits one key; returns the pages written.
  finish_request save(std::uint64_t n, slot_number slot) {
    auto page = reserve(n, slot);
    const auto number = begin(shard, commit_atom_v, page);
    disk->write();
    run();
    REQUIRE(client().answer_to(number).code() == errc::ok);
    return page;
  }

  std::size_t listed() {
    return ask(shard, list_pages_request{ns.id(), 0, 0, 100}).value<list_pages_reply>().pages.size();
  }

  bool complete(std::uint64_t n) {
    const exists_request asked{ns.id(), all_ranks, test_task(1, n).keys};
    return ask(shard, asked).value<result_codes>().results[0] == 0;
  }
};

} // namespace

TEST_CASE_METHOD(durable_world, "durable registry: a commit is answered only after it is written",
                 "[registry_durable]") {
  const auto page = reserve(1, 3);
  const auto number = begin(shard, commit_atom_v, page);
  CHECK_FALSE(client().answer_to(number).came);
  CHECK(slots.take<publish_page_atom, slot_batch>().empty());
  CHECK(complete(1)); // a reader that gets it now has a miss if a crash removes it
  CHECK(disk->write() == 1);
  run();
  CHECK(client().answer_to(number).value<finish_reply>().results[0] == 0);
  CHECK(slots.take<publish_page_atom, slot_batch>().size() == 1);
}

TEST_CASE_METHOD(durable_world, "durable registry: a slot is released after its page has been deleted from the store",
                 "[registry_durable]") {
  const auto page = reserve(1, 3);
  const auto committed = begin(shard, commit_atom_v, page);
  disk->write();
  run();
  REQUIRE(client().answer_to(committed).code() == errc::ok);
  const auto number = begin(shard, invalidate_request{ns.id(), 0, page.pages});
  CHECK_FALSE(complete(1));
  CHECK(slots.take<release_atom, slot_batch>().empty());
  CHECK_FALSE(client().answer_to(number).came);
  disk->write();
  run();
  CHECK(slots.take<release_atom, slot_batch>().size() == 1);
  CHECK(client().answer_to(number).code() == errc::ok);
}

TEST_CASE_METHOD(durable_world, "durable registry: an eviction is answered after its slots have been released",
                 "[registry_durable]") {
  const auto committed = begin(shard, commit_atom_v, reserve(1, 3));
  disk->write();
  run();
  REQUIRE(client().answer_to(committed).code() == errc::ok);
  const auto number = begin(shard, evict_request{ns.id(), 0, 1});
  CHECK_FALSE(client().answer_to(number).came);
  disk->write();
  run();
  CHECK(slots.take<release_atom, slot_batch>().size() == 1);
  CHECK(client().answer_to(number).value<evict_reply>().slots == 1);
}

TEST_CASE_METHOD(durable_world, "durable registry: no slot of a rank is granted before its registration is written",
                 "[registry_durable]") {
  // The store may have pages of an earlier registration in the same slots. A crash would bring them back, with what was
  // written over them.
  const add_rank_request wanted{ns.id(), 0, 8, slots.as<allocator_actor>(), 9, {}};
  const auto added = begin(shard, wanted);
  const reserve_request first{ns.id(), 0, {7, 1}, std::chrono::seconds(30), test_task(1, 1).keys, packed<key_digest>{}};
  const auto reserved = begin(shard, first);
  run();
  CHECK_FALSE(client().answer_to(added).came);
  CHECK(slots.take<take_atom, std::uint32_t, duration>().empty());
  SECTION("it is written") {
    disk->write();
    run();
    CHECK(client().answer_to(added).code() == errc::ok);
    slots.reply(slots.take_one<take_atom, std::uint32_t, duration>(),
                caf::make_message(take_reply{std::vector{slot_ref{3, 5}}}));
    run();
    CHECK(client().answer_to(reserved).value<reserve_reply>().results[0].code() == errc::ok);
  }
  SECTION("the store fails") {
    disk->write(tl::unexpected<error>(error{errc::no_space, "the disk is full"}));
    run();
    CHECK(client().answer_to(added).code() == errc::no_space);
    CHECK(client().answer_to(reserved).came);
    CHECK(slots.take<take_atom, std::uint32_t, duration>().empty());
  }
}

TEST_CASE_METHOD(durable_world, "durable registry: changes during a write go into the next one in order",
                 "[registry_durable]") {
  std::vector<finish_request> pages;
  for (std::uint64_t n = 1; n <= 5; ++n)
    pages.push_back(reserve(n, static_cast<slot_number>(n)));
  std::vector<std::uint64_t> numbers;
  for (const auto& x : pages)
    numbers.push_back(begin(shard, commit_atom_v, x));
  CHECK(disk->write() == 1);
  run();
  CHECK(client().answer_to(numbers[0]).code() == errc::ok);
  for (std::size_t i = 1; i < numbers.size(); ++i)
    CHECK_FALSE(client().answer_to(numbers[i]).came);
  CHECK(disk->write() == 4);
  run();
  for (std::size_t i = 1; i < numbers.size(); ++i)
    CHECK(client().answer_to(numbers[i]).code() == errc::ok);
  CHECK(disk->waiting.empty());
}

TEST_CASE_METHOD(durable_world, "durable registry: reads and refusals do not wait for the store",
                 "[registry_durable]") {
  const auto hanging = begin(shard, commit_atom_v, reserve(1, 3));
  const auto keys = test_task(1, 1).keys;
  CHECK(ask(shard, match_request{ns.id(), {7, 90}, std::chrono::seconds(1), keys}).code() == errc::ok);
  CHECK(ask(shard, stats_atom_v).code() == errc::ok);
  disk->write();
  run();
  CHECK(client().answer_to(hanging).code() == errc::ok);
  CHECK(ask(shard, commit_atom_v, finish_request{ns.id(), 9, {7, 1}, {}}).code() == errc::out_of_range);
}

TEST_CASE_METHOD(durable_world, "durable registry: a batch is retried when the store is busy", "[registry_durable]") {
  const auto page = reserve(1, 3);
  disk->refuse = {errc::limit_exceeded, "too much"};
  const auto number = begin(shard, commit_atom_v, page);
  CHECK(disk->waiting.empty());
  disk->refuse = {errc::ok, {}};
  advance(std::chrono::seconds(1));
  CHECK(disk->write() == 1);
  run();
  CHECK(client().answer_to(number).code() == errc::ok);
}

TEST_CASE("durable registry: irreversible requests are accepted beyond the limit of a slow disk",
          "[registry_durable]") {
  registry_options how;
  how.max_waiting_for_store = 1;
  durable_world w(how);
  const auto gone = w.save(1, 3);
  const auto late = w.reserve(2, 4);
  const auto refused = w.reserve(3, 5);
  const auto waits = w.begin(w.shard, commit_atom_v, late);
  REQUIRE(w.ask(w.shard, commit_atom_v, refused).code() == errc::limit_exceeded);
  SECTION("the loss of a page") {
    const auto number = w.begin(w.shard, dropped_pages_request{w.ns.id(), 0, gone.pages});
    CHECK_FALSE(w.client().answer_to(number).came);
    CHECK_FALSE(w.complete(1));
    w.disk->write();
    w.run();
    CHECK(w.client().answer_to(waits).code() == errc::ok);
    w.disk->write();
    w.run();
    CHECK(w.client().answer_to(number).value<result_codes>().results[0] == 0);
    CHECK(w.listed() == 1);
  }
  SECTION("the removal of a namespace") {
    const auto number = w.begin(w.shard, remove_namespace_request{w.ns.id(), true});
    w.disk->write();
    w.run();
    w.disk->write();
    w.run();
    CHECK_FALSE(w.client().answer_to(number).value<remove_namespace_reply>().more);
    CHECK(w.ask(w.shard, describe_request{w.ns.id()}).code() == errc::unknown_namespace);
  }
}

TEST_CASE_METHOD(durable_world, "durable registry: a store failure fails all pending commits and ends the shard",
                 "[registry_durable]") {
  const auto first = reserve(1, 3);
  const auto second = reserve(2, 4);
  const auto a = begin(shard, commit_atom_v, first);
  const auto b = begin(shard, commit_atom_v, second);
  SECTION("while it writes") {
    disk->write(tl::unexpected<error>(error{errc::no_space, "the disk is full"}));
    run();
  }
  SECTION("when it refuses a batch") {
    disk->refuse = {errc::io_error, "an earlier write failed"};
    disk->write();
    run();
    CHECK(client().answer_to(a).code() == errc::ok);
    CHECK(client().answer_to(b).code() == errc::io_error);
    CHECK(ask(shard, stats_atom_v).code() == errc::unreachable);
    return;
  }
  CHECK(client().answer_to(a).code() == errc::no_space);
  CHECK(client().answer_to(b).code() == errc::no_space);
  CHECK(slots.take<publish_page_atom, slot_batch>().empty());
  CHECK(ask(shard, stats_atom_v).code() == errc::unreachable);
}

TEST_CASE_METHOD(durable_world, "durable registry: its shutdown answers requests that wait for the store",
                 "[registry_durable]") {
  const auto number = begin(shard, commit_atom_v, reserve(1, 3));
  end(shard);
  CHECK(client().answer_to(number).code() == errc::shutting_down);
  disk->write(); // late, and without a receiver
  run();
}

} // namespace registry_durable_test
