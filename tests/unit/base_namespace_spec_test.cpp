#include "base/namespace_spec.hpp"
#include "tests/catch.hpp"

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace base_namespace_spec_test {

using namespace troupe;

namespace {

namespace_spec llama() {
  namespace_spec spec;
  spec.name = "llama";
  spec.model = "meta-llama/Llama-3.1-8B";
  spec.revision = "main";
  spec.dtype = "bfloat16";
  spec.world_size = 2;
  spec.geometry = {.layers = 32, .parts = 2, .heads = 4, .head_size = 128, .element_bytes = 2, .block_tokens = 16};
  return spec;
}

// Equal in everything but the name, which is for people.
bool same_identity(namespace_spec a, namespace_spec b) {
  a.name.clear();
  b.name.clear();
  return a == b;
}

// Short strings of exactly the characters that the text uses to separate things.
std::string nasty_string(std::mt19937& random) {
  constexpr std::string_view alphabet = "a1:=\n";
  std::string out(random() % 4, '\0');
  for (auto& c : out)
    c = alphabet[random() % alphabet.size()];
  return out;
}

} // namespace

TEST_CASE("namespace spec: a page has the bytes of its geometry", "[base][namespace_spec]") {
  const auto geometry = llama().geometry;
  CHECK(geometry.first_shape().content_bytes() == 128 * 2);
  CHECK(geometry.first_shape().token_bytes() == 4 * 128 * 2 * 2);
  CHECK(geometry.page_bytes() == std::uint64_t{4} * 128 * 2 * 16 * 2 * 32);
}

TEST_CASE("namespace spec: the bytes of a page do not overflow 32 bits", "[base][namespace_spec]") {
  const kv_geometry huge{
      .layers = 128, .parts = 2, .heads = 128, .head_size = 256, .element_bytes = 4, .block_tokens = 256};
  CHECK(huge.first_shape().token_bytes() == 262'144);
  CHECK(huge.page_bytes() == 8'589'934'592ULL);
  const kv_geometry wide{
      .layers = 1, .parts = 1, .heads = 65'536, .head_size = 65'536, .element_bytes = 1, .block_tokens = 1};
  CHECK(wide.page_bytes() == 4'294'967'296ULL);
}

TEST_CASE("namespace spec: the identity is the same in every version", "[base][namespace_spec]") {
  CHECK(llama().identity_text() == "troupe namespace 1\n"
                                   "model=23:meta-llama/Llama-3.1-8B\n"
                                   "revision=4:main\n"
                                   "dtype=8:bfloat16\n"
                                   "layout=21:layer-part-head-token\n"
                                   "salt=0:\n"
                                   "world_size=1:2\n"
                                   "layers=2:32\n"
                                   "parts=1:2\n"
                                   "heads=1:4\n"
                                   "head_size=3:128\n"
                                   "element_bytes=1:2\n"
                                   "block_tokens=2:16\n");
  CHECK(llama().id() == hash_namespace(llama().identity_text()));
  CHECK(to_string(llama().id()) == "12d96a2ca583a5f8b3bd21ec50ea3d42");
}

TEST_CASE("namespace spec: every field that changes pages changes the identity", "[base][namespace_spec]") {
  const std::vector<std::pair<std::string, std::function<void(namespace_spec&)>>> changes{
      {"model", [](namespace_spec& x) { x.model += "-Instruct"; }},
      {"revision", [](namespace_spec& x) { x.revision = "v2"; }},
      {"dtype", [](namespace_spec& x) { x.dtype = "float16"; }},
      {"layout", [](namespace_spec& x) { x.layout = "token-layer-part-head"; }},
      {"salt", [](namespace_spec& x) { x.salt = "tenant-7"; }},
      {"group_of", [](namespace_spec& x) { x.group_of = "a digest"; }},
      {"world_size", [](namespace_spec& x) { x.world_size = 4; }},
      {"layers", [](namespace_spec& x) { x.geometry.layers = 33; }},
      {"parts", [](namespace_spec& x) { x.geometry.parts = 1; }},
      {"heads", [](namespace_spec& x) { x.geometry.heads = 8; }},
      {"head_size", [](namespace_spec& x) { x.geometry.head_size = 64; }},
      {"element_bytes", [](namespace_spec& x) { x.geometry.element_bytes = 1; }},
      {"block_tokens", [](namespace_spec& x) { x.geometry.block_tokens = 32; }},
      {"further",
       [](namespace_spec& x) {
         x.geometry.further = {{1, {2, 4, 128, 2}}};
       }},
  };
  for (const auto& [what, change] : changes) {
    INFO(what);
    auto changed = llama();
    change(changed);
    CHECK(changed.id() != llama().id());
  }
}

TEST_CASE("namespace spec: every field of additional layers changes the identity", "[base][namespace_spec]") {
  const auto with = [](std::vector<kv_layer_group> further) {
    auto spec = llama();
    spec.geometry.further = std::move(further);
    return spec.identity_text();
  };
  const kv_layer_group group{3, {1, 2, 64, 2}};
  CHECK(with({group}) == llama().identity_text() + "further_layers=1:3\nparts=1:1\nheads=1:2\nhead_size=2:64\n"
                                                   "element_bytes=1:2\n");
  const std::vector<std::vector<kv_layer_group>> all{{},
                                                     {group},
                                                     {group, group},
                                                     {{4, {1, 2, 64, 2}}},
                                                     {{3, {2, 2, 64, 2}}},
                                                     {{3, {1, 4, 64, 2}}},
                                                     {{3, {1, 2, 32, 2}}},
                                                     {{3, {1, 2, 64, 1}}},
                                                     {{3, {1, 2, 64, 1}}, group},
                                                     {group, {3, {1, 2, 64, 1}}}};
  for (const auto& a : all)
    for (const auto& b : all)
      CHECK((with(a) == with(b)) == (a == b));
}

TEST_CASE("namespace spec: the sizes of layers of several shapes add up, in order", "[base][namespace_spec]") {
  kv_geometry geometry{2, 2, 4, 16, 2, 8};
  geometry.further = {{3, {1, 1, 132, 1}}, {1, {2, 2, 16, 4}}};
  CHECK(geometry.layer_count() == 6);
  const kv_layer_shape indexer{1, 1, 132, 1};
  CHECK(geometry.shapes() ==
        std::vector<kv_layer_shape>{{2, 4, 16, 2}, {2, 4, 16, 2}, indexer, indexer, indexer, {2, 2, 16, 4}});
  CHECK(geometry.page_bytes() == 8 * (2 * 2 * 4 * 16 * 2 + 3 * 132 + 2 * 2 * 16 * 4));
}

TEST_CASE("namespace spec: the name of a namespace is not part of its identity", "[base][namespace_spec]") {
  auto renamed = llama();
  renamed.name = "something else";
  CHECK(renamed.id() == llama().id());
}

TEST_CASE("namespace spec: geometries of the same page size are different namespaces", "[base][namespace_spec]") {
  auto swapped = llama();
  std::swap(swapped.geometry.heads, swapped.geometry.parts);
  REQUIRE(swapped.geometry.page_bytes() == llama().geometry.page_bytes());
  CHECK(swapped.id() != llama().id());
}

TEST_CASE("namespace spec: no field value can be mistaken for another field", "[base][namespace_spec]") {
  auto one = llama();
  auto other = llama();
  SECTION("characters move from one field to the next") {
    one.model = "ab";
    one.revision = "c";
    other.model = "a";
    other.revision = "bc";
  }
  SECTION("a field holds the text of the field after it") {
    one.model = "m\nrevision=1:r";
    one.revision = "";
    other.model = "m";
    other.revision = "r";
  }
  SECTION("a field ends with text that looks like a field end") {
    one.model = "m\n";
    other.model = "m";
  }
  SECTION("empty and absent fields") {
    one.salt = "0:";
    other.salt = "";
  }
  CHECK(one.identity_text() != other.identity_text());
  CHECK(one.id() != other.id());
}

TEST_CASE("namespace spec: identity texts are equal exactly when identities are", "[base][namespace_spec]") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto draw = [&random] {
    namespace_spec spec;
    spec.model = nasty_string(random);
    spec.revision = nasty_string(random);
    spec.dtype = nasty_string(random);
    spec.salt = nasty_string(random);
    spec.world_size = random() % 2 + 1;
    spec.geometry.heads = random() % 2 + 1;
    return spec;
  };
  std::vector<std::pair<namespace_spec, std::string>> specs;
  for (int i = 0; i < 300; ++i) {
    auto one = draw();
    auto text = one.identity_text();
    specs.emplace_back(std::move(one), std::move(text));
  }
  for (const auto& [a, text_a] : specs)
    for (const auto& [b, text_b] : specs)
      if ((text_a == text_b) != same_identity(a, b))
        FAIL("texts and identities disagree:\n" << text_a << "and\n" << text_b);
}

} // namespace base_namespace_spec_test
