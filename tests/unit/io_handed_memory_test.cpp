#include "io/memory/arena_name.hpp"
#include "io/memory/handed_memory.hpp"
#include "tests/catch.hpp"

#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sys/mman.h>
#include <unistd.h>

namespace io_handed_memory_test {

using namespace troupe;
using namespace troupe::io;

namespace {

std::shared_ptr<arena> some_arena() {
  return arena::create({8192, 4096, huge_page_choice::off}).value();
}

/// Copies of the descriptors as another process receives them, with other numbers than at the node.
std::vector<unique_descriptor> copies_of(const arena_name& name) {
  std::vector<unique_descriptor> out;
  for (const auto number : {name.descriptor, name.proof_descriptor})
    out.emplace_back(::fcntl(number, F_DUPFD_CLOEXEC, 0));
  return out;
}

/// The arena name that a client gets from a node in another process namespace: its numbers mean something else here,
/// perhaps the client's own process and files.
arena_name notified(arena_name name) {
  static const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  name.process = ::getpid();
  name.descriptor = other;
  name.proof_descriptor = other;
  return name;
}

} // namespace

TEST_CASE("handed memory: memory that was passed over a socket is mapped without access to the other process",
          "[io][arena]") {
  const auto made = some_arena();
  REQUIRE(made->provide(0));
  const auto all = handed_memory::make();
  const auto connection = all->connect();
  arena_finder finder(all);
  const auto name = encode(notified(made->name()));
  const auto nothing = finder.find(8192, name);
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().code == errc::unreachable);
  CHECK(nothing.error().text.find("no node has sent") != std::string::npos);
  connection->got(copies_of(made->name()), false);
  const auto found = finder.find(8192, name);
  REQUIRE(found);
  (*found)->bytes()[7] = std::byte{42};
  CHECK(made->bytes()[7] == std::byte{42});
  // Each rank and each group finds it, and they share a mapping.
  auto again = finder.find(8192, name);
  REQUIRE(again);
  CHECK((*again)->bytes().data() == (*found)->bytes().data());
  const auto other = some_arena();
  REQUIRE(other->provide(0));
  connection->got(copies_of(other->name()), false);
  const auto another = finder.find(8192, encode(notified(other->name())));
  REQUIRE(another);
  CHECK((*another)->bytes().data() != (*found)->bytes().data());
  // One that shares it may let go of it.
  again->reset();
  CHECK((*found)->bytes()[7] == std::byte{42});
}

TEST_CASE("handed memory: memory that all have let go of is mapped anew", "[io][arena]") {
  const auto made = some_arena();
  REQUIRE(made->provide(0));
  const auto all = handed_memory::make();
  const auto connection = all->connect();
  connection->got(copies_of(made->name()), false);
  for (int i = 0; i < 2; ++i) {
    const auto found = all->map(notified(made->name()), 8192);
    REQUIRE(found);
    (*found)->bytes()[7] = std::byte{static_cast<unsigned char>(40 + i)};
    CHECK(made->bytes()[7] == std::byte{static_cast<unsigned char>(40 + i)});
  }
}

TEST_CASE("handed memory: the proof selects the memory of the right node", "[io][arena]") {
  const auto one = some_arena();
  const auto two = some_arena();
  REQUIRE(one->provide(0));
  REQUIRE(two->provide(0));
  const auto all = handed_memory::make();
  const auto first = all->connect();
  auto second = all->connect();
  first->got(copies_of(one->name()), false);
  second->got(copies_of(two->name()), false);
  const auto found = all->map(notified(two->name()), 8192);
  REQUIRE(found);
  (*found)->bytes()[0] = std::byte{2};
  CHECK(two->bytes()[0] == std::byte{2});
  CHECK(one->bytes()[0] == std::byte{0});
  // The descriptors are closed with the connection, and mappings stay.
  second.reset();
  CHECK(all->map(notified(two->name()), 8192).error().code == errc::unreachable);
  CHECK((*found)->bytes()[0] == std::byte{2});
  CHECK(all->map(notified(one->name()), 8192));
}

namespace {

class fake_node final : public watched_process {
public:
  explicit fake_node(std::shared_ptr<bool> gone) : gone_(std::move(gone)) {}
  bool gone() override { return *gone_; }

private:
  std::shared_ptr<bool> gone_;
};

std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

} // namespace

TEST_CASE("handed memory: passed memory outlives its connections but not the node", "[io][arena]") {
  const auto made = some_arena();
  REQUIRE(made->provide(0));
  const auto all = handed_memory::make();
  const auto gone = std::make_shared<bool>(false);
  const auto name = notified(made->name()); // opens a file that stays open
  const auto before = open_files();
  for (int i = 0; i < 3; ++i) {
    const auto connection = all->connect(std::make_unique<fake_node>(gone));
    connection->got(copies_of(made->name()), false);
  }
  // Once, however often it was.
  CHECK(open_files() == before + 2);
  CHECK(all->map(name, 8192));
  // A connection over which nothing has come takes nothing away.
  all->connect(std::make_unique<fake_node>(gone)).reset();
  CHECK(all->map(name, 8192));
  *gone = true;
  CHECK(all->map(name, 8192).error().code == errc::unreachable);
  CHECK(open_files() == before);
}

TEST_CASE("handed memory: passed memory that is not the arena is refused", "[io][arena]") {
  const auto one = some_arena();
  const auto two = some_arena();
  const auto all = handed_memory::make();
  const auto connection = all->connect();
  const auto refused = [&](std::vector<unique_descriptor> what, std::uint64_t bytes = 8192) {
    connection->got(std::move(what), false);
    const auto found = all->map(notified(one->name()), bytes);
    REQUIRE_FALSE(found);
    return found.error().code;
  };
  SECTION("another size") {
    CHECK(refused(copies_of(one->name()), 4096) == errc::unreachable);
  }
  SECTION("the memory of another node with the proof of this one") {
    auto mixed = one->name();
    mixed.descriptor = two->name().descriptor;
    CHECK(refused(copies_of(mixed)) == errc::unreachable);
  }
  SECTION("memory that is not sealed") {
    std::vector<unique_descriptor> what;
    what.emplace_back(::memfd_create("x", MFD_CLOEXEC));
    REQUIRE(::ftruncate(what.back().get(), 8192) == 0);
    what.emplace_back(::fcntl(one->name().proof_descriptor, F_DUPFD_CLOEXEC, 0));
    CHECK(refused(std::move(what)) == errc::unreachable);
  }
  SECTION("one descriptor or three") {
    auto what = copies_of(one->name());
    what.pop_back();
    CHECK(refused(std::move(what)) == errc::unreachable);
    what = copies_of(one->name());
    what.emplace_back(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    CHECK(refused(std::move(what)) == errc::unreachable);
  }
  SECTION("no descriptor because this process had none free") {
    connection->got({}, true);
    CHECK(all->map(notified(one->name()), 8192).error().text.find("ulimit -n") != std::string::npos);
  }
}

} // namespace io_handed_memory_test
