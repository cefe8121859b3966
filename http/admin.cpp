#include "http/admin.hpp"

#include "http/server/json_text.hpp"
#include "http/server/request_metrics.hpp"

#include <atomic>
#include <utility>

namespace troupe::http {

namespace {

constexpr std::string_view metrics_type = "text/plain; version=0.0.4; charset=utf-8";

/// Pages that come in from any thread, in any order.
struct gathering {
  gathering(responder x, std::size_t pages) : reply(std::move(x)), open(pages), texts(pages) {}

  void page_done(std::size_t number, result<std::string> page) {
    if (page)
      texts[number] = std::move(*page);
    else // What is known is told; the comment says that there is more.
      texts[number] = "# missing: " + one_line(to_string(page.error())) + "\n";
    if (open.fetch_sub(1, std::memory_order_acq_rel) == 1)
      answer();
  }

  void answer() {
    response out;
    out.content_type = metrics_type;
    for (const auto& x : texts)
      out.body += x;
    std::move(reply).send(std::move(out));
  }

  static std::string one_line(std::string text) {
    for (auto& c : text)
      if (c == '\n' || c == '\r')
        c = ' ';
    return text;
  }

  responder reply;
  std::atomic<std::size_t> open;
  std::vector<std::string> texts;
};

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
                  std::move(reply).send(response::json(R"({"status":"ready"})"));
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
              [shared](const request&, responder reply) {
                const auto pages = std::make_shared<gathering>(std::move(reply), shared->metrics.size() + 1);
                for (std::size_t i = 0; i < shared->metrics.size(); ++i)
                  shared->metrics[i]([pages, i](result<std::string> page) { pages->page_done(i, std::move(page)); });
                // The place after the last, so that the answer goes out also where there is no page.
                pages->page_done(shared->metrics.size(), std::string{});
              },
              0, true, true});
}

metrics_source source_of(const request_metrics& metrics) {
  return [&metrics](const metrics_callback& then) { then(to_text(metrics.collect())); };
}

} // namespace troupe::http
