#include "io/usrbio/client_interface.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"
#include "tests/usrbio/served_directory.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <future>
#include <optional>

namespace io_usrbio_stand_in_test {

/// Checks that the stand-in matches what is known of 3FS's client library and daemon. Tests with it are worth as much
/// as this match.

using namespace troupe;
using namespace troupe::test;
using io::usrbio::cqe;
using io::usrbio::ior;
using io::usrbio::iov;

namespace {

constexpr std::uint64_t page = 4096;

/// The library itself, including functions that the engine does not use.
struct library {
  void* opened = ::dlopen(TROUPE_USRBIO_LIBRARY, RTLD_NOW | RTLD_LOCAL);

  template <class Function>
  Function* get(const char* name) const {
    auto* const found = reinterpret_cast<Function*>(::dlsym(opened, name));
    if (found == nullptr)
      cannot(name);
    return found;
  }
};

#define STAND_IN_FUNCTION(result, name, ...)                                                                           \
  result (*const name)(__VA_ARGS__) = of.get<result(__VA_ARGS__)>("hf3fs_" #name)

struct functions {
  library of;
  STAND_IN_FUNCTION(bool, is_hf3fs, int);
  STAND_IN_FUNCTION(int, extract_mount_point, char*, int, const char*);
  STAND_IN_FUNCTION(int, iovcreate, iov*, const char*, std::size_t, std::size_t, int);
  STAND_IN_FUNCTION(int, iovopen, iov*, const std::uint8_t*, const char*, std::size_t, std::size_t, int);
  STAND_IN_FUNCTION(void, iovunlink, iov*);
  STAND_IN_FUNCTION(void, iovdestroy, iov*);
  STAND_IN_FUNCTION(int, iovwrap, iov*, void*, const std::uint8_t*, const char*, std::size_t, std::size_t, int);
  STAND_IN_FUNCTION(std::size_t, ior_size, int);
  STAND_IN_FUNCTION(int, iorcreate, ior*, const char*, int, bool, int, int);
  STAND_IN_FUNCTION(int, iorcreate2, ior*, const char*, int, bool, int, int, int);
  STAND_IN_FUNCTION(int, iorcreate3, ior*, const char*, int, bool, int, int, int, int);
  STAND_IN_FUNCTION(int, iorcreate4, ior*, const char*, int, bool, int, int, int, std::uint64_t);
  STAND_IN_FUNCTION(void, iordestroy, ior*);
  STAND_IN_FUNCTION(int, io_entries, const ior*);
  STAND_IN_FUNCTION(int, reg_fd, int, std::uint64_t);
  STAND_IN_FUNCTION(void, dereg_fd, int);
  STAND_IN_FUNCTION(int, prep_io, const ior*, const iov*, bool, void*, int, std::size_t, std::uint64_t, const void*);
  STAND_IN_FUNCTION(int, submit_ios, const ior*);
  STAND_IN_FUNCTION(int, wait_for_ios, const ior*, cqe*, int, int, const timespec*);
  STAND_IN_FUNCTION(int, hardlink, const char*, const char*);
  STAND_IN_FUNCTION(int, punchhole, int, int, const std::size_t*, const std::size_t*, std::size_t);
};

#undef STAND_IN_FUNCTION

/// A file of numbered pages, memory, and rings as a test makes them.
class bench {
public:
  bench() : served(TROUPE_USRBIO_DAEMON, TROUPE_USRBIO_LIBRARY), mount(served.path().string()) {
    file = make_written_file(served.path() / "file", pages * page);
    for (std::uint64_t i = 0; i < pages; ++i) {
      const std::vector<char> bytes(page, static_cast<char>('a' + i));
      if (::pwrite(file.get(), bytes.data(), page, static_cast<off_t>(i * page)) != static_cast<ssize_t>(page))
        cannot("write a file");
    }
    if (f.reg_fd(file.get(), 0) > 0 || f.iovcreate(&memory, mount.c_str(), pages * page, 0, -1) != 0)
      cannot("share a file and memory with the stand-in for 3FS");
  }
  bench(const bench&) = delete;
  bench& operator=(const bench&) = delete;
  ~bench() {
    for (auto& x : rings)
      f.iordestroy(&x);
    f.iovdestroy(&memory);
    f.dereg_fd(file.get());
  }

  ior& ring(bool reads, int depth = 0, int timeout = 0, std::uint64_t flags = 0, int entries = 16) {
    auto& out = rings.emplace_back();
    REQUIRE(f.iorcreate4(&out, mount.c_str(), entries, reads, depth, timeout, -1, flags) == 0);
    return out;
  }

  int prepare(const ior& in, std::uint64_t slot, std::uint64_t at, std::uint64_t bytes = page) {
    return f.prep_io(&in, &memory, in.for_read, memory.base + slot * page, file.get(), at, bytes,
                     reinterpret_cast<const void*>(slot));
  }

  static timespec in(std::chrono::milliseconds span) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += (span.count() % 1000) * 1'000'000;
    now.tv_sec += span.count() / 1000 + now.tv_nsec / 1'000'000'000;
    now.tv_nsec %= 1'000'000'000;
    return now;
  }

  std::vector<cqe> wait(const ior& on, int least, std::chrono::milliseconds span = test_patience) {
    std::vector<cqe> out(64);
    const auto until = in(span);
    const int got = f.wait_for_ios(&on, out.data(), 64, least, &until);
    out.resize(static_cast<std::size_t>(std::max(got, 0)));
    return out;
  }

  std::int64_t result(const ior& on) {
    f.submit_ios(&on);
    const auto got = wait(on, 1);
    REQUIRE(got.size() == 1);
    return got[0].result;
  }

  static constexpr std::uint64_t pages = 16;

  functions f;
  served_directory served;
  std::string mount;
  unique_descriptor file;
  iov memory;
  std::deque<ior> rings;
};

} // namespace

TEST_CASE("3fs stand-in: files on it and its mount point are recognized", "[io][usrbio]") {
  bench b;
  const scratch_directory elsewhere;
  const auto other = make_file(elsewhere / "file", page);
  CHECK(b.f.is_hf3fs(b.file.get()));
  CHECK_FALSE(b.f.is_hf3fs(other.get()));
  CHECK_FALSE(b.f.is_hf3fs(-1));
  std::array<char, 256> text{};
  const auto below = (b.served.path() / "file").string();
  CHECK(b.f.extract_mount_point(text.data(), 256, below.c_str()) == static_cast<int>(b.mount.size()) + 1);
  CHECK(text.data() == b.mount);
  text = {};
  CHECK(b.f.extract_mount_point(text.data(), 3, below.c_str()) == static_cast<int>(b.mount.size()) + 1);
  CHECK(text[0] == 0);
  CHECK(b.f.extract_mount_point(text.data(), 256, elsewhere.path().c_str()) == -1);
  b.served.kill();
  CHECK_FALSE(b.f.is_hf3fs(b.file.get()));
  CHECK(b.f.extract_mount_point(text.data(), 256, below.c_str()) == -1);
  ior ring;
  CHECK(b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, 0, -1, 0) < 0);
  b.served.start();
}

TEST_CASE("3fs stand-in: memory is created, opened by its id, wrapped, and lies in /dev/shm", "[io][usrbio]") {
  bench b;
  std::memset(b.memory.base, 'z', page);
  iov opened;
  REQUIRE(b.f.iovopen(&opened, reinterpret_cast<const std::uint8_t*>(b.memory.id), b.mount.c_str(), page, 0, -1) == 0);
  CHECK(opened.base[page - 1] == 'z');
  b.f.iovdestroy(&opened);
  std::array<std::uint8_t, 16> none{};
  CHECK(b.f.iovopen(&opened, none.data(), b.mount.c_str(), page, 0, -1) == -ENOENT);
  iov wrapped;
  CHECK(b.f.iovwrap(&wrapped, b.memory.base, none.data(), b.mount.c_str(), page, 0, -1) == 0);
  CHECK(wrapped.handle == nullptr);
  b.f.iovdestroy(&wrapped); // refused
  CHECK(wrapped.base == b.memory.base);
  CHECK(b.f.iovwrap(&wrapped, b.memory.base, none.data(), std::string(300, 'x').c_str(), page, 0, -1) == -EINVAL);
  // A name that leads out of /dev/shm is none.
  const auto link = b.served.path() / "3fs-virt/iovs/00000000-0000-0000-0000-000000000000";
  std::filesystem::create_symlink(b.served.path() / "file", link);
  CHECK(b.f.iovopen(&opened, none.data(), b.mount.c_str(), page, 0, -1) == -EINVAL);
  std::filesystem::remove(link);
  CHECK(b.f.ior_size(7) > b.f.ior_size(6));
}

TEST_CASE("3fs stand-in: unlinked memory stays with its owner and cannot be opened by others", "[io][usrbio]") {
  bench b;
  iov more;
  REQUIRE(b.f.iovcreate(&more, b.mount.c_str(), page, 0, -1) == 0);
  const auto* const id = reinterpret_cast<const std::uint8_t*>(more.id);
  iov opened;
  b.f.iovunlink(&more);
  CHECK(b.f.iovopen(&opened, id, b.mount.c_str(), page, 0, -1) == -ENOENT);
  std::memset(more.base, 'y', page);
  CHECK(more.base[page - 1] == 'y');
  b.f.iovdestroy(&more);
}

TEST_CASE("3fs stand-in: one file has two names", "[io][usrbio]") {
  bench b;
  const auto link = (b.served.path() / "link").string();
  CHECK(b.f.hardlink((b.served.path() / "file").c_str(), link.c_str()) == 0);
  CHECK(std::filesystem::equivalent(b.served.path() / "file", link));
  CHECK(b.f.hardlink((b.served.path() / "file").c_str(), link.c_str()) == EEXIST);
  CHECK(b.f.hardlink((b.served.path() / "none").c_str(), (link + "-2").c_str()) == ENOENT);
}

TEST_CASE("3fs stand-in: a ring of the first kind has normal priority and no time limit", "[io][usrbio]") {
  bench b;
  auto& ring = b.rings.emplace_back();
  REQUIRE(b.f.iorcreate(&ring, b.mount.c_str(), 4, true, 0, -1) == 0);
  CHECK(ring.priority == 0);
  CHECK(ring.timeout == 0);
  CHECK(ring.flags == 0);
  b.prepare(ring, 2, 5 * page);
  CHECK(b.result(ring) == static_cast<std::int64_t>(page));
  CHECK(b.memory.base[2 * page] == 'f');
}

TEST_CASE("3fs stand-in: a wait without a time limit lasts until there is a result", "[io][usrbio]") {
  bench b;
  auto& reads = b.ring(true);
  b.served.control().stalled = 1;
  b.prepare(reads, 0, 0);
  b.f.submit_ios(&reads);
  cqe one;
  auto waited = std::async(std::launch::async, [&] { return b.f.wait_for_ios(&reads, &one, 1, 1, nullptr); });
  CHECK(eventually([&] { return b.served.control().blocking_waits > 0; }));
  CHECK(waited.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  b.served.control().stalled = 0;
  CHECK(waited.get() == 1);
}

TEST_CASE("3fs stand-in: no more than 32 transfers of a ring are taken at a time", "[io][usrbio]") {
  bench b;
  auto& reads = b.ring(true, 0, 0, 0, 64);
  for (std::uint64_t i = 0; i < 40; ++i)
    REQUIRE(b.prepare(reads, i % bench::pages, 0) >= 0);
  b.f.submit_ios(&reads);
  CHECK(b.wait(reads, 40).size() == 40);
  CHECK(b.served.control().largest_batch == 32);
  CHECK(b.served.control().batches == 2);
}

TEST_CASE("3fs stand-in: two processes have rings on one mount, and the end of one does not affect the other",
          "[io][usrbio]") {
  bench b;
  auto& reads = b.ring(true);
  auto notified = make_pipe();
  const auto child = ::fork();
  if (child == 0) {
    // Another program that does not know this one has its own memory and ring on the same file.
    iov own;
    ior ring;
    const unique_descriptor file(::open((b.served.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
    bool fine = b.f.iovcreate(&own, b.mount.c_str(), page, 0, -1) == 0 && b.f.reg_fd(file.get(), 0) <= 0 &&
                b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, 0, -1, 0) == 0;
    cqe one;
    for (bool first = true; fine; first = false) {
      const auto until = bench::in(test_patience);
      fine = b.f.prep_io(&ring, &own, true, own.base, file.get(), page, page, nullptr) >= 0 &&
             b.f.submit_ios(&ring) == 0 && b.f.wait_for_ios(&ring, &one, 1, 1, &until) == 1 &&
             one.result == static_cast<std::int64_t>(page) && own.base[0] == 'b';
      if (first)
        b.f.iovunlink(&own); // the daemon keeps it, and it is not cleaned up after a kill
      if (::write(notified.write_end.get(), fine ? "y" : "n", 1) != 1)
        break;
    }
    ::_exit(1);
  }
  notified.write_end.reset();
  const auto both_read = [&] {
    char said = 0;
    REQUIRE(::read(notified.read_end.get(), &said, 1) == 1);
    CHECK(said == 'y');
    b.prepare(reads, 0, 2 * page);
    CHECK(b.result(reads) == static_cast<std::int64_t>(page));
    CHECK(b.memory.base[0] == 'c');
  };
  for (int i = 0; i < 20; ++i)
    both_read();
  CHECK(b.served.control().rings_live == 2);
  // It is killed in the middle of an operation.
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(eventually([&] { return b.served.control().rings_live == 1; }));
  for (std::uint64_t i = 0; i < bench::pages; ++i) {
    b.prepare(reads, i, i * page);
    CHECK(b.result(reads) == static_cast<std::int64_t>(page));
    CHECK(b.memory.base[i * page] == static_cast<std::uint8_t>('a' + i));
  }
}

TEST_CASE("3fs stand-in: files are registered, and deregistered while they are open", "[io][usrbio]") {
  bench b;
  const scratch_directory elsewhere;
  const auto other = make_file(elsewhere / "file", page);
  CHECK(b.f.reg_fd(other.get(), 0) == EBADF);
  CHECK(b.f.reg_fd(b.file.get(), 0) == EINVAL);
  const unique_descriptor again(::open((b.served.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
  const auto number = b.f.reg_fd(again.get(), 0);
  REQUIRE(number < 0);
  auto& reads = b.ring(true);
  auto& writes = b.ring(false);
  // Either number works; the wrong mode and unregistered files are refused.
  for (const int d : {again.get(), number}) {
    CHECK(b.f.prep_io(&reads, &b.memory, true, b.memory.base, d, 0, page, nullptr) >= 0);
    CHECK(b.result(reads) == static_cast<std::int64_t>(page));
    CHECK(b.f.prep_io(&writes, &b.memory, false, b.memory.base, d, 0, page, nullptr) == -EACCES);
  }
  b.f.dereg_fd(again.get());
  CHECK(b.f.prep_io(&reads, &b.memory, true, b.memory.base, again.get(), 0, page, nullptr) == -EBADF);
  // A descriptor that is closed first stays registered: its number is refused from then on.
  auto closed = unique_descriptor(::open((b.served.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
  const auto was = closed.get();
  REQUIRE(b.f.reg_fd(was, 0) <= 0);
  closed.reset();
  b.f.dereg_fd(was);
  const unique_descriptor next(::open((b.served.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(next.get() == was);
  CHECK(b.f.reg_fd(was, 0) == EINVAL);
  b.f.dereg_fd(was);
}

TEST_CASE("3fs stand-in: invalid ring operations are refused", "[io][usrbio]") {
  bench b;
  ior ring;
  CHECK(b.f.iorcreate3(&ring, b.mount.c_str(), 4, true, 0, 0, -1, -1) == -EINVAL);
  CHECK(b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, -1, -1, 0) == -EINVAL);
  auto& reads = b.ring(true, 0, 0, 0, 4);
  CHECK(b.f.io_entries(&reads) >= 4);
  auto* const at = b.memory.base;
  CHECK(b.f.prep_io(&reads, &b.memory, false, at, b.file.get(), 0, page, nullptr) == -EINVAL);
  CHECK(b.f.prep_io(&reads, &b.memory, true, at, b.file.get(), 0, 0, nullptr) == -EINVAL);
  CHECK(b.f.prep_io(&reads, &b.memory, true, at, b.file.get(), 0, 17 * page, nullptr) == -EINVAL);
  CHECK(b.f.prep_io(&reads, &b.memory, true, at - 1, b.file.get(), 0, page, nullptr) == -EINVAL);
  CHECK(b.f.prep_io(&reads, &b.memory, true, at, STDERR_FILENO, 0, page, nullptr) == -EBADF);
  b.served.control().stalled = 1;
  int taken = 0;
  while (b.prepare(reads, static_cast<std::uint64_t>(taken), 0) >= 0)
    ++taken;
  CHECK(taken == b.f.io_entries(&reads));
  CHECK(b.prepare(reads, 0, 0) == -EAGAIN);
  b.f.submit_ios(&reads);
  // Fewer results than requested at the time limit are no error.
  CHECK(b.wait(reads, taken, std::chrono::milliseconds(5)).empty());
  b.served.control().stalled = 0;
  CHECK(b.wait(reads, taken).size() == static_cast<std::size_t>(taken));
  CHECK(b.prepare(reads, 0, 0) >= 0); // there is room when results were taken
  CHECK(b.result(reads) == static_cast<std::int64_t>(page));
}

TEST_CASE("3fs stand-in: a wait with no minimum or an expired limit returns what is complete", "[io][usrbio]") {
  bench b;
  auto& reads = b.ring(true);
  b.prepare(reads, 0, 0);
  b.f.submit_ios(&reads);
  cqe one;
  const timespec over{};
  CHECK(eventually([&] { return b.f.wait_for_ios(&reads, &one, 1, 0, &over) == 1; }));
  CHECK(b.f.wait_for_ios(&reads, &one, 1, 1, &over) == 0);
  CHECK(b.f.wait_for_ios(&reads, &one, 0, 1, &over) == -EINVAL);
  // The wait is limited to the room for results.
  b.prepare(reads, 1, page);
  b.f.submit_ios(&reads);
  const auto until = bench::in(test_patience);
  CHECK(b.f.wait_for_ios(&reads, &one, 1, 5, &until) == 1);
  CHECK(b.memory.base[page] == 'b');
}

TEST_CASE("3fs stand-in: ring depths are checked", "[io][usrbio]") {
  bench b;
  const auto submit = [&](ior& ring, int count) {
    for (int i = 0; i < count; ++i)
      REQUIRE(b.prepare(ring, static_cast<std::uint64_t>(i), 0) >= 0);
    b.f.submit_ios(&ring);
  };
  auto& all = b.ring(true, 0);
  submit(all, 5);
  CHECK(b.wait(all, 5).size() == 5);
  auto& full = b.ring(true, 4);
  submit(full, 5);
  CHECK(b.wait(full, 4).size() == 4);
  CHECK(b.wait(full, 1, std::chrono::milliseconds(50)).empty()); // one is no batch
  submit(full, 3);
  CHECK(b.wait(full, 4).size() == 4);
  b.served.control().largest_batch = 0;
  auto& few = b.ring(true, -2);
  submit(few, 6);
  CHECK(b.wait(few, 6).size() == 6);
  CHECK(b.served.control().largest_batch <= 2);
  // The defect: with a time limit, a batch that is not full is never taken.
  auto& never = b.ring(true, -4, 1);
  submit(never, 3);
  CHECK(b.wait(never, 1, std::chrono::milliseconds(100)).empty());
  submit(never, 1);
  CHECK(b.wait(never, 4).size() == 4);
}

TEST_CASE("3fs stand-in: priorities have rings and semaphores of their own", "[io][usrbio]") {
  bench b;
  for (const int priority : {-1, 0, 1}) {
    auto& ring = b.rings.emplace_back();
    REQUIRE(b.f.iorcreate2(&ring, b.mount.c_str(), 4, true, 0, priority, -1) == 0);
    b.prepare(ring, 3, 3 * page);
    CHECK(b.result(ring) == static_cast<std::int64_t>(page));
    CHECK(b.memory.base[3 * page] == 'd');
  }
}

TEST_CASE("3fs stand-in: reads and writes handle blocks, overlaps, ends and holes", "[io][usrbio]") {
  bench b;
  auto& reads = b.ring(true);
  // The end of the file: what there is.
  b.prepare(reads, 0, 15 * page, 4 * page);
  CHECK(b.result(reads) == static_cast<std::int64_t>(page));
  b.prepare(reads, 0, 20 * page);
  CHECK(b.result(reads) == 0);
  // Two reads of one batch into the same bytes: one of them is refused.
  b.served.control().stalled = 0;
  b.prepare(reads, 0, 0, 2 * page);
  b.prepare(reads, 1, 0);
  b.f.submit_ios(&reads);
  int refused = 0;
  for (const auto& x : b.wait(reads, 2))
    refused += x.result == -EINVAL ? 1 : 0;
  CHECK(refused <= 1); // 0 where the daemon took the first before the second arrived
  iov blocks;
  REQUIRE(b.f.iovcreate(&blocks, b.mount.c_str(), 8 * page, 2 * page, -1) == 0);
  b.f.prep_io(&reads, &blocks, true, blocks.base + page, b.file.get(), 0, 2 * page, nullptr);
  CHECK(b.result(reads) == -EINVAL);
  b.f.prep_io(&reads, &blocks, true, blocks.base + 2 * page, b.file.get(), 0, 2 * page, nullptr);
  CHECK(b.result(reads) == static_cast<std::int64_t>(2 * page));
  b.f.iovdestroy(&blocks);
  // A hole is zeroes, or an error where that was requested.
  const std::size_t from = 4 * page;
  const std::size_t to = 5 * page;
  if (b.f.punchhole(b.file.get(), 1, &from, &to, 0) != 0)
    return; // a file system without
  b.prepare(reads, 0, 4 * page);
  CHECK(b.result(reads) == static_cast<std::int64_t>(page));
  CHECK(b.memory.base[0] == 0);
  auto& strict = b.ring(true, 0, 0, io::usrbio::forbid_read_holes);
  b.prepare(strict, 0, 4 * page);
  CHECK(b.result(strict) < 0);
  CHECK(b.f.punchhole(b.file.get(), 1001, &from, &to, 0) == EINVAL);
}

TEST_CASE("3fs stand-in: a ring with flags keeps its name when it is destroyed", "[io][usrbio]") {
  bench b;
  const auto names = [&] {
    const auto iovs = b.served.path() / "3fs-virt/iovs";
    return std::distance(std::filesystem::directory_iterator(iovs), std::filesystem::directory_iterator());
  };
  const auto before = names();
  ior ring;
  REQUIRE(b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, 0, -1, 0) == 0);
  b.f.iordestroy(&ring);
  CHECK(names() == before);
  REQUIRE(b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, 0, -1, io::usrbio::forbid_read_holes) == 0);
  b.f.iordestroy(&ring);
  CHECK(names() == before + 1);
}

TEST_CASE("3fs stand-in: resources of a process are freed when it ends", "[io][usrbio]") {
  bench b;
  REQUIRE(eventually([&] { return b.served.control().rings_live == 0; }));
  const auto child = ::fork();
  if (child == 0) {
    ior ring;
    ::_exit(b.f.iorcreate4(&ring, b.mount.c_str(), 4, true, 0, 0, -1, 0) == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(b.served.control().rings_asked == 1);
  CHECK(eventually([&] { return b.served.control().rings_live == 0; }));
}

} // namespace io_usrbio_stand_in_test
