#include "http/explain/explain_routes.hpp"

#include "base/parse_number.hpp"

#include <array>
#include <string>
#include <utility>

namespace troupe::http::explain {

namespace {

/// Limited callers see the lookups in their namespaces.
constexpr std::array routes_of_explain{
    native::described_route{method::get, "/v1/explain", "explain", role::read, false},
};

result<question> question_of(const request& r) {
  question out;
  out.client = r.query("client").value_or("");
  out.namespace_name = r.query("namespace").value_or("");
  if (const auto id = r.query("request")) {
    out.lookup = ticket_of(*id);
    if (!out.lookup)
      out.request = *id;
  }
  if (const auto last = r.query("last")) {
    out.last = parse_number<std::size_t>(*last).value_or(0);
    if (out.last == 0 || out.last > last_most)
      return fail(errc::invalid_argument, "last: expected a number from 1 to " + std::to_string(last_most));
  }
  return out;
}

void get_explain(const std::shared_ptr<const explain_service>& service, const request& r, responder reply) {
  const auto wanted = question_of(r);
  if (!wanted)
    return std::move(reply).fail(status::bad_request, wanted.error().text);
  service->ask(*wanted, r.who(), [to = share(std::move(reply))](const result<std::string>& text) {
    std::move(*to).send(text ? response::json(*text) : response::failure(text.error()));
  });
}

} // namespace

void add_routes(router& routes, std::shared_ptr<const explain_service> service) {
  const auto& x = routes_of_explain.front();
  routes.add(
      x.method, x.pattern,
      {std::string{x.name}, x.needs,
       [service = std::move(service)](const request& r, responder reply) { get_explain(service, r, std::move(reply)); },
       0, x.shows_all_namespaces});
}

std::span<const native::described_route> described_routes() noexcept {
  return routes_of_explain;
}

} // namespace troupe::http::explain
