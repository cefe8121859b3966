// vLLM's HF3FS protocol byte for byte, and requests that do not belong to it.

#include "tests/catch.hpp"
#include "tests/conformance/wire_support.hpp"

#include <map>
#include <mutex>

namespace hf3fs_protocol_test {

namespace {

using namespace troupe;
using namespace troupe::test;

std::string many_keys(std::size_t n, std::string_view item) {
  std::string out = R"({"rank":0,"keys":[)";
  for (std::size_t i = 0; i < n; ++i)
    out.append(i == 0 ? "" : ",").append(item);
  return out += "]}";
}

} // namespace

TEST_CASE("hf3fs protocol: replies to vLLM match its client byte for byte", "[hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":0,"role":"scheduler"})", 200,
            R"({"message":"A scheduler has nothing to initialize"})"},
           {"/keys/batch_exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
           {"/rank/0/initialize", R"({"num_pages":3,"role":"worker"})", 200,
            R"({"message":"Rank 0 initialized with 3 pages"})"},
           {"/rank/0/initialize", R"({"num_pages":3})", 200, R"({"message":"Rank 0 initialized with 3 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[]})", 200, R"({"rank":0,"results":[]})"},
           {"/keys/batch_allocate", R"({"rank":0})", 200, R"({"rank":0,"results":[]})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["a",""],["b","a"],["a",""]]})", 200,
            R"({"rank":0,"results":[["a",0],["b",1]]})"},
           // Not confirmed and so not found yet.
           {"/keys/batch_exists", R"({"keys":["a","b"]})", 200, R"({"exists":[false,false]})"},
           {"/keys/get_locations", R"({"rank":0,"keys":["a","b"]})", 200, R"({"locations":[null,null]})"},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[["a",0]],"pages_to_release":[1]})", 204},
           {"/keys/batch_exists", R"({"keys":["b","a","a"]})", 200, R"({"exists":[false,true,true]})"},
           {"/keys/get_locations", R"({"rank":0,"keys":["b","a","a"]})", 200, R"({"locations":[null,0,0]})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["a",""]]})", 200, R"({"rank":0,"results":[["a",0]]})"},
           {"/keys/batch_exists", R"({})", 200, R"({"exists":[]})"},
           {"/keys/get_locations", R"({"rank":0})", 200, R"({"locations":[]})"},
           {"/keys/confirm_write", R"({"rank":0})", 204},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[],"pages_to_release":null})", 204},
           {"/clear", "", 204},
           {"/clear", "no JSON at all", 204},
           {"/keys/batch_exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
       });
}

TEST_CASE("hf3fs protocol: vLLM's keys are returned unchanged", "[hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":9})", 200, R"({"message":"Rank 0 initialized with 9 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["",""],["\"\\\n",""],["ключ",""],["\u00e9",""]]})", 200,
            R"({"rank":0,"results":[["",0],["\"\\\n",1],["ключ",2],["é",3]]})"},
           // Two spellings of one string are one key; a key and its beginning are two.
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["\u006b",""],["k",""],["k\u0000",""]]})", 200,
            R"({"rank":0,"results":[["k",4],["k\u0000",5]]})"},
       });
}

TEST_CASE("hf3fs protocol: a key is complete when all of vLLM's ranks have it", "[hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 0 initialized with 2 pages"})"},
           {"/rank/1/initialize", R"({"num_pages":4})", 200, R"({"message":"Rank 1 initialized with 4 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["k",""]]})", 200, R"({"rank":0,"results":[["k",0]]})"},
           {"/keys/batch_allocate", R"({"rank":1,"keys":[["x",""],["k",""]]})", 200,
            R"({"rank":1,"results":[["x",0],["k",1]]})"},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[["k",0]]})", 204},
           {"/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[false]})"},
           {"/keys/get_locations", R"({"rank":0,"keys":["k"]})", 200, R"({"locations":[null]})"},
           {"/keys/confirm_write", R"({"rank":1,"confirmations":[["k",1]]})", 204},
           {"/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[true]})"},
           {"/keys/get_locations", R"({"rank":0,"keys":["k"]})", 200, R"({"locations":[0]})"},
           {"/keys/get_locations", R"({"rank":1,"keys":["k"]})", 200, R"({"locations":[1]})"},
       });
}

TEST_CASE("hf3fs protocol: with a fixed world size a key is incomplete until all of vLLM's ranks have it", "[hf3fs]") {
  slot_node_options options;
  options.hf3fs.world_size = 2;
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 0 initialized with 2 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["k",""]]})", 200, R"({"rank":0,"results":[["k",0]]})"},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[["k",0]]})", 204},
           {"/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[false]})"},
           {"/rank/2/initialize", R"({"num_pages":2})", 400},
           {"/rank/1/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 1 initialized with 2 pages"})"},
           {"/keys/batch_allocate", R"({"rank":1,"keys":[["k",""]]})", 200, R"({"rank":1,"results":[["k",0]]})"},
           {"/keys/confirm_write", R"({"rank":1,"confirmations":[["k",0]]})", 204},
           {"/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[true]})"},
       });
}

TEST_CASE("hf3fs protocol: vLLM's allocations beyond the pool fail per key", "[hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 0 initialized with 2 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["a",""],["b",""],["c",""]]})", 200,
            R"({"rank":0,"results":[["a",0],["b",1],["c",-1]]})"},
       });
}

TEST_CASE("hf3fs protocol: invalid entries of vLLM's confirmations are refused and the others count", "[hf3fs]") {
  std::mutex mutex;
  std::map<errc, std::uint64_t> refused;
  slot_node_options options;
  options.hf3fs.count_refused = [&](errc why, std::uint64_t count) {
    std::lock_guard guard(mutex);
    refused[why] += count;
  };
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":4})", 200, R"({"message":"Rank 0 initialized with 4 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["a",""],["b",""],["c",""]]})", 200,
            R"({"rank":0,"results":[["a",0],["b",1],["c",2]]})"},
           // b's page belongs to a, c's is none, d was never asked for.
           {"/keys/confirm_write",
            R"({"rank":0,"confirmations":[["b",0],["c",-1],["d",3],["a",0]],"pages_to_release":[-1,4,4294967295]})",
            204},
           {"/keys/batch_exists", R"({"keys":["a","b","c","d"]})", 200, R"({"exists":[true,false,false,false]})"},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[["b",1]]})", 204},
           {"/keys/get_locations", R"({"rank":0,"keys":["a","b"]})", 200, R"({"locations":[0,1]})"},
       });
  // The answers have arrived, so no counter changes any more.
  CHECK(refused == std::map<errc, std::uint64_t>{{errc::stale, 1}, {errc::not_found, 1}, {errc::out_of_range, 4}});
}

TEST_CASE("hf3fs protocol: vLLM's requests for an unknown rank get a permanent error", "[hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  const auto refused = [&] {
    // 404 and nothing that the client would repeat.
    talk(client, {
                     {"/keys/batch_allocate", R"({"rank":5,"keys":[["a",""]]})", 404},
                     {"/keys/confirm_write", R"({"rank":5,"confirmations":[["a",0]],"pages_to_release":[1]})", 404},
                     {"/keys/confirm_write", R"({"rank":5,"confirmations":[],"pages_to_release":[1]})", 404},
                     {"/keys/get_locations", R"({"rank":5,"keys":["a"]})", 404},
                 });
  };
  refused();
  talk(client, {{"/rank/0/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 0 initialized with 2 pages"})"}});
  const auto before = contents(*node);
  refused();
  CHECK(contents(*node) == before);
}

TEST_CASE("hf3fs protocol: a request outside of vLLM's protocol changes nothing", "[hf3fs]") {
  slot_node_options options;
  options.hf3fs.max_keys = 100;
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":50})", 200, R"({"message":"Rank 0 initialized with 50 pages"})"},
           {"/keys/batch_allocate", R"({"rank":0,"keys":[["a",""],["b",""]]})", 200,
            R"({"rank":0,"results":[["a",0],["b",1]]})"},
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[["a",0]]})", 204},
       });
  const auto before = contents(*node);

  for (const std::string_view path : {"/rank/1/initialize", "/keys/batch_allocate", "/keys/confirm_write",
                                      "/keys/batch_exists", "/keys/get_locations"}) {
    for (const std::string_view body :
         {"", " ", "{", "}", "nul", "{\"rank\":0", "{\"rank\":0}}", "\xff\xfe", "{\"a\":\"\xc3\"}", "{'rank':0}",
          "{\"rank\":0,}", "\"", "[1,2", "{\"rank\":0}garbage"})
      talk(client, {{path, body, 400}});
    for (const std::string_view body : {"[]", "0", "null", "\"rank\"", "[{\"rank\":0}]"})
      talk(client, {{path, body, 422}});
    talk(client, {{path, std::string(40, '[') + std::string(40, ']'), 400}});
  }

  for (const std::string_view body :
       {R"({"num_pages":0})", R"({"num_pages":-1})", R"({"num_pages":1.5})", R"({"num_pages":"4"})",
        R"({"num_pages":true})", R"({"num_pages":null})", R"({})", R"({"num_pages":4294967296})",
        R"({"num_pages":18446744073709551615})", R"({"num_pages":4,"role":"writer"})", R"({"num_pages":4,"role":7})",
        R"({"role":"worker"})"})
    talk(client, {{"/rank/1/initialize", body, 400}});
  for (const std::string_view rank : {"x", "-1", "1.0", "01", "%20", "0x1", "4294967295", "99999999999999999999"})
    talk(client, {{"/rank/" + std::string{rank} + "/initialize", R"({"num_pages":4})", 422}});
  talk(client, {{"/rank//initialize", R"({"num_pages":4})", 404},
                {"/rank/64/initialize", R"({"num_pages":4})", 400},
                {"/rank/0/initialize", R"({"num_pages":51})", 409}});

  for (const std::string_view path : {"/keys/batch_allocate", "/keys/confirm_write", "/keys/get_locations"}) {
    for (const std::string_view rank : {"", R"("rank":null,)"})
      talk(client, {{path, "{" + std::string{rank} + R"("keys":[]})", 400}});
    for (const std::string_view rank :
         {"-1", "1.5", "true", "[]", "{}", "\"\"", "\"a\"", "\"-1\"", "\" 0\"", "\"00\"", "4294967295"})
      talk(client, {{path, R"({"rank":)" + std::string{rank} + R"(,"keys":[]})", 422}});
  }
  for (const std::string_view path : {"/keys/batch_allocate", "/keys/batch_exists", "/keys/get_locations"})
    for (const std::string_view keys : {"null", "\"ab\"", "{}", "7", "true"})
      talk(client, {{path, R"({"rank":0,"keys":)" + std::string{keys} + "}", 400}});
  for (const std::string_view item :
       {"7", "null", "[]", "[\"x\"]", "[\"x\",\"\",\"\"]", "[7,\"\"]", "[\"x\",7]", "\"xy\"", "{}", "[[\"x\"],\"\"]"})
    talk(client, {{"/keys/batch_allocate", R"({"rank":0,"keys":[["fresh",""],)" + std::string{item} + "]}", 422}});
  for (const std::string_view item : {"7", "null", "[]", "[\"x\"]", "{}", "true"}) {
    talk(client, {{"/keys/batch_exists", R"({"keys":["a",)" + std::string{item} + "]}", 422}});
    talk(client, {{"/keys/get_locations", R"({"rank":0,"keys":["a",)" + std::string{item} + "]}", 422}});
  }
  // The confirmation and the release before the invalid entry are valid, and must have no effect.
  for (const std::string_view item : {"7", "null", "[]", "[\"x\"]", "[\"x\",1,1]", "[7,1]", "[\"x\",\"1\"]",
                                      "[\"x\",1.5]", "[\"x\",null]", "[\"x\",true]", "\"x1\""})
    talk(client,
         {{"/keys/confirm_write",
           R"({"rank":0,"confirmations":[["b",1],)" + std::string{item} + R"(],"pages_to_release":[0]})", 422}});
  for (const std::string_view item : {"\"0\"", "null", "1.5", "[]", "{}", "true"})
    talk(client, {{"/keys/confirm_write",
                   R"({"rank":0,"confirmations":[["b",1]],"pages_to_release":[0,)" + std::string{item} + "]}", 422}});
  for (const std::string_view list : {"7", "\"x\"", "{}", "true"}) {
    talk(client, {{"/keys/confirm_write",
                   R"({"rank":0,"confirmations":)" + std::string{list} + R"(,"pages_to_release":[0]})", 400}});
    talk(client, {{"/keys/confirm_write",
                   R"({"rank":0,"confirmations":[["b",1]],"pages_to_release":)" + std::string{list} + "}", 400}});
  }
  talk(client, {{"/keys/confirm_write", R"({"rank":0,"confirmations":null,"pages_to_release":[0]})", 400},
                {"/keys/confirm_write", R"({"rank":0,"confirmations":[["b",100000000000000000000000]]})", 400}});

  talk(client, {{"/keys/batch_allocate", many_keys(101, R"(["x",""])"), 413},
                {"/keys/batch_exists", many_keys(101, R"("x")"), 413},
                {"/keys/get_locations", many_keys(101, R"("x")"), 413}});
  CHECK(client.call(http::get("/keys/batch_exists")).code == 405);
  CHECK(client.call(http::post("/keys/batch_exist", "{}")).code == 404);
  CHECK(contents(*node) == before);

  // The connection stays usable.
  talk(client,
       {{"/keys/get_locations", R"({"rank":0,"keys":["a","b","fresh"]})", 200, R"({"locations":[0,null,null]})"}});
}

TEST_CASE("hf3fs protocol: vLLM's clients select a namespace by their base URL", "[hf3fs]") {
  slot_node_options options;
  options.hf3fs.max_namespaces = 2;
  const auto node = started_node(options);
  http::client client{node->port()};
  const std::string_view done = R"({"message":"Rank 0 initialized with 5 pages"})";
  talk(client, {
                   {"/hf3fs/one/rank/0/initialize", R"({"num_pages":5})", 200, done},
                   {"/hf3fs/two/rank/0/initialize", R"({"num_pages":5})", 200, done},
                   {"/hf3fs/one/rank/0/initialize", R"({"num_pages":5})", 200, done},
                   {"/hf3fs/three/rank/0/initialize", R"({"num_pages":5})", 429},
                   {"/hf3fs/a%20b/rank/0/initialize", R"({"num_pages":5})", 422},
                   {"/rank/0/initialize", R"({"num_pages":5})", 200, done},
                   {"/hf3fs/one/keys/batch_allocate", R"({"rank":0,"keys":[["k",""]]})", 200,
                    R"({"rank":0,"results":[["k",0]]})"},
                   {"/hf3fs/one/keys/confirm_write", R"({"rank":0,"confirmations":[["k",0]]})", 204},
                   {"/hf3fs/one/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[true]})"},
                   {"/hf3fs/two/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[false]})"},
                   {"/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[false]})"},
                   {"/hf3fs/one/keys/get_locations", R"({"rank":0,"keys":["k"]})", 200, R"({"locations":[0]})"},
                   {"/hf3fs/three/keys/get_locations", R"({"rank":0,"keys":["k"]})", 404},
                   {"/hf3fs/two/clear", "", 204},
                   {"/hf3fs/three/clear", "", 204},
                   {"/hf3fs/one/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[true]})"},
                   {"/hf3fs/one/clear", "", 204},
                   {"/hf3fs/one/keys/batch_exists", R"({"keys":["k"]})", 200, R"({"exists":[false]})"},
               });
}

} // namespace hf3fs_protocol_test
