#include "config/node_config.hpp"
#include "tests/unit/config_support.hpp"

namespace config_overrides_test {

using namespace troupe;
using namespace troupe::config;

TEST_CASE("config overrides: overrides take precedence over the file, and later ones over earlier ones", "[config]") {
  const auto text = replaced(small_config, R"("data_dir": "data")", R"("data_dir": "data", "http": { "port": 1 })");
  CHECK(good(text).http.port == 1);
  CHECK(good(text, {"http.port=2"}).http.port == 2);
  CHECK(good(text, {"http.port=2", "http.port=0"}).http.port == 0);
  CHECK(good(small_config, {"http.port=3"}).http.port == 3);
  CHECK(good(small_config, {"storage.ranks[0].slab_bytes=1 GiB"}).storage.ranks[0].slab_bytes == gibibyte);
  CHECK(good(small_config, {"storage.ranks[0].slab_bytes=\"1 GiB\""}).storage.ranks[0].slab_bytes == gibibyte);
  CHECK(good(small_config, {"storage.ranks[0].slab_bytes=1048576"}).storage.ranks[0].slab_bytes == mebibyte);
  CHECK(good(small_config, {"storage.direct=false"}).storage.direct == false);
  CHECK(good(small_config, {"storage.ranks[1].directory=disk"}).storage.ranks[1].directory == "disk");
}

TEST_CASE("config overrides: an override of text needs no quotes, whatever the text looks like", "[config]") {
  CHECK(good(small_config, {"namespaces[0].name=x"}).namespaces[0].name == "x");
  CHECK(good(small_config, {"namespaces[0].revision=7"}).namespaces[0].revision == "7");
  CHECK(good(small_config, {"namespaces[0].revision=007"}).namespaces[0].revision == "007");
  CHECK(good(small_config, {"namespaces[0].salt=a=b"}).namespaces[0].salt == "a=b");
  CHECK(good(small_config, {"namespaces[0].salt={\"a\":1,\"a\":2}"}).namespaces[0].salt == "{\"a\":1,\"a\":2}");
  CHECK(good(small_config, {"namespaces[0].salt=\"quoted\""}).namespaces[0].salt == "quoted");
  CHECK(good(small_config, {"namespaces[0].salt="}).namespaces[0].salt.empty());
  CHECK(good(small_config, {"node_name=true"}).node_name == "true");
}

TEST_CASE("config overrides: lists and objects can be given as a whole, and lists appended to", "[config]") {
  const auto replaced_list = good(small_config, {R"(storage.ranks=[{"slab_bytes":"1 GiB"},{"slab_bytes":"2 GiB"}])"});
  CHECK(replaced_list.storage.ranks[1].slab_bytes == 2 * gibibyte);
  const auto appended = good(small_config, {"storage.ranks[2].slab_bytes=16 MiB", "storage.ranks[2].directory=c",
                                            "storage.ranks[3].slab_bytes=32 MiB"});
  REQUIRE(appended.storage.ranks.size() == 4);
  CHECK(appended.storage.ranks[2] == rank_storage{16 * mebibyte, "c"});
  CHECK(appended.storage.ranks[3] == rank_storage{32 * mebibyte, {}});
  CHECK(good(small_config, {R"(http={"port":9})"}).http.port == 9);
  const auto from_nothing =
      good("{}", {"storage.ranks[0].slab_bytes=64 MiB", "namespaces[0].name=a", "namespaces[0].model=m",
                  "namespaces[0].dtype=float16", "namespaces[0].kv_cache.layers=1", "namespaces[0].kv_cache.heads=1",
                  "namespaces[0].kv_cache.head_size=64", "namespaces[0].kv_cache.block_tokens=16"});
  CHECK(from_nothing.namespaces[0].geometry.page_bytes() == 4096);
}

TEST_CASE("config overrides: an override of an unknown key is refused with its path", "[config]") {
  CHECK(bad(small_config, {"http.prot=0"}) == "http.prot: no such key; did you mean \"port\"? (--set)\n");
  CHECK(bad(small_config, {"nothing.at.all=0"}) == "nothing: no such key (--set)\n");
  CHECK(bad(small_config, {"http.port.number=0"}) ==
        "http.port.number: \"http.port\" is a value and has nothing below it (--set)\n");
  CHECK(bad(small_config, {"http.port[0]=0"}) == "http.port[0]: \"http.port\" is not a list (--set)\n");
  CHECK(bad(small_config, {"http[0]=0"}) == "http[0]: \"http\" is not a list (--set)\n");
  CHECK(bad(small_config, {"storage.ranks[0][0]=0"}) ==
        "storage.ranks[0][0]: \"storage.ranks[0]\" is not a list (--set)\n");
  CHECK(bad(small_config, {"storage.ranks.slab_bytes=1 GiB"}) ==
        "storage.ranks.slab_bytes: \"storage.ranks\" is a list: name an entry, as in storage.ranks[0].slab_bytes "
        "(--set)\n");
  CHECK(bad(small_config, {"storage.ranks[3].slab_bytes=1 GiB"}) ==
        "storage.ranks[3]: \"storage.ranks\" has 2 entries, so the next one is storage.ranks[2] (--set)\n");
  CHECK(bad(small_config, {"storage.ranks[99999999999999999999].slab_bytes=1 GiB"}).starts_with("--set: expected"));
  CHECK(bad(small_config, {"storage.ranks[0].slab=1 GiB"}) == "storage.ranks[0].slab: no such key (--set)\n");
}

TEST_CASE("config overrides: an override with a value of the wrong type is refused", "[config]") {
  CHECK(bad(small_config, {"http.port=-1"}) ==
        "http.port: expected \"off\" or a whole number, 0 to 65535, got -1 (--set)\n");
  CHECK(bad(small_config, {"storage.ranks[1].slab_bytes=4 MiBB"}) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got \"4 MiBB\" (--set)\n");
  CHECK(bad(small_config, {"http=nothing"}) == "http: expected an object, got \"nothing\" (--set)\n");
  CHECK(bad(small_config, {"http={\"port\":1,\"port\":2}"}) ==
        "http: port: the key is repeated; first at --set (--set)\n");
  CHECK(bad(small_config, {"http={\"prt\":1}"}) == "http.prt: no such key; did you mean \"port\"? (--set)\n");
  CHECK(contains(bad(small_config, {"node_name=\xff"}), "node_name: expected a name"));
  CHECK(contains(bad(small_config, {"namespaces[0].salt=\xff"}), "namespaces[0].salt: expected text"));
  CHECK(contains(bad(small_config, {"namespaces[2].salt=x"}), "namespaces[2]: \"namespaces\" has 1 entries"));
}

TEST_CASE("config overrides: an override that is not PATH=VALUE is refused", "[config]") {
  const auto* text = GENERATE("", "=", "=1", "http.port", "http..port=1", ".http.port=1", "http.port.=1",
                              "storage.ranks[=1", "storage.ranks[]=1", "storage.ranks[x]=1", "storage.ranks[0=1",
                              "storage.ranks[-1]=1", "storage.ranks[0]slab_bytes=1", "[0]x=1");
  INFO(text);
  CHECK(bad(small_config, {text}).starts_with("--set: expected PATH=VALUE such as http.port=0, got \""));
}

TEST_CASE("config overrides: an error in the file at the path of an override is reported as an error of the file",
          "[config]") {
  const auto text = replaced(small_config, R"("data_dir": "data")", R"("http": 5)");
  CHECK(bad(text, {"http.port=0"}) == "http: expected an object, got 5 (line 2)\n");
  const auto ranks = replaced(small_config, R"([ { "slab_bytes": "4 MiB" }, { "slab_bytes": "8 MiB" } ])", "{}");
  CHECK(bad(ranks, {"storage.ranks[0].slab_bytes=1 GiB"}) ==
        "storage.ranks: expected a list, got an object (line 3)\n");
}

} // namespace config_overrides_test
