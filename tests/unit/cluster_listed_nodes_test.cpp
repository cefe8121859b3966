#include "actors/cluster/etcd/listed_nodes.hpp"
#include "tests/catch.hpp"

#include <string>
#include <vector>

namespace cluster_listed_nodes_test {

using namespace troupe;
using namespace troupe::cluster;

namespace {

const listed_node self{"a", 1};

etcd_entry entry(const std::string& address, const std::string& node) {
  etcd_entry out;
  out.key = "/nodes/" + address;
  out.value = write_listed({node, 1});
  return out;
}

etcd_entry invalid(const std::string& address) {
  auto out = entry(address, "x");
  out.value = "no entry";
  return out;
}

etcd_entry removed(const std::string& address) {
  auto out = entry(address, "x");
  out.removed = true;
  return out;
}

listed_nodes list() {
  return {"/nodes/", "host-a:1", self};
}

} // namespace

TEST_CASE("listed nodes: entries and removals change the list", "[cluster][etcd]") {
  auto nodes = list();
  CHECK(nodes.take(entry("host-b:1", "b")));
  CHECK_FALSE(nodes.take(entry("host-b:1", "b")));
  CHECK(nodes.take(entry("host-c:1", "c")));
  CHECK(nodes.addresses() == std::vector<std::string>{"host-b:1", "host-c:1"});
  CHECK(nodes.take(removed("host-b:1")));
  CHECK_FALSE(nodes.take(removed("host-b:1")));
  CHECK(nodes.replace({entry("host-d:1", "d")}));
  CHECK_FALSE(nodes.replace({entry("host-d:1", "d")}));
  CHECK(nodes.addresses() == std::vector<std::string>{"host-d:1"});
  etcd_entry other = entry("host-e:1", "e");
  other.key = "/elsewhere/host-e:1";
  CHECK_FALSE(nodes.take(other));
}

TEST_CASE("listed nodes: a key is that of a node or of an invalid entry", "[cluster][etcd]") {
  auto nodes = list();
  nodes.take(entry("host-b:1", "b"));
  CHECK(nodes.take(invalid("host-b:1")));
  CHECK(nodes.size() == 0);
  CHECK(nodes.invalid() == 1);
  CHECK(nodes.take_warnings().size() == 1);
  // The warning is given once while the entry is invalid.
  CHECK_FALSE(nodes.take(invalid("host-b:1")));
  CHECK_FALSE(nodes.replace({invalid("host-b:1")}));
  CHECK(nodes.take_warnings().empty());
  CHECK(nodes.take(entry("host-b:1", "b")));
  CHECK(nodes.size() == 1);
  CHECK(nodes.invalid() == 0);
  nodes.take(removed("host-b:1"));
  nodes.take(invalid("host-b:1"));
  CHECK(nodes.take_warnings().size() == 1);
}

TEST_CASE("listed nodes: the list is bounded, and known nodes stay in it", "[cluster][etcd]") {
  auto nodes = list();
  for (int i = 0; i < 256; ++i)
    REQUIRE(nodes.take(entry("host-" + std::to_string(i) + ":1", "n" + std::to_string(i))));
  CHECK_FALSE(nodes.take(entry("one-more:1", "m")));
  CHECK(nodes.size() == 256);
  const auto warnings = nodes.take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("the limit of 256 nodes is reached") != std::string::npos);
  CHECK(nodes.take(entry("host-7:1", "another name")));
  for (int i = 0; i < 1000; ++i)
    nodes.take(invalid("bad-" + std::to_string(i) + ":1"));
  CHECK(nodes.invalid() == 256);
  CHECK(nodes.take_warnings().size() == 255);
}

TEST_CASE("listed nodes: another node with this name, or at this address, is reported once", "[cluster][etcd]") {
  auto nodes = list();
  CHECK(nodes.is_own(entry("host-a:1", "a")));
  CHECK_FALSE(nodes.is_own(entry("host-b:1", "a")));
  nodes.take(entry("host-a:1", "a"));
  CHECK(nodes.judge_own(write_listed(self)) == listed_nodes::own_entry::right);
  CHECK(nodes.judge_own("no entry") == listed_nodes::own_entry::invalid);
  CHECK(nodes.take_warnings().empty());
  nodes.take(entry("host-b:1", "a"));
  nodes.take(entry("host-b:1", "a"));
  const auto names = nodes.take_warnings();
  REQUIRE(names.size() == 1);
  CHECK(names[0].find("duplicate node name: the node at host-b:1") == 0);
  for (int i = 0; i < 2; ++i)
    CHECK(nodes.judge_own(write_listed({"z", 1})) == listed_nodes::own_entry::of_another_node);
  const auto addresses = nodes.take_warnings();
  REQUIRE(addresses.size() == 1);
  CHECK(addresses[0].find("duplicate address: node 'z'") == 0);
}

} // namespace cluster_listed_nodes_test
