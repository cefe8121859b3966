#include "store/rocksdb_store.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store_support.hpp"

#include <rocksdb/db.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace store_rocksdb_test {

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Puts a record directly into the database of a store.
void plant(const fs::path& directory, const std::string& key, const std::string& value) {
  rocksdb::DB* opened = nullptr;
  REQUIRE(rocksdb::DB::Open(rocksdb::Options(), directory.string(), &opened).ok());
  const std::unique_ptr<rocksdb::DB> database(opened);
  REQUIRE(database->Put(rocksdb::WriteOptions(), key, value).ok());
  REQUIRE(database->Close().ok());
}

error error_of_open(const rocksdb_store_options& options) {
  const auto opened = rocksdb_store::open(options);
  REQUIRE_FALSE(opened.has_value());
  return opened.error();
}

} // namespace

TEST_CASE("store rocksdb: all pages and ranks of a namespace are erased, and later ones and those of others stay",
          "[store][rocksdb]") {
  scratch_directory directory;
  // Neighbours in the order of keys, one of which ends where the prefix of the other carries over.
  const namespace_id gone{7, 0xffff'ffff'ffff'ffffULL};
  const namespace_id before{7, 0xffff'ffff'ffff'fffeULL};
  const namespace_id after{8, 0};
  const auto page = [](const namespace_id& ns, std::uint64_t n) {
    return page_record{ns, key_number(n), 0, {static_cast<slot_number>(n), 1}, {}};
  };
  {
    const auto store = open_store(options_for(directory.path(), durability::strict));
    write_batch batch;
    for (const auto& ns : {before, gone, after}) {
      batch.put(rank_record{ns, 0, 100});
      for (std::uint64_t n = 0; n < 20; ++n)
        batch.put(page(ns, n));
    }
    REQUIRE(commit_now(*store, std::move(batch)));
    write_batch changes;
    changes.put(page(gone, 50)); // in the same batch, but before
    changes.erase_pages(gone);
    changes.erase_ranks(gone);
    changes.put(rank_record{gone, 0, 7});
    changes.put(page(gone, 3));
    REQUIRE(commit_now(*store, std::move(changes)));
  }
  const auto store = open_store(options_for(directory.path(), durability::strict));
  loaded found;
  load_all(*store, found);
  CHECK(found.pages.size() == 41);
  CHECK(std::count(found.pages.begin(), found.pages.end(), page(gone, 3)) == 1);
  CHECK(std::count_if(found.pages.begin(), found.pages.end(), [&](const auto& x) { return x.ns == gone; }) == 1);
  CHECK(found.ranks.size() == 3);
  CHECK(std::count(found.ranks.begin(), found.ranks.end(), rank_record{gone, 0, 7}) == 1);
}

TEST_CASE("store rocksdb: a reopened store has exactly what was put and not erased", "[store][rocksdb]") {
  const auto level = GENERATE(durability::relaxed, durability::strict);
  scratch_directory directory;
  {
    const auto store = open_store(options_for(directory.path(), level));
    write_batch batch;
    batch.put(sample_namespace(1));
    batch.put(sample_namespace(2));
    batch.put(sample_namespace(3));
    batch.put(rank_record{namespace_number(1), 0, 1000});
    batch.put(rank_record{namespace_number(1), 1, 1000});
    for (std::uint64_t n = 0; n < 100; ++n)
      for (const rank_number rank : {0U, 1U})
        batch.put(page_number(n, rank));
    REQUIRE(commit_now(*store, std::move(batch)));
    write_batch changes;
    changes.erase_namespace(namespace_number(3));
    changes.erase_rank(namespace_number(1), 1);
    changes.put(rank_record{namespace_number(1), 0, 2000});
    for (std::uint64_t n = 0; n < 50; ++n)
      changes.erase_page(namespace_number(1), key_number(n), 1);
    changes.put(page_number(60, 0, {99, 5}));
    changes.erase_page(namespace_number(1), key_number(61), 0);
    changes.put(page_number(61, 0, {98, 6}));
    changes.put(page_number(62, 0, {97, 7}));
    changes.erase_page(namespace_number(1), key_number(62), 0);
    changes.erase_page(namespace_number(1), key_number(12345), 0); // was never there
    REQUIRE(commit_now(*store, std::move(changes)));
    if (level == durability::strict)
      REQUIRE(store->close()); // the other one is closed by its end
  }
  const auto store = open_store(options_for(directory.path(), level));
  loaded found;
  load_all(*store, found);
  CHECK(found.namespaces == std::vector<namespace_record>{sample_namespace(1), sample_namespace(2)});
  CHECK(found.ranks == std::vector<rank_record>{{namespace_number(1), 0, 2000}});
  CHECK(in_order(found.pages));
  CHECK(found.pages.size() == 100 + 50 - 1);
  for (std::uint64_t n = 0; n < 100; ++n) {
    const auto* const page = found.find(key_number(n), 0);
    if (n == 62) {
      CHECK(page == nullptr);
      continue;
    }
    REQUIRE(page != nullptr);
    const auto where = n == 60 ? slot_ref{99, 5} : n == 61 ? slot_ref{98, 6} : slot_ref{7, 1};
    CHECK(*page == page_number(n, 0, where));
    CHECK((found.find(key_number(n), 1) != nullptr) == (n >= 50));
  }
}

TEST_CASE("store rocksdb: a node keeps its secret and counts its runs", "[store][rocksdb]") {
  scratch_directory directory;
  const auto first = open_store(directory.path())->identity();
  CHECK(first.run == 1);
  for (std::uint64_t run = 2; run < 5; ++run) {
    const auto again = open_store(directory.path())->identity();
    CHECK(again.run == run);
    CHECK(again.secret == first.secret);
  }
}

TEST_CASE("store rocksdb: the stored data does not depend on the number of shards", "[store][rocksdb]") {
  constexpr std::uint64_t keys = 500;
  std::vector<page_record> first;
  for (const std::uint32_t shards : {1U, 3U, 8U}) {
    scratch_directory directory;
    const auto store = open_store(options_for(directory.path(), durability::relaxed));
    std::vector<write_batch> batches(shards);
    for (std::uint64_t n = 0; n < keys; ++n)
      batches[shard_of(key_number(n), shards)].put(page_number(n));
    for (auto& batch : batches)
      REQUIRE(commit_now(*store, std::move(batch)));
    loaded found;
    load_all(*store, found);
    CHECK(found.pages.size() == keys);
    if (first.empty())
      first = found.pages;
    CHECK(found.pages == first);
  }
}

TEST_CASE("store rocksdb: several threads read the same as one", "[store][rocksdb]") {
  scratch_directory directory;
  const auto store = open_store(options_for(directory.path(), durability::relaxed));
  constexpr std::uint64_t keys = 5000;
  write_batch batch;
  // Two namespaces, pages without a namespace before, between and after them, and digests at the ends.
  batch.put(sample_namespace(10));
  batch.put(sample_namespace(20));
  for (const std::uint64_t ns : {5U, 10U, 15U, 20U, 25U}) {
    for (std::uint64_t n = 0; n < keys; ++n) {
      auto page = page_number(n);
      page.ns = namespace_number(ns);
      batch.put(page);
    }
    for (const key_digest key : {key_digest{0, 1}, key_digest{1ULL << 60U, 0}, key_digest{~0ULL, ~0ULL}})
      batch.put(page_record{namespace_number(ns), key, 0, {1, 1}, {}});
  }
  const auto records = batch.records();
  REQUIRE(commit_now(*store, std::move(batch)));
  loaded one;
  load_all(*store, one);
  REQUIRE(one.pages.size() == records - 2);
  REQUIRE(in_order(one.pages));
  for (const unsigned threads : {2U, 5U, 64U}) {
    loaded many;
    load_all(*store, many, threads);
    std::ranges::sort(many.pages, {}, [](const page_record& p) { return std::tuple(p.ns, p.key, p.rank); });
    CHECK(many.pages == one.pages);
    REQUIRE_FALSE(many.progress.empty());
    CHECK(many.progress.back().first == one.pages.size());
  }
}

TEST_CASE("store rocksdb: an error of the reader ends the load", "[store][rocksdb]") {
  class picky : public loaded {
  public:
    result<void> on_pages(std::span<const page_record>) override { return fail(errc::full, "enough"); }
  };
  scratch_directory directory;
  const auto store = open_store(directory.path());
  write_batch batch;
  batch.put(page_number(1));
  REQUIRE(commit_now(*store, std::move(batch)));
  for (const unsigned threads : {1U, 4U}) {
    picky visitor;
    const auto read = store->load(visitor, threads);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == errc::full);
  }
}

TEST_CASE("store rocksdb: an invalid record is named, in any table", "[store][rocksdb]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    batch.put(sample_namespace(1));
    batch.put(page_number(1));
    REQUIRE(commit_now(*store, std::move(batch)));
  }
  std::string key;
  std::string name;
  switch (GENERATE(range(0, 5))) {
  case 0:
    append_page_key(key, namespace_number(1), key_number(77), 3);
    name = to_string(key_number(77)) + " and rank 3";
    break;
  case 1:
    append_rank_key(key, namespace_number(1), 5);
    name = "rank 5";
    break;
  case 2:
    append_namespace_key(key, namespace_number(9));
    name = to_string(namespace_number(9));
    break;
  case 3:
    key = std::string("\0 before all", 12);
    name = "0x00206265";
    break;
  default:
    key = "\x7f after all";
    name = "0x7f206166";
  }
  plant(directory.path(), key, "xyz");
  const auto store = open_store(directory.path());
  loaded found;
  const auto read = store->load(found);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().code == errc::corrupt);
  CHECK(missing(read.error().text, {name}).empty());
}

TEST_CASE("store rocksdb: a damaged table file is an error and not a wrong page", "[store][rocksdb]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    for (std::uint64_t n = 0; n < 3000; ++n)
      batch.put(page_number(n));
    REQUIRE(commit_now(*store, std::move(batch)));
  }
  int tables = 0;
  for (const auto& entry : fs::directory_iterator(directory.path()))
    if (entry.path().extension() == ".sst" && fs::file_size(entry) > 50'000) {
      auto text = read_file(entry.path());
      text[40'000] = static_cast<char>(text[40'000] ^ 1);
      write_file(entry.path(), text);
      ++tables;
    }
  REQUIRE(tables > 0);
  const auto opened = rocksdb_store::open(options_for(directory.path()));
  if (!opened) {
    CHECK(opened.error().code == errc::corrupt);
    return;
  }
  loaded found;
  const auto read = (*opened)->load(found);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().code == errc::corrupt);
}

TEST_CASE("store rocksdb: a store can be opened only once", "[store][rocksdb]") {
  scratch_directory directory;
  auto store = open_store(directory.path());
  const auto refused = error_of_open(options_for(directory.path()));
  CHECK(refused.code == errc::busy);
  CHECK(missing(refused.text, {directory.path().string(), "stop the node"}).empty());
  store.reset();
  store = open_store(directory.path());
  CHECK(store->identity().run == 2);
}

TEST_CASE("store rocksdb: a directory that is not a store is left unchanged", "[store][rocksdb]") {
  scratch_directory directory;
  write_file(directory / "thesis.txt", "do not lose");
  const auto refused = error_of_open(options_for(directory.path()));
  CHECK(refused.code == errc::identity_mismatch);
  CHECK(missing(refused.text, {directory.path().string(), "empty directory"}).empty());
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("store rocksdb: a database of another program is left unchanged", "[store][rocksdb]") {
  scratch_directory directory;
  {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* opened = nullptr;
    REQUIRE(rocksdb::DB::Open(options, directory.path().string(), &opened).ok());
    delete opened;
  }
  const auto before = std::distance(fs::directory_iterator(directory.path()), {});
  CHECK(error_of_open(options_for(directory.path())).code == errc::identity_mismatch);
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == before);
}

TEST_CASE("store rocksdb: a store with another schema is refused with the way out", "[store][rocksdb]") {
  scratch_directory directory;
  open_store(directory.path());
  write_file(directory / "TROUPE", "troupe metadata store\nschema 12\n");
  const auto refused = error_of_open(options_for(directory.path()));
  CHECK(refused.code == errc::identity_mismatch);
  CHECK(missing(refused.text, {"schema 12", "schema 1;", "delete the directory"}).empty());
  write_file(directory / "TROUPE", "something else\n");
  CHECK(error_of_open(options_for(directory.path())).code == errc::identity_mismatch);
  write_file(directory / "TROUPE", "");
  CHECK(error_of_open(options_for(directory.path())).code == errc::identity_mismatch);
}

TEST_CASE("store rocksdb: a crash while a store is created does not block the next start", "[store][rocksdb]") {
  scratch_directory directory;
  const auto text = GENERATE(as<std::string>(), "", "troupe meta", "troupe metadata store\nschema 1\n");
  write_file(directory / "TROUPE", text);
  write_file(directory / "LOCK", "");
  write_file(directory / "MANIFEST-000001", "half");
  write_file(directory / "000001.dbtmp", "MANIF");
  CHECK(open_store(directory.path())->identity().run == 1);
  CHECK(read_file(directory / "TROUPE") == "troupe metadata store\nschema 1\n");
}

TEST_CASE("store rocksdb: data without a current manifest is kept and refused", "[store][rocksdb]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    batch.put(page_number(1));
    REQUIRE(commit_now(*store, std::move(batch)));
  }
  fs::remove(directory / "CURRENT");
  const auto before = std::distance(fs::directory_iterator(directory.path()), {});
  const auto refused = error_of_open(options_for(directory.path()));
  CHECK(refused.code == errc::corrupt);
  CHECK(missing(refused.text, {"CURRENT", "delete the directory to start with an empty cache"}).empty());
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == before);
}

TEST_CASE("store rocksdb: invalid store options are refused", "[store][rocksdb]") {
  scratch_directory directory;
  auto options = options_for(directory.path());
  options.max_queued_batches = 0;
  CHECK(error_of_open(options).code == errc::invalid_argument);
  options = options_for(directory.path());
  options.sync_interval = std::chrono::seconds(-1);
  CHECK(error_of_open(options).code == errc::invalid_argument);
  CHECK(error_of_open(options_for("")).code == errc::invalid_argument);
  write_file(directory / "file", "");
  CHECK(error_of_open(options_for(directory / "file")).code == errc::io_error);
}

TEST_CASE("store rocksdb: handshakes are kept beside pages and removed with their engine",
          "[store][rocksdb][handshake]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    batch.put(page_number(1));
    for (const auto* name : {"a", "ab", "b"}) {
      handshake_engine_record engine;
      engine.engine = name;
      batch.put(engine);
      batch.put(handshake_rank_record{name, {0, 0, 0}, 1, 0, "x"});
      batch.put(handshake_rank_record{name, {0, 0, 1}, 1, 0, std::string(100'000, 'y')});
    }
    // Not those of names that begin alike.
    batch.erase_handshakes("a");
    REQUIRE(commit_now(*store, std::move(batch)));
  }
  const auto store = open_store(directory.path());
  loaded all;
  REQUIRE(store->load(all, 1));
  CHECK(all.pages.size() == 1);
  REQUIRE(all.handshake_engines.size() == 2);
  CHECK(all.handshake_engines[0].engine == "ab");
  CHECK(all.handshake_ranks.size() == 4);
  CHECK(all.handshake_ranks[1].payload.size() == 100'000);
}

TEST_CASE("store rocksdb: descriptions are read by themselves, and go with their key or namespace",
          "[store][rocksdb]") {
  scratch_directory directory;
  const auto ns = namespace_number(1);
  const auto other = namespace_number(2);
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    for (std::uint64_t n = 0; n < 1000; ++n)
      batch.put(description_record{n % 2 == 0 ? ns : other, key_number(n), "text " + std::to_string(n)});
    batch.put(page_number(1));
    batch.erase_description(ns, key_number(2));
    REQUIRE(commit_now(*store, std::move(batch)));
    write_batch later;
    later.erase_pages(other);
    REQUIRE(commit_now(*store, std::move(later)));
  }
  const auto store = open_store(directory.path());
  std::vector<description_record> all;
  std::size_t calls = 0;
  const auto read = store->load_descriptions([&](std::span<const description_record> some) -> result<void> {
    all.insert(all.end(), some.begin(), some.end());
    ++calls;
    return {};
  });
  REQUIRE(read);
  CHECK(*read == 499);
  CHECK(calls == 2);
  REQUIRE(all.size() == 499);
  for (const auto& x : all)
    CHECK(x.ns == ns);
  CHECK(std::ranges::any_of(all, [&](const auto& x) {
    return x == description_record{ns, key_number(998), "text 998"};
  }));
  // An error ends it.
  CHECK(store->load_descriptions([](auto) -> result<void> { return fail(errc::timeout, "enough"); }).error().code ==
        errc::timeout);
  write_batch none;
  none.erase_descriptions();
  REQUIRE(commit_now(*store, std::move(none)));
  CHECK(store->load_descriptions([](auto) -> result<void> { return {}; }) == std::uint64_t{0});
}

TEST_CASE("store rocksdb: a clean close leaves nothing in the log", "[store][rocksdb]") {
  scratch_directory directory;
  {
    const auto store = open_store(directory.path());
    write_batch batch;
    for (std::uint64_t n = 0; n < 1000; ++n)
      batch.put(page_number(n));
    REQUIRE(commit_now(*store, std::move(batch)));
    REQUIRE(store->close());
  }
  for (const auto& entry : fs::directory_iterator(directory.path()))
    if (entry.path().extension() == ".log")
      CHECK(fs::file_size(entry) == 0);
}

} // namespace store_rocksdb_test
