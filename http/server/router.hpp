#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "http/server/request.hpp"
#include "http/server/request_round.hpp"
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
#include <utility>
#include <vector>

namespace troupe::http {

/// Called on an io thread, which serves many connections: it must not block. Exceptions become 500.
using handler = std::function<void(const request&, responder)>;

struct route {
  /// For metrics and logs, from a small set: "hf3fs_batch_lookup".
  std::string name;
  role needs = role::admin;
  handler handle;
  /// Limit of the body; 0: the server's limit, which holds in any case.
  std::uint64_t max_body_bytes = 0;
  /// It shows data of all namespaces: refused for callers that are limited to some.
  bool shows_all_namespaces = false;
  /// Also answered beyond the limit of connections.
  bool is_probe = false;
  /// How much longer than others its answer may take, if clients may ask it to wait.
  duration may_wait{};
};

/// More than any API has. Larger patterns are a defect; larger paths get 404, queries 400.
inline constexpr std::size_t max_path_parameters = 8;
inline constexpr std::size_t max_path_segments = 32;
inline constexpr std::size_t max_query_parameters = 64;

/// The result of matching a target. Kept between requests, so that matching allocates nothing.
struct route_match {
  /// Null if there is none; then `failure` says why.
  const http::route* route = nullptr;
  /// 400, 404 or 405, with a sentence.
  status code = status::ok;
  std::string_view detail;
  /// For 405: the methods of the path, "GET, HEAD, POST".
  std::string allow;
  std::array<named_value, max_path_parameters> path_parameters;
  std::size_t path_parameter_count = 0;
  std::vector<named_value> query_parameters;
  /// The decoded text.
  std::string decoded;
};

/// Finds the route of a request by its method and path. Filled by one thread; after that, any number of threads may
/// match.
class router {
public:
  router();
  router(router&&) noexcept;
  router& operator=(router&&) noexcept;
  ~router();

  /// Adds a route. A pattern is a path whose segments are literal or a parameter: "/rank/{rank}/initialize". A
  /// parameter stands for one non-empty segment. Of two patterns that match a path, the one that is literal where they
  /// first differ has priority, and only its methods count. "/a" and "/a/" are two paths.
  void add(method method, std::string_view pattern, route r);

  /// Matches a target: "/path?query", or the same after "http://host". Views in `found` point into `target` and into
  /// `found` itself, and are valid until either changes. `method` is none if the request has one that no route can
  /// have.
  void match(std::optional<method> method, std::string_view target, route_match& found) const;

  /// Each io thread makes one of these when it starts, for what the handlers leave until the end of a round.
  void set_rounds(request_round_maker make) { make_round_ = std::move(make); }
  /// May be null.
  const request_round_maker& round_maker() const noexcept { return make_round_; }

  /// The first error of an `add`, for the code that starts the server: a pattern that is not a path, or is registered
  /// twice, or a route without a name or a handler.
  const result<void>& check() const noexcept { return check_; }

private:
  struct node;
  struct exact_paths;

  std::unique_ptr<node> root_;
  /// The leaves of patterns without parameters, by the whole path: those are requested most.
  std::unique_ptr<exact_paths> exact_;
  result<void> check_;
  request_round_maker make_round_;
};

} // namespace troupe::http
