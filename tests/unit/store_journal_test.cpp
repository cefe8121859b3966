#include "store/journal.hpp"
#include "tests/catch.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace store_journal_test {

using namespace troupe;

namespace {

struct world {
  store::journal log;
  std::string served;

  void change(std::string_view engine) { log.pending().erase_handshakes(engine); }
  /// Adds a letter once the changes so far are durable, an exclamation mark if they cannot be.
  void await(char letter) {
    log.when_durable([this, letter](const error* failed) { served += failed == nullptr ? letter : '!'; });
  }
};

} // namespace

TEST_CASE("journal: what follows no change waits for nothing", "[store][journal]") {
  world w;
  CHECK(w.log.durable());
  CHECK_FALSE(w.log.begin_write());
  w.await('a');
  CHECK(w.served == "a");
}

TEST_CASE("journal: one batch is written at a time, and later changes go into the next", "[store][journal]") {
  world w;
  w.change("1");
  w.await('a');
  const auto first = w.log.begin_write();
  REQUIRE(first);
  CHECK(first->records() == 1);
  CHECK(w.log.writing());
  w.await('b'); // for the first batch too
  w.change("2");
  w.change("3");
  w.await('c');
  CHECK_FALSE(w.log.begin_write());
  CHECK(w.log.waiting() == 3);
  CHECK(w.served.empty());
  w.log.written();
  CHECK(w.served == "ab");
  CHECK_FALSE(w.log.writing());
  CHECK_FALSE(w.log.durable());
  const auto second = w.log.begin_write();
  REQUIRE(second);
  CHECK(second->records() == 2);
  w.log.written();
  CHECK(w.served == "abc");
  CHECK(w.log.durable());
  CHECK(w.log.waiting() == 0);
}

TEST_CASE("journal: a refused batch completes no waiter, and is written with the next one", "[store][journal]") {
  world w;
  w.change("1");
  w.await('a');
  auto refused = w.log.begin_write();
  REQUIRE(refused);
  w.change("2");
  w.await('b');
  w.log.refused(std::move(*refused));
  CHECK(w.served.empty());
  CHECK_FALSE(w.log.durable());
  CHECK_FALSE(w.log.writing());
  w.change("3");
  w.await('c');
  auto all = w.log.begin_write();
  REQUIRE(all);
  CHECK(all->records() == 3);
  std::string keys;
  all->for_each([&](const store::write_batch::change& x) { keys += x.key; });
  CHECK(keys.find('1') < keys.find('2'));
  CHECK(keys.find('2') < keys.find('3'));
  // Twice in a row, and with nothing new meanwhile.
  w.log.refused(std::move(*all));
  all = w.log.begin_write();
  REQUIRE(all);
  CHECK(all->records() == 3);
  CHECK(w.served.empty());
  w.log.written();
  CHECK(w.served == "abc");
  CHECK(w.log.durable());
}

TEST_CASE("journal: continuations may change, wait and begin the next write", "[store][journal]") {
  world w;
  w.change("1");
  w.log.when_durable([&](const error*) {
    w.served += 'a';
    w.await('c'); // behind those that wait already
    w.change("2");
    w.await('d');
    CHECK(w.log.begin_write());
    w.await('e');
  });
  w.await('b');
  REQUIRE(w.log.begin_write());
  w.log.written();
  CHECK(w.served == "abc");
  CHECK(w.log.writing());
  w.log.written();
  CHECK(w.served == "abcde");
}

TEST_CASE("journal: a failure answers each waiter once", "[store][journal]") {
  world w;
  w.change("1");
  w.await('a');
  REQUIRE(w.log.begin_write());
  w.change("2");
  w.await('b');
  w.log.fail({errc::io_error, "the disk failed"});
  CHECK(w.served == "!!");
  CHECK(w.log.waiting() == 0);
  w.log.fail({errc::io_error, "the disk failed"});
  CHECK(w.served == "!!");
}

} // namespace store_journal_test
