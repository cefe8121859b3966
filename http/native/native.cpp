#include "http/native/native.hpp"

#include "base/log.hpp"
#include "http/native/caller_tickets.hpp"
#include "http/native/namespace_body.hpp"
#include "http/native/native_body.hpp"
#include "http/native/native_text.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/server/json_text.hpp"
#include "http/server/request_metrics.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe::http::native {

namespace {

/// State shared by all routes; lives as long as the last pending request.
struct api_parts {
  std::shared_ptr<const metadata_service> service;
  native::options options;
  caller_tickets tickets;
};

using api_ptr = std::shared_ptr<const api_parts>;

using handler_function = void (*)(const api_ptr&, const request&, responder);

void send(const shared_responder& reply, response answer) {
  std::move(*reply).send(std::move(answer));
}

/// A lease or a reservation, with the caller's name and the registry's name.
struct held_name {
  ticket named;
  ticket in_registry;
  /// Made up here for this request: nothing is held under it yet.
  bool is_fresh = false;
};

held_name name_of(const api_ptr& api, const caller& who, const std::optional<ticket>& brought) {
  const auto named = brought ? *brought : caller_tickets::fresh();
  return {named, api->tickets.in_registry(who, named), !brought.has_value()};
}

/// Logs changes by administrators that affect others, with their author.
void report(const caller& who, std::string_view what, std::string_view ns) {
  log::get("http")->info("{} {} namespace {}", who.name, what, ns);
}

/// The function that answers a request with the text that `text` makes of the service's answer, or with its error.
template <class T, class Text>
auto answer_with(const shared_responder& reply, Text text) {
  return [reply, text](const result<T>& answer) {
    if (!answer)
      send(reply, response::failure(answer.error()));
    else
      send(reply, response::json(text(*answer)));
  };
}

auto answer_nothing(const shared_responder& reply) {
  return [reply](const result<void>& answer) {
    send(reply, answer ? response::no_content() : response::failure(answer.error()));
  };
}

void count_items(const api_ptr& api, std::span<const std::uint8_t> codes) {
  if (!api->options.counts)
    return;
  std::array<std::uint64_t, errc_count> counts{};
  for (const auto x : codes)
    ++counts[static_cast<std::size_t>(errc_from_wire(x))];
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0)
      api->options.counts->add(static_cast<errc>(i), counts[i]);
}

void count_items(const api_ptr& api, std::span<const location> results) {
  if (!api->options.counts)
    return;
  std::vector<std::uint8_t> codes(results.size());
  std::ranges::transform(results, codes.begin(), [](const location& x) { return static_cast<std::uint8_t>(x.code()); });
  count_items(api, codes);
}

/// Answers with one result per item, after `front`: `{`, or the text before the results.
template <class Results>
auto answer_results(const api_ptr& api, const shared_responder& reply, std::string front = "{") {
  return answer_with<Results>(reply, [api, front = std::move(front)](const Results& results) {
    count_items(api, results);
    auto out = front;
    out += R"("results":)";
    append_results(out, results);
    out += '}';
    return out;
  });
}

/// `{"lease":{…},`
std::string ticket_front(std::string_view name, const ticket& x) {
  std::string out = "{\"";
  out.append(name).append("\":");
  append_ticket(out, x);
  out += ',';
  return out;
}

/// The namespace of the path: an id is accepted unchecked if the caller may use all namespaces. A name may map to
/// another namespace with each request. None if there is none for this caller.
std::optional<namespace_id> find_namespace(const namespace_names& names, std::string_view text, const caller& who) {
  const auto id = read_namespace_id(text);
  if (!id)
    return who.may_use(text) ? names.find(text) : std::nullopt;
  if (!who.is_limited())
    return id;
  const auto name = names.name_of(*id);
  return name && who.may_use(*name) ? id : std::nullopt;
}

/// Calls `f(id)` for the namespace of the path.
template <class F>
void with_namespace(const api_ptr& api, const request& r, const shared_responder& reply, F f) {
  const auto text = r.path("namespace");
  if (const auto id = find_namespace(api->service->names(), text, *r.who()))
    return f(*id);
  send(reply, response::failure(status::not_found, "no namespace has the name \"" + std::string{text} + "\""));
}

/// Reads the body by `read` and calls `f(id, body)`.
template <class Read, class F>
void with_body(const api_ptr& api, const request& r, const shared_responder& reply, Read read, F f) {
  auto body = read(r, api->options);
  if (!body)
    return send(reply, to_response(body.error()));
  with_namespace(api, r, reply, [body = std::move(*body), f = std::move(f)](const namespace_id& ns) mutable {
    f(ns, std::move(body));
  });
}

// -- namespaces and ranks -------------------------------------------------------------------------------------------

void create_namespace(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  const auto body = read_create(r);
  if (!body)
    return send(reply, to_response(body.error()));
  if (!r.who()->may_use(body->spec.name))
    return send(reply, response::failure(status::forbidden,
                                         "the token is limited to other namespaces than \"" + body->spec.name + "\""));
  // The identity is what identifies a namespace: one under a name of this caller might be hidden from it.
  const auto same = api->service->names().name_of(body->spec.id());
  if (same && !r.who()->may_use(*same))
    return send(reply,
                response::failure(status::conflict,
                                  "this identity has another name; a salt of its own makes it another namespace"));
  api->service->add_namespace(
      body->spec, body->options, [reply, spec = body->spec, who = r.who()](const result<void>& added) {
        if (added)
          report(*who, "made", spec.name);
        send(reply, added ? response::json(created_text(spec), status::created) : response::failure(added.error()));
      });
}

void list_namespaces(const api_ptr& api, const request& r, responder responder) {
  const auto text = [who = r.who()](std::vector<namespace_info> all) {
    std::erase_if(all, [&](const namespace_info& x) { return !who->may_use(x.spec.name); });
    return namespaces_text(std::move(all), *who);
  };
  api->service->describe({}, answer_with<std::vector<namespace_info>>(share(std::move(responder)), text));
}

void get_namespace(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_namespace(api, r, reply, [api, reply, reader = r.who()](const namespace_id& ns) {
    api->service->describe(ns, [reply, reader](const result<std::vector<namespace_info>>& found) {
      if (!found)
        send(reply, response::failure(found.error()));
      else if (found->empty())
        send(reply, response::failure(status::not_found, "no such namespace"));
      else
        send(reply, response::json(namespace_text(found->front(), *reader)));
    });
  });
}

void remove_namespace(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  const auto force = read_flag(r, "force");
  if (!force)
    return send(reply, to_response(force.error()));
  with_namespace(api, r, reply, [api, reply, force = *force, who = r.who()](const namespace_id& ns) {
    api->service->remove_namespace(ns, force, [reply, who, ns](const result<void>& removed) {
      if (removed)
        report(*who, "removed", to_string(ns));
      send(reply, removed ? response::no_content() : response::failure(removed.error()));
    });
  });
}

void register_rank(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  const auto read = [](const request& x, const options&) { return read_rank(x); };
  with_body(api, r, reply, read, [api, reply](const namespace_id& ns, const rank_body& x) {
    api->service->register_rank(ns, x.rank, x.slots, answer_nothing(reply));
  });
}

// -- writing --------------------------------------------------------------------------------------------------------

void reserve(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_reserve, [api, reply, who = r.who()](const namespace_id& ns, keys_body x) {
    const auto held = name_of(api, *who, x.held.name);
    const auto answer = answer_results<std::vector<location>>(api, reply, ticket_front("token", held.named));
    const auto answer_and_clear = [api, ns, rank = x.rank, held, answer](const result<std::vector<location>>& got) {
      // Other shards may have made reservations that the caller never receives.
      if (!got && held.is_fresh)
        api->service->abort(ns, rank, held.in_registry, {}, [](const result<std::vector<std::uint8_t>>&) {});
      answer(got);
    };
    api->service->reserve(ns, x.rank, held.in_registry, x.held.length, std::move(x.keys), std::move(x.parents),
                          answer_and_clear);
  });
}

void commit(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_commit, [api, reply, who = r.who()](const namespace_id& ns, pages_body x) {
    api->service->commit(ns, x.rank, api->tickets.in_registry(*who, x.ticket), std::move(x.pages),
                         answer_results<std::vector<std::uint8_t>>(api, reply));
  });
}

void abort(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_abort, [api, reply, who = r.who()](const namespace_id& ns, pages_body x) {
    api->service->abort(ns, x.rank, api->tickets.in_registry(*who, x.ticket), std::move(x.pages),
                        answer_results<std::vector<std::uint8_t>>(api, reply));
  });
}

// -- reading --------------------------------------------------------------------------------------------------------

void match(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_match, [api, reply, who = r.who()](const namespace_id& ns, keys_body x) {
    const auto lease = name_of(api, *who, x.held.name);
    if (api->options.name_caller)
      api->options.name_caller(lease.in_registry.owner, who->name);
    const auto text = [named = lease.named](std::uint32_t matched) {
      auto out = ticket_front("lease", named) + "\"matched\":";
      append_json(out, std::uint64_t{matched});
      out += '}';
      return out;
    };
    api->service->match(ns, lease.in_registry, x.held.length, api->options.limits.of(*who), std::move(x.keys),
                        answer_with<std::uint32_t>(reply, text));
  });
}

void locate(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_locate, [api, reply, who = r.who()](const namespace_id& ns, keys_body x) {
    const auto lease = name_of(api, *who, x.held.name);
    const auto answer = answer_results<std::vector<location>>(api, reply, ticket_front("lease", lease.named));
    const auto answer_and_clear = [api, ns, lease, answer](const result<std::vector<location>>& found) {
      // Other shards may hold a lease that the caller never receives.
      if (!found && lease.is_fresh)
        api->service->release(ns, lease.in_registry, [](const result<void>&) {});
      answer(found);
    };
    api->service->locate(ns, x.rank, lease.in_registry, x.held.length, api->options.limits.of(*who), std::move(x.keys),
                         answer_and_clear);
  });
}

void exists(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_keys, [api, reply](const namespace_id& ns, keys_body x) {
    api->service->exists(ns, x.rank, std::move(x.keys), answer_results<std::vector<std::uint8_t>>(api, reply));
  });
}

void renew(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_lease, [api, reply, who = r.who()](const namespace_id& ns, const lease_body& x) {
    api->service->renew(ns, api->tickets.in_registry(*who, x.lease), x.length, answer_nothing(reply));
  });
}

void release(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_lease, [api, reply, who = r.who()](const namespace_id& ns, const lease_body& x) {
    api->service->release(ns, api->tickets.in_registry(*who, x.lease), answer_nothing(reply));
  });
}

void get_key(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  const auto key = read_key(r.path("key"), "key", api->options);
  if (!key)
    return send(reply, to_response(key.error()));
  with_namespace(api, r, reply, [api, reply, key = *key](const namespace_id& ns) {
    api->service->look_up(ns, key,
                          answer_with<key_reply>(reply, [key](const key_reply& x) { return key_text(key, x); }));
  });
}

// -- erasing and listing
// -----------------------------------------------------------------------------------------------

void erase(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  with_body(api, r, reply, read_keys, [api, reply](const namespace_id& ns, keys_body x) {
    api->service->erase(ns, x.rank, std::move(x.keys), answer_results<std::vector<std::uint8_t>>(api, reply));
  });
}

void clear(const api_ptr& api, const request& r, responder responder) {
  const auto reply = share(std::move(responder));
  const auto read = [](const request& x, const options&) { return read_optional_rank(x); };
  with_body(api, r, reply, read, [api, reply, who = r.who()](const namespace_id& ns, rank_number rank) {
    api->service->clear(ns, rank, answer_with<std::uint64_t>(reply, [who, ns](std::uint64_t pages) {
                          report(*who, "cleared", to_string(ns));
                          std::string out = R"({"pages":)";
                          append_json(out, pages);
                          out += '}';
                          return out;
                        }));
  });
}

void get_stats(const api_ptr& api, const request&, responder responder) {
  api->service->stats(answer_with<registry_stats>(share(std::move(responder)), stats_text));
}

void get_cluster(const api_ptr& api, const request&, responder responder) {
  auto answer = answer_with<cluster_stats>(share(std::move(responder)), cluster_text);
  if (api->options.cluster)
    api->options.cluster(std::move(answer));
  else
    answer(cluster_stats{});
}

void get_openapi(const api_ptr&, const request&, responder responder) {
  std::move(responder).send(response::json(std::string{openapi_text()}));
}

struct described_handler {
  described_route route;
  handler_function handle;
};

constexpr std::array table{
    described_handler{{method::post, "/v1/namespaces", "create_namespace", role::admin}, create_namespace},
    described_handler{{method::get, "/v1/namespaces", "list_namespaces", role::read}, list_namespaces},
    described_handler{{method::get, "/v1/namespaces/{namespace}", "get_namespace", role::read}, get_namespace},
    described_handler{{method::delete_, "/v1/namespaces/{namespace}", "remove_namespace", role::admin},
                      remove_namespace},
    described_handler{{method::post, "/v1/namespaces/{namespace}/ranks", "register_rank", role::write}, register_rank},
    described_handler{{method::post, "/v1/namespaces/{namespace}/reserve", "reserve", role::write}, reserve},
    described_handler{{method::post, "/v1/namespaces/{namespace}/commit", "commit", role::write}, commit},
    described_handler{{method::post, "/v1/namespaces/{namespace}/abort", "abort", role::write}, abort},
    described_handler{{method::post, "/v1/namespaces/{namespace}/match", "match", role::read}, match},
    described_handler{{method::post, "/v1/namespaces/{namespace}/locate", "locate", role::read}, locate},
    described_handler{{method::post, "/v1/namespaces/{namespace}/exists", "exists", role::read}, exists},
    described_handler{{method::post, "/v1/namespaces/{namespace}/renew", "renew", role::read}, renew},
    described_handler{{method::post, "/v1/namespaces/{namespace}/release", "release", role::read}, release},
    // For administrators, since it shows digests: with them, a reader could search for equal texts.
    described_handler{{method::get, "/v1/namespaces/{namespace}/keys/{key}", "get_key", role::admin}, get_key},
    described_handler{{method::post, "/v1/namespaces/{namespace}/erase", "erase", role::admin}, erase},
    described_handler{{method::post, "/v1/namespaces/{namespace}/clear", "clear", role::admin}, clear},
    described_handler{{method::get, "/v1/stats", "get_stats", role::read, true}, get_stats},
    described_handler{{method::get, "/v1/cluster", "get_cluster", role::read, true}, get_cluster},
    described_handler{{method::get, "/openapi.json", "get_openapi", role::none}, get_openapi},
};

constexpr auto descriptions = [] {
  std::array<described_route, table.size()> out;
  for (std::size_t i = 0; i < table.size(); ++i)
    out[i] = table[i].route;
  return out;
}();

} // namespace

void add_routes(router& routes, std::shared_ptr<const metadata_service> service, const options& options) {
  const api_ptr api = std::make_shared<const api_parts>(api_parts{std::move(service), options, {}});
  for (const auto& x : table)
    routes.add(x.route.method, x.route.pattern,
               {std::string{x.route.name}, x.route.needs,
                [api, handle = x.handle](const request& r, responder reply) { handle(api, r, std::move(reply)); }, 0,
                x.route.shows_all_namespaces});
}

std::span<const described_route> described_routes() noexcept {
  return descriptions;
}

} // namespace troupe::http::native
