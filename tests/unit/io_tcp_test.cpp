#include "base/unique_descriptor.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "io/tcp/tcp_stream.hpp"
#include "tests/catch.hpp"
#include "tests/unit/http_certificates.hpp"
#include "tests/unit/remote_ends.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>

namespace io_tcp_test {

using namespace troupe;
using namespace troupe::test;
using io::remote_direction;

namespace {

std::shared_ptr<io::exposed_memory> expose(std::uint64_t bytes, bool encrypted = false,
                                           const host_address& admitted = loopback, std::uint32_t streams = 1) {
  const std::array from{admitted};
  auto made = io::make_tcp_exposer({loopback}, encrypted, streams)->expose(bytes, from);
  REQUIRE(made);
  return *made;
}

std::shared_ptr<io::remote_mover> new_mover(unsigned threads = 1, bool encrypted = false, std::uint32_t streams = 8) {
  auto made = io::make_tcp_mover({threads, encrypted, streams});
  REQUIRE(made);
  return *made;
}

io::tcp::memory_place place_of(const io::remote_memory_name& name) {
  const auto out = io::tcp::memory_place::parse(name);
  REQUIRE(out);
  return *out;
}

/// A raw connection with blocking calls.
class raw_end {
public:
  explicit raw_end(const io::remote_memory_name& name) {
    auto made = io::tcp::tcp_stream::connect(place_of(name).where.front());
    REQUIRE(made);
    stream_ = std::move(*made);
  }
  explicit raw_end(io::tcp::tcp_stream stream) : stream_(std::move(stream)) {}

  template <class T>
  void say(const T& what) {
    auto bytes = std::as_bytes(std::span(&what, 1));
    while (!bytes.empty()) {
      wait(POLLOUT);
      const std::array<iovec, 1> rest{{{const_cast<std::byte*>(bytes.data()), bytes.size()}}};
      const auto n = stream_.write(rest);
      if (n.ended)
        return;
      bytes = bytes.subspan(n.bytes);
    }
  }

  /// Whether this many bytes arrived before the end.
  bool hear(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      wait(POLLIN);
      const std::array<iovec, 1> rest{{{bytes.data(), bytes.size()}}};
      const auto n = stream_.read(rest);
      if (n.ended)
        return false;
      bytes = bytes.subspan(n.bytes);
    }
    return true;
  }
  template <class T>
  bool hear(T& what) {
    return hear(std::as_writable_bytes(std::span(&what, 1)));
  }
  /// The other end has closed without sending anything.
  bool is_refused() {
    std::byte one{};
    return !hear(std::span(&one, 1));
  }

private:
  void wait(short events) const {
    pollfd what{stream_.descriptor(), events, 0};
    REQUIRE(::poll(&what, 1, 30000) == 1);
  }

  io::tcp::tcp_stream stream_;
};

io::tcp::hello hello_of(const io::remote_memory_name& name) {
  io::tcp::hello out;
  std::transform(name.key.begin(), name.key.end(), out.token.begin(), [](auto x) { return std::byte{x}; });
  return out;
}

/// A fake client: a listener, and the name of nonexistent memory behind it.
struct false_client {
  false_client() {
    auto made = io::tcp::listen_on(loopback);
    REQUIRE(made);
    listening = std::move(*made);
    name.address = io::tcp::memory_place{{listening.where}, false, 1}.bytes();
    name.key.assign(io::tcp::token_bytes, 7);
    name.bytes = 1U << 30U;
  }
  io::tcp::tcp_stream accept() const {
    pollfd what{listening.descriptor.get(), POLLIN, 0};
    REQUIRE(::poll(&what, 1, 30000) == 1);
    return io::tcp::tcp_stream::accept(listening.descriptor.get());
  }
  raw_end answer() const { return raw_end(accept()); }

  io::tcp::listener listening;
  io::remote_memory_name name;
};

} // namespace

TEST_CASE("tcp memory: put and get transfer every byte", "[tcp]") {
  constexpr std::size_t bytes = 8U << 20U;
  const auto memory = expose(bytes, GENERATE(false, true));
  const remote_end_of far(new_mover(), memory->name());
  auto first = byte_pattern(bytes, 1);
  std::vector<io::remote_move> moves;
  constexpr std::size_t piece = 68U << 10U;
  for (std::size_t at = 0; at < bytes; at += piece)
    moves.push_back({std::span(first).subspan(at, std::min(piece, bytes - at)), at});
  REQUIRE(far.move(remote_direction::put, moves));
  CHECK(std::memcmp(memory->bytes().data(), first.data(), bytes) == 0);
  const auto put = far.peer->progress();
  CHECK(put >= bytes);
  std::vector<std::byte> second(bytes);
  REQUIRE(far.move(remote_direction::get, {{second, 0}}));
  CHECK(second == first);
  CHECK(far.peer->progress() >= put + bytes);
  CHECK(far.move(remote_direction::get, {}));
  far.close();
  CHECK(far.move(remote_direction::get, {{second, 0}}).error().code == errc::unreachable);
}

TEST_CASE("tcp memory: concurrent transfers in both directions with several peers are correct", "[tcp]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t frame = 20480;
  constexpr std::size_t frames = 64;
  constexpr int peers = 3;
  const bool encrypted = GENERATE(false, true);
  const auto mover = new_mover(2);
  std::vector<std::shared_ptr<io::exposed_memory>> memories;
  std::vector<std::unique_ptr<remote_end_of>> ends;
  for (int i = 0; i < peers; ++i) {
    memories.push_back(expose(frame * frames, encrypted));
    ends.push_back(std::make_unique<remote_end_of>(mover, memories.back()->name()));
  }
  // The expected contents of each frame in the order of transfers, which take effect in order for each peer.
  std::vector<std::vector<std::byte>> model(peers, std::vector<std::byte>(frame * frames));
  struct read_back {
    std::vector<std::byte> got;
    std::vector<std::byte> expected;
  };
  std::vector<std::unique_ptr<read_back>> reads;
  std::vector<std::unique_ptr<std::vector<std::byte>>> written;
  std::vector<std::future<result<void>>> open;
  for (int step = 0; step < 400; ++step) {
    const auto peer = random() % peers;
    const auto count = 1 + random() % 5;
    std::vector<io::remote_move> moves;
    const bool put = random() % 2 == 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto there = random() % (frame * frames - 1);
      const auto length = 1 + random() % std::min<std::size_t>(frame * frames - there, 3 * frame);
      auto* const at = model[peer].data() + there;
      if (put) {
        written.push_back(std::make_unique<std::vector<std::byte>>(byte_pattern(length, static_cast<unsigned>(step))));
        moves.push_back({*written.back(), there});
        std::copy(written.back()->begin(), written.back()->end(), at);
      } else {
        reads.push_back(std::make_unique<read_back>(
            read_back{std::vector<std::byte>(length), std::vector<std::byte>(at, at + length)}));
        moves.push_back({reads.back()->got, there});
      }
    }
    open.push_back(ends[peer]->begin(put ? remote_direction::put : remote_direction::get, std::move(moves)));
  }
  for (auto& x : open)
    REQUIRE(x.get());
  for (const auto& x : reads)
    CHECK(x->got == x->expected);
  for (int i = 0; i < peers; ++i)
    CHECK(std::memcmp(memories[i]->bytes().data(), model[i].data(), frame * frames) == 0);
}

TEST_CASE("tcp memory: a transfer beyond the exposed memory is refused and moves nothing", "[tcp]") {
  const auto memory = expose(65536);
  const remote_end_of far(new_mover(), memory->name());
  auto some = byte_pattern(8192, 5);
  CHECK(far.move(remote_direction::put, {{some, 0}, {some, 65536 - 4096}}).error().code == errc::out_of_range);
  CHECK(far.move(remote_direction::put, {{some, ~std::uint64_t{0}}}).error().code == errc::out_of_range);
  CHECK(std::all_of(memory->bytes().begin(), memory->bytes().end(), [](std::byte x) { return x == std::byte{0}; }));
  CHECK(far.move(remote_direction::put, {{some, 0}}));
  CHECK(far.mover->connect({{1}, {2}, 0, 1}, {}).error().code == errc::invalid_argument);
  CHECK(io::make_tcp_exposer({loopback}, true)->expose(100, {}).error().code == errc::invalid_argument);
}

TEST_CASE("tcp memory: an order beyond the memory ends the connection and writes nothing", "[tcp]") {
  const auto memory = expose(65536);
  raw_end node(memory->name());
  node.say(hello_of(memory->name()));
  const auto kind = GENERATE(1U, 2U, 3U);
  const std::uint64_t offset = GENERATE(std::uint64_t{65536}, std::uint64_t{65530}, ~std::uint64_t{0});
  node.say(io::tcp::order{static_cast<io::tcp::order_kind>(kind), 1, offset, 16});
  node.say(std::array<char, 16>{'x'});
  CHECK(node.is_refused());
  CHECK(std::all_of(memory->bytes().begin(), memory->bytes().end(), [](std::byte x) { return x == std::byte{0}; }));
}

TEST_CASE("tcp memory: unauthenticated connections are closed, and the node is accepted beside them", "[tcp]") {
  const auto memory = expose(65536);
  raw_end silent(memory->name());
  std::vector<raw_end> others;
  for (int i = 0; i < 40; ++i)
    others.emplace_back(memory->name());
  for (auto& x : others)
    x.say(io::tcp::hello{});
  for (auto& x : others)
    CHECK(x.is_refused());
  auto almost = hello_of(memory->name());
  almost.token[31] ^= std::byte{1};
  raw_end liar(memory->name());
  liar.say(almost);
  CHECK(liar.is_refused());
  const remote_end_of far(new_mover(), memory->name());
  std::vector<std::byte> some(4096);
  CHECK(far.move(remote_direction::get, {{some, 0}}));
  CHECK(silent.is_refused());
  // The listener is closed.
  auto late = io::tcp::tcp_stream::connect(place_of(memory->name()).where.front());
  if (late)
    CHECK(raw_end(std::move(*late)).is_refused());
}

TEST_CASE("tcp memory: a connection from another address than those of the node is closed, whatever it knows",
          "[tcp]") {
  const auto memory = expose(65536, false, host_address::of_ipv4(0x0a000001));
  raw_end node(memory->name());
  node.say(hello_of(memory->name()));
  CHECK(node.is_refused());
}

TEST_CASE("tcp memory: a peer whose memory is freed is lost, and transfers in progress end", "[tcp]") {
  auto memory = expose(1U << 20U, GENERATE(false, true));
  remote_end_of far(new_mover(), memory->name());
  std::vector<std::byte> some(1U << 20U);
  REQUIRE(far.move(remote_direction::get, {{some, 0}}));
  SECTION("without transfers") {
    memory.reset();
  }
  SECTION("during a continuous stream of orders") {
    std::vector<std::future<result<void>>> open;
    for (int i = 0; i < 2000; ++i)
      open.push_back(far.begin(i % 2 == 0 ? remote_direction::put : remote_direction::get, {{some, 0}}));
    memory.reset();
    bool lost = false;
    for (auto& x : open) {
      const auto ended = x.get();
      lost |= !ended;
      if (!ended)
        CHECK(ended.error().code == errc::unreachable);
      else
        CHECK_FALSE(lost); // in order
    }
    CHECK(lost);
  }
  CHECK(far.lost->get_future().get().code == errc::unreachable);
  CHECK(far.move(remote_direction::put, {{some, 0}}).error().code == errc::unreachable);
  far.close();
}

TEST_CASE("tcp memory: an address without a listener is unreachable", "[tcp]") {
  const auto name = [] { return expose(65536)->name(); }();
  remote_end_of far(new_mover(), name);
  std::vector<std::byte> some(4096);
  CHECK(far.move(remote_direction::get, {{some, 0}}).error().code == errc::unreachable);
  CHECK(far.lost->get_future().get().code == errc::unreachable);
}

TEST_CASE("tcp memory: closing ends unanswered transfers, and nothing is received afterwards", "[tcp]") {
  const false_client client;
  const remote_end_of far(new_mover(), client.name);
  auto with = client.answer();
  io::tcp::hello heard;
  REQUIRE(with.hear(heard));
  CHECK(heard.token == hello_of(client.name).token);
  std::vector<std::byte> some(4096, std::byte{9});
  auto open = far.begin(remote_direction::get, {{some, 0}});
  io::tcp::order asked;
  REQUIRE(with.hear(asked));
  CHECK(asked.kind == io::tcp::order_kind::get);
  far.close();
  REQUIRE(open.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(open.get().error().code == errc::unreachable);
  CHECK(with.is_refused());
  CHECK(some == std::vector<std::byte>(4096, std::byte{9}));
}

TEST_CASE("tcp memory: a client with an unexpected answer is lost", "[tcp]") {
  const false_client client;
  remote_end_of far(new_mover(), client.name);
  auto with = client.answer();
  io::tcp::hello heard;
  REQUIRE(with.hear(heard));
  SECTION("without an order") {
    with.say('x');
  }
  SECTION("with another number, kind or length") {
    std::vector<std::byte> some(64);
    auto open = far.begin(remote_direction::put, {{some, 0}});
    io::tcp::order asked;
    REQUIRE(with.hear(asked));
    std::vector<std::byte> sent(some.size());
    REQUIRE(with.hear(std::span(sent)));
    io::tcp::answer reply{asked.kind, asked.number, asked.length};
    const auto wrong = GENERATE(0, 1, 2);
    if (wrong == 0)
      ++reply.number;
    else if (wrong == 1)
      reply.kind = io::tcp::order_kind::get;
    else
      ++reply.length;
    with.say(reply);
    CHECK(open.get().error().code == errc::unreachable);
  }
  SECTION("before it has received the whole order, whose memory would be reused") {
    std::vector<std::byte> much(256U << 20U);
    auto open = far.begin(remote_direction::put, {{much, 0}});
    io::tcp::order asked;
    REQUIRE(with.hear(asked));
    with.say(io::tcp::answer{asked.kind, asked.number, asked.length});
    CHECK(open.get().error().code == errc::unreachable);
  }
  CHECK(far.lost->get_future().get().code == errc::unreachable);
}

TEST_CASE("tcp memory: with encryption required, connections without it or with another key are refused", "[tcp]") {
  const auto plain = expose(65536);
  CHECK(new_mover(1, true)->connect(plain->name(), {}).error().code == errc::unsupported);
  const auto memory = expose(65536, true);
  std::vector<std::byte> some(4096);
  auto name = memory->name();
  auto place = place_of(name);
  place.encrypted = false;
  name.address = place.bytes();
  CHECK(remote_end_of(new_mover(), name).move(remote_direction::get, {{some, 0}}).error().code == errc::unreachable);
  name = memory->name();
  name.key[5] ^= 1U;
  CHECK(remote_end_of(new_mover(), name).move(remote_direction::get, {{some, 0}}).error().code == errc::unreachable);
  CHECK(remote_end_of(new_mover(1, true), memory->name()).move(remote_direction::get, {{some, 0}}));
}

TEST_CASE("tcp memory: encrypted data is unreadable in transit, and a change ends the connection", "[tcp]") {
  const auto memory = expose(1U << 20U, true);
  // A relay between the two forwards everything and flips one bit after this many bytes of the node.
  const std::size_t spoilt_at = GENERATE(std::size_t{0}, std::size_t{300000});
  false_client between;
  auto name = memory->name();
  auto place = place_of(name);
  place.where = {between.listening.where};
  name.address = place.bytes();
  const auto secret = byte_pattern(512U << 10U, 77);
  remote_end_of far(new_mover(), name);
  auto ended = far.begin(remote_direction::put, {{const_cast<std::vector<std::byte>&>(secret), 0}});
  auto from = between.accept();
  auto to = io::tcp::tcp_stream::connect(place_of(memory->name()).where.front());
  REQUIRE(to);
  std::vector<std::byte> seen;
  const auto pass_on = [&](io::tcp::tcp_stream& a, io::tcp::tcp_stream& b, bool of_node) {
    std::array<std::byte, 65536> some{};
    const auto got = a.read(std::array<iovec, 1>{{{some.data(), some.size()}}});
    auto bytes = std::span(some).first(got.bytes);
    if (of_node) {
      if (spoilt_at != 0 && seen.size() < spoilt_at && seen.size() + got.bytes >= spoilt_at)
        bytes.back() ^= std::byte{4};
      seen.insert(seen.end(), bytes.begin(), bytes.end());
    }
    while (!bytes.empty()) {
      const auto n = b.write(std::array<iovec, 1>{{{bytes.data(), bytes.size()}}});
      if (n.ended)
        return false;
      bytes = bytes.subspan(n.bytes);
    }
    return !got.ended;
  };
  for (bool open = true; open && ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready;) {
    std::array<pollfd, 2> what{{{from.descriptor(), POLLIN, 0}, {to->descriptor(), POLLIN, 0}}};
    static_cast<void>(::poll(what.data(), what.size(), 100));
    open = (what[0].revents == 0 || pass_on(from, *to, true)) && (what[1].revents == 0 || pass_on(*to, from, false));
  }
  from = {};
  const auto outcome = ended.get();
  CHECK(outcome.has_value() == (spoilt_at == 0));
  CHECK(std::search(seen.begin(), seen.end(), secret.begin() + 100000, secret.begin() + 100032) == seen.end());
  // All bytes that arrived are as sent.
  const auto arrived = memory->bytes().first(secret.size());
  for (std::size_t i = 0; i < secret.size(); ++i)
    if (arrived[i] != secret[i]) {
      CHECK(spoilt_at != 0);
      CHECK(arrived[i] == std::byte{0});
      break;
    }
}

TEST_CASE("tcp memory: a certificate instead of the key is refused", "[tcp]") {
  const false_client between;
  auto name = between.name;
  auto place = place_of(name);
  place.encrypted = true;
  name.address = place.bytes();
  const std::vector<std::byte> some(4096);
  remote_end_of far(new_mover(), name);
  auto ended = far.begin(remote_direction::put, {{const_cast<std::vector<std::byte>&>(some), 0}});
  const auto from = between.accept();

  // A relay that does not know the key claims to use a certificate.
  const http::identity unknown("unknown");
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context{SSL_CTX_new(TLS_server_method()), SSL_CTX_free};
  REQUIRE(unknown.use_in(*context));
  const std::unique_ptr<SSL, void (*)(SSL*)> with{SSL_new(context.get()), SSL_free};
  REQUIRE(SSL_set_fd(with.get(), from.descriptor()) == 1);
  const auto wait = [&] {
    pollfd what{from.descriptor(), POLLIN, 0};
    return ::poll(&what, 1, 30000) == 1;
  };
  const auto waits = [&](int done) { return SSL_get_error(with.get(), done) == SSL_ERROR_WANT_READ && wait(); };
  int done = 0;
  while ((done = SSL_accept(with.get())) != 1 && waits(done)) {
  }
  std::size_t heard = 0;
  std::array<std::byte, 4096> bytes{};
  if (done == 1)
    while ((done = SSL_read_ex(with.get(), bytes.data(), bytes.size(), &heard)) != 1 && waits(done)) {
    }
  CHECK(heard == 0);
  CHECK(ended.get().error().code == errc::unreachable);
}

TEST_CASE("tcp memory: destroying a mover ends its transfers in progress", "[tcp]") {
  const false_client client;
  auto mover = new_mover();
  auto ended = std::make_shared<std::promise<result<void>>>();
  std::vector<std::byte> some(64);
  {
    auto peer = mover->connect(client.name, {});
    REQUIRE(peer);
    (*peer)->move(remote_direction::get, {{some, 0}}, [ended](result<void> x) { ended->set_value(std::move(x)); });
  }
  mover.reset();
  CHECK(ended->get_future().get().error().code == errc::unreachable);
}

} // namespace io_tcp_test
