#include "http/page/page.hpp"

#include <string>
#include <utility>

namespace troupe::http::page {

namespace {

/// Allows only the page's own style and script, and requests to its own origin: neither a name that a client chose, nor
/// another site, can make it do anything else.
constexpr std::string_view policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

} // namespace

void add_routes(router& routes) {
  for (const auto& x : files())
    routes.add(method::get, x.path, {std::string(x.name), role::none, [x](const request&, responder reply) {
                                       response out;
                                       out.content_type = x.type;
                                       out.body = x.text;
                                       out.add_header("Content-Security-Policy", policy);
                                       out.add_header("X-Content-Type-Options", "nosniff");
                                       out.add_header("Referrer-Policy", "no-referrer");
                                       // The page belongs to the version of the running program, which may change.
                                       out.add_header("Cache-Control", "no-cache");
                                       std::move(reply).send(std::move(out));
                                     }});
}

} // namespace troupe::http::page
