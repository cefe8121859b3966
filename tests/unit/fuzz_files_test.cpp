#include "fuzz/config_text.hpp"
#include "fuzz/store_records.hpp"
#include "store/records.hpp"
#include "tests/catch.hpp"
#include "tests/unit/damaged_text.hpp"
#include "tests/unit/store_support.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz_files_test {

// The seeds of the fuzzers, whole and damaged, go through the same checks; a failed check ends the program.

using namespace troupe;
using namespace troupe::store;
using namespace troupe::test;

namespace {

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::filesystem::path{TROUPE_SOURCE_DIR} / "fuzz/corpus" / name}) {
    std::ifstream file{entry.path(), std::ios::binary};
    out.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  return out;
}

template <class Record>
std::string text_of(const std::string& key, const Record& record) {
  std::string value;
  append_value(value, record);
  return fuzz::record_text(key, value);
}

std::vector<std::string> records() {
  std::vector<std::string> out;
  std::string key;
  append_identity_key(key);
  out.push_back(text_of(key, first_identity()));
  auto ns = sample_namespace(3);
  ns.spec.geometry.further = {{61, {1, 1, 132, 1}}, {1, {2, 8, 128, 2}}};
  for (const auto& x : {sample_namespace(1), sample_namespace(2), ns}) {
    key.clear();
    append_namespace_key(key, x.id);
    out.push_back(text_of(key, x));
  }
  rank_record rank;
  rank.ns = namespace_number(1);
  rank.rank = 3;
  rank.slots = 1000;
  key.clear();
  append_rank_key(key, rank.ns, rank.rank);
  out.push_back(text_of(key, rank));
  for (const auto& x : {page_number(0), page_number(1)}) {
    key.clear();
    append_page_key(key, x.ns, x.key, x.rank);
    out.push_back(text_of(key, x));
  }
  return out;
}

} // namespace

TEST_CASE("fuzz files: stored records that were truncated or have one flipped bit are decoded as themselves or refused",
          "[store][fuzz]") {
  for (const auto& whole : records()) {
    CHECK(fuzz::read_store_records(whole) == 1);
    for (std::size_t n = 0; n < whole.size(); ++n)
      CHECK(fuzz::read_store_records(std::string_view(whole).substr(0, n)) <= 1);
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      auto flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      CHECK(fuzz::read_store_records(flipped) <= 1);
    }
  }
}

TEST_CASE("fuzz files: stored records that were damaged at random are decoded as themselves or refused",
          "[store][fuzz]") {
  auto whole = corpus("store_records");
  CHECK(whole.size() >= 6);
  int accepted = 0;
  for (const auto& x : whole)
    accepted += fuzz::read_store_records(x);
  CHECK(accepted >= 6);
  for (const auto& x : records())
    whole.push_back(x);
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const text_damage damage{.ends = &whole};
  for (int i = 0; i < 20'000; ++i) {
    const auto text = damage(whole[random() % whole.size()], random);
    CHECK(fuzz::read_store_records(text) <= 1);
  }
}

TEST_CASE("fuzz files: the stored configs load or report the error, with and without overrides", "[config][fuzz]") {
  const auto texts = corpus("config_text");
  CHECK(texts.size() >= 6);
  int accepted = 0;
  for (const auto& text : texts)
    accepted += fuzz::read_config_text(text);
  CHECK(accepted >= 6);
  for (const auto& text : texts)
    for (std::size_t n = 0; n < text.size(); n += 1 + text.size() / 64)
      CHECK(fuzz::read_config_text(std::string_view(text).substr(0, n)) <= 2);
}

} // namespace fuzz_files_test
