#include "base/log.hpp"
#include "io/engine/uring_engine.hpp"
#include "io/make_engine.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <spdlog/sinks/ostream_sink.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>

namespace io_uring_engine_test {

// Pipes stand for a disk that does not answer: a read of an empty one ends only when it is cancelled or fed.

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

timestamp now() {
  return std::chrono::steady_clock::now();
}

/// An engine on io_uring, one pipe and one buffer. `usable` is false where there is no io_uring.
struct fixture {
  explicit fixture(engine_options options = {}) {
    auto made = uring_engine::start(options, log.sink());
    if (!made) {
      WARN("not run: " << made.error().text);
      return;
    }
    io = std::move(*made);
    file = io->add_file(ends.read_end.get()).value();
    buffer = io->add_buffer(memory.bytes()).value();
    std::fill_n(memory.data(), memory.size(), std::byte{0xee});
  }

  bool usable() const { return io != nullptr; }

  request read(std::uint64_t tag, std::uint64_t length = page_alignment, timestamp deadline = timestamp::max()) {
    return {.op = operation::read,
            .file = file,
            .data = memory.data() + (tag % 8) * page_alignment,
            .length = length,
            .buffer = buffer,
            .tag = tag,
            .deadline = deadline};
  }

  void submit(const request& what) { io->submit({&what, 1}); }

  void feed(const std::string& text) {
    REQUIRE(::write(ends.write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

  bool untouched() {
    return std::all_of(memory.bytes().begin(), memory.bytes().end(), [](std::byte b) { return b == std::byte{0xee}; });
  }

  completion_log log;
  pipe_ends ends = make_pipe();
  aligned_buffer memory{8 * page_alignment};
  std::unique_ptr<engine> io;
  std::uint32_t file = 0;
  std::uint32_t buffer = 0;
};

engine_options with_depth(std::uint32_t depth) {
  engine_options options;
  options.depth = depth;
  return options;
}

engine_options unregistered() {
  engine_options options;
  options.register_files = false;
  options.register_buffers = false;
  return options;
}

/// Answers io_uring_setup with `code` for this thread and those it starts, as a container's profile does.
bool forbid_uring(int code) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (static_cast<unsigned>(code) & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

} // namespace

TEST_CASE("uring engine: a short transfer continues with the rest", "[io][uring]") {
  fixture f(GENERATE(false, true) ? engine_options{} : unregistered());
  if (!f.usable())
    return;
  f.submit(f.read(0, 10));
  f.feed("abcd");
  f.feed("ef");
  // The first part may have come alone or not; the rest cannot be there before this.
  f.feed("ghij");
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  CHECK(std::memcmp(f.memory.data(), "abcdefghij", 10) == 0);
  CHECK(f.memory.data()[10] == std::byte{0xee});
  CHECK(f.io->counters().unmatched == 0);
}

TEST_CASE("uring engine: the count of continued transfers counts short ones", "[io][uring]") {
  fixture f;
  if (!f.usable())
    return;
  f.feed("abc");
  f.submit(f.read(0, 4)); // gets three bytes at once and waits for the fourth
  while (f.io->counters().continued == 0)
    std::this_thread::yield();
  CHECK(f.log.all().empty());
  f.feed("d");
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  CHECK(std::memcmp(f.memory.data(), "abcd", 4) == 0);
}

TEST_CASE("uring engine: a deadline ends a request in the kernel, and its buffer is then free", "[io][uring]") {
  fixture f(GENERATE(false, true) ? engine_options{} : unregistered());
  if (!f.usable())
    return;
  const auto deadline = now() + 20ms;
  f.submit(f.read(1, page_alignment, deadline));
  f.submit(f.read(2));
  CHECK(f.log.wait_for_tag(1).status == errc::timeout);
  CHECK(now() >= deadline);
  CHECK(f.log.all().size() == 1); // the other one has no deadline
  f.io->cancel(2);
  CHECK(f.log.wait_for_tag(2).status == errc::cancelled);
  // Whatever arrives now must not land in memory that was given back.
  f.feed("late");
  char found[5] = {};
  CHECK(::read(f.ends.read_end.get(), found, 4) == 4);
  CHECK(std::string(found) == "late");
  CHECK(f.untouched());
}

TEST_CASE("uring engine: a deadline in the middle of a transfer ends it", "[io][uring]") {
  fixture f;
  if (!f.usable())
    return;
  f.feed("abc");
  f.submit(f.read(0, 4096, now() + 20ms));
  CHECK(f.log.wait_for_tag(0).status == errc::timeout);
}

TEST_CASE("uring engine: deadlines of many requests expire in any order", "[io][uring]") {
  const auto seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  fixture f(with_depth(8)); // most wait inside the engine
  if (!f.usable())
    return;
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::vector<request> requests;
  for (std::uint64_t tag = 0; tag < 200; ++tag)
    requests.push_back(f.read(tag, page_alignment, now() + std::chrono::microseconds(random() % 30'000)));
  f.io->submit(requests);
  const auto completions = f.log.wait_for(200);
  CHECK(f.log.counts().size() == 200);
  for (const auto& c : completions)
    if (c.status != errc::timeout)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  CHECK(f.untouched());
}

TEST_CASE("uring engine: a request that waits behind a hanging one keeps its deadline", "[io][uring]") {
  fixture f(with_depth(1));
  if (!f.usable())
    return;
  f.submit(f.read(0));
  f.submit(f.read(1, page_alignment, now() + 10ms));
  CHECK(f.log.wait_for_tag(1).status == errc::timeout);
  f.submit(f.read(2));
  f.io->cancel(2); // waits: ends although nothing moves
  CHECK(f.log.wait_for_tag(2).status == errc::cancelled);
  CHECK(f.log.all().size() == 2);
  f.feed(std::string(page_alignment, 'x'));
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
}

TEST_CASE("uring engine: cancelling an unknown or ended request does nothing", "[io][uring]") {
  fixture f;
  if (!f.usable())
    return;
  f.io->cancel(77);
  f.submit(f.read(0, 1));
  f.feed("a");
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  f.io->cancel(0);
  f.submit(f.read(1, 1)); // in the row that the first one had
  f.feed("b");
  CHECK(f.log.wait_for_tag(1).status == errc::ok);
  f.io->stop();
  CHECK(f.log.all().size() == 2);
}

TEST_CASE("uring engine: stop ends running and waiting requests", "[io][uring]") {
  fixture f(with_depth(4));
  if (!f.usable())
    return;
  std::vector<request> requests;
  for (std::uint64_t tag = 0; tag < 50; ++tag)
    requests.push_back(f.read(tag));
  f.io->submit(requests);
  f.io->stop();
  const auto completions = f.log.all();
  CHECK(completions.size() == 50);
  CHECK(f.log.counts().size() == 50);
  for (const auto& c : completions)
    if (c.status != errc::shutting_down)
      FAIL("tag " << c.tag << ": " << to_string(c.status));
  f.feed("late");
  CHECK(f.untouched());
}

TEST_CASE("uring engine: a stopped engine holds neither files nor locks", "[io][uring]") {
  fixture f;
  if (!f.usable())
    return;
  f.io->stop();
  f.ends.read_end.reset();
  // A write to a pipe without a reader fails at once.
  auto* const handler = std::signal(SIGPIPE, SIG_IGN);
  CHECK(::write(f.ends.write_end.get(), "x", 1) == -1);
  CHECK(errno == EPIPE);
  std::signal(SIGPIPE, handler);
}

TEST_CASE("uring engine: a removed file is closed by the kernel", "[io][uring]") {
  fixture f;
  if (!f.usable())
    return;
  f.io->remove_file(f.file);
  f.ends.read_end.reset();
  auto* const handler = std::signal(SIGPIPE, SIG_IGN);
  CHECK(::write(f.ends.write_end.get(), "x", 1) == -1);
  std::signal(SIGPIPE, handler);
}

TEST_CASE("uring engine: memory that may not be locked is used without registration, with one warning", "[io][uring]") {
  const auto captured = std::make_shared<std::ostringstream>();
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*captured);
  const auto logger = log::get("io");
  logger->sinks().push_back(sink);
  bool ran = false;
  completion outcome;
  std::thread limited([&] {
    // The limit is enough for a ring and too small for the buffers. Root may lock any amount, so this thread drops its
    // privileges, which belong to threads.
    rlimit before{};
    ::getrlimit(RLIMIT_MEMLOCK, &before);
    const rlimit little{256 << 10, before.rlim_max};
    if (::setrlimit(RLIMIT_MEMLOCK, &little) != 0 || (::geteuid() == 0 && ::syscall(SYS_setresuid, -1, 65534, -1) != 0))
      return;
    {
      fixture f;
      aligned_buffer large(1 << 20);
      if (f.usable()) {
        REQUIRE(f.io->add_buffer(large.bytes()).has_value());
        auto what = f.read(0, 4);
        what.data = large.data() + 4096;
        what.buffer = f.io->add_buffer(large.bytes()).value();
        f.submit(what);
        f.feed("abcd");
        outcome = f.log.wait_for_tag(0);
        ran = std::memcmp(what.data, "abcd", 4) == 0;
      }
    }
    ::setrlimit(RLIMIT_MEMLOCK, &before);
  });
  limited.join();
  logger->sinks().pop_back();
  if (!ran) {
    WARN("not run: no io_uring, or limits cannot be set");
    return;
  }
  CHECK(outcome.status == errc::ok);
  const auto text = captured->str();
  CHECK(missing(text, {"cannot register a buffer of 1048576 bytes", "LimitMEMLOCK"}) == "");
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("uring engine: without io_uring a thread pool is used", "[io][engine]") {
  const int code = GENERATE(ENOSYS, EPERM);
  bool forbidden = false;
  std::string uring_error;
  std::string description;
  errc status = errc::internal;
  std::thread contained([&] {
    forbidden = forbid_uring(code);
    if (!forbidden)
      return;
    completion_log log;
    auto refused = uring_engine::start({}, log.sink());
    uring_error = refused ? "none" : to_string(refused.error());
    auto made = make_engine({}, log.sink());
    if (!made)
      return;
    description = (*made)->describe();
    scratch_directory scratch;
    const auto file = make_file(scratch / "file", page_alignment);
    aligned_buffer memory(page_alignment);
    const request what{.file = (*made)->add_file(file.get()).value(),
                       .data = memory.data(),
                       .length = page_alignment,
                       .buffer = (*made)->add_buffer(memory.bytes()).value()};
    (*made)->submit({&what, 1});
    status = log.wait_for_tag(0).status;
  });
  contained.join();
  if (!forbidden) {
    WARN("not run: no seccomp here");
    return;
  }
  CHECK(missing(uring_error, {"unsupported", code == ENOSYS ? "no io_uring" : "seccomp"}) == "");
  CHECK(missing(description, {"thread pool"}) == "");
  CHECK(status == errc::ok);
}

} // namespace io_uring_engine_test
