#include "fuzz/slot_bodies.hpp"
#include "http/hf3fs/hf3fs_body.hpp"
#include "http/server/request.hpp"
#include "http/sglang/sglang_body.hpp"
#include "http/slots/client_keys.hpp"
#include "tests/catch.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace http_slot_body_test {

namespace {

using namespace troupe;
using namespace troupe::http;

std::vector<std::string> corpus() {
  std::vector<std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator{std::filesystem::path{TROUPE_SOURCE_DIR} / "fuzz/corpus/slot_bodies"}) {
    std::ifstream file{entry.path(), std::ios::binary};
    out.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  return out;
}

slots::client_keys::secret secret_of(unsigned char first) {
  slots::client_keys::secret out{};
  out[0] = std::byte{first};
  return out;
}

/// A body with the padding that the parser needs.
class padded {
public:
  explicit padded(std::string text) : size_(text.size()), text_(std::move(text)) { text_.append(body_padding, '\0'); }
  operator std::string_view() const { return std::string_view{text_}.substr(0, size_); } // NOLINT

private:
  std::size_t size_;
  std::string text_;
};

const slots::client_keys some_keys{secret_of(1)};
const slots::body_rules some_rules{100, some_keys};

} // namespace

TEST_CASE("http slot body: the stored request bodies of slot clients are parsed or refused", "[http][slots]") {
  int accepted = 0;
  const auto bodies = corpus();
  CHECK(bodies.size() >= 20);
  for (const auto& body : bodies)
    accepted += fuzz::read_slot_bodies(body);
  CHECK(accepted >= 20);
}

TEST_CASE("http slot body: damaged request bodies of slot clients are parsed or refused", "[http][slots]") {
  const auto seed = GENERATE(41U, 42U, 43U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const auto bodies = corpus();
  for (int i = 0; i < 20'000; ++i) {
    auto body = bodies[random() % bodies.size()];
    for (auto n = 1 + random() % 3; n > 0 && !body.empty(); --n) {
      const auto at = random() % body.size();
      switch (random() % 4) {
      case 0:
        body[at] = static_cast<char>(random() % 256);
        break;
      case 1:
        body.erase(at, 1 + random() % 8);
        break;
      case 2:
        body.insert(at, 1, "\"[]{},:0-\\"[random() % 10]);
        break;
      default:
        body.resize(at);
      }
    }
    fuzz::read_slot_bodies(body);
  }
}

TEST_CASE("http slot body: digests of client keys depend on every byte and on the secret", "[http][slots]") {
  const slots::client_keys keys{secret_of(7)};
  const slots::client_keys same{secret_of(7)};
  const slots::client_keys other{secret_of(8)};
  std::set<key_digest> seen;
  std::size_t count = 0;
  // Around the lengths at which XXH3 changes its way.
  for (const std::size_t length : {0U, 1U, 3U, 4U, 8U, 9U, 16U, 17U, 32U, 128U, 129U, 240U, 241U, 1000U}) {
    std::string text(length, 'a');
    CHECK(keys.digest(text) == same.digest(text));
    CHECK(keys.digest(text) != other.digest(text));
    CHECK_FALSE(keys.digest(text).is_null());
    seen.insert(keys.digest(text));
    ++count;
    for (std::size_t at = 0; at < length; ++at, ++count) {
      auto changed = text;
      changed[at] = 'b';
      seen.insert(keys.digest(changed));
    }
  }
  CHECK(seen.size() == count);
}

TEST_CASE("http slot body: the secret of client keys may be any bytes", "[http][slots]") {
  // Also one without any randomness keeps different keys apart.
  const slots::client_keys keys{slots::client_keys::secret{}};
  std::set<key_digest> seen;
  for (int i = 0; i < 10'000; ++i)
    seen.insert(keys.digest("key-" + std::to_string(i)));
  CHECK(seen.size() == 10'000);
}

TEST_CASE("http slot body: keys of an allocation are kept once, in order", "[http][slots]") {
  const padded body{R"({"rank":3,"keys":[["b",""],["a","b"],["b",""],["\u0061",null],["c",""]]})"};
  const auto x = hf3fs::read_allocate(body, some_rules);
  REQUIRE(x);
  CHECK(x->rank == 3);
  CHECK(x->wanted.keys == std::vector{some_keys.digest("b"), some_keys.digest("a"), some_keys.digest("c")});
  CHECK(x->wanted.places == std::vector<std::uint32_t>{0, 1, 0, 1, 2});
  CHECK(x->wanted.parents == std::vector{key_digest{}, some_keys.digest("b"), key_digest{}});
  CHECK(x->wanted.text == R"("b""a""c")");
  CHECK(x->wanted.text_ends == std::vector<std::size_t>{3, 6, 9});
}

TEST_CASE("http slot body: the parent of a key is known if any pair names it, and the first pair decides",
          "[http][slots]") {
  const auto parents = [](const char* keys) {
    return sglang::read_reserve(padded{std::string{R"({"keys":)"} + keys + "}"}, some_rules)->wanted.parents;
  };
  const auto a = some_keys.digest("a");
  CHECK(parents("[]").empty());
  CHECK(parents(R"([["a",""],["b",null],["b","a"]])").empty());
  CHECK(parents(R"([["x","a"],["b",""],["b","x"]])") == std::vector{a, key_digest{}});
  CHECK(parents(R"([["x",""],["b","a"],["x","b"],["c",""]])") == std::vector{key_digest{}, a, key_digest{}});
  CHECK_FALSE(sglang::read_reserve(padded{R"({"keys":[["a",1]]})"}, some_rules));
}

TEST_CASE("http slot body: impossible pages are counted and skipped", "[http][slots]") {
  const padded body{R"({"rank":0,"confirmations":[["a",7],["b",-1],["c",4294967295],["d",4294967294]],
                        "pages_to_release":[-9223372036854775808,18446744073709551615,0]})"};
  const auto x = hf3fs::read_confirm(body, some_rules);
  REQUIRE(x);
  CHECK(x->pages.written ==
        std::vector<page_ref>{{some_keys.digest("a"), {7, 0}}, {some_keys.digest("d"), {4294967294, 0}}});
  CHECK(x->pages.released == std::vector<slot_number>{0});
  CHECK(x->pages.impossible == 4);
}

TEST_CASE("http slot body: a rank in a path is a plain number", "[http][slots]") {
  CHECK(slots::rank_from_text("0").value() == 0);
  CHECK(slots::rank_from_text("10").value() == 10);
  CHECK(slots::rank_from_text("4294967294").value() == 4294967294);
  for (const auto* text : {"", "-1", "+1", "00", "01", "1.0", " 1", "1 ", "x", "4294967295", "18446744073709551616"})
    CHECK(slots::rank_from_text(text).error().code == status::unprocessable_content);
}

TEST_CASE("http slot body: the SGLang namespace is kv unless the body names another", "[http][slots]") {
  CHECK(sglang::read_clear(padded{""}).value().ns == "kv");
  CHECK(sglang::read_clear(padded{"{}"}).value().ns == "kv");
  CHECK(sglang::read_clear(padded{R"({"namespace":null})"}).value().ns == "kv");
  CHECK(sglang::read_clear(padded{R"({"namespace":"mamba"})"}).value().ns == "mamba");
  CHECK_FALSE(sglang::read_clear(padded{R"({"namespace":""})"}));
  CHECK_FALSE(sglang::read_clear(padded{R"({"namespace":")" + std::string(65, 'a') + R"("})"}));
}

} // namespace http_slot_body_test
