#include "io/engine/request_rules.hpp"
#include "tests/catch.hpp"

#include <array>
#include <cerrno>

namespace io_request_rules_test {

using namespace troupe;
using namespace troupe::io;
using namespace std::chrono_literals;

namespace {

constexpr timestamp zero{};
using rows = std::vector<request_rules::index>;

/// Rules with one file and one buffer.
struct fixture {
  fixture() {
    file = rules.resources().add_file(3).value();
    buffer = rules.resources().add_buffer(memory).value();
  }

  request one(std::uint64_t tag, timestamp deadline = timestamp::max()) {
    return {.file = file,
            .data = memory.data(),
            .length = memory.size(),
            .buffer = buffer,
            .tag = tag,
            .deadline = deadline};
  }

  request_rules::index waiting(std::uint64_t tag, timestamp deadline = timestamp::max()) {
    REQUIRE(rules.accept(one(tag, deadline)));
    return rules.table().add(one(tag, deadline));
  }

  request_rules::index running(std::uint64_t tag, timestamp deadline = timestamp::max()) {
    waiting(tag, deadline);
    return rules.table().start_next();
  }

  /// The only completion.
  completion ended() {
    REQUIRE(rules.done().size() == 1);
    const auto out = rules.done()[0];
    rules.done().clear();
    return out;
  }

  std::array<std::byte, 512> memory{};
  request_rules rules{engine_options{}};
  std::uint32_t file = 0;
  std::uint32_t buffer = 0;
};

} // namespace

TEST_CASE("request rules: an invalid request is completed and takes no row", "[io][request_rules]") {
  fixture f;
  auto what = f.one(1);
  what.length += 1;
  CHECK_FALSE(f.rules.accept(what));
  CHECK(f.ended().status == errc::out_of_range);
  CHECK(f.rules.is_idle());
  f.rules.stop();
  CHECK_FALSE(f.rules.accept(f.one(2)));
  CHECK(f.ended().status == errc::shutting_down);
}

TEST_CASE("request rules: a waiting request ends at once, whatever ends it", "[io][request_rules]") {
  fixture f;
  const std::uint64_t tags[] = {1, 77};
  f.waiting(1);
  CHECK(f.rules.cancel(tags).empty());
  CHECK(f.ended().status == errc::cancelled);
  f.waiting(2, zero + 1s);
  CHECK(f.rules.expire(zero).empty());
  CHECK(f.rules.done().empty());
  CHECK(f.rules.expire(zero + 1s).empty());
  CHECK(f.ended().status == errc::timeout);
  f.waiting(3);
  CHECK(f.rules.stop().empty());
  CHECK(f.ended().status == errc::shutting_down);
  CHECK(f.rules.is_idle());
}

TEST_CASE("request rules: a running request keeps its row until its outcome, and the first reason",
          "[io][request_rules]") {
  fixture f;
  const std::uint64_t tag = 1;
  const auto i = f.running(tag, zero + 1s);
  const auto handle = f.rules.table().handle_of(i);
  CHECK(f.rules.expire(zero + 1s) == rows{i});
  CHECK(f.rules.cancel({&tag, 1}) == rows{i});
  CHECK(f.rules.stop() == rows{i});
  CHECK(f.rules.stop().empty()); // the second time
  CHECK(f.rules.done().empty());
  CHECK(f.rules.table().find_running(handle) != nullptr);
  CHECK_FALSE(f.rules.advance(i, -ECANCELED));
  CHECK(f.ended().status == errc::timeout);
  CHECK(f.rules.table().find_running(handle) == nullptr);
  CHECK(f.rules.is_idle());
}

TEST_CASE("request rules: a request is continued until all bytes have moved", "[io][request_rules]") {
  fixture f;
  const auto i = f.running(1);
  CHECK(f.rules.advance(i, 100));
  CHECK(f.rules.table().at(i).done == 100);
  CHECK(f.rules.advance(i, -EAGAIN));
  CHECK_FALSE(f.rules.advance(i, 412));
  CHECK(f.ended().status == errc::ok);
}

TEST_CASE("request rules: the rest of a cancelled request is not transferred", "[io][request_rules]") {
  fixture f;
  const std::uint64_t tag = 1;
  const auto i = f.running(tag);
  f.rules.cancel({&tag, 1});
  CHECK_FALSE(f.rules.advance(i, 100));
  CHECK(f.ended().status == errc::cancelled);
}

TEST_CASE("request rules: an error of the system ends a request with its number", "[io][request_rules]") {
  fixture f;
  CHECK_FALSE(f.rules.advance(f.running(1), -ENOSPC));
  const auto out = f.ended();
  CHECK(out.tag == 1);
  CHECK(out.status == errc::no_space);
  CHECK(out.system_errno == ENOSPC);
}

} // namespace io_request_rules_test
