#include "actors/node/remote/remote_worker.hpp"
#include "io/page.hpp"
#include "tests/actors/sim.hpp"
#include "tests/memory_extents.hpp"
#include "tests/near_memory.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace remote_worker_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t page_size = 4096;
constexpr std::uint64_t slot_size = 8192;
constexpr owner_id owner = 9;
constexpr namespace_id ns{3, 4};

/// A remote worker between an io worker that does what the test says, and memory of a client in this process.
struct far_client : sim {
  probe io;
  probe node;
  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(4, 4 * slot_size);
  std::shared_ptr<near_network> network = std::make_shared<near_network>();
  remote_presence presence = std::make_shared<std::atomic<std::uint32_t>>(1);
  remote_worker_actor worker;
  std::shared_ptr<io::exposed_memory> memory;
  remote_offer offer;

  explicit far_client(bool moves = true) : io(system()), node(system()) {
    remote_worker_parts parts{owner,
                              ns,
                              0,
                              page_size,
                              io.as<io_worker_actor>(),
                              node.as<node_actor>(),
                              extents,
                              moves ? network->mover() : nullptr,
                              presence,
                              {slot_size, 0, 64 * slot_size, std::chrono::seconds(2)}};
    worker = spawn<remote_worker>(std::move(parts));
    const std::array from{host_address::ipv4_loopback()};
    memory = *network->exposer()->expose(8 * slot_size, from);
    const auto& name = memory->name();
    offer = {name.address, name.key, name.base, name.bytes, slot_size, std::vector<std::uint8_t>(32, 5)};
    std::fill_n(memory->bytes().begin(), 32, std::byte{5});
  }

  ~far_client() {
    end(worker);
    worker = nullptr;
  }

  static page_ref page(std::uint64_t n) { return {{n, n}, {static_cast<slot_number>(n), 1}}; }
  static io::page_identity identity(std::uint64_t n) { return {ns, page(n).key, 0, page(n).where, page_size}; }

  static void write_page(std::span<std::byte> frame, std::uint64_t n) {
    std::fill_n(frame.begin() + io::page_header_bytes, page_size, static_cast<std::byte>(n));
    io::seal_page(frame, identity(n));
  }
  std::span<std::byte> here(std::uint64_t frame) { return extents->memory().subspan(frame * slot_size, slot_size); }
  std::span<std::byte> there(std::uint64_t offset) { return memory->bytes().subspan(offset, slot_size); }

  void bind() { REQUIRE(ask(worker, bind_atom_v, offer).code() == errc::ok); }

  /// Answers the io worker's next place or fetch with frames from `first` on.
  template <class Verb>
  void give_frames(pin_number pin, std::uint64_t first) {
    const auto asked = io.take_one<Verb, owner_id, frame_request>();
    CHECK(asked.template get<owner_id>(1) == owner);
    frame_reply reply{pin, {}};
    for (std::size_t i = 0; i < asked.template get<frame_request>(2).pages.size(); ++i)
      reply.frames.items.push_back({(first + i) * slot_size, 0, 0});
    io.reply(asked, caf::make_message(reply));
    run();
  }

  void unpinned(pin_number pin) {
    const auto asked = io.take_one<unpin_atom, owner_id, pin_number>();
    CHECK(asked.get<pin_number>(2) == pin);
    io.reply(asked, caf::make_message(caf::unit));
    run();
  }
};

} // namespace

TEST_CASE("remote worker: a fetch is answered when its page is in the client's memory") {
  far_client w;
  w.bind();
  far_client::write_page(w.here(5), 1);
  far_client::write_page(w.here(6), 2);
  const auto fetch = w.begin(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1), w.page(2)}}, {}});
  w.give_frames<fetch_atom>(70, 5);
  const auto notified = w.client().answer_to(fetch).value<frame_reply>();
  w.unpinned(70);
  REQUIRE(notified.frames.size() == 2);
  CHECK(io::verify_page(w.there(notified.frames[0].offset), far_client::identity(1)) == errc::ok);
  CHECK(io::verify_page(w.there(notified.frames[1].offset), far_client::identity(2)) == errc::ok);
  CHECK(w.ask(w.worker, unpin_atom_v, owner, notified.pin).code() == errc::ok);
  CHECK(w.ask(w.worker, unpin_atom_v, owner, notified.pin).code() == errc::not_found);
}

TEST_CASE("remote worker: a worker that ends before it is bound does not count as an active client") {
  far_client w;
  CHECK(w.presence->load() == 1);
  w.end(w.worker);
  CHECK(w.presence->load() == 0);
}

TEST_CASE("remote worker: a saved page is read and verified before the io worker is notified") {
  far_client w;
  w.bind();
  const auto place = w.begin(w.worker, place_atom_v, owner, frame_request{{{w.page(1), w.page(2)}}, {}});
  w.give_frames<place_atom>(71, 8);
  const auto notified = w.client().answer_to(place).value<frame_reply>();
  far_client::write_page(w.there(notified.frames[0].offset), 1);
  far_client::write_page(w.there(notified.frames[1].offset), 2);
  w.there(notified.frames[1].offset)[5000] ^= std::byte{1};
  const auto fill =
      w.begin(w.worker, fill_atom_v, owner, fill_request{notified.pin, {{0, 0}}, std::chrono::seconds(1)});
  const auto asked = w.io.take_one<fill_atom, owner_id, fill_request>();
  const auto& said = asked.get<fill_request>(2);
  CHECK(said.pin == 71);
  CHECK(said.gathered.items == std::vector<std::uint8_t>{0, static_cast<std::uint8_t>(errc::corrupt)});
  CHECK(io::verify_page(w.here(8), far_client::identity(1)) == errc::ok);
  w.io.reply(asked, caf::make_message(io_reply{said.gathered}));
  w.run();
  CHECK(w.client().answer_to(fill).value<io_reply>().results == said.gathered);
}

TEST_CASE("remote worker: a binding to memory other than the offered one is refused") {
  far_client w;
  w.memory->bytes()[3] = std::byte{6};
  CHECK(w.ask(w.worker, bind_atom_v, w.offer).code() == errc::identity_mismatch);
  CHECK(w.ask(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}}).code() == errc::identity_mismatch);
}

TEST_CASE("remote worker: a client is refused when remote transfers are off") {
  far_client w(false);
  CHECK(w.ask(w.worker, bind_atom_v, w.offer).code() == errc::unsupported);
  CHECK(w.ask(w.worker, place_atom_v, owner, frame_request{{{w.page(1)}}, {}}).code() == errc::unreachable);
  caf::anon_send(w.worker, unbind_atom_v, owner);
  w.run();
  CHECK(w.presence->load() == 0);
}

TEST_CASE("remote worker: requests of a lost client are answered and the node is notified") {
  far_client w;
  w.bind();
  w.network->held = true;
  const auto fetch = w.begin(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}});
  w.give_frames<fetch_atom>(70, 5);
  CHECK_FALSE(w.client().answer_to(fetch).came);
  SECTION("because its memory is unreachable") {
    w.network->lose_all();
  }
  SECTION("because its transfers make no progress") {
    w.advance(std::chrono::milliseconds(2200));
  }
  w.run();
  const auto notified = w.node.take_one<unbind_atom, owner_id>();
  CHECK(notified.get<owner_id>(1) == owner);
  w.node.reply(notified, caf::make_message(caf::unit));
  CHECK(w.client().answer_to(fetch).code() == errc::unreachable);
  w.unpinned(70);
  CHECK(w.ask(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}}).code() == errc::unreachable);
  // It may also be accessed until the attachment ends.
  CHECK(w.presence->load() == 1);
  caf::anon_send(w.worker, unbind_atom_v, owner);
  w.run();
  CHECK(w.presence->load() == 0);
}

TEST_CASE("remote worker: a client on a slow network does not time out while bytes move") {
  far_client w;
  w.bind();
  far_client::write_page(w.here(5), 1);
  w.network->held = true;
  const auto fetch = w.begin(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}});
  w.give_frames<fetch_atom>(70, 5);
  for (int i = 0; i < 10; ++i) {
    ++w.network->trickled;
    w.advance(std::chrono::milliseconds(1500));
    w.run();
  }
  CHECK_FALSE(w.client().answer_to(fetch).came);
  w.network->go_on();
  w.run();
  CHECK(w.client().answer_to(fetch).value<frame_reply>().frames.size() == 1);
  w.unpinned(70);
}

TEST_CASE("remote worker: the end of an attachment waits for transfers in progress") {
  far_client w;
  w.bind();
  w.network->held = true;
  const auto fetch = w.begin(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}});
  const auto asked = w.io.take_one<fetch_atom, owner_id, frame_request>();
  caf::anon_send(w.worker, unbind_atom_v, owner);
  w.run();
  // The io worker has not answered: what it pins for this may still come.
  CHECK(w.presence->load() == 1);
  w.io.reply_error(asked, errc::unreachable);
  w.run();
  CHECK(w.presence->load() == 0);
  CHECK(w.client().answer_to(fetch).code() == errc::unreachable);
}

TEST_CASE("remote worker: a shutdown with the node drops transfers in progress") {
  far_client w;
  w.bind();
  w.network->held = true;
  w.begin(w.worker, fetch_atom_v, owner, frame_request{{{w.page(1)}}, {}});
  w.give_frames<fetch_atom>(70, 5);
  CHECK(w.network->waiting() == 1);
  w.end(w.worker);
  CHECK(w.network->waiting() == 0);
  CHECK(w.presence->load() == 0);
}

} // namespace remote_worker_test
