// `troupe explain` against a node as its users run it.

#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <optional>
#include <string>
#include <utility>

namespace explain_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// A node with HTTP, and the command that asks it.
class asked_node {
public:
  explicit asked_node(const node_shape& shape, const json& more = json::object()) {
    auto config = node_config(scratch_.path(), shape);
    config["http"] = {{"enabled", true}, {"port", 0}};
    config.update(more, true);
    node_.emplace(write_config(scratch_.path(), config));
  }

  void restart() {
    CHECK(node_->stop() == 0);
    node_.emplace(scratch_ / "node.json");
  }

  /// Replays one prompt with these blocks.
  replay_outcome play(std::uint64_t first, std::uint64_t count, arguments more = {}) {
    const auto trace = write_trace(scratch_ / "trace", {ids(first, count)});
    arguments all{"--attach", node_->address(), "--trace", trace, "--concurrency", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return run_replay(all);
  }

  outcome explain(arguments more = {}) {
    arguments all{"explain", (scratch_.path() / "data").string()};
    all.insert(all.end(), more.begin(), more.end());
    return run(program_with(all));
  }

  /// The newest lookup.
  json last() {
    const auto got = explain({"--json", "--last", "1"});
    INFO(got.out << got.err);
    REQUIRE(got.code == 0);
    const auto all = json::parse(got.out).at("lookups");
    REQUIRE(all.size() == 1);
    return all.at(0);
  }

  serving_node& node() { return *node_; }

private:
  scratch_directory scratch_;
  std::optional<serving_node> node_;
};

bool contains(const std::string& text, std::string_view part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("explain: explain says what was found and why no more: never saved, evicted, and after a restart") {
  asked_node x({.slots = 64}, {{"memory", {{"beyond_disk", false}}}});
  const auto none = x.explain();
  CHECK(none.code == 0);
  CHECK(contains(none.out, "No such lookup"));

  x.play(1, 40);
  auto lookup = x.last();
  CHECK(lookup.at("asked") == 40);
  CHECK(lookup.at("found") == 0);
  CHECK(lookup.at("ends").at(0).at("reason") == "never_saved");
  CHECK(lookup.at("ends").at(0).at("complete_now") == true);
  x.play(1, 40);
  lookup = x.last();
  CHECK(lookup.at("found") == 40);
  CHECK(lookup.at("ends").empty());
  // The client has disconnected, and its name is still known.
  const auto client = lookup.at("client").get<std::string>();
  CHECK_FALSE(client.empty());
  const auto by_name = x.explain({"--client", client});
  CHECK(by_name.code == 0);
  CHECK(contains(by_name.out, client + " in "));
  CHECK(contains(by_name.out, "found 40 of 40 blocks"));

  // A model of an engine names its requests, which are found by the beginning of their names.
  x.play(1, 40, {"--engine"});
  const auto request = x.last().at("request").get<std::string>();
  CHECK(request.starts_with("request-"));
  CHECK(contains(x.explain({"--request", request}).out, ", request " + request + ", in "));
  CHECK(contains(x.explain({"--request", "request"}).out, ", request " + request + ", in "));
  CHECK(contains(x.explain({"--request", "chatcmpl"}).out, "No such lookup"));

  // A slab of 64 slots and no more memory than that.
  x.play(101, 60);
  x.play(1, 40);
  lookup = x.last();
  CHECK(lookup.at("ends").at(0).at("reason") == "evicted");
  CHECK(contains(x.explain({"--last", "1"}).out, "evicted"));

  x.restart();
  x.play(101, 60);
  lookup = x.last();
  CHECK(lookup.at("found") == 0);
  CHECK(lookup.at("ends").at(0).at("reason") == "never_saved");
  CHECK(contains(lookup.at("ends").at(0).at("text"), "since the node started"));
  const auto unknown = x.explain({"--client", "unknown"});
  CHECK(unknown.code == 1);
  CHECK(contains(unknown.err, "no client \"unknown\""));
  CHECK(x.node().stop() == 0);
  CHECK(x.explain().code == 2);
}

TEST_CASE("explain: explain tells blocks on disk from those in memory") {
  asked_node x({.strict = true});
  x.play(1, 10);
  x.restart();
  x.play(1, 10);
  const auto lookup = x.last();
  CHECK(lookup.at("found") == 10);
  CHECK(lookup.at("ends").empty());
  if (lookup.contains("disk"))
    CHECK(lookup.at("disk") == 10);
  x.play(1, 10);
  const auto again = x.last();
  if (again.contains("memory"))
    CHECK(again.at("memory") == 10);
}

TEST_CASE("explain: explain says that nothing is kept") {
  asked_node x({}, {{"registry", {{"explain_lookups", 0}}}});
  const auto got = x.explain();
  CHECK(got.code == 1);
  CHECK(contains(got.out, "registry.explain_lookups"));
}

} // namespace explain_test
