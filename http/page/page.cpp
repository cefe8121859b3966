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

void add_file(router& routes, std::string_view path, std::string name, std::string_view type,
              std::string_view (*text)() noexcept) {
  routes.add(method::get, path, {std::move(name), role::none, [type, text](const request&, responder reply) {
                                   response out;
                                   out.content_type = type;
                                   out.body = text();
                                   out.add_header("Content-Security-Policy", policy);
                                   out.add_header("X-Content-Type-Options", "nosniff");
                                   out.add_header("Referrer-Policy", "no-referrer");
                                   // The page belongs to the version of the running program, which may change.
                                   out.add_header("Cache-Control", "no-cache");
                                   std::move(reply).send(std::move(out));
                                 }});
}

} // namespace

void add_routes(router& routes) {
  add_file(routes, "/", "page", "text/html; charset=utf-8", html);
  add_file(routes, "/page.css", "page_css", "text/css; charset=utf-8", css);
  add_file(routes, "/page.js", "page_js", "text/javascript; charset=utf-8", js);
}

} // namespace troupe::http::page
