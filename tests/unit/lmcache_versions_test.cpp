#include "lmcache/incoming.hpp"
#include "lmcache/protocol/versions.hpp"
#include "tests/catch.hpp"
#include "tests/unit/lmcache_messages.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

/// Two versions of LMCache's protocol at once. The messages were recorded with LMCache's own client by
/// tests/engines/lmcache_record.py.

namespace lmcache_versions_test {

using namespace troupe;
using namespace troupe::lmcache;
using nlohmann::json;
using protocol::operation;
using protocol::version;
using protocol::version_set;
using test::packed_json;

namespace {

constexpr std::uint32_t chunk = 4;

struct recorded {
  std::string name;
  std::vector<std::string> frames;
};

std::string from_hex(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

std::vector<recorded> recorded_with(const std::string& release) {
  const auto path =
      std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/fixtures/lmcache" / ("messages-" + release + ".txt");
  std::ifstream file(path);
  std::vector<recorded> out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    auto& x = out.emplace_back();
    words >> x.name;
    for (std::string word; words >> word;)
      x.frames.push_back(from_hex(word));
  }
  REQUIRE(out.size() > 10);
  return out;
}

incoming read(const std::vector<std::string>& frames) {
  std::vector<protocol::byte_view> views;
  for (const auto& x : frames)
    views.push_back(std::as_bytes(std::span(x)));
  auto out = read_message(views, chunk);
  REQUIRE(out);
  return std::move(*out);
}

std::string difference(const std::vector<std::string>& frames) {
  std::vector<protocol::byte_view> views;
  for (const auto& x : frames)
    views.push_back(std::as_bytes(std::span(x)));
  return difference_of(read(frames).why, views);
}

/// The n-th message of this operation.
recorded find(const std::string& release, const std::string& name, std::size_t n = 0) {
  for (auto& x : recorded_with(release))
    if (x.name == name && n-- == 0)
      return x;
  FAIL("nothing is recorded of " << name);
  return {};
}

const std::string before = "0.5.6";
const std::string after = "0.5.7rc2";
const version_set only_before{version::v0_5_6};
const version_set only_after{version::v0_5_7};

} // namespace

TEST_CASE("lmcache versions: messages of either version are parsed, and differences reveal the version", "[lmcache]") {
  for (const auto& release : {before, after}) {
    const auto own = release == before ? version::v0_5_6 : version::v0_5_7;
    for (const auto& x : recorded_with(release)) {
      const auto message = read(x.frames);
      INFO(release << " " << x.name);
      CHECK(protocol::to_string(message.what) == x.name);
      if (message.why == problem::groups)
        continue;
      CHECK(message.why == problem::none);
      CHECK(message.versions.contains(own));
      // The payloads have keys, or another number of payloads.
      const bool tells = x.frames.size() > 2 && x.name != "ping" && x.name.find("session") == std::string::npos &&
                         x.name.find("status") == std::string::npos && x.name.find("unregister") != 0 &&
                         x.name != "clear";
      CHECK(message.versions == (tells ? version_set{own} : version_set::all()));
    }
  }
}

TEST_CASE("lmcache versions: both versions name the same chunks of the same tokens", "[lmcache]") {
  const auto keys = read(find(before, "lookup").frames).chunks.keys;
  REQUIRE(keys.size() == 2);
  CHECK(read(find(after, "lookup").frames).chunks.keys == keys);
  // Pages that are stored already are found by them.
  CHECK(to_string(keys[0]) == "c6348b9e6c4353d076a4d80113b0a950");

  // Tokens of one to four bytes, as one version writes them and the other.
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 64; ++i)
    tokens.push_back(i < 4 ? 0xffffffffU - i : 1U << (i % 32));
  std::vector<std::uint8_t> words;
  for (const auto x : tokens)
    for (const auto shift : {24U, 16U, 8U, 0U})
      words.push_back(static_cast<std::uint8_t>(x >> shift));
  json key{{"model_name", "m"}, {"world_size", 1}, {"worker_id", nullptr},
           {"start", 0},        {"end", 64},       {"request_id", "r"}};
  auto old_key = key;
  old_key["token_ids"] = tokens;
  key["token_bytes"] = json::binary(words);
  const auto old_read = test::read_packed(8, {old_key, 1}, chunk);
  const auto new_read = test::read_packed(8, {key, 1}, chunk);
  REQUIRE(old_read);
  REQUIRE(new_read);
  CHECK(old_read->versions == only_before);
  CHECK(new_read->versions == only_after);
  CHECK(old_read->chunks.keys.size() == 16);
  CHECK(old_read->chunks.keys == new_read->chunks.keys);
}

TEST_CASE("lmcache versions: registrations of either version are of one namespace", "[lmcache]") {
  const auto first = read(find(before, "register_kv_cache_engine_driven_context").frames);
  const auto second = read(find(after, "register_kv_cache_engine_driven_context").frames);
  REQUIRE(first.registration);
  REQUIRE(second.registration);
  CHECK(first.registration->first().ns == second.registration->first().ns);
  CHECK(first.versions == only_before);
  CHECK(second.versions == only_after);
}

TEST_CASE("lmcache versions: fields of the newer version only are parsed", "[lmcache]") {
  const auto negotiated = read(find(after, "negotiate_chunk_size").frames);
  CHECK(negotiated.what == operation::negotiate_chunk_size);
  CHECK(negotiated.alignment == 16);
  CHECK(read({packed_json(1), packed_json("negotiate_chunk_size"), packed_json(0)}).why == problem::payload);
  const auto freed = read(find(after, "free_lookup_locks", 1).frames);
  CHECK(freed.why == problem::none);
  CHECK(freed.chunks.end == 2);
  CHECK(read(find(after, "server_module_affinity_call").frames).what == operation::server_module_affinity_call);
  CHECK(protocol::refusal(operation::server_module_affinity_call) == protocol::refusal(operation::server_module_call));
}

TEST_CASE("lmcache versions: several groups are served where workers copy, and refused by name elsewhere",
          "[lmcache]") {
  const auto registered = read(find(after, "register_kv_cache_engine_driven_context", 1).frames);
  CHECK(registered.why == problem::none);
  REQUIRE(registered.registration);
  const auto& groups = registered.registration->groups;
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].shape.sizes == std::vector<std::uint32_t>{2, 3, 4, 8});
  CHECK(groups[1].window_chunks == 3);
  CHECK(groups[2].recurrent);
  CHECK(groups[2].shape.sizes == std::vector<std::uint32_t>{1, 4, 16});
  CHECK(groups[2].shape.dtype == "float32");
  const auto stored = read(find(after, "prepare_store", 1).frames);
  CHECK(stored.why == problem::none);
  CHECK(stored.skipped == std::vector<std::vector<std::uint32_t>>{{}, {0}});
  // Of such a worker, if the node copied.
  CHECK(read(find(after, "store", 1).frames).why == problem::groups);
  CHECK(difference(find(after, "store", 1).frames).find("several groups") != std::string::npos);

  SECTION("one group that equals the whole registration is ignored") {
    json x{{"instance_id", 1},        {"model_name", "m"}, {"world_size", 1},
           {"block_size", 2},         {"num_layers", 3},   {"hidden_dim_size", 8},
           {"dtype_str", "bfloat16"}, {"use_mla", false},  {"num_physical_slots", 4}};
    const auto plain = test::read_packed(14, {x}, chunk);
    x["group_layouts"] = {
        {{"num_layers", 3}, {"hidden_dim_size", 8}, {"dtype_str", "bfloat16"}, {"tokens_per_block", 2}}};
    const auto same = test::read_packed(14, {x}, chunk);
    REQUIRE(plain->registration);
    REQUIRE(same->registration);
    CHECK(plain->registration->first().ns == same->registration->first().ns);
    for (const auto& [field, value] : {std::pair<const char*, json>("num_layers", 2),
                                       {"window_chunks", 1},
                                       {"recurrent", true},
                                       {"window_tokens", 2},
                                       {"kv_size", 1}}) {
      INFO(field);
      auto other = x;
      other["group_layouts"][0][field] = value;
      CHECK_FALSE(test::read_packed(14, {other}, chunk)->registration);
    }
    x["group_layouts"][0]["kv_size"] = 3;
    CHECK(test::read_packed(14, {x}, chunk)->why == problem::payload);
  }
}

TEST_CASE("lmcache versions: a message of neither version gets an error that states the difference", "[lmcache]") {
  auto message = find(after, "prepare_store").frames;
  message.push_back(packed_json(nullptr));
  CHECK(read(message).why == problem::payload_count);
  CHECK(difference(message).find("2 in 0.5.6, 3 in 0.5.7") != std::string::npos);

  // The message has as many payloads as one version, and a key in the format of the other one.
  message = find(before, "prepare_store").frames;
  message.push_back(packed_json(json::array()));
  CHECK(read(message).why == problem::key);
  CHECK(read(message).versions.empty());

  // Tokens in a way that is to come.
  json key{{"model_name", "m"}, {"world_size", 1},   {"worker_id", nullptr},           {"start", 0},
           {"end", 4},          {"request_id", "r"}, {"token_file", "/dev/shm/tokens"}};
  message = {packed_json(1), packed_json(8), packed_json(key), packed_json(1)};
  CHECK(read(message).why == problem::key);
  const auto text = difference(message);
  for (const char* part : {"token_ids (0.5.6)", "token_bytes (0.5.7)", "'token_file'"})
    CHECK(text.find(part) != std::string::npos);
  key["token_bytes"] = json::binary({1, 2, 3});
  message[2] = packed_json(key);
  CHECK(read(message).why == problem::key);

  // The worker is known, for its pings.
  message = {packed_json(1), packed_json(1), packed_json(77), packed_json(nullptr)};
  CHECK(read(message).why == problem::payload_count);
  CHECK(read(message).instance == 77);
  CHECK_FALSE(read(message).opened);

  message = {packed_json(1), packed_json("store\n2"), packed_json(1)};
  CHECK(read(message).why == problem::operation);
  CHECK(difference(message).find("'store?2'") != std::string::npos);
  CHECK(read({packed_json("number"), packed_json(22), packed_json(nullptr)}).why == problem::envelope);
}

TEST_CASE("lmcache versions: versions have names", "[lmcache]") {
  CHECK(protocol::to_string(version_set::all()) == "0.5.6 or 0.5.7");
  CHECK(protocol::to_string(only_after) == "0.5.7");
  CHECK(protocol::to_string(version_set{}) == "unknown");
  CHECK(protocol::payload_counts(operation::negotiate_chunk_size) == "none in 0.5.6, 1 in 0.5.7");
  CHECK(protocol::versions_of(operation::unknown, 0).empty());
  for (std::size_t i = 1; i < problem_count; ++i)
    CHECK(to_string(static_cast<problem>(i)) != to_string(problem::none));
}

} // namespace lmcache_versions_test
