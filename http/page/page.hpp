#pragma once

#include "http/server/router.hpp"

#include <string_view>

namespace troupe::http::page {

/// Adds the web page at `/` with its style and its script: static files of the program. Their data comes from `/v1/…`,
/// and needs the tokens that these routes need.
void add_routes(router& routes);

/// The files, as they are in http/page/.
std::string_view html() noexcept;
std::string_view css() noexcept;
std::string_view js() noexcept;

} // namespace troupe::http::page
