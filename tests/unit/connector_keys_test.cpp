#include "connector/block_keys.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace connector_keys_test {

using namespace troupe;
using namespace troupe::connector;

namespace {

constexpr std::array all_sources{key_source::engine_hashes, key_source::md5_chain, key_source::rolling_chunk_hash};

constexpr namespace_id some_namespace{0x0123456789abcdefULL, 0xfedcba9876543210ULL};

using tokens_of = std::vector<token_id>;
using keys_of = std::vector<key_digest>;

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const auto x : bytes) {
    out.push_back(digits[std::to_integer<std::size_t>(x) >> 4U]);
    out.push_back(digits[std::to_integer<std::size_t>(x) & 15U]);
  }
  return out;
}

tokens_of counted(std::size_t count) {
  tokens_of tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1000U);
  return tokens;
}

/// The hashes that an engine would compute: chained over full blocks, without any input from Troupe.
std::vector<block_hash> engine_hashes_of(std::span<const token_id> tokens, std::uint32_t block_tokens) {
  std::vector<block_hash> hashes;
  block_hash parent{};
  for (std::size_t i = 0; i + block_tokens <= tokens.size(); i += block_tokens) {
    parent = rolling_hash(parent, tokens.subspan(i, block_tokens));
    hashes.push_back(parent);
  }
  return hashes;
}

void add_all(key_chain& chain, const key_chain_options& options, std::span<const token_id> tokens) {
  REQUIRE(chain.add_tokens({0, tokens}));
  REQUIRE(chain.add_hashes({0, engine_hashes_of(tokens, options.block_tokens)}));
}

keys_of keys_at_once(const key_chain_options& options, const key_scope& scope, std::span<const token_id> tokens,
                     std::span<const multimodal_item> items = {}) {
  key_chain chain{options, scope, items};
  add_all(chain, options, tokens);
  return {chain.keys().begin(), chain.keys().end()};
}

/// How many keys are equal before the first that differs; those behind must all differ.
std::size_t shared(const keys_of& a, const keys_of& b) {
  const auto differ = std::ranges::mismatch(a, b);
  const auto count = static_cast<std::size_t>(differ.in1 - a.begin());
  for (auto i = count; i < std::min(a.size(), b.size()); ++i)
    CHECK(a[i] != b[i]);
  return count;
}

} // namespace

TEST_CASE("connector keys: MD5 of blocks matches the HF3FS connector", "[connector]") {
  const auto first = md5_block_hash("", tokens_of{1, 2, 3, 4});
  CHECK(first == "277eea91ca4b473737090281ef7e3fec");
  CHECK(md5_block_hash(first, tokens_of{5, 6, 7, 8}) == "2475cfddf289f6f8197bb30218808f0b");
  tokens_of tokens(16);
  std::iota(tokens.begin(), tokens.end(), 0U);
  CHECK(md5_block_hash("", tokens) == "386b2d9cf5aa91ba3a4b42c35396c822");
  CHECK(md5_block_hash("", tokens_of{0, 4294967295U}) == "9e74d06c24d7a7d5e93ed3be520abc35");
  CHECK(md5_block_hash("", {}) == "e331eb04d60967ef676161ab4fcaa1a9");
}

TEST_CASE("connector keys: the rolling hash is SHA-256 of the parent and of big-endian tokens", "[connector]") {
  CHECK(hex(rolling_hash(block_hash{}, tokens_of{1, 2, 3})) ==
        "db9ea6001d3ab7d3f65542eef1d4f0ea18106524bd4f57b99d368f9b7a86c5cf");
  CHECK(hex(rolling_hash({}, {})) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  tokens_of tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0U);
  const std::array parent{std::byte{'a'}, std::byte{'b'}};
  CHECK(hex(rolling_hash(parent, tokens)) == "b242623b686109f860110d435188835ff069ebc9e3de31ec05fee59066b0d753");
}

TEST_CASE("connector keys: keys never change between versions since caches outlive programs", "[connector]") {
  // Computed by another program from the words of the header.
  const std::vector<std::pair<key_source, std::array<std::string, 2>>> expected{
      {key_source::engine_hashes, {"535203019e05d46c9b4a14c5fd4d8095", "03db19e7e8f6c1b528b3bd520a5c05f7"}},
      {key_source::md5_chain, {"bbb167f40a0428dfb58aa0cdd420eff6", "30be3e6aa867cb7048fe56098ef013bb"}},
      {key_source::rolling_chunk_hash, {"85e5fea56cee6708c8eaea87060dae56", "9c263395b738ffbfe3cbba29bee80f54"}},
  };
  const std::array items{multimodal_item{5, 2, "cat"}};
  std::vector<block_hash> hashes(4);
  for (std::size_t i = 0; i < hashes.size(); ++i)
    hashes[i].fill(static_cast<std::byte>(i + 1));
  for (const auto& [source, keys] : expected) {
    INFO(to_string(source));
    key_chain chain{{source, 2, 2}, {some_namespace, "adapter", "salt", 7}, items};
    REQUIRE(chain.add_tokens({0, tokens_of{1, 2, 3, 4, 5, 6, 7, 8}}));
    REQUIRE(chain.add_hashes({0, hashes}));
    REQUIRE(chain.keys().size() == 2);
    CHECK(to_string(chain.keys()[0]) == keys[0]);
    CHECK(to_string(chain.keys()[1]) == keys[1]);
  }
}

TEST_CASE("connector keys: names of key sources", "[connector]") {
  CHECK(to_string(key_source::engine_hashes) == "engine_hashes");
  CHECK(to_string(key_source::md5_chain) == "md5_chain");
  CHECK(to_string(key_source::rolling_chunk_hash) == "rolling_chunk_hash");
}

TEST_CASE("connector keys: keys do not depend on how tokens arrive", "[connector]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  const auto below = [&random](std::size_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  const std::array items{multimodal_item{40, 3, "dog"}, multimodal_item{7, 1, "cat"}};
  for (int round = 0; round < 1000; ++round) {
    const key_chain_options options{all_sources[below(3)], 1 + below(8), 1 + below(5)};
    tokens_of tokens(below(200));
    std::ranges::generate(tokens, [&random] { return static_cast<token_id>(random()); });
    const auto hashes = engine_hashes_of(tokens, options.block_tokens);
    const key_scope scope{some_namespace};
    const auto expected = keys_at_once(options, scope, tokens, items);
    CHECK(expected.size() == tokens.size() / options.block_tokens / options.blocks_per_page);

    key_chain chain{options, scope, items};
    std::size_t known_hashes = 0;
    while (chain.known_tokens() < tokens.size()) {
      // Some of it again, some of it new.
      const auto first = below(chain.known_tokens() + 1);
      const auto last = first + below(tokens.size() - first + 1);
      const auto known = chain.known_tokens();
      CHECK(chain.add_tokens({first, std::span(tokens).subspan(first, last - first)}));
      CHECK(chain.known_tokens() == std::max<std::size_t>(known, last));
      const auto first_hash = below(known_hashes + 1);
      const auto last_hash = std::max<std::size_t>(first_hash, chain.known_tokens() / options.block_tokens);
      CHECK(chain.add_hashes({first_hash, std::span(hashes).subspan(first_hash, last_hash - first_hash)}));
      known_hashes = std::max(known_hashes, last_hash);
    }
    CHECK(std::ranges::equal(chain.keys(), expected));
  }
}

TEST_CASE("connector keys: another token changes the keys of its page and of all later pages", "[connector]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  std::size_t wrong = 0;
  for (int round = 0; round < 10'000; ++round) {
    const key_chain_options options{all_sources[random() % 3], static_cast<std::uint32_t>(1 + random() % 4),
                                    static_cast<std::uint32_t>(1 + random() % 3)};
    const auto page_tokens = options.block_tokens * options.blocks_per_page;
    tokens_of tokens(page_tokens * (1 + random() % 8));
    // Few different tokens, so that equal blocks occur in many places.
    std::ranges::generate(tokens, [&random] { return static_cast<token_id>(random() % 3); });
    const auto before = keys_at_once(options, {some_namespace}, tokens);
    const auto position = random() % tokens.size();
    tokens[position] += static_cast<token_id>(1 + random() % 1000);
    const auto after = keys_at_once(options, {some_namespace}, tokens);
    REQUIRE(before.size() == after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      wrong += (before[i] == after[i]) != (i < position / page_tokens) ? 1 : 0;
    wrong += std::set(before.begin(), before.end()).size() == before.size() ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("connector keys: every part of the scope changes every key", "[connector]") {
  const auto tokens = counted(40);
  const key_scope base{some_namespace, "ab", "cd", 1};
  const std::vector<key_scope> scopes{
      base,
      {{some_namespace.hi + 1, some_namespace.lo}, "ab", "cd", 1},
      {{some_namespace.hi, some_namespace.lo + 1}, "ab", "cd", 1},
      {{some_namespace.lo, some_namespace.hi}, "ab", "cd", 1},
      {some_namespace, "", "cd", 1},
      {some_namespace, "ab", "", 1},
      {some_namespace, "", "", 1},
      {some_namespace, "ab", "cd", 0},
      {some_namespace, "ab", "cd", std::uint64_t{1} << 32U},
      // These parts would be the same text if they were only concatenated.
      {some_namespace, "a", "bcd", 1},
      {some_namespace, "abc", "d", 1},
      {some_namespace, "abcd", "", 1},
      {some_namespace, "", "abcd", 1},
      {some_namespace, "cd", "ab", 1},
      {some_namespace, "ab\ncache_salt=2:cd", "", 1},
      {some_namespace, std::string_view{"ab\0", 3}, "cd", 1},
  };
  std::set<key_digest> seen;
  std::size_t count = 0;
  for (const auto source : all_sources)
    for (const auto& scope : scopes) {
      const auto keys = keys_at_once({source, 4, 2}, scope, tokens);
      CHECK(keys.size() == 5);
      seen.insert(keys.begin(), keys.end());
      count += keys.size();
    }
  CHECK(seen.size() == count);
  for (const auto& key : seen)
    CHECK_FALSE(key.is_null());
}

TEST_CASE("connector keys: a multimodal item changes keys from the page on in which it begins", "[connector]") {
  const auto tokens = counted(80);
  const key_scope scope{some_namespace};
  for (const auto source : all_sources) {
    INFO(to_string(source));
    const auto keys_with = [&](const std::vector<multimodal_item>& items) {
      return keys_at_once({source, 4, 2}, scope, tokens, items);
    };
    const auto plain = keys_with({});
    REQUIRE(plain.size() == 10);
    for (std::uint32_t position = 0; position < 80; ++position)
      CHECK(shared(plain, keys_with({{position, 20, "cat"}})) == position / 8);
    // Multimodal items after the full pages change nothing.
    CHECK(shared(plain, keys_with({{80, 20, "cat"}})) == 10);

    const auto cat = keys_with({{24, 20, "cat"}});
    CHECK(shared(cat, keys_with({{24, 20, "cat"}})) == 10);
    CHECK(shared(cat, keys_with({{24, 20, "dog"}})) == 3);
    CHECK(shared(cat, keys_with({{25, 20, "cat"}})) == 3);
    CHECK(shared(cat, keys_with({{24, 21, "cat"}})) == 3);
    CHECK(shared(cat, keys_with({{32, 20, "cat"}})) == 3);
    CHECK(shared(cat, keys_with({{24, 20, "cat"}, {24, 20, "cat"}})) == 3);
    CHECK(shared(cat, keys_with({{24, 20, "cat"}, {60, 4, "dog"}})) == 7);
    CHECK(shared(keys_with({{24, 1, "cat"}, {25, 1, "dog"}}), keys_with({{24, 1, "dog"}, {25, 1, "cat"}})) == 3);
    CHECK(shared(keys_with({{24, 1, ""}}), plain) == 3);
    // The order of items does not matter.
    CHECK(shared(keys_with({{60, 4, "dog"}, {24, 20, "cat"}, {3, 1, "cow"}}),
                 keys_with({{3, 1, "cow"}, {24, 20, "cat"}, {60, 4, "dog"}})) == 10);
  }
}

TEST_CASE("connector keys: an item counts when its page becomes full, and its text may be changed before",
          "[connector]") {
  const auto tokens = counted(16);
  const key_chain_options options{key_source::rolling_chunk_hash, 4, 2};
  std::string hash = "cat";
  const std::array items{multimodal_item{9, 2, hash}};
  const auto expected = keys_at_once(options, {some_namespace}, tokens, items);
  key_chain chain{options, {some_namespace}, items};
  hash = "dog";
  CHECK(chain.add_tokens({0, std::span(tokens).first(10)}));
  CHECK(chain.keys().size() == 1);
  CHECK(chain.add_tokens({0, std::span(tokens).first(15)}));
  CHECK(chain.keys().size() == 1);
  CHECK(chain.add_tokens({15, std::span(tokens).subspan(15)}));
  CHECK(std::ranges::equal(chain.keys(), expected));
}

TEST_CASE("connector keys: keys of coarse pages are a subset of the keys of blocks", "[connector]") {
  const auto tokens = counted(100);
  const std::array items{multimodal_item{70, 2, "dog"}, multimodal_item{21, 30, "cat"}, multimodal_item{22, 1, "cow"}};
  for (const auto source : {key_source::engine_hashes, key_source::md5_chain}) {
    INFO(to_string(source));
    const key_scope scope{some_namespace, "lora", "salt", 3};
    const auto blocks = keys_at_once({source, 4, 1}, scope, tokens, items);
    REQUIRE(blocks.size() == 25);
    for (const std::uint32_t coarse : {2U, 3U, 4U, 25U, 26U}) {
      const auto pages = keys_at_once({source, 4, coarse}, scope, tokens, items);
      REQUIRE(pages.size() == 25 / coarse);
      for (std::size_t i = 0; i < pages.size(); ++i)
        CHECK(pages[i] == blocks[(i + 1) * coarse - 1]);
    }
  }
  // The rolling hash differs, since its steps are pages, and its keys must not be mistaken for keys of another size.
  const auto blocks = keys_at_once({key_source::rolling_chunk_hash, 4, 1}, {some_namespace}, tokens);
  const auto pages = keys_at_once({key_source::rolling_chunk_hash, 4, 4}, {some_namespace}, tokens);
  for (const auto& key : pages)
    CHECK(std::ranges::find(blocks, key) == blocks.end());
  CHECK(pages == keys_at_once({key_source::rolling_chunk_hash, 16, 1}, {some_namespace}, tokens));
}

TEST_CASE("connector keys: a gap is refused, and known tokens are skipped", "[connector]") {
  const auto tokens = counted(64);
  for (const auto source : all_sources) {
    INFO(to_string(source));
    const key_chain_options options{source, 4, 2};
    const auto hashes = engine_hashes_of(tokens, 4);
    const auto range = [&](std::uint32_t first, std::size_t count) {
      return token_range{first, std::span(tokens).subspan(first, count)};
    };
    const auto expected = keys_at_once(options, {some_namespace}, tokens);
    key_chain chain{options, {some_namespace}, {}};
    CHECK(chain.add_tokens({}));
    CHECK(chain.add_hashes({}));
    CHECK_FALSE(chain.add_tokens(range(1, 5)));
    CHECK_FALSE(chain.add_tokens(range(1, 0)));
    CHECK(chain.known_tokens() == 0);
    CHECK(chain.add_tokens(range(0, 10)));
    CHECK(chain.add_tokens(range(0, 10)));
    CHECK(chain.add_tokens(range(3, 4)));
    CHECK(chain.add_tokens(range(10, 0)));
    CHECK(chain.known_tokens() == 10);
    CHECK_FALSE(chain.add_tokens(range(11, 4)));
    CHECK(chain.known_tokens() == 10);
    // Known keys stay, even where an engine contradicts itself.
    CHECK(chain.add_tokens({0, tokens_of(10, 5)}));
    CHECK(chain.add_tokens(range(8, 56)));
    CHECK(chain.known_tokens() == 64);

    const auto counts = source == key_source::engine_hashes;
    CHECK(chain.keys().size() == (counts ? 0 : 8));
    CHECK(chain.add_hashes({1, std::span(hashes).subspan(1)}) == !counts);
    CHECK(chain.keys().size() == (counts ? 0 : 8));
    CHECK(chain.add_hashes({0, std::span(hashes).first(5)}));
    CHECK(chain.keys().size() == (counts ? 2 : 8));
    CHECK(chain.add_hashes({0, std::span(hashes).first(5)}));
    CHECK(chain.add_hashes({2, std::span(hashes).subspan(2)}));
    CHECK(std::ranges::equal(chain.keys(), expected));
  }
}

TEST_CASE("connector keys: ranges that end beyond 32 bits are refused", "[connector]") {
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  // Addresses without memory: with the engine's hashes, tokens are counted and not read.
  constexpr auto bytes = std::size_t{most} * sizeof(token_id);
  void* const area = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(area != nullptr);
  REQUIRE(std::bit_cast<std::intptr_t>(area) != -1);
  const std::span all(static_cast<const token_id*>(area), std::size_t{most});
  key_chain chain{{key_source::engine_hashes, 1, 1}, {some_namespace}, {}};
  CHECK(chain.add_tokens({0, all}));
  CHECK(chain.known_tokens() == most);
  CHECK_FALSE(chain.add_tokens({1, all}));
  CHECK_FALSE(chain.add_tokens({most, all.first(1)}));
  CHECK(chain.add_tokens({most, all.first(0)}));
  CHECK(chain.known_tokens() == most);
  ::munmap(area, bytes);
}

TEST_CASE("connector keys: with hashes from the engine, keys are derived from hashes alone", "[connector]") {
  const auto tokens = counted(32);
  const auto hashes = engine_hashes_of(tokens, 4);
  key_chain chain{{key_source::engine_hashes, 4, 2}, {some_namespace}, {}};
  CHECK(chain.add_hashes({0, hashes}));
  CHECK(chain.known_tokens() == 0);
  REQUIRE(chain.keys().size() == 4);
  const keys_of keys{chain.keys().begin(), chain.keys().end()};
  CHECK(chain.add_tokens({0, tokens}));
  CHECK(std::ranges::equal(chain.keys(), keys));
}

TEST_CASE("connector keys: a page size of zero counts as one token", "[connector]") {
  const auto tokens = counted(5);
  const auto hashes = engine_hashes_of(tokens, 1);
  for (const auto source : all_sources) {
    key_chain none{{source, 0, 0}, {some_namespace}, {}};
    CHECK(none.add_tokens({0, tokens}));
    CHECK(none.add_hashes({0, hashes}));
    CHECK(std::ranges::equal(none.keys(), keys_at_once({source, 1, 1}, {some_namespace}, tokens)));

    constexpr auto most = std::numeric_limits<std::uint32_t>::max();
    key_chain huge{{source, most, most}, {some_namespace}, {}};
    CHECK(huge.add_tokens({0, tokens}));
    CHECK(huge.add_hashes({0, hashes}));
    CHECK(huge.keys().empty());
  }
}

TEST_CASE("connector keys: a moved chain continues", "[connector]") {
  const auto tokens = counted(24);
  const key_chain_options options{key_source::md5_chain, 4, 1};
  const auto expected = keys_at_once(options, {some_namespace}, tokens);
  key_chain chain{options, {some_namespace}, {}};
  CHECK(chain.add_tokens({0, std::span(tokens).first(10)}));
  key_chain other{std::move(chain)};
  CHECK(other.known_tokens() == 10);
  chain = std::move(other);
  CHECK(chain.add_tokens({10, std::span(tokens).subspan(10)}));
  CHECK(std::ranges::equal(chain.keys(), expected));
}

} // namespace connector_keys_test
