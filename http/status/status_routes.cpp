#include "http/status/status_routes.hpp"

#include "base/log.hpp"
#include "http/server/json_text.hpp"

#include <array>
#include <utility>

namespace troupe::http::node_status {

namespace {

using service_ptr = std::shared_ptr<const status_service>;
using service_handler = void (*)(const service_ptr&, const request&, responder);

void get_status(const service_ptr& live_status, const request& r, responder reply) {
  const auto wish = r.query("history").value_or("true");
  if (wish != "false" && wish != "true" && wish != "long")
    return std::move(reply).fail(status::bad_request, "history: expected true, false or long");
  const auto span = wish == "false"  ? history_span::none
                    : wish == "long" ? history_span::six_hours
                                     : history_span::hour;
  live_status->ask(span, [to = share(std::move(reply))](const result<std::string>& text) {
    std::move(*to).send(text ? response::json(*text) : response::failure(text.error()));
  });
}

void get_config(const service_ptr& live_status, const request&, responder reply) {
  std::move(reply).send(response::json(live_status->config_text()));
}

void get_log(const service_ptr&, const request&, responder reply) {
  std::string out = R"({"lines":)";
  append_list(out, log::tail(), [&out](const std::string& line) { append_json(out, line); });
  std::move(reply).send(response::json(out + "}"));
}

struct described_handler {
  native::described_route route;
  service_handler handle;
};

// Data for administrators only: the setup of the host, and the names and keys of the node's users.
constexpr std::array table{
    described_handler{{method::get, "/v1/status", "get_status", role::read, true}, get_status},
    described_handler{{method::get, "/v1/config", "get_config", role::admin, true}, get_config},
    described_handler{{method::get, "/v1/log", "get_log", role::admin, true}, get_log},
};

constexpr auto descriptions = [] {
  std::array<native::described_route, table.size()> out;
  for (std::size_t i = 0; i < table.size(); ++i)
    out[i] = table[i].route;
  return out;
}();

} // namespace

void add_routes(router& routes, std::shared_ptr<const status_service> live_status) {
  for (const auto& x : table)
    routes.add(x.route.method, x.route.pattern,
               {std::string{x.route.name}, x.route.needs,
                [live_status, handle = x.handle](const request& r, responder reply) {
                  handle(live_status, r, std::move(reply));
                },
                0, x.route.shows_all_namespaces});
}

std::span<const native::described_route> described_routes() noexcept {
  return descriptions;
}

} // namespace troupe::http::node_status
