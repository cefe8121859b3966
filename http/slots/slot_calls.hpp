#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/namespace_spec.hpp"
#include "http/server/request.hpp"
#include "http/server/response.hpp"
#include "http/slots/refusals.hpp"
#include "http/slots/slot_body.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

/// Answers that the request failed as a whole. 404 for a rank that is not registered: clients retry after 500, 502, 503
/// or 504, and a retry does not help here. 503 if a retry may help.
void fail_call(const shared_responder& to, const error& why, const namespace_ptr& ns, rank_number rank);

/// Confirms the written pages, then releases the released ones, and answers 204 when both are done; so a page in both
/// lists is free at the end. Items that the registry refuses count in `refused`.
void finish_writing(const service_ptr& service, const namespace_ptr& ns, rank_number rank, written_pages pages,
                    const std::shared_ptr<refusals>& refused, const shared_responder& to);

} // namespace troupe::http::slots
