#include "store/handshake_records.hpp"
#include "store/records.hpp"
#include "store/write_batch.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store_support.hpp"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace store_records_test {

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;

namespace {

template <class Record>
std::string value_of(const Record& record) {
  std::string out;
  append_value(out, record);
  return out;
}

std::string key_of(const page_record& x) {
  std::string out;
  append_page_key(out, x.ns, x.key, x.rank);
  return out;
}

std::string key_of(const rank_record& x) {
  std::string out;
  append_rank_key(out, x.ns, x.rank);
  return out;
}

std::string key_of(const namespace_record& x) {
  std::string out;
  append_namespace_key(out, x.id);
  return out;
}

std::string key_of(const node_identity&) {
  std::string out;
  append_identity_key(out);
  return out;
}

/// A geometry with layers of several shapes.
namespace_record mixed_namespace() {
  auto record = sample_namespace(1);
  record.spec.geometry.further = {{61, {1, 1, 132, 1}}, {1, {2, 8, 128, 2}}};
  return record;
}

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int x : values)
    out.push_back(static_cast<char>(static_cast<unsigned char>(x)));
  return out;
}

template <class Record, class Decode>
void check_round_trip(const Record& record, Decode&& decode) {
  const auto back = decode(key_of(record), value_of(record));
  REQUIRE(back.has_value());
  CHECK(*back == record);
}

/// Every shorter value, and one that is longer, is refused: nothing is read beyond the end, nothing is left over.
template <class Record, class Decode>
void check_lengths(const Record& record, Decode&& decode, std::initializer_list<std::size_t> also_sound = {}) {
  const auto key = key_of(record);
  const auto value = value_of(record);
  for (std::size_t n = 0; n < value.size(); ++n) {
    INFO(n << " bytes of " << value.size());
    if (std::find(also_sound.begin(), also_sound.end(), n) == also_sound.end())
      CHECK_FALSE(decode(key, value.substr(0, n)).has_value());
  }
  CHECK_FALSE(decode(key, value + '\0').has_value());
  CHECK_FALSE(decode(key + '\0', value).has_value());
  CHECK_FALSE(decode(key.substr(0, key.size() - 1), value).has_value());
  CHECK_FALSE(decode(bytes({9}) + key.substr(1), value).has_value());
  CHECK_FALSE(decode({}, value).has_value());
}

} // namespace

TEST_CASE("store records: stored records are read back unchanged", "[store]") {
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  check_round_trip(page_number(0), decode_page);
  check_round_trip(page_number(1), decode_page);
  check_round_trip(page_record{{1, 2}, {3, 4}, most, {most, most}, {~0ULL, ~0ULL}}, decode_page);
  check_round_trip(page_record{{1, 2}, {3, 4}, 5, {6, 7}, {0, 1}}, decode_page);
  check_round_trip(page_record{{1, 2}, {3, 4}, 5, {6, 7}, {}, 9}, decode_page);
  check_round_trip(page_record{{1, 2}, {3, 4}, 5, {6, 7}, {0, 1}, ~0ULL}, decode_page);
  check_round_trip(rank_record{{1, 2}, 3, 1ULL << 40U}, decode_rank);
  check_round_trip(rank_record{{1, 2}, 3, 1ULL << 40U, 1ULL << 63U}, decode_rank);
  check_round_trip(sample_namespace(1), decode_namespace);
  check_round_trip(sample_namespace(2), decode_namespace);
  check_round_trip(namespace_record{}, decode_namespace);
  auto before_1970 = sample_namespace(1);
  before_1970.created = std::chrono::sys_seconds(std::chrono::seconds(-5));
  before_1970.spec.model = std::string(100'000, 'm');
  check_round_trip(before_1970, decode_namespace);
  check_round_trip(mixed_namespace(), decode_namespace);
  auto many = mixed_namespace();
  many.spec.geometry.further.resize(1000, {most, {most, most, most, most}});
  check_round_trip(many, decode_namespace);
  check_round_trip(first_identity(), decode_identity);
  auto run = first_identity();
  run.epoch = ~0ULL;
  run.next_epoch = 1;
  check_round_trip(run, decode_identity);
  for (const auto origin : {stored_origin::unknown, stored_origin::config, stored_origin::protocol, stored_origin::api,
                            stored_origin::client}) {
    auto made = mixed_namespace();
    made.origin = origin;
    check_round_trip(made, decode_namespace);
    made.spec.group_of = "all groups of layers";
    check_round_trip(made, decode_namespace);
  }
}

TEST_CASE("store records: namespaces, ranks, pages and identities written by older builds are read", "[store]") {
  auto record = sample_namespace(1);
  record.origin = stored_origin::protocol;
  const auto value = value_of(record);
  // The geometry of version 1 comes before later additions: a count of additional layers, and the origin.
  const auto oldest = bytes({1}) + value.substr(1, value.size() - 6);
  CHECK(value.front() == 3);
  CHECK(oldest.substr(oldest.size() - 24) ==
        bytes({61, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0x40, 2, 0, 0, 2, 0, 0, 0, 64, 0, 0, 0}));
  CHECK(value.substr(oldest.size()) == bytes({0, 0, 0, 0, 2}));
  record.origin = stored_origin::unknown;
  CHECK(decode_namespace(key_of(record), oldest) == record);
  const auto mixed = value_of(mixed_namespace());
  CHECK(decode_namespace(key_of(record), bytes({2}) + mixed.substr(1, mixed.size() - 2)) == mixed_namespace());
  CHECK(mixed.substr(oldest.size(), mixed.size() - oldest.size() - 1) ==
        bytes({2,      0, 0, 0, /**/ 61, 0, 0, 0, 1, 0, 0, 0, 1,   0, 0, 0, 132, 0, 0, 0, 1, 0, 0, 0,
               /**/ 1, 0, 0, 0, 2,       0, 0, 0, 8, 0, 0, 0, 128, 0, 0, 0, 2,   0, 0, 0}));

  const rank_record rank{{1, 2}, 3, 7, 0};
  CHECK(value_of(rank) == bytes({7, 0, 0, 0, 0, 0, 0, 0}));
  CHECK(decode_rank(key_of(rank), value_of(rank)) == rank);

  auto identity = first_identity();
  identity.epoch = 5;
  identity.next_epoch = 6;
  const auto whole = value_of(identity);
  identity.epoch = identity.next_epoch = 0;
  CHECK(whole.front() == 2);
  CHECK(decode_identity(key_of(identity), bytes({1}) + whole.substr(1, whole.size() - 17)) == identity);
}

TEST_CASE("store records: a stored number of additional layers takes no more memory than the record has bytes",
          "[store]") {
  const auto record = mixed_namespace();
  const auto sound = value_of(record);
  const auto at = value_of(sample_namespace(1)).size() - 5; // before the count and the origin
  for (const std::uint32_t count : {0U, 1U, 3U, 0x7fffffffU, 0xffffffffU}) {
    INFO(count);
    auto value = sound;
    for (unsigned i = 0; i < 4; ++i)
      value[at + i] = static_cast<char>(static_cast<unsigned char>(count >> (8 * i)));
    const auto refused = decode_namespace(key_of(record), value);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == errc::corrupt);
  }
}

TEST_CASE("store records: the bytes of a page match schema 1", "[store]") {
  const page_record page{{0x0102030405060708, 0x090a0b0c0d0e0f10},
                         {0x1112131415161718, 0x191a1b1c1d1e1f20},
                         0x01020304,
                         {0x0a0b0c0d, 0x01},
                         {0x0102, 0x0304}};
  CHECK(schema_version == 1);
  CHECK(key_of(page) == bytes({4,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,
                               13,   14,   15,   16,   0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19,
                               0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 1,    2,    3,    4}));
  CHECK(value_of(page) == bytes({0x0d, 0x0c, 0x0b, 0x0a, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0}));
  auto first = page;
  first.parent = {};
  CHECK(value_of(first) == bytes({0x0d, 0x0c, 0x0b, 0x0a, 1, 0, 0, 0}));
  first.incarnation = 0x0102030405060708;
  CHECK(value_of(first) == bytes({0x0d, 0x0c, 0x0b, 0x0a, 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1}));
  auto second = page;
  second.incarnation = 9;
  CHECK(value_of(second) == bytes({0x0d, 0x0c, 0x0b, 0x0a, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
                                   2,    1,    0,    0,    0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("store records: truncated stored records and trailing bytes are refused", "[store]") {
  // 8 bytes are a page with neither parent nor incarnation, 16 one without a parent.
  check_lengths(page_number(1), decode_page, {8, 16});
  check_lengths(page_record{{1, 2}, {3, 4}, 5, {6, 7}, {0, 1}, 9}, decode_page, {8, 16, 24});
  check_lengths(page_number(0), decode_page);
  check_lengths(rank_record{{1, 2}, 3, 4}, decode_rank);
  check_lengths(rank_record{{1, 2}, 3, 4, 5}, decode_rank, {8});
  check_lengths(sample_namespace(1), decode_namespace);
  check_lengths(mixed_namespace(), decode_namespace);
  check_lengths(first_identity(), decode_identity);
}

TEST_CASE("store records: a stored record of a later version is refused with its version", "[store]") {
  const auto record = sample_namespace(1);
  auto value = value_of(record);
  value[0] = 6;
  const auto refused = decode_namespace(key_of(record), value);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == errc::corrupt);
  CHECK(missing(refused.error().text, {to_string(record.id), "version 6", "versions 1 to 5"}).empty());
  auto identity = value_of(first_identity());
  identity[0] = 3;
  CHECK(missing(decode_identity(key_of(node_identity{}), identity).error().text, {"version 3", "versions 1 to 2"})
            .empty());
  value = value_of(record);
  value[1] = 2; // an unknown mode
  CHECK_FALSE(decode_namespace(key_of(record), value).has_value());
  value = value_of(record);
  value.back() = 4; // an origin that there was not in this version
  CHECK_FALSE(decode_namespace(key_of(record), value).has_value());
  value[0] = 4;
  CHECK(decode_namespace(key_of(record), value)->origin == store::stored_origin::client);
  value.back() = 5; // an unknown one too
  CHECK_FALSE(decode_namespace(key_of(record), value).has_value());
  auto made = record;
  made.origin = store::stored_origin::client;
  CHECK(decode_namespace(key_of(made), value_of(made)) == made);
  // Only namespaces of groups are written in a version that older builds do not read.
  CHECK(value_of(made)[0] == 4);
  made.spec.group_of = "x";
  auto of_group = value_of(made);
  CHECK(of_group[0] == 5);
  of_group.resize(of_group.size() - 5);
  CHECK_FALSE(decode_namespace(key_of(made), of_group).has_value());
  CHECK_FALSE(decode_namespace(key_of(made), of_group + bytes({0, 0, 0, 0})).has_value());
}

TEST_CASE("store records: stored keys are ordered by table, namespace, digest and rank", "[store]") {
  std::vector<std::string> keys{key_of(node_identity{})};
  keys.push_back(key_of(namespace_record{{0, 1}, {}, {}, {}, {}, {}, {}}));
  keys.push_back(key_of(namespace_record{{1, 0}, {}, {}, {}, {}, {}, {}}));
  keys.push_back(key_of(rank_record{{0, 1}, 0, 0}));
  keys.push_back(key_of(rank_record{{0, 1}, 256, 0}));
  keys.push_back(key_of(rank_record{{1, 0}, 0, 0}));
  for (const namespace_id ns : {namespace_id{0, 1}, namespace_id{0x80ULL << 56U, 0}})
    for (const key_digest key : {key_digest{0, 0xff}, key_digest{0, 0x100}, key_digest{1, 0}, key_digest{~0ULL, ~0ULL}})
      for (const rank_number rank : {0U, 1U, 0x80U, 0x100U, ~0U})
        keys.push_back(key_of(page_record{ns, key, rank, {}, {}}));
  for (std::size_t i = 1; i < keys.size(); ++i) {
    INFO(describe_key(keys[i - 1]) << " before " << describe_key(keys[i]));
    CHECK(keys[i - 1] < keys[i]);
  }
  const page_record page{{5, 6}, {7, 8}, 0, {}, {}};
  CHECK(pages_from({5, 6}, 7) < key_of(page));
  CHECK(key_of(page) < pages_from({5, 6}, 8));
  CHECK(first_of(table::pages) < key_of(page));
}

TEST_CASE("store records: stored keys are described in words, and malformed ones in hexadecimal", "[store]") {
  const auto page = page_number(3, 5);
  CHECK(missing(describe_key(key_of(page)), {to_string(page.key), "rank 5", to_string(page.ns)}).empty());
  CHECK(missing(describe_key(key_of(rank_record{{1, 2}, 3, 4})), {"rank 3", to_string(namespace_id{1, 2})}).empty());
  CHECK(describe_key(bytes({4, 0xab})) == "0x04ab");
  CHECK(describe_key({}) == "0x");
  CHECK(describe_key(std::string(10'000, 'x')).size() < 200);
}

TEST_CASE("store records: any bytes in a store are a record or an error", "[store]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::pair<std::string, std::string>> sound{
      {key_of(page_number(1)), value_of(page_number(1))},
      {key_of(rank_record{{1, 2}, 3, 4}), value_of(rank_record{{1, 2}, 3, 4})},
      {key_of(sample_namespace(1)), value_of(sample_namespace(1))},
      {key_of(mixed_namespace()), value_of(mixed_namespace())},
      {key_of(node_identity{}), value_of(first_identity())}};
  const auto spoil = [&](std::string& text) {
    const auto n = random() % 4;
    for (std::uint32_t i = 0; i < n && !text.empty(); ++i)
      text[random() % text.size()] = static_cast<char>(random());
    if (random() % 4 == 0)
      text.resize(random() % 300, static_cast<char>(random()));
  };
  const auto check = [](const auto& decoded, const std::string& key, const std::string& value) {
    if (!decoded) {
      CHECK(decoded.error().code == errc::corrupt);
      return;
    }
    // Decoded records encode to the same bytes again.
    CHECK(key_of(*decoded) == key);
    auto again = *decoded;
    CHECK(value_of(again).size() <= value.size());
  };
  for (int round = 0; round < 20'000; ++round) {
    auto [key, value] = sound[random() % sound.size()];
    spoil(key);
    spoil(value);
    check(decode_page(key, value), key, value);
    check(decode_rank(key, value), key, value);
    check(decode_namespace(key, value), key, value);
    check(decode_identity(key, value), key, value);
    (void)describe_key(key);
  }
}

TEST_CASE("store records: handshake records are read back unchanged", "[store][handshake]") {
  using namespace std::chrono_literals;
  handshake_engine_record engine;
  engine.engine = "prefill-1";
  engine.incarnation = ~std::uint64_t{0};
  engine.sizes = {1, 2, 8};
  engine.compat = "abc";
  engine.ttl = 30s;
  engine.over = 2;
  engine.deadline = decltype(engine.deadline)(1763900000000000000ns);
  std::string key;
  append_handshake_key(key, engine.engine);
  std::string value;
  append_value(value, engine);
  CHECK(is_handshake_engine(key));
  CHECK(decode_handshake_engine(key, value).value() == engine);
  CHECK(describe_key(key) == "handshakes of engine prefill-1");
  CHECK_FALSE(decode_handshake_rank(key, value).has_value());

  // The zeros of a rank are not those that end a name.
  handshake_rank_record rank{"prefill-1", {0, 0, 256}, 7, 1, std::string("\0{}", 3)};
  std::string rank_key;
  append_handshake_key(rank_key, rank.engine, rank.rank);
  std::string rank_value;
  append_value(rank_value, rank);
  CHECK(rank_key.starts_with(key));
  CHECK_FALSE(is_handshake_engine(rank_key));
  CHECK(decode_handshake_rank(rank_key, rank_value).value() == rank);
  CHECK(describe_key(rank_key) == "a rank's handshake of engine prefill-1");
  for (const auto* wrong : {"", "\5", "\5x", "\5xyz"})
    CHECK_FALSE(decode_handshake_engine(wrong, value).has_value());
  CHECK_FALSE(decode_handshake_engine(key, value.substr(0, value.size() - 1)).has_value());
  CHECK_FALSE(decode_handshake_rank(rank_key, rank_value + "x").has_value());
}

TEST_CASE("store records: a batch keeps its changes in order", "[store]") {
  write_batch batch;
  CHECK(batch.empty());
  batch.put(page_number(1));
  batch.put(sample_namespace(1));
  CHECK_FALSE(batch.must_sync());
  batch.erase_page(namespace_number(1), key_number(1), 0);
  CHECK(batch.must_sync());
  batch.put(page_number(1, 0, {8, 2}));
  batch.erase_rank(namespace_number(1), 3);
  batch.erase_namespace(namespace_number(2));
  batch.put(rank_record{namespace_number(1), 3, 99});
  batch.erase_pages(namespace_number(2));
  write_batch more;
  more.erase_ranks(namespace_number(2));
  batch.append(more);
  CHECK(batch.records() == 10);

  std::vector<std::string> seen;
  batch.for_each([&](const write_batch::change& change) {
    using kind = write_batch::change::kind;
    seen.push_back((change.what == kind::put     ? "put "
                    : change.what == kind::erase ? "erase "
                                                 : "erase all ") +
                   describe_key(change.key));
    CHECK((change.what == kind::put) != change.value.empty());
  });
  const auto page =
      "page of key " + to_string(key_number(1)) + " and rank 0 in namespace " + to_string(namespace_number(1));
  const auto rank = "rank 3 of namespace " + to_string(namespace_number(1));
  CHECK(seen == std::vector<std::string>{"put " + page, "put namespace " + to_string(namespace_number(1)),
                                         "erase " + page, "put " + page, "erase " + rank,
                                         "erase namespace " + to_string(namespace_number(2)), "put " + rank,
                                         "erase all pages of namespace " + to_string(namespace_number(2)),
                                         "erase all descriptions of namespace " + to_string(namespace_number(2)),
                                         "erase all ranks of namespace " + to_string(namespace_number(2))});
}

TEST_CASE("store records: secrets of two nodes differ", "[store]") {
  CHECK(first_identity().secret != first_identity().secret);
  CHECK(first_identity().secret != node_identity{}.secret);
}

} // namespace store_records_test
