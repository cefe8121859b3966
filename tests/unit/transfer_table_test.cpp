#include "actors/node/io_worker/transfer_table.hpp"
#include "tests/catch.hpp"

#include <optional>

namespace transfer_table_test {

using namespace troupe;

TEST_CASE("transfer table: a transfer is found by its tag until it ends", "[transfer_table]") {
  transfer_table table;
  const page_transfer read{1, 10, true, false};
  const page_transfer write{2, 20, false, false};
  const auto a = table.begin(read);
  const auto b = table.begin(write);
  CHECK(a != b);
  CHECK(table.find(a) == read);
  CHECK(table.find(b) == write);
  CHECK(table.end(a) == read);
  CHECK(table.find(a) == std::nullopt);
  CHECK(table.end(a) == std::nullopt);
  CHECK(table.end(b) == write);
  CHECK(table.size() == 0);
}

TEST_CASE("transfer table: no tag is used twice, nor is that of a request without a slot", "[transfer_table]") {
  transfer_table table;
  const auto a = table.begin({1, 10, true, false});
  table.end(a);
  const auto other = table.unused_tag();
  CHECK(other != a);
  CHECK(table.find(other) == std::nullopt);
  const auto b = table.begin({1, 10, true, false});
  CHECK(b != a);
  CHECK(b != other);
}

TEST_CASE("transfer table: reads, reads ahead and writes are counted apart", "[transfer_table]") {
  transfer_table table;
  const auto read = table.begin({1, 10, true, false});
  const auto ahead = table.begin({2, 20, true, true});
  const auto write = table.begin({3, 30, false, false});
  CHECK(table.reads() == 2);
  CHECK(table.reads_ahead() == 1);
  CHECK(table.writes() == 1);
  slot_number slots = 0;
  table.for_each([&](const page_transfer& x) { slots += x.slot; });
  CHECK(slots == 60);
  table.end(read);
  CHECK(table.reads() == 1);
  CHECK(table.reads_ahead() == 1);
  table.end(ahead);
  CHECK(table.reads_ahead() == 0);
  CHECK(table.writes() == 1);
  table.end(write);
  CHECK(table.writes() == 0);
  // What has ended is not counted down again.
  table.end(ahead);
  CHECK(table.reads() == 0);
}

} // namespace transfer_table_test
