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

/// What the wires of slot clients ask the registry in the same way.

namespace troupe::http::slots {

/// A namespace of clients that say nothing of it but a name: whether their pages can be exchanged is theirs to know.
struct space {
  namespace_spec spec;
  namespace_options options;
  namespace_id id;
};

/// Shared with what is under way.
using space_ptr = std::shared_ptr<const space>;

/// Ranks register as they come. `world_size` 0: a key is complete when all that are registered have it.
space_ptr make_space(std::string name, std::uint32_t world_size);

/// How many namespaces clients may bring into being whose names begin with `prefix`. A few more may slip in when
/// several are made at the same moment; the registry has a limit of its own.
struct space_limit {
  std::uint32_t most = 0;
  std::string prefix;
};

using service_ptr = std::shared_ptr<const metadata_service>;

/// What is wrong with a request to a namespace that is not there for its caller: the same as if it were there for
/// nobody. `makes` it: the caller must not.
std::optional<rejection> check_space(const request& r, const space& space, bool makes = false);

/// Registers the rank, in a namespace that is made if it is not there yet. `then` gets what the registry said.
void register_rank(const service_ptr& service, const space_ptr& space, rank_number rank, std::uint32_t pages,
                   const space_limit& limit, std::function<void(result<void>)> then);

/// What these wires say where there is no page.
inline constexpr std::int64_t no_page = -1;

/// Appends an array: per key, whether it was found; or its slot, null where there is none.
void append_found(std::string& out, const std::vector<std::uint8_t>& codes);
void append_slots(std::string& out, const std::vector<location>& found);

/// Answers that a rank could not be registered; with 503 where it helps to repeat.
void fail_initialize(const shared_responder& to, const error& why);

/// Answers that the request failed as a whole. 404 for a rank that is not registered: clients repeat what gets 500,
/// 502, 503 or 504, and repeating does not help here. 503 for what helps to repeat.
void fail_call(const shared_responder& to, const error& why, const space_ptr& space, rank_number rank);

/// Confirms what was written, then gives back what was released, and answers 204 when both are done; so a page in both
/// lists is free at the end. Items that the registry refuses count in `refused`.
void finish_writing(const service_ptr& service, const space_ptr& space, rank_number rank, written_pages pages,
                    const std::shared_ptr<refusals>& refused, const shared_responder& to);

} // namespace troupe::http::slots
