#include "http/server/router.hpp"
#include "tests/catch.hpp"

#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace http_router_test {

using namespace troupe;
using namespace troupe::http;

namespace {

route named(std::string name) {
  return {std::move(name), role::none, [](const request&, responder) {}, 0};
}

router sample() {
  router r;
  r.add(method::get, "/", named("root"));
  r.add(method::post, "/rank/{rank}/initialize", named("initialize"));
  r.add(method::post, "/{rank}/exists", named("exists"));
  r.add(method::get, "/v1/namespaces/{name}/keys/{key}", named("key"));
  r.add(method::delete_, "/v1/namespaces/{name}/keys/{key}", named("delete"));
  r.add(method::get, "/v1/namespaces/self", named("self"));
  r.add(method::get, "/v1/namespaces/{name}", named("namespace"));
  r.add(method::get, "/health", named("health"));
  REQUIRE(r.check());
  return r;
}

/// The name of the route, or the status as text.
std::string found(const router& r, std::optional<method> m, std::string_view target) {
  route_match x;
  r.match(m, target, x);
  return x.route != nullptr ? x.route->name : std::to_string(static_cast<int>(x.code));
}

std::string defect(std::string_view pattern, route r = named("n")) {
  router x;
  x.add(method::get, "/taken/{a}", named("first"));
  x.add(method::get, pattern, std::move(r));
  return x.check() ? std::string{} : x.check().error().text;
}

} // namespace

TEST_CASE("http router: routes are found by method and path", "[http]") {
  const auto r = sample();
  CHECK(found(r, method::get, "/") == "root");
  CHECK(found(r, method::post, "/rank/3/initialize") == "initialize");
  CHECK(found(r, method::post, "/3/exists") == "exists");
  CHECK(found(r, method::get, "/health?x=1") == "health");
  CHECK(found(r, method::get, "http://host:80/health") == "health");
  CHECK(found(r, method::get, "HTTPS://host/health") == "health");
  CHECK(found(r, method::get, "http://host") == "root");
  CHECK(found(r, method::delete_, "/v1/namespaces/a/keys/b") == "delete");
}

TEST_CASE("http router: a literal segment takes precedence over a parameter, whatever the result", "[http]") {
  const auto r = sample();
  CHECK(found(r, method::get, "/v1/namespaces/self") == "self");
  CHECK(found(r, method::get, "/v1/namespaces/other") == "namespace");
  // The literal "rank" leads nowhere here, so the parameter gets its chance.
  CHECK(found(r, method::post, "/rank/exists") == "exists");
  // The literal path has no POST; that the parameter's path might have is not looked at.
  router both;
  both.add(method::get, "/status", named("status"));
  both.add(method::post, "/{rank}", named("rank"));
  CHECK(found(both, method::post, "/status") == "405");
  CHECK(found(both, method::post, "/7") == "rank");
}

TEST_CASE("http router: an unknown path gets 404, and another method gets 405 with the allowed ones", "[http]") {
  const auto r = sample();
  for (const auto* target :
       {"/healt", "/healthy", "/health/", "//health", "/rank//initialize", "//exists", "/v1", "/a"})
    CHECK(found(r, method::get, target) == "404");
  CHECK(found(r, method::put, "/nothing") == "404");
  CHECK(found(r, std::nullopt, "/nothing") == "404");
  route_match x;
  r.match(method::put, "/v1/namespaces/a/keys/b", x);
  CHECK(x.code == status::method_not_allowed);
  CHECK(x.allow == "GET, HEAD, DELETE");
  r.match(std::nullopt, "/3/exists", x);
  CHECK(x.code == status::method_not_allowed);
  CHECK(x.allow == "POST");
}

TEST_CASE("http router: HEAD uses the GET route unless it has its own", "[http]") {
  auto r = sample();
  CHECK(found(r, method::head, "/health") == "health");
  CHECK(found(r, method::head, "/3/exists") == "405");
  r.add(method::head, "/health", named("head"));
  CHECK(found(r, method::head, "/health") == "head");
  CHECK(found(r, method::get, "/health") == "health");
}

TEST_CASE("http router: parameters of path and query are decoded", "[http]") {
  const auto r = sample();
  route_match x;
  r.match(method::get, "/v1/namespaces/a%2Fb%20c/keys/%c3%A9+?q=1&two=a+b%26&q=3&empty=&bare", x);
  REQUIRE(x.route != nullptr);
  const request_parts parts{.path_parameters = std::span{x.path_parameters}.first(x.path_parameter_count),
                            .query_parameters = x.query_parameters};
  const request q{parts};
  // An encoded slash is part of its segment; a plus sign is one in a path and a blank in a query.
  CHECK(q.path("name") == "a/b c");
  CHECK(q.path("key") == "\xc3\xa9+");
  CHECK(q.path("other").empty());
  CHECK(q.query("q") == "1");
  CHECK(q.query("two") == "a b&");
  CHECK(q.query("empty") == "");
  CHECK(q.query("bare") == "");
  CHECK_FALSE(q.query("none"));
  // A match leaves nothing behind for the next.
  r.match(method::get, "/v1/namespaces/z", x);
  CHECK(x.path_parameter_count == 1);
  CHECK(x.path_parameters[0].name == "name");
  CHECK(x.path_parameters[0].value == "z");
  CHECK(x.query_parameters.empty());
}

TEST_CASE("http router: encoded letters match literal segments, and dot segments have no meaning", "[http]") {
  const auto r = sample();
  CHECK(found(r, method::get, "/%68ealth") == "health");
  CHECK(found(r, method::get, "/x/../health") == "404");
  CHECK(found(r, method::get, "/v1/namespaces/..") == "namespace");
}

TEST_CASE("http router: invalid targets are refused", "[http]") {
  const auto r = sample();
  for (const auto* target : {"", "*", "health", "ftp://host/health", "http:///health", "http://?x", "host:443", "/%",
                             "/%4", "/%zz", "/health?a=%4", "/health?%=1"})
    CHECK(found(r, method::get, target) == "400");
  std::string deep;
  for (int i = 0; i < 33; ++i)
    deep += "/a";
  CHECK(found(r, method::get, deep) == "404");
  std::string query = "/health?a=1";
  for (std::size_t i = 1; i < max_query_parameters; ++i)
    query += "&a=1";
  CHECK(found(r, method::get, query) == "health");
  CHECK(found(r, method::get, query + "&a=1") == "400");
}

TEST_CASE("http router: invalid routes are reported when the server starts", "[http]") {
  CHECK(defect("/fine/{x}/y").empty());
  for (const auto* pattern : {"", "health", "/taken/{b}", "/a{b}", "/{}", "/{a", "/a}", "/{a}/{a}", "/a%20", "/a?b",
                              "/a#", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}"}) {
    INFO(pattern);
    CHECK_FALSE(defect(pattern).empty());
  }
  CHECK(defect("/taken/{b}") == "route GET /taken/{b} (n): is already registered as first");
  CHECK_FALSE(defect("/x", named("")).empty());
  CHECK_FALSE(defect("/x", {"no handler", role::none, {}, 0}).empty());
}

TEST_CASE("http router: random targets match as in a linear search over all patterns", "[http]") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U);
  INFO("seed " << seed);
  std::mt19937 random{seed};
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> words{"a", "b", "c", "", "{p}", "{q}"};
  router r;
  std::vector<std::vector<std::string>> patterns;
  std::set<std::vector<std::string>> shapes;
  for (int i = 0; i < 60; ++i) {
    std::vector<std::string> segments;
    std::string pattern;
    for (std::size_t n = 1 + below(4), k = 0; k < n; ++k) {
      segments.push_back(words[below(words.size())]);
      if (segments.back().starts_with('{'))
        segments.back() = "{" + std::to_string(k) + "}";
      pattern += "/" + segments.back();
    }
    if (!shapes.insert(segments).second)
      continue;
    r.add(method::get, pattern, named(pattern));
    patterns.push_back(segments);
  }
  REQUIRE(r.check());
  // At the first difference a literal precedes a parameter.
  const auto is_parameter = [](const std::string& s) { return s.starts_with('{'); };
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> path;
    std::string target;
    for (std::size_t n = 1 + below(4), k = 0; k < n; ++k) {
      path.push_back(words[below(4)]);
      target += "/" + path.back();
    }
    std::optional<std::vector<std::string>> best;
    for (const auto& p : patterns) {
      bool fits = p.size() == path.size();
      for (std::size_t k = 0; fits && k < p.size(); ++k)
        fits = is_parameter(p[k]) ? !path[k].empty() : p[k] == path[k];
      if (!fits)
        continue;
      const auto better = [&] {
        for (std::size_t k = 0; k < p.size(); ++k)
          if (is_parameter(p[k]) != is_parameter((*best)[k]))
            return is_parameter((*best)[k]);
        return false;
      };
      if (!best || better())
        best = p;
    }
    std::string expected = best ? "" : "404";
    if (best)
      for (const auto& s : *best)
        expected += "/" + s;
    INFO(target);
    CHECK(found(r, method::get, target) == expected);
  }
}

} // namespace http_router_test
