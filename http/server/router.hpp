#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "http/server/request.hpp"
#include "http/server/response.hpp"
#include "http/server/role.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Called on an io thread, which serves many connections: it must not wait for anything. Exceptions become 500.
using handler = std::function<void(const request&, responder)>;

struct route {
  /// For metrics and logs: a word of few different ones, "hf3fs_batch_lookup".
  std::string name;
  role needs = role::admin;
  handler handle;
  /// Bytes of a body; 0: as many as the server allows, which is the limit in any case.
  std::uint64_t max_body_bytes = 0;
  /// It shows something of all namespaces: nothing for who is limited to some.
  bool shows_all_namespaces = false;
  /// Answered also where there is no room for more connections.
  bool is_probe = false;
  /// How much longer than others its answer may take, where clients may ask it to wait.
  duration may_wait{};
};

/// More than any API has. Patterns beyond them are a defect; paths beyond them get 404, queries 400.
inline constexpr std::size_t max_path_parameters = 8;
inline constexpr std::size_t max_path_segments = 32;
inline constexpr std::size_t max_query_parameters = 64;

/// What a target leads to. Kept between requests, so that matching allocates nothing.
struct route_match {
  /// Null if there is none; then `failure` says why.
  const http::route* route = nullptr;
  /// 400, 404 or 405, with a sentence.
  status code = status::ok;
  std::string_view detail;
  /// For 405: the methods that there are, "GET, HEAD, POST".
  std::string allow;
  std::array<named_value, max_path_parameters> path_parameters;
  std::size_t path_parameter_count = 0;
  std::vector<named_value> query_parameters;
  /// What had to be decoded.
  std::string decoded;
};

/// Finds the route of a request by its method and path. Filled by one thread; after that, any number may match.
class router {
public:
  router();
  router(router&&) noexcept;
  router& operator=(router&&) noexcept;
  ~router();

  /// Adds a route. A pattern is a path whose segments are literal or a parameter: "/rank/{rank}/initialize". A
  /// parameter stands for one segment that is not empty. Of two patterns that fit a path, the one wins that is literal
  /// where they first differ, and only its methods count. "/a" and "/a/" are two paths.
  void add(method method, std::string_view pattern, route r);

  /// Looks a target up: "/path?query", or the same behind "http://host". Views in `found` point into `target` and
  /// into `found` itself, and are valid until either changes.
  /// `method` is nothing if the request has one that no route can have.
  void match(std::optional<method> method, std::string_view target, route_match& found) const;

  /// The first thing that was wrong with an `add`, for whoever starts the server: a pattern that is no path, or is
  /// there twice, or a route without a name or a handler.
  const result<void>& check() const noexcept { return check_; }

private:
  struct node;
  struct exact_paths;

  std::unique_ptr<node> root_;
  /// The leaves of patterns without parameters, by the whole path: those are asked for most.
  std::unique_ptr<exact_paths> exact_;
  result<void> check_;
};

} // namespace troupe::http
