#include "tests/catch.hpp"
#include "tests/integration/lmcache_engine.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lmcache_events_test {

/// Workers of LMCache that subscribe to the events of their node, as its client's code does.

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

using engine = lmcache_engine;

json publishing_config(const scratch_directory& scratch) {
  auto out = lmcache_config(scratch.path());
  out["events"] = {{"endpoint", "ipc://" + (scratch.path() / "events").string()}, {"heartbeat", "100 ms"}};
  return out;
}

/// Applies batches as `_apply_kv_event_batch` of LMCache's adapter does.
class subscriber {
public:
  subscriber(std::uint16_t port, std::int64_t instance, const std::string& model = "m") : client_(port) {
    number_ = client_.send("subscribe_kv_events", {instance, model, 0, 2});
  }

  bool receive_until(const std::function<bool()>& holds) {
    return eventually([&] {
      while (const auto x = client_.receive(std::chrono::milliseconds(50))) {
        REQUIRE(x->number == number_);
        REQUIRE(x->value);
        apply(*x->value);
        const auto uid = json::to_msgpack(number_);
        client_.send_frames({std::string(uid.begin(), uid.end()), "", "ack"});
      }
      return holds();
    });
  }

  void cancel() {
    const auto uid = json::to_msgpack(number_);
    client_.send_frames({std::string(uid.begin(), uid.end()), "", "cancel"});
  }

  /// Tokens and parents by hash.
  std::map<json, json> known;
  std::size_t batches = 0;
  std::size_t removed = 0;
  bool enabled = true;

private:
  void apply(const json& batch) {
    ++batches;
    enabled = batch.at("enabled");
    if (batch.at("lost").get<bool>())
      known.clear();
    CHECK(batch.at("events").size() <= 2);
    for (const auto& x : batch.at("events")) {
      CHECK(x.at("medium") == "CPU");
      for (const auto& hash : x.at("block_hashes"))
        if (x.at("kind") == "stored") {
          known[hash] = {{"tokens", x.at("token_ids")}, {"parent", x.at("parent_block_hash")}};
        } else {
          known.erase(hash);
          ++removed;
        }
    }
  }

  lmcache_client client_;
  std::uint64_t number_ = 0;
};

} // namespace

TEST_CASE("lmcache events: subscribers know the chunks that LMCache's workers have stored, and those that were removed",
          "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), publishing_config(scratch)));
  const auto port = lmcache_port(node.ready_line());
  engine first(port, 1);
  const auto offered = first.scheduler.call("get_experimental");
  CHECK(offered == json::array({"kv_event_stream"}));
  subscriber early(port, 1);
  CHECK(early.receive_until([&] { return early.batches == 1; }));
  CHECK(early.enabled);
  CHECK(first.store(1, 3));
  CHECK(early.receive_until([&] { return early.known.size() == 3; }));
  // Each chunk names the one before it, and has its own tokens.
  std::set<json> parents;
  for (const auto& [hash, x] : early.known) {
    CHECK(x.at("tokens").size() == lmcache_chunk);
    if (x.at("parent").is_null())
      CHECK(x.at("tokens")[0] == lmcache_key(1, "r", 0, 1).at("token_ids")[0]);
    else
      CHECK(early.known.contains(x.at("parent")));
    CHECK(parents.insert(x.at("parent")).second);
  }
  // Of another engine as well, and not those of other models.
  engine second(port, 2);
  CHECK(second.store(2, 2));
  CHECK(early.receive_until([&] { return early.known.size() == 5; }));
  subscriber of_other(port, 1, "another");
  CHECK(of_other.receive_until([&] { return of_other.batches == 1; }));
  CHECK(of_other.known.empty());
  // A late one gets what is kept.
  subscriber late(port, 2);
  CHECK(late.receive_until([&] { return late.known == early.known; }));
  // One that has cancelled gets nothing more; the others get all removals.
  late.cancel();
  CHECK_FALSE(first.scheduler.call(lmcache_operation::clear, {true}));
  CHECK(early.receive_until([&] { return early.known.empty(); }));
  CHECK(early.removed == 5);
  CHECK(late.known.size() == 5);
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache events: a node without events offers LMCache's clients none", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  engine first(port, 1);
  CHECK(first.scheduler.call("get_experimental") == json::array());
  subscriber none(port, 1);
  CHECK(none.receive_until([&] { return none.batches == 1; }));
  CHECK_FALSE(none.enabled);
  CHECK(node.stop() == 0);
}

} // namespace lmcache_events_test
