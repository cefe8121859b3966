// The inputs that fuzzers found worth keeping, with any compiler.

#include "fuzz/encoded_pages.hpp"
#include "fuzz/handshakes.hpp"
#include "fuzz/lmcache_messages.hpp"
#include "fuzz/native_bodies.hpp"
#include "fuzz/requests.hpp"
#include "fuzz/tokens.hpp"
#include "tests/catch.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

namespace fuzz_corpus_test {

using namespace troupe;

namespace {

std::map<std::string, std::string> corpus_of(const std::string& name) {
  std::map<std::string, std::string> out;
  for (const auto& x :
       std::filesystem::directory_iterator{std::filesystem::path{TROUPE_SOURCE_DIR} / "fuzz/corpus" / name}) {
    std::ostringstream text;
    text << std::ifstream{x.path(), std::ios::binary}.rdbuf();
    out[x.path().filename().string()] = text.str();
  }
  REQUIRE_FALSE(out.empty());
  return out;
}

/// Tries each text unchanged, and with bytes changed, left out and repeated.
template <class Read>
void try_all(const std::string& name, Read read) {
  const auto seed = GENERATE(1U, 2U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  for (const auto& [file, text] : corpus_of(name)) {
    INFO(file);
    read(text);
    for (int i = 0; i < 50 && !text.empty(); ++i) {
      auto changed = text;
      for (auto n = random() % 4 + 1; n > 0 && !changed.empty(); --n) {
        const auto at = random() % changed.size();
        if (random() % 3 == 0)
          changed.erase(at, random() % 8);
        else if (random() % 2 == 0)
          changed.insert(at, changed.substr(random() % changed.size(), random() % 16));
        else
          changed[at] = static_cast<char>(random());
      }
      read(changed);
    }
  }
}

} // namespace

TEST_CASE("fuzz corpus: the corpus of requests is parsed as before", "[http][fuzz]") {
  const std::map<std::string, int> complete{
      {"two", 2},        {"chunks", 1},       {"absolute", 1}, {"too-large", 0},   {"smuggling", 0},
      {"two-hosts", 0},  {"folded", 0},       {"garbage", 0},  {"long-header", 0}, {"long-line", 0},
      {"large-body", 1}, {"small-chunks", 1}, {"no-chunks", 1}};
  for (const auto& [file, text] : corpus_of("requests")) {
    INFO(file);
    if (const auto known = complete.find(file); known != complete.end())
      CHECK(fuzz::read_requests(text) == known->second);
  }
}

TEST_CASE("fuzz corpus: damaged requests are parsed the same in any pieces", "[http][fuzz]") {
  try_all("requests", [](const std::string& text) { fuzz::read_requests(text.substr(0, 4096)); });
}

TEST_CASE("fuzz corpus: the corpus of native API bodies is parsed as before", "[http][fuzz]") {
  const auto corpus = corpus_of("native_bodies");
  for (const auto* accepted : {"create", "create-automatic", "rank", "reserve", "match", "match-long", "commit",
                               "abort", "abort-all", "lease"}) {
    INFO(accepted);
    CHECK(fuzz::read_native_bodies(corpus.at(accepted)) > 1);
  }
  // An id is a key as well, and any text is one; nothing is a body that may be left out.
  CHECK(fuzz::read_native_bodies(corpus.at("deep")) == 1);
  CHECK(fuzz::read_native_bodies(corpus.at("empty")) == 1);
}

TEST_CASE("fuzz corpus: damaged native API bodies are refused or valid", "[http][fuzz]") {
  try_all("native_bodies", [](const std::string& text) { fuzz::read_native_bodies(text); });
}

TEST_CASE("fuzz corpus: the corpus of tokens files is parsed as before", "[http][fuzz]") {
  for (const auto& [file, text] : corpus_of("tokens")) {
    INFO(file);
    CHECK(fuzz::read_tokens(text) == (file == "roles" || file == "named" ? 1 : 0));
  }
}

TEST_CASE("fuzz corpus: damaged tokens files are refused or valid", "[http][fuzz]") {
  try_all("tokens", [](const std::string& text) { fuzz::read_tokens(text); });
}

TEST_CASE("fuzz corpus: the corpus of LMCache messages is parsed as before", "[lmcache][fuzz]") {
  for (const auto& [file, text] : corpus_of("lmcache_messages")) {
    INFO(file);
    CHECK(fuzz::read_lmcache_message(text));
  }
  try_all("lmcache_messages", [](const std::string& x) { fuzz::read_lmcache_message(x); });
}

TEST_CASE("fuzz corpus: the corpus of handshake directory requests is parsed as before", "[http][handshake][fuzz]") {
  const std::map<std::string, int> accepted{
      {"publish-and-fetch", 7}, {"json", 3},    {"all-ranks", 6}, {"incarnations", 6}, {"draft", 5},
      {"waiting", 10},          {"numbers", 1}, {"names", 4},     {"tags", 3},         {"full", 5},
      {"no-such-path", 0}};
  const auto corpus = corpus_of("handshakes");
  for (const auto& [file, count] : accepted) {
    INFO(file);
    CHECK(fuzz::read_handshakes(corpus.at(file)) == count);
  }
}

TEST_CASE("fuzz corpus: damaged handshake directory requests are refused or valid", "[http][handshake][fuzz]") {
  try_all("handshakes", [](const std::string& text) { fuzz::read_handshakes(text); });
}

TEST_CASE("fuzz corpus: the corpus of encoded pages is decoded as before", "[codec][fuzz]") {
  const auto corpus = corpus_of("encoded_pages");
  for (const auto* accepted :
       {"normal", "escapes", "zeroes", "tail", "payload", "payload-zeroes", "payload-small-and-large"}) {
    INFO(accepted);
    CHECK(fuzz::read_encoded_page(corpus.at(accepted)) > 0);
  }
  for (const auto* refused : {"empty", "short", "cut", "other-escapes", "version", "payload-random"}) {
    INFO(refused);
    CHECK(fuzz::read_encoded_page(corpus.at(refused)) == 0);
  }
  try_all("encoded_pages", fuzz::read_encoded_page);
}

} // namespace fuzz_corpus_test
