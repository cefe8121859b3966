// SGLang's HF3FS protocol byte for byte, and requests that do not belong to it.

#include "tests/catch.hpp"
#include "tests/conformance/wire_support.hpp"

namespace sglang_protocol_test {

namespace {

using namespace troupe;
using namespace troupe::test;

} // namespace

TEST_CASE("sglang protocol: replies to SGLang match its client byte for byte", "[sglang]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client, {
                   {"/0/initialize", R"({"num_pages":4,"namespace":"kv"})", 204},
                   {"/0/initialize", R"({"num_pages":4})", 204},
                   {"/0/exists", R"({"keys":["a","b"]})", 200, R"({"exists":[false,false]})"},
                   // One entry per key of the request: equal keys have the same page.
                   {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""],["b","a"],["a",""]]})", 200,
                    R"({"indices":[[false,0],[false,1],[false,0]]})"},
                   {"/0/get_page_indices", R"({"keys":["a","b"]})", 200, R"({"indices":[null,null]})"},
                   {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]],"pages_to_release":[1]})", 204},
                   {"/0/exists", R"({"keys":["b","a","a"]})", 200, R"({"exists":[false,true,true]})"},
                   {"/0/get_page_indices", R"({"keys":["b","a"]})", 200, R"({"indices":[null,0]})"},
                   {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""],["c",""],["a",""]]})", 200,
                    R"({"indices":[[true,0],[false,2],[true,0]]})"},
                   {"/0/reserve_and_allocate_page_indices", R"({"keys":[]})", 200, R"({"indices":[]})"},
                   {"/0/confirm_write", R"({})", 204},
                   {"/0/delete_keys", R"({"keys":["a","nothing"]})", 204},
                   {"/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
                   {"/0/confirm_write", R"({"written_keys_to_confirm":[["c",2]]})", 204},
                   {"/0/exists", R"({"keys":["c"]})", 200, R"({"exists":[true]})"},
                   {"/0/clear", "{}", 204},
                   {"/0/clear", "", 204},
                   {"/0/exists", R"({"keys":["c"]})", 200, R"({"exists":[false]})"},
               });
}

TEST_CASE("sglang protocol: SGLang's ranks are independent of each other", "[sglang]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/0/initialize", R"({"num_pages":4})", 204},
           {"/1/initialize", R"({"num_pages":8})", 204},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 200, R"({"indices":[[false,0]]})"},
           {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
           // As with MLA: no other rank ever writes it.
           {"/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[true]})"},
           {"/0/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[0]})"},
           {"/1/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
           {"/1/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[null]})"},
           {"/1/reserve_and_allocate_page_indices", R"({"keys":[["x",""],["a",""]]})", 200,
            R"({"indices":[[false,0],[false,1]]})"},
           {"/1/confirm_write", R"({"written_keys_to_confirm":[["a",1]]})", 204},
           {"/1/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[1]})"},
           {"/0/clear", "{}", 204},
           {"/1/exists", R"({"keys":["a"]})", 200, R"({"exists":[true]})"},
           {"/1/delete_keys", R"({"keys":["a"]})", 204},
           {"/1/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
       });
}

TEST_CASE("sglang protocol: SGLang's namespaces are separate and limited in number", "[sglang]") {
  slot_node_options options;
  options.sglang.max_namespaces = 2;
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client,
       {
           {"/0/exists", R"({"keys":["a"],"namespace":"mamba"})", 404},
           {"/0/initialize", R"({"num_pages":4})", 204},
           {"/0/initialize", R"({"num_pages":2,"namespace":"mamba"})", 204},
           {"/0/initialize", R"({"num_pages":2,"namespace":"indexer"})", 429},
           {"/1/initialize", R"({"num_pages":2,"namespace":"mamba"})", 204},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 200, R"({"indices":[[false,0]]})"},
           {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
           {"/0/exists", R"({"keys":["a"],"namespace":"mamba"})", 200, R"({"exists":[false]})"},
           {"/0/exists", R"({"keys":["a"],"namespace":null})", 200, R"({"exists":[true]})"},
           {"/0/clear", R"({"namespace":"mamba"})", 204},
           {"/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[true]})"},
       });
}

TEST_CASE("sglang protocol: SGLang's models are separated by base URL even with equal pool names", "[sglang]") {
  slot_node_options options;
  options.sglang.max_namespaces = 5;
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client, {
                   {"/0/initialize", R"({"num_pages":4})", 204},
                   {"/sglang/qwen/0/exists", R"({"keys":["a"]})", 404},
                   // Each with its number of pages.
                   {"/sglang/qwen/0/initialize", R"({"num_pages":8})", 204},
                   {"/sglang/llama/0/initialize", R"({"num_pages":2})", 204},
                   {"/sglang/qwen/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 200,
                    R"({"indices":[[false,0]]})"},
                   {"/sglang/qwen/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
                   {"/sglang/qwen/0/exists", R"({"keys":["a"],"namespace":"kv"})", 200, R"({"exists":[true]})"},
                   {"/sglang/qwen/0/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[0]})"},
                   {"/sglang/llama/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
                   {"/sglang/llama/0/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[null]})"},
                   {"/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
                   {"/0/get_page_indices", R"({"keys":["a"]})", 200, R"({"indices":[null]})"},
                   // Pools are apart below a model, and names that look alike when they are put together.
                   {"/sglang/x/0/initialize", R"({"num_pages":4,"namespace":"y-kv"})", 204},
                   {"/sglang/x-y/0/initialize", R"({"num_pages":4})", 204},
                   {"/sglang/x/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]],"namespace":"y-kv"})", 200,
                    R"({"indices":[[false,0]]})"},
                   {"/sglang/x/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]],"namespace":"y-kv"})", 204},
                   {"/sglang/x-y/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
                   {"/sglang/x/0/exists", R"({"keys":["a"]})", 404},
                   // The limit is one for all.
                   {"/sglang/more/0/initialize", R"({"num_pages":4})", 429},
                   {"/sglang/qwen/0/delete_keys", R"({"keys":["a"]})", 204},
                   {"/sglang/qwen/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
                   {"/sglang/x/0/clear", R"({"namespace":"y-kv"})", 204},
                   {"/sglang/x/0/exists", R"({"keys":["a"],"namespace":"y-kv"})", 200, R"({"exists":[false]})"},
                   {"/sglang/-x/0/exists", R"({"keys":["a"]})", 422},
                   {"/sglang/x%3Ay/0/exists", R"({"keys":["a"]})", 422},
                   {"/sglang//0/exists", R"({"keys":["a"]})", 404},
               });
}

TEST_CASE("sglang protocol: SGLang's reservations beyond the pool get no page", "[sglang]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client, {
                   {"/0/initialize", R"({"num_pages":1})", 204},
                   {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""],["b",""],["b",""]]})", 200,
                    R"({"indices":[[false,0],[false,-1],[false,-1]]})"},
                   {"/0/initialize", R"({"num_pages":2})", 409},
               });
}

TEST_CASE("sglang protocol: a request outside of SGLang's protocol changes nothing", "[sglang]") {
  slot_node_options options;
  options.sglang.max_keys = 100;
  const auto node = started_node(options);
  http::client client{node->port()};
  talk(client, {
                   {"/0/initialize", R"({"num_pages":50})", 204},
                   {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""],["b",""]]})", 200,
                    R"({"indices":[[false,0],[false,1]]})"},
                   {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
               });
  const auto before = contents(*node);
  for (const std::string_view path : {"/0/initialize", "/0/exists", "/0/reserve_and_allocate_page_indices",
                                      "/0/confirm_write", "/0/get_page_indices", "/0/delete_keys", "/0/clear"}) {
    for (const std::string_view body : {" ", "{", "nul", "\xff", "{\"keys\":[}", "{\"keys\":[]}x"})
      talk(client, {{path, body, 400}});
    for (const std::string_view body :
         {"[]", "7", "null", R"({"keys":[],"num_pages":4,"namespace":7})",
          R"({"keys":[],"num_pages":4,"namespace":""})", R"({"keys":[],"num_pages":4,"namespace":"a/b"})",
          R"({"keys":[],"num_pages":4,"namespace":"-a"})"})
      talk(client, {{path, body, 422}});
    const std::string action{path.substr(2)};
    for (const std::string_view rank : {"x", "-1", "00", "4294967295"})
      talk(client, {{"/" + std::string{rank} + action, R"({"keys":[],"num_pages":50})", 422}});
  }
  for (const std::string_view body : {"{}", R"({"num_pages":0})", R"({"num_pages":-4})", R"({"num_pages":"4"})"})
    talk(client, {{"/1/initialize", body, 422}});
  for (const std::string_view path :
       {"/0/exists", "/0/reserve_and_allocate_page_indices", "/0/get_page_indices", "/0/delete_keys"})
    for (const std::string_view body :
         {"{}", R"({"keys":null})", R"({"keys":"a"})", R"({"keys":[["a"]]})", R"({"keys":["a",7]})"})
      talk(client, {{path, body, 422}});
  talk(client, {
                   {"/0/confirm_write", R"({"written_keys_to_confirm":[["b",1],["c"]],"pages_to_release":[0]})", 422},
                   {"/0/confirm_write", R"({"written_keys_to_confirm":[["b",1]],"pages_to_release":[0,"1"]})", 422},
                   {"/9/exists", R"({"keys":["a"]})", 404},
                   {"/9/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 404},
                   {"/9/confirm_write", R"({"written_keys_to_confirm":[["b",1]]})", 404},
                   {"/9/get_page_indices", R"({"keys":["a"]})", 404},
                   {"/9/delete_keys", R"({"keys":["a"]})", 404},
                   {"/9/clear", "{}", 404},
               });
  CHECK(contents(*node) == before);
}

TEST_CASE("sglang protocol: both protocols share one port and refuse each other's requests", "[sglang][hf3fs]") {
  const auto node = started_node();
  http::client client{node->port()};
  talk(client,
       {
           {"/rank/0/initialize", R"({"num_pages":2})", 200, R"({"message":"Rank 0 initialized with 2 pages"})"},
           {"/0/initialize", R"({"num_pages":3})", 204},
           // Not SGLang's rank "keys".
           {"/keys/confirm_write", R"({"rank":0,"confirmations":[]})", 204},
           {"/keys/exists", R"({"keys":[]})", 422},
           {"/rank/initialize", R"({"num_pages":3})", 422},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 200, R"({"indices":[[false,0]]})"},
           {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
           {"/keys/batch_exists", R"({"keys":["a"]})", 200, R"({"exists":[false]})"},
           {"/clear", "", 204},
           {"/0/exists", R"({"keys":["a"]})", 200, R"({"exists":[true]})"},
       });
}

TEST_CASE("sglang protocol: SGLang's keys are evicted before the parent that they name", "[sglang]") {
  const auto node = started_node();
  http::client client{node->port()};
  const auto page = GENERATE(0, 1);
  // The second is younger, and only its parent tells that it has to go first.
  const std::string parent = page == 0 ? "" : "a";
  talk(client,
       {
           {"/0/initialize", R"({"num_pages":2})", 204},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["a",""]]})", 200, R"({"indices":[[false,0]]})"},
           {"/0/confirm_write", R"({"written_keys_to_confirm":[["a",0]]})", 204},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["b",")" + parent + R"("]]})", 200,
            R"({"indices":[[false,1]]})"},
           {"/0/confirm_write", R"({"written_keys_to_confirm":[["b",1]]})", 204},
           {"/0/reserve_and_allocate_page_indices", R"({"keys":[["c",""]]})", 200,
            R"({"indices":[[false,)" + std::to_string(page) + "]]}"},
           {"/0/exists", R"({"keys":["a","b"]})", 200,
            page == 0 ? R"({"exists":[false,true]})" : R"({"exists":[true,false]})"},
       });
}

} // namespace sglang_protocol_test
