#include "http/admin.hpp"

#include "actors/support/gather.hpp"
#include "http/server/json_text.hpp"
#include "http/server/request_metrics.hpp"

#include <cstddef>
#include <utility>

namespace troupe::http {

namespace {

constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";

std::string one_line(std::string text) {
  for (auto& c : text)
    if (c == '\n' || c == '\r')
      c = ' ';
  return text;
}

std::string ready_text(const std::function<std::vector<std::string>()>& degradations) {
  std::string out = R"({"status":"ready")";
  if (const auto all = degradations ? degradations() : std::vector<std::string>{}; !all.empty()) {
    out += R"(,"degradations":[)";
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0)
        out += ',';
      append_json(out, all[i]);
    }
    out += ']';
  }
  return out + "}";
}

/// Queries all sources, each of which may answer from any thread, and sends their texts in the order of the sources.
void send_all(const std::vector<metrics_source>& sources, responder reply) {
  using texts = std::vector<std::string>;
  const auto all =
      gather_from_threads(sources.size(), texts(sources.size()),
                          [to = std::make_shared<responder>(std::move(reply))](const result<texts>& parts) {
                            response out;
                            out.content_type = metrics_type;
                            for (const auto& x : *parts)
                              out.body += x;
                            std::move(*to).send(std::move(out));
                          });
  for (std::size_t i = 0; i < sources.size(); ++i)
    sources[i]([all, i](result<std::string> text) {
      // Known metrics are sent; a comment marks the missing ones.
      all->value()[i] = text ? std::move(*text) : "# missing: " + one_line(to_string(text.error())) + "\n";
      all->part_done();
    });
}

} // namespace

void add_admin_routes(router& routes, admin_options options) {
  const auto shared = std::make_shared<const admin_options>(std::move(options));
  routes.add(method::get, "/health",
             {"health", role::none,
              [](const request&, responder reply) { std::move(reply).send(response::json(R"({"status":"ok"})")); }, 0,
              false, true});
  routes.add(method::get, "/ready",
             {"ready", role::none,
              [shared](const request&, responder reply) {
                const auto ready = shared->ready ? shared->ready() : result<void>{};
                if (ready)
                  std::move(reply).send(response::json(ready_text(shared->degradations)));
                else
                  std::move(reply).fail(status::service_unavailable, ready.error().text);
              },
              0, false, true});
  std::string version = R"({"name":"troupe","version":)";
  append_json(version, shared->version);
  version += R"(,"protocol":)";
  append_json(version, std::uint64_t{shared->protocol});
  version += "}";
  routes.add(method::get, "/version",
             {"version", role::none,
              [version = std::move(version)](const request&, responder reply) {
                std::move(reply).send(response::json(version));
              },
              0, false, true});
  routes.add(method::get, "/metrics",
             {"metrics", shared->metrics_role,
              [shared](const request&, responder reply) { send_all(shared->metrics, std::move(reply)); }, 0, true,
              true});
}

metrics_source source_of(const request_metrics& metrics) {
  return [&metrics](const metrics_callback& then) { then(to_text(metrics.collect())); };
}

} // namespace troupe::http
