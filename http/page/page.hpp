#pragma once

#include "http/server/router.hpp"

#include <span>
#include <string_view>

namespace troupe::http::page {

/// A static file of the program. `name`: of its route, in metrics.
struct file {
  std::string_view path;
  std::string_view name;
  std::string_view type;
  std::string_view text;
};

/// The files of http/page/, and docs/operations.md, whose sections the page shows as runbooks. They are built in.
std::span<const file> files() noexcept;

/// Adds the web page at `/` with all its files. Their data comes from `/v1/…`, and needs the tokens that these routes
/// need; the files themselves need none.
void add_routes(router& routes);

} // namespace troupe::http::page
