#include "http/hf3fs/hf3fs.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/catch.hpp"
#include "tests/http_client/metadata_client.hpp"

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace client_hf3fs_test {

using namespace troupe;
using namespace troupe::test;

/// The C++ client against the service it is made for.

namespace {

struct client_world : http_world {
  client_world()
      : http_world([](http::router& r, const std::shared_ptr<const metadata_service>& service) {
          http::hf3fs::add_routes(r, service, {});
        }) {
    metadata_client_options options;
    options.url = "http://127.0.0.1:" + std::to_string(port());
    options.retries = 0;
    auto made = metadata_client::make(options);
    REQUIRE(made);
    client = std::move(*made);
  }

  std::unique_ptr<metadata_client> client;
};

std::vector<metadata_client::key_and_prefix> wanted(const std::vector<std::string>& keys) {
  std::vector<metadata_client::key_and_prefix> out;
  for (const auto& x : keys)
    out.push_back({x, ""});
  return out;
}

template <class T>
const T& must(const result<T>& x) {
  INFO((x ? std::string{} : to_string(x.error())));
  REQUIRE(x);
  return *x;
}

} // namespace

TEST_CASE("hf3fs client: the client saves and finds pages of two ranks", "[client]") {
  const client_world w;
  for (rank_number rank : {0U, 1U})
    REQUIRE(w.client->initialize(rank, 16));
  const std::vector<std::string> keys{"a", "b", "c"};
  for (rank_number rank : {0U, 1U}) {
    const auto pages = must(w.client->allocate_pages_for_keys(rank, wanted(keys)));
    REQUIRE(pages.size() == 3);
    // Asked again, as after a lost answer: the same pages.
    const auto again = must(w.client->allocate_pages_for_keys(rank, wanted(keys)));
    std::vector<metadata_client::key_and_page> written;
    std::set<slot_number> different;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      REQUIRE(pages[i].page);
      CHECK(pages[i].page == again[i].page);
      different.insert(*pages[i].page);
      written.push_back({pages[i].key, *pages[i].page});
    }
    CHECK(different.size() == 3);
    CHECK(must(w.client->batch_key_exists(keys)) == std::vector<bool>(3, false));
    // The last could not be written.
    const auto failed = written.back().page;
    written.pop_back();
    REQUIRE(w.client->confirm_write_for_keys(rank, written, std::vector<slot_number>{failed}));
  }
  CHECK(must(w.client->batch_key_exists(keys)) == std::vector<bool>{true, true, false});
  const auto places = must(w.client->get_key_locations(1, keys));
  CHECK(places[0]);
  CHECK(places[1]);
  CHECK_FALSE(places[2]);
  CHECK(places[0] != places[1]);
}

TEST_CASE("hf3fs client: a request that the service refuses is returned as an error", "[client]") {
  const client_world w;
  REQUIRE(w.client->initialize(0, 4));
  CHECK(w.client->initialize(0, 4));
  CHECK_FALSE(w.client->initialize(0, 5));
  CHECK_FALSE(w.client->allocate_pages_for_keys(7, wanted({"a"})));
  const auto pages = must(w.client->allocate_pages_for_keys(0, wanted({"a", "b", "c", "d", "e"})));
  REQUIRE(pages.size() == 5);
  int without = 0;
  for (const auto& x : pages)
    without += x.page ? 0 : 1;
  CHECK(without >= 1);
}

TEST_CASE("hf3fs client: threads that share a client find the same pages", "[client]") {
  const client_world w;
  REQUIRE(w.client->initialize(0, 64));
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i)
    keys.push_back("key " + std::to_string(i));
  std::vector<result<std::vector<metadata_client::allocation>>> all(6);
  std::vector<std::thread> threads;
  for (auto& x : all)
    threads.emplace_back([&] { x = w.client->allocate_pages_for_keys(0, wanted(keys)); });
  for (auto& x : threads)
    x.join();
  std::set<slot_number> pages;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::set<slot_number> of_key;
    for (const auto& x : all) {
      const auto& page = must(x).at(i).page;
      if (page) // else others were just asking for it
        of_key.insert(*page);
    }
    REQUIRE(of_key.size() == 1);
    pages.insert(*of_key.begin());
  }
  CHECK(pages.size() == keys.size());
}

} // namespace client_hf3fs_test
