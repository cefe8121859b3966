#include "base/digest.hpp"
#include "tests/catch.hpp"

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace base_digest_test {

using namespace troupe;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

key_digest chain_of(const std::vector<std::string>& blocks) {
  key_digest key;
  for (const auto& block : blocks)
    key = chain_key(key, bytes_of(block));
  return key;
}

// The keys of a client that numbers its blocks instead of hashing them.
std::vector<key_digest> numbered_keys(std::uint64_t count, unsigned shift) {
  std::vector<key_digest> keys;
  keys.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i)
    keys.push_back({i << shift, 0});
  return keys;
}

// Pearson's statistic of `counts` against the uniform distribution, divided by its degrees of freedom: near 1 when the
// counts are what chance gives.
double chi_square_per_degree(const std::vector<std::uint64_t>& counts, std::uint64_t total) {
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double sum = 0;
  for (const auto count : counts) {
    const double off = static_cast<double>(count) - expected;
    sum += off * off / expected;
  }
  return sum / static_cast<double>(counts.size() - 1);
}

struct field_collector {
  using result_type = void;
  std::vector<std::uint64_t*> fields;

  template <class... Ts>
  void operator()(Ts&... xs) {
    (fields.push_back(&xs), ...);
  }
};

} // namespace

static_assert(!std::is_convertible_v<key_digest, namespace_id>, "digests of different things must not mix");
static_assert(std::is_trivially_copyable_v<key_digest> && sizeof(key_digest) == 16);

TEST_CASE("digest: a digest prints as 32 hexadecimal digits, high half first", "[base][digest]") {
  CHECK(to_string(key_digest{}) == "00000000000000000000000000000000");
  CHECK(to_string(key_digest{0x0123456789abcdefULL, 0xfedcba9876543210ULL}) == "0123456789abcdeffedcba9876543210");
  CHECK(to_string(key_digest{0, 1}) == "00000000000000000000000000000001");
  CHECK(to_string(key_digest{~0ULL, 0}) == "ffffffffffffffff0000000000000000");
}

TEST_CASE("digest: only the all-zero digest is null", "[base][digest]") {
  CHECK(key_digest{}.is_null());
  CHECK_FALSE(key_digest{0, 1}.is_null());
  CHECK_FALSE(key_digest{1, 0}.is_null());
  CHECK_FALSE(hash_key({}).is_null());
}

TEST_CASE("digest: digests order by the high half first", "[base][digest]") {
  CHECK(key_digest{0, 5} < key_digest{1, 0});
  CHECK(key_digest{1, 0} < key_digest{1, 1});
  CHECK(key_digest{1, 1} == key_digest{1, 1});
}

TEST_CASE("digest: digests are the same on every machine and in every version", "[base][digest]") {
  // The first is the test vector of the XXH3 specification. The others fix what earlier versions computed: pages on
  // disk and keys on other nodes are found by them.
  CHECK(to_string(hash_key({})) == "99aa06d3014798d86001c324468d497f");
  CHECK(to_string(chain_key({}, bytes_of("block"))) == "fe0f3fd7594e8c567ab61ef6e73e40a9");
  CHECK(to_string(chain_key({1, 2}, bytes_of("block"))) == "54a3e2c099396b72eebcafec09e01f86");
  CHECK(to_string(hash_namespace("troupe")) == "60711e366ac1e24aaf8ed1f32a535c13");
}

TEST_CASE("digest: a namespace digest differs from the key digest of the same bytes", "[base][digest]") {
  for (const std::string text : {"", "a", "troupe namespace 1\n"}) {
    const auto key = hash_key(bytes_of(text));
    const auto ns = hash_namespace(text);
    CHECK((key.hi != ns.hi || key.lo != ns.lo));
  }
}

TEST_CASE("digest: a key depends on every block before it, and on their order", "[base][digest]") {
  const auto key = chain_of({"a", "b", "c"});
  CHECK(key == chain_of({"a", "b", "c"}));
  CHECK(key != chain_of({"x", "b", "c"}));
  CHECK(key != chain_of({"b", "a", "c"}));
  CHECK(key != chain_of({"b", "c"}));
  CHECK(key != chain_of({"c"}));
  CHECK(key != chain_of({"a", "bc"}));
  CHECK(key != chain_of({"abc"}));
  CHECK(chain_of({""}) != chain_of({}));
  CHECK(chain_of({"", ""}) != chain_of({""}));
}

TEST_CASE("digest: a chained key is not the digest of its content", "[base][digest]") {
  CHECK(chain_key({}, bytes_of("block")) != hash_key(bytes_of("block")));
}

TEST_CASE("digest: chains that share no prefix share no key", "[base][digest]") {
  std::unordered_set<key_digest> seen;
  for (std::uint32_t sequence = 0; sequence < 500; ++sequence) {
    key_digest key;
    for (std::uint32_t block = 0; block < 100; ++block) {
      const std::array<std::uint32_t, 2> content{block == 0 ? sequence : 0, block};
      key = chain_key(key, std::as_bytes(std::span(content)));
      REQUIRE(seen.insert(key).second);
    }
  }
  CHECK(seen.size() == 50'000);
}

TEST_CASE("digest: every key has a shard, and one shard owns everything", "[base][digest]") {
  for (const std::uint32_t shards : {1U, 2U, 3U, 7U, 64U, 1'000U}) {
    for (const auto& key : numbered_keys(1'000, 0))
      REQUIRE(shard_of(key, shards) < shards);
  }
  CHECK(shard_of({~0ULL, ~0ULL}, 1) == 0);
}

TEST_CASE("digest: numbered keys spread evenly over shards and over the buckets inside of one", "[base][digest]") {
  // A client may number its keys in the high half, the low half, or in the upper bits of the high half.
  const auto shift = GENERATE(0U, 20U, 44U);
  INFO("numbers shifted by " << shift);
  const std::uint64_t total = 64'000;
  auto keys = numbered_keys(total, shift);
  if (shift == 20) {
    for (auto& key : keys)
      std::swap(key.hi, key.lo);
  }

  const std::uint32_t shards = 8;
  const std::size_t buckets = 1'024;
  std::vector<std::uint64_t> by_shard(shards);
  std::vector<std::uint64_t> by_bucket(buckets);
  std::uint64_t in_first_shard = 0;
  for (const auto& key : keys) {
    const auto shard = shard_of(key, shards);
    ++by_shard[shard];
    if (shard == 0) {
      ++in_first_shard;
      ++by_bucket[std::hash<key_digest>{}(key) % buckets];
    }
  }
  CHECK(chi_square_per_degree(by_shard, total) < 4);
  CHECK(chi_square_per_degree(by_bucket, in_first_shard) < 1.5);
}

TEST_CASE("digest: a digest travels with both of its halves", "[base][digest]") {
  key_digest key{1, 2};
  field_collector collector;
  inspect(collector, key);
  CHECK(collector.fields == std::vector<std::uint64_t*>{&key.hi, &key.lo});
}

} // namespace base_digest_test
