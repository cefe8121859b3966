#include "events/page_book.hpp"
#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"

#include <map>
#include <random>

namespace troupe::test {

using events::page_book;
using events::page_record;
using outcome = page_book::outcome;

namespace {

page_record record(std::uint64_t id, std::uint16_t shape, std::uint64_t hash, std::size_t details) {
  return {id, hash, hash - 1, shape, true, false, std::string(details, 'x')};
}

} // namespace

TEST_CASE("events book: a book keeps the first description of a page", "[events]") {
  page_book book(1, 1U << 20U);
  const auto shape = *book.number_of({0, 4, 1, {}, {}});
  CHECK(book.number_of({0, 4, 1, {}, {}}) == shape);
  CHECK(book.number_of({0, 4, 1, {{2}}, {}}) != shape);
  CHECK(book.store(record(7, shape, 50, 16)) == outcome::stored);
  CHECK(book.store(record(7, shape, 50, 16)) == outcome::known);
  CHECK(book.store(record(7, shape, 51, 16)) == outcome::differs);
  CHECK(book.find(7)->hash == 50);
  CHECK_FALSE(book.move(7, false));
  CHECK(book.move(7, true)->in_memory);
  const auto gone = book.remove(7);
  REQUIRE(gone);
  CHECK(gone->hash == 50);
  CHECK(gone->details.empty());
  CHECK_FALSE(book.remove(7));
  CHECK_FALSE(book.move(7, false));
  CHECK(book.pages() == 0);
  CHECK(book.details_bytes() == 0);
}

TEST_CASE("events book: a book keeps hashes beyond its limit, and no tokens", "[events]") {
  page_book book(1, 150);
  // Three blocks of one token: 16 bytes of hashes, 12 of tokens.
  const auto shape = *book.number_of({0, 1, 3, {}, {}});
  CHECK(book.store(record(1, shape, 50, 28)) == outcome::stored);
  CHECK(book.store(record(2, shape, 60, 28)) == outcome::stored);
  CHECK(book.without_tokens() == 1);
  CHECK(book.find(2)->details.size() == 16);
  std::uint64_t left_out = 0;
  std::vector<std::uint64_t> found;
  CHECK(book.walk(0, 0, 10, left_out, [&](const page_record& x) { found.push_back(x.id); }) == book.end());
  CHECK(found == std::vector<std::uint64_t>{1});
  CHECK(left_out == 1);
  CHECK(book.remove(1)->details.size() == 16);
  // Described again when there is room.
  CHECK(book.store(record(2, shape, 60, 28)) == outcome::completed);
  CHECK(book.store(record(2, shape, 60, 28)) == outcome::known);
  CHECK(book.without_tokens() == 0);
  CHECK(book.find(2)->details.size() == 28);
}

TEST_CASE("events book: a book with many pages finds each of them, and takes less than 40 bytes for one", "[events]") {
  page_book book(3, 1ULL << 40U);
  const auto shape = *book.number_of({0, 1, 1, {}, {}});
  std::mt19937_64 random(1);
  std::map<std::uint64_t, std::uint64_t> model;
  const namespace_id ns{1, 2};
  for (std::uint64_t i = 0; i < 60000; ++i) {
    const auto id = book.id_of(ns, event_key(random() % 20000));
    if (random() % 3 == 0) {
      CHECK(book.remove(id).has_value() == (model.erase(id) == 1));
    } else {
      const bool fresh = model.emplace(id, i).second;
      CHECK(book.store(record(id, shape, model[id], 0)) == (fresh ? outcome::stored : outcome::known));
    }
  }
  CHECK(book.pages() == model.size());
  for (const auto& [id, hash] : model)
    CHECK(book.find(id)->hash == hash);
  for (std::uint64_t i = 0; i < 300000; ++i)
    book.store(record(book.id_of(ns, event_key(100000 + i)), shape, i, 0));
  CHECK(static_cast<double>(book.resident_bytes()) / static_cast<double>(book.pages()) < 40.0);
  CHECK(book.id_of(ns, event_key(1)) != book.id_of({1, 3}, event_key(1)));
}

TEST_CASE("events book: the memory of a removed page is used for the next one", "[events]") {
  page_book book(1, 1U << 20U);
  const auto shape = *book.number_of({0, 1, 1, {}, {}});
  const auto pass = [&](std::uint64_t id) {
    CHECK(book.store(record(id, shape, id, 0)) == outcome::stored);
    CHECK(book.remove(id));
  };
  pass(0);
  const auto bytes = book.resident_bytes();
  for (std::uint64_t id = 1; id < 10'000; ++id)
    pass(id);
  CHECK(book.resident_bytes() == bytes);
  CHECK(book.end() == 1);
}

TEST_CASE("events book: a book without pages takes a few KiB, and details what they have", "[events]") {
  page_book book(1, 1U << 20U);
  const auto shape = *book.number_of({0, 1, 3, {}, {}});
  CHECK(book.resident_bytes() >= 1024);
  CHECK(book.resident_bytes() <= 64 * 1024);
  book.store(record(1, shape, 1, 0));
  const auto without = book.resident_bytes();
  book.store(record(2, shape, 2, 28));
  CHECK(book.resident_bytes() - without >= 28);
  CHECK(book.resident_bytes() - without == book.details_bytes());
}

TEST_CASE("events book: an emptied book keeps the details of the pages that come next", "[events]") {
  page_book book(1, 1U << 20U);
  const auto shape = *book.number_of({0, 1, 3, {}, {}});
  const auto store = [&](std::uint64_t id) {
    auto page = record(id, shape, id, 0);
    page.details.assign(28, static_cast<char>('a' + id));
    CHECK(book.store(page) == outcome::stored);
  };
  for (std::uint64_t id = 0; id < 3; ++id)
    store(id);
  CHECK(book.remove(1));
  book.clear();
  CHECK(book.pages() == 0);
  CHECK(book.details_bytes() == 0);
  CHECK_FALSE(book.find(0));
  for (std::uint64_t id = 3; id < 6; ++id)
    store(id);
  for (std::uint64_t id = 3; id < 6; ++id)
    CHECK(book.find(id)->details == std::string(28, static_cast<char>('a' + id)));
}

TEST_CASE("events book: a book has a limited number of shapes", "[events]") {
  page_book book(1, 0);
  std::size_t accepted = 0;
  for (int i = 0; i < 5000; ++i)
    accepted += book.number_of({0, 4, 1, {}, "adapter " + std::to_string(i)}) ? 1 : 0;
  CHECK(accepted == 4096);
}

} // namespace troupe::test
