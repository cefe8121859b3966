#include "io/slab/slab_file.hpp"
#include "io/slab/slab_trailer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <barrier>
#include <csignal>
#include <fstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

namespace io_slab_file_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

slab_spec some_spec(const fs::path& path) {
  return {.path = path,
          .ns = {0xaaaa, 0xbbbb},
          .namespace_name = "llama",
          .rank = 2,
          .slot_bytes = 3 * page_alignment,
          .slots = 10};
}

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

error refusal(const slab_spec& spec) {
  auto opened = slab_file::open(spec);
  REQUIRE_FALSE(opened.has_value());
  return opened.error();
}

} // namespace

TEST_CASE("slab file: a new slab has its size, its disk space and its trailer", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "deep" / "er" / "rank-2.slab");
  const auto direct = GENERATE(true, false);
  auto slab = slab_file::open(spec, direct);
  REQUIRE(slab.has_value());
  struct stat status {};
  REQUIRE(::fstat(slab->descriptor(), &status) == 0);
  CHECK(status.st_size == 10 * 3 * 4096 + 4096);
  CHECK(status.st_blocks * 512 >= status.st_size);
  CHECK(slab->health() == errc::ok);
  CHECK(slab->damage().empty());
  CHECK((direct || !slab->direct()));
  CHECK(((::fcntl(slab->descriptor(), F_GETFL) & O_DIRECT) != 0) == slab->direct());
  CHECK((::fcntl(slab->descriptor(), F_GETFL) & O_NONBLOCK) == 0);
  CHECK_FALSE(fs::exists(spec.path.string() + ".new"));
  const auto file = contents(spec.path);
  const auto found = read_slab_trailer(std::as_bytes(std::span(file)).last(slab_trailer_bytes));
  REQUIRE(found.has_value());
  CHECK(found->ns == spec.ns);
  CHECK(found->namespace_name == "llama");
  CHECK(found->rank == 2);
  CHECK(found->slot_bytes == spec.slot_bytes);
  CHECK(found->slots == 10);
}

TEST_CASE("slab file: an existing slab is opened as it is", "[io][slab_file]") {
  scratch_directory scratch;
  auto spec = some_spec(scratch / "slab");
  {
    auto slab = slab_file::open(spec, false);
    REQUIRE(slab.has_value());
    REQUIRE(::pwrite(slab->descriptor(), "page", 4, 12288) == 4);
  }
  const auto before = contents(spec.path);
  spec.namespace_name = "renamed"; // not part of the identity
  auto slab = slab_file::open(spec);
  REQUIRE(slab.has_value());
  CHECK((::fcntl(slab->descriptor(), F_GETFL) & O_NONBLOCK) == 0);
  CHECK(contents(spec.path) == before);
}

TEST_CASE("slab file: a slab keeps its incarnation, and a new one has another", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  const auto incarnation = [&] { return slab_file::open(spec).value().spec().incarnation; };
  const auto first = incarnation();
  CHECK(first != 0);
  CHECK(incarnation() == first);
  fs::remove(spec.path);
  const auto second = incarnation();
  CHECK(second != 0);
  CHECK(second != first);
  // Versions without incarnations created it like this.
  auto old = contents(spec.path);
  const auto trailer = make_slab_trailer(spec);
  std::ranges::copy(std::as_bytes(std::span(trailer)), std::as_writable_bytes(std::span(old)).last(4096).begin());
  std::ofstream(spec.path, std::ios::binary) << old;
  CHECK(incarnation() == 0);
}

TEST_CASE("slab file: a slab of another shape is refused and left unchanged", "[io][slab_file]") {
  scratch_directory scratch;
  const auto written = some_spec(scratch / "slab");
  REQUIRE(slab_file::open(written).has_value());
  const auto before = contents(written.path);
  auto spec = written;
  spec.namespace_name = "other";
  SECTION("namespace") {
    spec.ns.lo += 1;
  }
  SECTION("rank") {
    spec.rank = 3;
  }
  SECTION("fewer slots") {
    spec.slots = 9;
  }
  SECTION("more slots") {
    spec.slots = 11;
  }
  SECTION("larger slots") {
    spec.slot_bytes += page_alignment;
  }
  SECTION("another shape of the same size") {
    spec.slots = 30;
    spec.slot_bytes = page_alignment;
  }
  const auto e = refusal(spec);
  CHECK(e.code == errc::identity_mismatch);
  CHECK(missing(e.text, {describe_slab(written), describe_slab(spec), "slab"}) == "");
  CHECK(contents(written.path) == before);
}

TEST_CASE("slab file: a damaged slab is refused and left unchanged", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  REQUIRE(slab_file::open(spec).has_value());
  constexpr auto whole = 10 * 3 * 4096 + 4096;
  std::string expected;
  SECTION("truncated by one byte") {
    fs::resize_file(spec.path, whole - 1);
    expected = std::to_string(whole - 1) + " bytes instead of " + std::to_string(whole);
  }
  SECTION("truncated by the trailer") {
    fs::resize_file(spec.path, whole - 4096);
    expected = std::to_string(whole - 4096) + " bytes instead of " + std::to_string(whole);
  }
  SECTION("empty") {
    fs::resize_file(spec.path, 0);
    expected = "0 bytes instead of " + std::to_string(whole);
  }
  SECTION("grown by one byte") {
    fs::resize_file(spec.path, whole + 1);
    expected = std::to_string(whole + 1) + " bytes instead of " + std::to_string(whole);
  }
  SECTION("grown by a slot") {
    fs::resize_file(spec.path, whole + 12288);
    expected = std::to_string(whole + 12288) + " bytes instead of " + std::to_string(whole);
  }
  SECTION("a flipped byte in the trailer") {
    const auto file = make_file(spec.path, whole);
    REQUIRE(::pwrite(file.get(), "x", 1, whole - 2000) == 1);
    expected = "no sound trailer";
  }
  const auto before = contents(spec.path);
  const auto e = refusal(spec);
  CHECK(e.code == errc::slab_damaged);
  CHECK(missing(e.text, {expected, spec.path.string()}) == "");
  CHECK(contents(spec.path) == before);
}

TEST_CASE("slab file: a path that is not a regular file is refused", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  SECTION("a directory") {
    fs::create_directory(spec.path);
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(spec.path.c_str(), 0600) == 0);
  }
  const auto e = refusal(spec);
  CHECK((e.code == errc::invalid_argument || e.code == errc::io_error));
  CHECK(missing(e.text, {spec.path.string()}) == "");
}

TEST_CASE("slab file: an invalid shape is refused", "[io][slab_file]") {
  scratch_directory scratch;
  auto spec = some_spec(scratch / "slab");
  SECTION("no slots") {
    spec.slots = 0;
  }
  SECTION("empty slots") {
    spec.slot_bytes = 0;
  }
  SECTION("unaligned slots") {
    spec.slot_bytes = 4097;
  }
  SECTION("larger than any file") {
    spec.slots = ~std::uint64_t{0} / 8192;
  }
  CHECK(refusal(spec).code == errc::invalid_argument);
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("slab file: every byte of the trailer is checked", "[io][slab_file]") {
  auto block = make_slab_trailer(some_spec("x"));
  REQUIRE(read_slab_trailer(block).has_value());
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{1};
    if (read_slab_trailer(block).has_value())
      FAIL("byte " << i);
    block[i] ^= std::byte{1};
  }
  auto spec = some_spec("x");
  spec.namespace_name = std::string(1000, 'n');
  CHECK(read_slab_trailer(make_slab_trailer(spec))->namespace_name == std::string(255, 'n'));
}

TEST_CASE("slab file: a second writer is locked out until the first releases the lock", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  auto first = slab_file::open(spec);
  REQUIRE(first.has_value());
  const auto e = refusal(spec);
  CHECK(e.code == errc::busy);
  CHECK(missing(e.text, {"is in use by another node", spec.path.string()}) == "");
  // A process that expects another shape cannot judge a file in use either.
  auto other = spec;
  other.rank = 7;
  CHECK(refusal(other).code == errc::busy);
  SECTION("by closing") {
    first = fail(errc::cancelled, "");
  }
  SECTION("by closing, while something else keeps the file open") {
    unique_descriptor keeper(::dup(first->descriptor()));
    first = fail(errc::cancelled, "");
    CHECK(slab_file::open(spec).has_value());
  }
  SECTION("not by moving") {
    auto moved = std::move(*first);
    CHECK(refusal(spec).code == errc::busy);
  }
  first = fail(errc::cancelled, "");
  CHECK(slab_file::open(spec).has_value());
}

TEST_CASE("slab file: the lock of a killed process is released", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  auto ready = make_pipe();
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto slab = slab_file::open(spec);
    const char outcome = slab ? 'y' : 'n';
    if (::write(ready.write_end.get(), &outcome, 1) == 1)
      for (;;)
        ::pause();
    ::_exit(1);
  }
  char outcome = 0;
  REQUIRE(::read(ready.read_end.get(), &outcome, 1) == 1);
  CHECK(outcome == 'y');
  CHECK(refusal(spec).code == errc::busy);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(slab_file::open(spec).has_value());
}

TEST_CASE("slab file: one of several concurrent creators wins and the others get an error", "[io][slab_file]") {
  constexpr int creators = 4;
  for (int round = 0; round < 50; ++round) {
    scratch_directory scratch;
    const auto spec = some_spec(scratch / "slab");
    std::barrier start(creators);
    std::vector<result<slab_file>> outcomes;
    for (int i = 0; i < creators; ++i)
      outcomes.emplace_back(fail(errc::internal, "not run"));
    std::vector<std::thread> threads;
    for (int i = 0; i < creators; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        outcomes[static_cast<std::size_t>(i)] = slab_file::open(spec);
      });
    for (auto& t : threads)
      t.join();
    int winners = 0;
    for (const auto& outcome : outcomes) {
      winners += outcome.has_value();
      if (!outcome)
        CHECK(to_string(outcome.error().code) == "busy");
    }
    REQUIRE(winners == 1);
    outcomes.clear();
    CHECK(slab_file::open(spec).has_value());
    CHECK_FALSE(fs::exists(spec.path.string() + ".new"));
  }
}

TEST_CASE("slab file: leftovers of a crashed creator are removed", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  std::ofstream(spec.path.string() + ".new") << std::string(1'000'000, 'x');
  auto slab = slab_file::open(spec);
  REQUIRE(slab.has_value());
  CHECK(slab->health() == errc::ok);
  CHECK_FALSE(fs::exists(spec.path.string() + ".new"));
  // A single one may stand in the number of the slab file.
  CHECK(contents(spec.path).find(std::string(32, 'x')) == std::string::npos);
}

TEST_CASE("slab file: damage while in use is detected and named", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  auto slab = slab_file::open(spec);
  REQUIRE(slab.has_value());
  SECTION("deleted") {
    fs::remove(spec.path);
    CHECK(missing(slab->damage(), {"was deleted"}) == "");
  }
  SECTION("replaced") {
    std::ofstream(scratch / "other") << "x";
    fs::rename(scratch / "other", spec.path);
    CHECK(missing(slab->damage(), {"was deleted"}) == "");
  }
  SECTION("truncated") {
    fs::resize_file(spec.path, 4096);
    CHECK(missing(slab->damage(), {"was truncated", "4096 bytes instead of 126976"}) == "");
  }
  SECTION("grown") {
    fs::resize_file(spec.path, 200'000);
    CHECK(missing(slab->damage(), {"has grown", "200000 bytes instead of 126976"}) == "");
  }
  CHECK(slab->health() == errc::slab_damaged);
}

TEST_CASE("slab file: a full disk is an error with numbers and leaves no file", "[io][slab_file]") {
  scratch_directory scratch;
  if (::mount("troupe-test", scratch.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    WARN("not run: mounting a small file system needs root");
    return;
  }
  auto spec = some_spec(scratch / "slab");
  spec.slots = 1000;
  const auto e = refusal(spec);
  CHECK(e.code == errc::no_space);
  CHECK(missing(e.text, {spec.path.string(), "11.72 MiB", "1 MiB are free"}) == "");
  CHECK(fs::is_empty(scratch.path()));
  spec.slots = 10; // the rest of the disk is still usable
  CHECK(slab_file::open(spec).has_value());
  CHECK(::umount(scratch.path().c_str()) == 0);
}

TEST_CASE("slab file: a file size limit is an error and leaves no file", "[io][slab_file]") {
  scratch_directory scratch;
  const auto spec = some_spec(scratch / "slab");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8192, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  auto opened = slab_file::open(spec);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(opened.has_value());
  CHECK(opened.error().code == errc::io_error);
  CHECK(missing(opened.error().text, {"124 KiB", spec.path.string(), "ulimit -f"}) == "");
  CHECK(fs::is_empty(scratch.path()));
}

} // namespace io_slab_file_test
