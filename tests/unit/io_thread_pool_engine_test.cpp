#include "io/engine/thread_pool_engine.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_support.hpp"

#include <cerrno>
#include <cstring>
#include <semaphore>

namespace io_thread_pool_engine_test {

using namespace troupe;
using namespace troupe::io;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

timestamp now() {
  return std::chrono::steady_clock::now();
}

/// A pool with scripted transfers.
struct fixture {
  fixture(std::uint32_t threads, thread_pool_engine::transfer_function transfer) {
    engine_options options;
    options.threads = threads;
    io = thread_pool_engine::start(options, log.sink(), std::move(transfer)).value();
    file = io->add_file(ends.read_end.get()).value();
    buffer = io->add_buffer(memory.bytes()).value();
  }

  request read(std::uint64_t tag, timestamp deadline = timestamp::max()) {
    return {.op = operation::read,
            .file = file,
            .data = memory.data(),
            .length = 4096,
            .buffer = buffer,
            .tag = tag,
            .deadline = deadline};
  }

  void submit(const request& what) { io->submit({&what, 1}); }

  completion_log log;
  pipe_ends ends = make_pipe();
  aligned_buffer memory{page_alignment};
  std::unique_ptr<engine> io;
  std::uint32_t file = 0;
  std::uint32_t buffer = 0;
};

/// Begun transfers wait for a permit, as on a disk that does not answer.
struct gate {
  std::counting_semaphore<> begun{0};
  std::counting_semaphore<> permits{0};
  std::atomic<int> calls{0};

  thread_pool_engine::transfer_function transfer() {
    return [this](operation, int, std::byte*, std::uint64_t length, std::uint64_t) {
      ++calls;
      begun.release();
      permits.acquire();
      return static_cast<std::int64_t>(length);
    };
  }
};

} // namespace

TEST_CASE("thread pool engine: the pool continues short and interrupted transfers", "[io][thread_pool]") {
  std::atomic<int> call{0};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked; // offset and length
  fixture f(1, [&](operation, int, std::byte* data, std::uint64_t length, std::uint64_t offset) -> std::int64_t {
    asked.emplace_back(offset, length);
    switch (call++) {
    case 0:
      return -EINTR;
    case 1:
      *data = std::byte{1};
      return 1000;
    case 2:
      return -EAGAIN;
    default:
      *data = std::byte{2};
      return static_cast<std::int64_t>(length);
    }
  });
  auto what = f.read(0);
  what.file_offset = 8192;
  f.submit(what);
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  f.io->stop();
  CHECK(asked ==
        std::vector<std::pair<std::uint64_t, std::uint64_t>>{{8192, 4096}, {8192, 4096}, {9192, 3096}, {9192, 3096}});
  CHECK(f.memory.data()[0] == std::byte{1});
  CHECK(f.memory.data()[1000] == std::byte{2});
  CHECK(f.io->counters().continued == 3);
}

TEST_CASE("thread pool engine: a transfer without progress fails", "[io][thread_pool]") {
  std::atomic<std::uint32_t> calls{0};
  fixture f(1, [&](operation, int, std::byte*, std::uint64_t, std::uint64_t) -> std::int64_t {
    ++calls;
    return -EAGAIN;
  });
  f.submit(f.read(0));
  const auto outcome = f.log.wait_for_tag(0);
  CHECK(outcome.status == errc::io_error);
  CHECK(outcome.system_errno == EAGAIN);
  CHECK(calls == 1000);
}

TEST_CASE("thread pool engine: waiting requests time out while every thread hangs", "[io][thread_pool]") {
  gate g;
  fixture f(2, g.transfer());
  f.submit(f.read(0));
  f.submit(f.read(1));
  g.begun.acquire();
  g.begun.acquire();
  f.submit(f.read(2, now() + 10ms));
  f.submit(f.read(3));
  f.io->cancel(3);
  CHECK(f.log.wait_for_tag(2).status == errc::timeout);
  CHECK(f.log.wait_for_tag(3).status == errc::cancelled);
  CHECK(f.log.all().size() == 2);
  g.permits.release(2);
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  CHECK(f.log.wait_for_tag(1).status == errc::ok);
  CHECK(g.calls == 2); // the others never reached the disk
}

TEST_CASE("thread pool engine: a running request keeps its memory past its deadline", "[io][thread_pool]") {
  gate g;
  fixture f(1, g.transfer());
  // Long enough for the thread to have begun it.
  const auto deadline = now() + 2s;
  f.submit(f.read(0, deadline));
  g.begun.acquire();
  // A later deadline that has been reported proves that the first one has been seen.
  f.submit(f.read(1, deadline + 10ms));
  CHECK(f.log.wait_for_tag(1).status == errc::timeout);
  CHECK(f.log.all().size() == 1);
  g.permits.release();
  CHECK(f.log.wait_for_tag(0).status == errc::timeout);
}

TEST_CASE("thread pool engine: a running request that is cancelled reports its real result", "[io][thread_pool]") {
  gate g;
  fixture f(1, g.transfer());
  f.submit(f.read(0));
  g.begun.acquire();
  f.io->cancel(0);
  CHECK(f.log.all().empty());
  g.permits.release();
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
}

TEST_CASE("thread pool engine: a cancelled transfer is not continued", "[io][thread_pool]") {
  std::counting_semaphore<> begun{0};
  std::counting_semaphore<> permits{0};
  std::atomic<int> calls{0};
  fixture f(1, [&](operation, int, std::byte*, std::uint64_t, std::uint64_t) -> std::int64_t {
    ++calls;
    begun.release();
    permits.acquire();
    return 512;
  });
  f.submit(f.read(0));
  begun.acquire();
  f.io->cancel(0);
  permits.release();
  CHECK(f.log.wait_for_tag(0).status == errc::cancelled);
  CHECK(calls == 1);
}

TEST_CASE("thread pool engine: stop waits for running requests and cancels waiting ones", "[io][thread_pool]") {
  gate g;
  fixture f(2, g.transfer());
  for (std::uint64_t tag = 0; tag < 10; ++tag)
    f.submit(f.read(tag));
  g.begun.acquire();
  g.begun.acquire();
  std::thread stopper([&] { f.io->stop(); });
  f.log.wait_for(8);
  g.permits.release(2);
  stopper.join();
  CHECK(f.log.counts().size() == 10);
  CHECK(f.log.all().size() == 10);
  CHECK(f.log.wait_for_tag(0).status == errc::ok);
  CHECK(f.log.wait_for_tag(1).status == errc::ok);
  CHECK(f.log.wait_for_tag(9).status == errc::shutting_down);
  CHECK(g.calls == 2);
}

} // namespace io_thread_pool_engine_test
