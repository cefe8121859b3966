#include "tests/catch.hpp"
#include "tests/http_client/metadata_client.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace crash_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr rank_number rank_count = 2;

std::string in_milliseconds(std::chrono::milliseconds t) {
  return std::to_string(t.count()) + " ms";
}

/// A node that is a metadata service, at a port of its own choice.
nlohmann::json service_config(const std::filesystem::path& directory, std::chrono::milliseconds protect) {
  return {{"data_dir", (directory / "data").string()},
          {"actors", {{"socket", "off"}}},
          {"http", {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}}},
          {"hf3fs",
           {{"vllm", true},
            {"protect_locations", in_milliseconds(protect)},
            {"reservation_deadline", in_milliseconds(protect)}}},
          {"registry", {{"shards", 3}, {"durability", "strict"}}},
          {"log_level", "warn"}};
}

std::unique_ptr<metadata_client> client_of(const serving_node& node) {
  const auto ready = nlohmann::json::parse(node.ready_line());
  metadata_client_options options;
  options.url = "http://127.0.0.1:" + std::to_string(ready.at("http").at("port").get<int>());
  options.retries = 0;
  auto made = metadata_client::make(options);
  REQUIRE(made);
  return std::move(*made);
}

/// The knowledge of the engines: their files, and which keys were confirmed on all ranks.
struct engines {
  std::mutex mutex;
  /// Per rank and page: the key whose bytes were written there last.
  std::array<std::vector<std::string>, rank_count> files;
  std::set<std::string> confirmed;
};

/// One engine: writes random keys until the node dies. It writes only within the promised time, counted from before its
/// request: a later write may hit the page of another key, which the node cannot prevent.
void write_until_death(metadata_client& client, engines& known, std::uint32_t seed, std::size_t keys,
                       std::chrono::milliseconds promised) {
  std::mt19937 random(seed);
  for (;;) {
    std::vector<metadata_client::key_and_prefix> wanted;
    std::set<std::string> asked;
    for (int i = 0; i < 6; ++i)
      if (const auto key = "key-" + std::to_string(random() % keys); asked.insert(key).second)
        wanted.push_back({key, {}});
    auto whole = asked;
    for (rank_number rank = 0; rank < rank_count; ++rank) {
      const auto begun = std::chrono::steady_clock::now();
      const auto given = client.allocate_pages_for_keys(rank, wanted);
      if (!given)
        return;
      std::vector<metadata_client::key_and_page> written;
      for (const auto& x : *given) {
        if (!x.page) {
          whole.erase(x.key);
          continue;
        }
        // Under the lock, so that the next owner of the page writes after this.
        const std::lock_guard guard(known.mutex);
        if (std::chrono::steady_clock::now() - begun >= promised) {
          whole.erase(x.key);
          continue;
        }
        known.files[rank].at(*x.page) = x.key;
        written.push_back({x.key, *x.page});
      }
      if (!client.confirm_write_for_keys(rank, written))
        return;
    }
    const std::lock_guard guard(known.mutex);
    known.confirmed.merge(whole);
  }
}

/// Every key that is found has its own bytes, on every rank. Returns the keys that were found.
std::set<std::string> check_locations(metadata_client& client, const engines& known, std::size_t keys) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < keys; ++i)
    all.push_back("key-" + std::to_string(i));
  std::set<std::string> found;
  for (rank_number rank = 0; rank < rank_count; ++rank) {
    const auto pages = client.get_key_locations(rank, all);
    REQUIRE(pages);
    REQUIRE(pages->size() == all.size());
    std::set<slot_number> used;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!(*pages)[i])
        continue;
      INFO("rank " << rank << ", page " << *(*pages)[i]);
      CHECK(known.files[rank].at(*(*pages)[i]) == all[i]);
      CHECK(used.insert(*(*pages)[i]).second);
      found.insert(all[i]);
    }
  }
  return found;
}

struct crash_plan {
  std::size_t rounds = 0;
  std::size_t keys = 0;
  std::uint64_t pages = 0;
  std::chrono::milliseconds protect{};
  /// There is room for all keys, so that every confirmed one must exist.
  bool keeps_all = false;
};

void crash_again_and_again(const crash_plan& plan) {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  scratch_directory directory;
  const auto config = directory / "node.json";
  std::ofstream(config) << service_config(directory.path(), plan.protect);
  engines known;
  for (auto& file : known.files)
    file.resize(plan.pages);
  std::size_t found_in_all = 0;
  for (std::size_t round = 0; round < plan.rounds; ++round) {
    INFO("round " << round);
    serving_node node(config);
    const auto client = client_of(node);
    const auto found = round == 0 ? std::set<std::string>{} : check_locations(*client, known, plan.keys);
    found_in_all += found.size();
    if (plan.keeps_all)
      for (const auto& key : known.confirmed) {
        INFO(key);
        CHECK(found.contains(key));
      }
    for (rank_number rank = 0; rank < rank_count; ++rank)
      REQUIRE(client->initialize(rank, plan.pages));
    std::vector<std::thread> writers;
    for (int i = 0; i < 3; ++i)
      writers.emplace_back([&, writer = static_cast<std::uint32_t>(random())] {
        write_until_death(*client, known, writer, plan.keys, plan.protect);
      });
    // The moment is random; nothing depends on how far the writers have come.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 120));
    node.program().kill();
    for (auto& x : writers)
      x.join();
  }
  CHECK(found_in_all > 0);
}

/// TROUPE_CRASH_ROUNDS asks for more than usual.
std::size_t rounds(std::size_t usual) {
  const auto* wanted = std::getenv("TROUPE_CRASH_ROUNDS");
  return wanted == nullptr ? usual : std::stoul(wanted);
}

} // namespace

TEST_CASE("metadata service: kill -9 at any moment loses no confirmed key", "[crash]") {
  crash_again_and_again({rounds(100), 3000, 4000, std::chrono::minutes(1), true});
}

TEST_CASE("metadata service: kill -9 during eviction leaves no page with the bytes of another key", "[crash]") {
  crash_again_and_again({rounds(100), 600, 100, std::chrono::milliseconds(20), false});
}

} // namespace crash_test
