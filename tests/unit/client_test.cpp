#include "http_client/endpoint.hpp"
#include "tests/catch.hpp"
#include "tests/unit/client_support.hpp"

#include <netinet/in.h>
#include <thread>
#include <unistd.h>

namespace client_test {

using namespace troupe;
using namespace troupe::test;
using http::response;
using http::status;

namespace {

const std::string yes_no = R"({"exists":[true,false]})";
const std::vector<std::string> two_keys{"a", "b\"ü"};

response with_status(int code) {
  return response::failure(static_cast<status>(code), "no " + std::to_string(code));
}

} // namespace

TEST_CASE("http client: URLs are parsed, or refused with the cause", "[client]") {
  const auto read = [](const char* url) {
    const auto x = client_detail::parse_url(url);
    return x ? (x->tls ? "tls " : "") + x->host + " " + x->port + " " + x->authority + " " + x->prefix : x.error().text;
  };
  CHECK(read("http://host") == "host 80 host ");
  CHECK(read("https://host/") == "tls host 443 host ");
  CHECK(read("http://127.0.0.1:18000/hf3fs/a//") == "127.0.0.1 18000 127.0.0.1:18000 /hf3fs/a");
  CHECK(read("http://[::1]:80") == "::1 80 [::1]:80 ");
  CHECK(read("http://[::1]") == "::1 80 [::1] ");
  const auto local = client_detail::parse_url("unix:/a path/http.sock");
  REQUIRE(local);
  CHECK(local->socket == "/a path/http.sock");
  CHECK(local->host.empty());
  CHECK_FALSE(local->tls);
  for (const auto* bad : {"", "unix:", "host:80", "ftp://host", "http://", "http://:80", "http://host:",
                          "http://host:0", "http://host:65536", "http://host:8x", "http://[::1", "http://[::1]x",
                          "http://a@host", "http://host?x", "http://host/#f", "http://ho st", "http://host\r\nX: y"}) {
    INFO(bad);
    CHECK_FALSE(client_detail::parse_url(bad));
  }
}

TEST_CASE("http client: invalid options are refused", "[client]") {
  auto options = client_options(1);
  options.url = "host";
  CHECK(code_of(metadata_client::make(options)) == errc::invalid_argument);
  options = client_options(1);
  options.token = "a\r\nb";
  CHECK(code_of(metadata_client::make(options)) == errc::invalid_argument);
  options = client_options(1);
  options.connections = 0;
  CHECK(code_of(metadata_client::make(options)) == errc::invalid_argument);
  options = client_options(1);
  options.ca = "/nowhere";
  CHECK(text_of(metadata_client::make(options)).find("https") != std::string::npos);
  options.url = "https://host";
  CHECK(text_of(metadata_client::make(options)).find("/nowhere") != std::string::npos);
}

TEST_CASE("http client: the client sends and reads the protocol", "[client]") {
  scripted_server server({response::json(R"({"message":"ok"})"), response::json(R"({"message":"ok"})"),
                          response::json(R"({"rank":3,"results":[["a",7],["b\"ü",-1]]})"), response::no_content(),
                          response::no_content(), response::json(yes_no),
                          response::json(R"({"locations":[4294967295,null]})")});
  const auto client = make_client(client_options(server.port()));
  CHECK(client->initialize(3, 1000));
  CHECK(client->initialize(0, 0, metadata_client::client_role::scheduler));
  const std::vector<metadata_client::key_and_prefix> wanted{{"a", ""}, {two_keys[1], "a"}, {"a", ""}};
  const auto pages = client->allocate_pages_for_keys(3, wanted);
  REQUIRE(pages);
  REQUIRE(pages->size() == 2);
  CHECK(pages->at(0).key == "a");
  CHECK(pages->at(0).page == 7U);
  CHECK_FALSE(pages->at(1).page);
  CHECK(client->confirm_write_for_keys(3, std::vector<metadata_client::key_and_page>{{"a", 7}},
                                       std::vector<slot_number>{8, 9}));
  CHECK(client->batch_key_exists(two_keys).value() == std::vector<bool>{true, false});
  const auto places = client->get_key_locations(2, two_keys);
  REQUIRE(places);
  CHECK(places->at(0) == 4294967295U);
  CHECK_FALSE(places->at(1));

  const std::vector<seen_request> expected{
      {"/rank/3/initialize", R"({"num_pages":1000,"role":"worker"})"},
      {"/rank/0/initialize", R"({"num_pages":0,"role":"scheduler"})"},
      {"/keys/batch_allocate", R"({"rank":3,"keys":[["a",""],["b\"ü","a"],["a",""]]})"},
      {"/keys/confirm_write", R"({"rank":3,"confirmations":[["a",7]],"pages_to_release":[]})"},
      {"/keys/confirm_write", R"({"rank":3,"confirmations":[],"pages_to_release":[8,9]})"},
      {"/keys/batch_exists", R"({"keys":["a","b\"ü"]})"},
      {"/keys/get_locations", R"({"rank":2,"keys":["a","b\"ü"]})"},
  };
  const auto seen = server.requests();
  REQUIRE(seen.size() == expected.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].target == expected[i].target);
    CHECK(seen[i].body == expected[i].body);
  }
  // All requests use one connection, except a release, which does not risk a connection that may have died.
  CHECK(server.connections_made() == 2);
  CHECK(client->idle_connections() == 1);
}

TEST_CASE("http client: a path in the URL is a prefix of all request paths", "[client]") {
  scripted_server server({response::json(yes_no)});
  auto options = client_options(server.port());
  options.url += "/in/front/";
  CHECK(make_client(options)->batch_key_exists(two_keys));
  CHECK(server.requests().at(0).target == "/in/front/keys/batch_exists");
}

TEST_CASE("http client: no request is sent where there is nothing to confirm", "[client]") {
  scripted_server server({response::no_content()});
  CHECK(make_client(client_options(server.port()))->confirm_write_for_keys(0, {}));
  CHECK(server.requests().empty());
}

TEST_CASE("http client: invalid responses are errors, not results", "[client]") {
  const std::vector<metadata_client::key_and_prefix> wanted{{"a"}, {"b"}};
  for (const auto* body :
       {"", "no JSON", "[]", "{}", R"({"results":{}})", R"({"results":[]})", R"({"results":[["a",1]]})",
        R"({"results":[["b",1],["a",2]]})", R"({"results":[["a",1],["b",2],["c",3]]})",
        R"({"results":[["a",1],["b"]]})", R"({"results":[["a",1],["b",-2]]})", R"({"results":[["a",1],["b",1.5]]})",
        R"({"results":[["a",1],["b",4294967296]]})", R"({"results":[["a",1],[2,2]]})"}) {
    INFO(body);
    scripted_server server({response::json(body)});
    CHECK(code_of(make_client(client_options(server.port()))->allocate_pages_for_keys(0, wanted)) == errc::internal);
    CHECK(server.requests().size() == 1);
  }
  for (const auto* body : {R"({"exists":[true]})", R"({"exists":[true,1]})", R"({"exists":[true,false,true]})"}) {
    INFO(body);
    scripted_server server({response::json(body)});
    CHECK(code_of(make_client(client_options(server.port()))->batch_key_exists(two_keys)) == errc::internal);
  }
  for (const auto* body : {R"({"locations":[1]})", R"({"locations":[1,"2"]})", R"({"locations":[1,-5]})"}) {
    INFO(body);
    scripted_server server({response::json(body)});
    CHECK(code_of(make_client(client_options(server.port()))->get_key_locations(0, two_keys)) == errc::internal);
  }
}

TEST_CASE("http client: requests are retried after 5xx with growing pauses", "[client]") {
  scripted_server server({with_status(500), with_status(503), with_status(504), response::json(yes_no)});
  const auto waited = std::make_shared<pauses>();
  CHECK(make_client(client_options(server.port(), waited))->batch_key_exists(two_keys));
  CHECK(server.requests().size() == 4);
  REQUIRE(waited->all.size() == 3);
  auto longest = duration{std::chrono::milliseconds{300}};
  for (const auto x : waited->all) {
    CHECK(x >= longest / 2);
    CHECK(x <= longest);
    longest *= 2;
  }
}

TEST_CASE("http client: retries end, and the error says why", "[client]") {
  scripted_server server({with_status(503)});
  const auto waited = std::make_shared<pauses>();
  auto options = client_options(server.port(), waited);
  options.retries = 6;
  options.max_pause = std::chrono::seconds{1};
  const auto failed = make_client(options)->batch_key_exists(two_keys);
  CHECK(code_of(failed) == errc::unreachable);
  CHECK(text_of(failed) == "the server answers 503: no 503 (after 7 attempts)");
  CHECK(server.requests().size() == 7);
  REQUIRE(waited->all.size() == 6);
  for (const auto x : waited->all)
    CHECK(x <= std::chrono::seconds{1});
  // Pauses are drawn: clients that failed together do not come back together.
  CHECK_FALSE((waited->all[3] == waited->all[4] && waited->all[4] == waited->all[5]));
}

TEST_CASE("http client: client errors are not retried", "[client]") {
  const std::vector<std::pair<int, errc>> codes{
      {400, errc::invalid_argument}, {401, errc::not_owner},         {403, errc::not_owner},
      {404, errc::not_found},        {409, errc::identity_mismatch}, {413, errc::limit_exceeded},
      {422, errc::invalid_argument}, {429, errc::limit_exceeded},    {501, errc::unsupported}};
  for (const auto& [status, code] : codes) {
    INFO(status);
    scripted_server server({with_status(status), response::json(yes_no)});
    const auto failed = make_client(client_options(server.port()))->batch_key_exists(two_keys);
    CHECK(code_of(failed) == code);
    CHECK(text_of(failed) == "the server answers " + std::to_string(status) + ": no " + std::to_string(status));
    CHECK(server.requests().size() == 1);
  }
}

TEST_CASE("http client: releases are not repeated and confirmations are", "[client]") {
  scripted_server server({with_status(503), response::no_content(), with_status(503), response::no_content()});
  const auto client = make_client(client_options(server.port()));
  const auto failed = client->confirm_write_for_keys(0, std::vector<metadata_client::key_and_page>{{"a", 1}},
                                                     std::vector<slot_number>{2});
  CHECK(code_of(failed) == errc::unreachable);
  CHECK(server.requests().size() == 3);
  // A connection that may have died unseen is not used for it either.
  const auto before = server.connections_made();
  CHECK(client->idle_connections() == 1);
  CHECK(client->confirm_write_for_keys(0, {}, std::vector<slot_number>{2}));
  CHECK(server.connections_made() == before + 1);
  CHECK(server.requests().size() == 4);
}

TEST_CASE("http client: an unreachable server is retried, even for requests that are not repeated", "[client]") {
  const auto waited = std::make_shared<pauses>();
  const auto client = make_client(client_options(closed_port(), waited));
  CHECK(code_of(client->batch_key_exists(two_keys)) == errc::unreachable);
  CHECK(waited->all.size() == 3);
  // Nothing can have arrived.
  CHECK(code_of(client->confirm_write_for_keys(0, {}, std::vector<slot_number>{2})) == errc::unreachable);
  CHECK(waited->all.size() == 6);
}

TEST_CASE("http client: the number of open connections is bounded for any number of threads", "[client]") {
  scripted_server server({response::json(yes_no)});
  auto options = client_options(server.port());
  options.connections = 3;
  const auto client = make_client(options);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k)
        good += client->batch_key_exists(two_keys) ? 1 : 0;
    });
  for (auto& x : threads)
    x.join();
  CHECK(good == 600);
  CHECK(server.most_connections() <= 3);
  CHECK(client->idle_connections() <= 3);
  CHECK(server.connections_made() <= 3);
}

TEST_CASE("http client: the client sends its token", "[client]") {
  const http::scratch_directory directory;
  auto config = http::test_config();
  config.tokens_file = directory.write("tokens", "read read-token-0123456789\n");
  scripted_server server({response::json(yes_no)}, config);
  auto options = client_options(server.port());
  CHECK(code_of(make_client(options)->batch_key_exists(two_keys)) == errc::not_owner);
  options.token = "read-token-0123456789";
  CHECK(make_client(options)->batch_key_exists(two_keys));
}

TEST_CASE("http client: a response beyond the size limit is refused", "[client]") {
  scripted_server server({response::json(yes_no)});
  auto options = client_options(server.port());
  options.max_answer_bytes = yes_no.size() - 1;
  CHECK(code_of(make_client(options)->batch_key_exists(two_keys)) == errc::limit_exceeded);
  options.max_answer_bytes = yes_no.size();
  CHECK(make_client(options)->batch_key_exists(two_keys));
}

} // namespace client_test
