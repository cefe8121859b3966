#include "actors/client/transfer/slab_reading.hpp"
#include "io/slab/slab_file.hpp"
#include "tests/actors/coordinator_support.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

namespace load_files_test {

/// Loads from slab files of a node whose storage is shared.

using namespace troupe;
using namespace troupe::test;

namespace {

struct world : coordinator_world {
  probe reader{system()};
  transfer_actor load = spawn<load_coordinator>(test_options(), copier.as<copy_engine_actor>(), request_timeout,
                                                reader.as<slab_reading_actor>());

  void bind(const shared_slab& slab, owner_id owner = 77) {
    auto node = binding(owner);
    node.slab = slab;
    REQUIRE(ask(load, bind_atom_v, node).code() == errc::ok);
  }
  received locate_one() { return shard.take_one<locate_request>(); }
  void locate_in_slab(const received& x) {
    const auto& keys = x.get<locate_request>(0).keys;
    reply(shard, x, locate_reply{locations(keys), {std::vector<std::uint8_t>(keys.size(), 1)}});
  }
};

const shared_slab first{"node-1/a.slab", 5};
const shared_slab second{"node-1/a.slab", 6};

} // namespace

TEST_CASE_METHOD(world, "load coordinator: pages in the slab are read from the file that the node named",
                 "[load_coordinator]") {
  bind(first);
  const auto number = begin(load, test_task(2));
  const auto located = locate_one();
  CHECK(located.get<locate_request>(0).report_in_slab);
  locate_in_slab(located);
  const auto order = reader.take_one<read_order>();
  CHECK(order.get<read_order>(0).file == first);
  CHECK(order.get<read_order>(0).items[1] == read_item{key(1), {1, 7}, 101, 0});
  reply(reader, order, read_reply{codes({errc::ok, errc::corrupt})});
  // The other one comes from the node.
  give(worker.take_one<fetch_atom, frame_request>());
  copy(copier.take_one<scatter_atom, copy_order>());
  const auto done = client().answer_to(number).value<transfer_result>();
  CHECK(results_of(done) == std::vector(2, errc::ok));
  CHECK(done.from_files == 1);
  CHECK(done.files_damaged == 1);
  end_pins();
  reply(shard, shard.take_one<release_request>());
}

TEST_CASE_METHOD(world, "load coordinator: after a new binding it reads only from the file of that binding",
                 "[load_coordinator]") {
  bind(first);
  const auto old = begin(load, test_task(1));
  locate_in_slab(locate_one());
  const auto late = reader.take_one<read_order>();
  CHECK(ask(load, unbind_atom_v).code() == errc::ok);
  bind(second, 78);
  const auto number = begin(load, test_task(1));
  locate_in_slab(locate_one());
  const auto order = reader.take_one<read_order>();
  CHECK(order.get<read_order>(0).file == second);
  CHECK_FALSE(client().answer_to(old).came);
  reply(reader, late, read_reply{codes({errc::ok})});
  CHECK(results(old) == std::vector{errc::ok});
  reply(reader, order, read_reply{codes({errc::ok})});
  CHECK(results(number) == std::vector{errc::ok});
  reply(shard, shard.take_one<release_request>());
  // For a client of a node without shared storage: over the network.
  bind({}, 79);
  begin(load, test_task(1));
  const auto located = locate_one();
  CHECK_FALSE(located.get<locate_request>(0).report_in_slab);
  locate_in_slab(located);
  CHECK(reader.take<read_order>().empty());
  CHECK(worker.take<fetch_atom, frame_request>().size() == 1);
}

TEST_CASE_METHOD(world, "load coordinator: its shutdown waits for file reads into blocks", "[load_coordinator]") {
  bind(first);
  const auto number = begin(load, test_task(2));
  locate_in_slab(locate_one());
  const auto order = reader.take_one<read_order>();
  end(load);
  CHECK_FALSE(client().answer_to(number).came);
  reply(reader, order, read_reply{codes({errc::ok, errc::corrupt})});
  CHECK(results(number) == std::vector{errc::ok, errc::unreachable});
}

TEST_CASE_METHOD(sim, "slab reading: an order is read from the file into blocks with a code per page",
                 "[slab_reading]") {
  const scratch_directory scratch;
  constexpr namespace_id ns{1, 2};
  const auto owner = io::slab_file::open({.path = scratch / "node-1/a.slab",
                                          .ns = ns,
                                          .namespace_name = "a",
                                          .rank = 3,
                                          .slot_bytes = 8192,
                                          .slots = 8})
                         .value();
  aligned_buffer slot(8192);
  std::fill_n(slot.data() + io::page_header_bytes, 4096, std::byte{9});
  io::seal_page(slot.bytes(), {ns, {5, 5}, 3, {2, 1}, 4096});
  REQUIRE(::pwrite(owner.descriptor(), slot.data(), 8192, 2 * 8192) == 8192);
  std::vector<std::byte> blocks(4 * 4096);
  io::engine_options how;
  how.kind = io::engine_kind::threads;
  const io::foreign_storage storage{io::foreign_reader::make(how).value(), scratch.path(), true};
  const auto reading =
      spawn<slab_reading>(io::foreign_pages::options{storage, ns, 3, 4096, blocks}, std::string("another"));
  read_order order{{"node-1/a.slab", owner.spec().incarnation}, {}, test_patience};
  order.items.items = {{{5, 5}, {2, 1}, 1, 0}, {{5, 6}, {2, 1}, 2, 0}};
  const auto got = ask(reading, order).value<read_reply>();
  CHECK(got.results == codes({errc::ok, errc::identity_mismatch}));
  CHECK(blocks[4096] == std::byte{9});
  CHECK(blocks[2 * 4096] == std::byte{0});
  ++order.file.incarnation;
  CHECK(ask(reading, order).value<read_reply>().results == same_codes(2, errc::unsupported));
}

} // namespace load_files_test
