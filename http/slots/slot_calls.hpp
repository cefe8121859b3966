#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "http/server/request.hpp"
#include "http/server/response.hpp"
#include "http/server/router.hpp"
#include "http/slots/refusals.hpp"
#include "http/slots/slot_body.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {
class metadata_service;
}

/// Calls to the registry that the protocols of slot clients have in common.

namespace troupe::http::slots {

/// A namespace of clients that send nothing but its name: the clients must know whether their pages are exchangeable.
struct slot_namespace {
  namespace_spec spec;
  namespace_options options;
  namespace_id id;
};

/// Shared with pending requests.
using namespace_ptr = std::shared_ptr<const slot_namespace>;

/// Ranks register in any order. `world_size` 0: a key is complete when all registered ranks have it.
namespace_ptr make_namespace(std::string name, std::uint32_t world_size);

/// The limit of namespaces with this `prefix` that clients may create. A few more may be admitted when several are
/// created at the same moment; the registry has a limit of its own.
struct namespace_limit {
  std::uint32_t most = 0;
  std::string prefix;
};

using service_ptr = std::shared_ptr<const metadata_service>;

/// The rejection of a request to a namespace that is hidden from its caller: the same as for one that does not exist.
/// `makes`: the rejection of creating it.
std::optional<rejection> check_namespace(const request& r, const slot_namespace& ns, bool makes = false);

/// Registers the rank, in a namespace that is created if it does not exist. `then` receives the answer of the registry.
void register_rank(const service_ptr& service, const namespace_ptr& ns, rank_number rank, std::uint32_t pages,
                   const namespace_limit& limit, std::function<void(result<void>)> then);

/// The value for a missing page in these protocols.
inline constexpr std::int64_t no_page = -1;

/// Appends an array: per key, whether it was found; or its slot, null for none.
void append_found(std::string& out, const std::vector<std::uint8_t>& codes);
void append_slots(std::string& out, const std::vector<location>& found);

/// Answers that a rank could not be registered; with 503 if a retry may help.
void fail_initialize(const shared_responder& to, const error& why);

/// A request about the pages of a rank, while the registry works on it.
struct rank_call {
  shared_responder to;
  namespace_ptr ns;
  rank_number rank = 0;

  /// Answers that the request failed as a whole. 404 for a rank that is not registered: clients retry after 500, 502,
  /// 503 or 504, and a retry does not help here. 503 if a retry may help.
  void fail(const error& why) const;
};

/// A callback for the registry's answer, from which `make` makes the response.
template <class Make>
auto answer(const rank_call& call, Make make) {
  return [call, make = std::move(make)](const auto& given) {
    if (!given)
      return call.fail(given.error());
    std::move(*call.to).send(make(*given));
  };
}

/// Confirms the written pages, then releases the released ones, and answers 204 when both are done; so a page in both
/// lists is free at the end. Items that the registry refuses count in `refused`.
void finish_writing(const service_ptr& service, const rank_call& call, written_pages pages,
                    const std::shared_ptr<refusals>& refused);

/// A call of a protocol, and the function of its `Api` that handles it.
template <class Api>
struct slot_route {
  std::string_view path;
  std::string name;
  role needs;
  void (Api::*handle)(const request&, responder) const;
};

/// Adds each call twice: in the namespace of the config, and below `protocol` ("/sglang") and the name of another one.
template <class Api>
void add_slot_routes(router& routes, const std::string& protocol, const std::shared_ptr<const Api>& shared,
                     std::initializer_list<slot_route<Api>> calls) {
  for (const auto& call : calls) {
    const auto handle = [shared, what = call.handle](const request& r, responder reply) {
      ((*shared).*what)(r, std::move(reply));
    };
    routes.add(method::post, call.path, {call.name, call.needs, handle, 0});
    routes.add(method::post, protocol + "/{namespace}" + std::string{call.path}, {call.name, call.needs, handle, 0});
  }
}

} // namespace troupe::http::slots
