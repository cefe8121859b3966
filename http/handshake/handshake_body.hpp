#pragma once

#include "http/server/json_body.hpp"
#include "http/server/request.hpp"
#include "http/server/response.hpp"
#include "messages/handshake_messages.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>

/// Parsing of requests to the directory of handshakes, and the text of its answers. Independent of actors.

namespace troupe::http::handshake {

/// Patterns of the routes.
namespace paths {

inline constexpr std::string_view all = "/v1/handshake";
inline constexpr std::string_view engine = "/v1/handshake/{engine_id}";
inline constexpr std::string_view heartbeat = "/v1/handshake/{engine_id}/heartbeat";
inline constexpr std::string_view rank = "/v1/handshake/{engine_id}/ranks/{dp}/{pp}/{tp}";
/// The paths of vLLM's draft.
inline constexpr std::array<std::string_view, 3> draft{"/get_kv_connector_metadata", "/get_kv_connector_metadata/{dp}",
                                                       "/get_kv_connector_metadata/{dp}/{tp}"};

} // namespace paths

/// `PUT …/ranks/{dp}/{pp}/{tp}`: JSON if the Content-Type says so, which is validated; else bytes, which are not.
accepted<handshake_publish_request> read_publish(const request& r);
/// `GET …/ranks/{dp}/{pp}/{tp}`
accepted<handshake_fetch_request> read_fetch_rank(const request& r);
/// `GET …/{engine_id}`: all ranks, or those of `?dp=`.
accepted<handshake_fetch_request> read_fetch(const request& r);
accepted<handshake_heartbeat_request> read_heartbeat(const request& r);
accepted<handshake_withdraw_request> read_withdraw(const request& r);
/// The draft's paths: dp and tp if the path has them. The name of the engine is that of the query, or empty.
accepted<handshake_fetch_request> read_draft(const request& r);

/// The answer to a publication or a heartbeat.
response to_response(const handshake_reply& x);
/// The answer to `DELETE`.
response to_empty_response(const handshake_reply& x);
/// One rank: the payload itself.
response to_rank_response(const handshake_fetch_reply& x);
/// All of them: `{"ranks":{dp:{pp:{tp:…}}}}`, the same nesting for one rank and for many.
response to_response(std::string_view engine, const handshake_fetch_reply& x);
response to_response(const handshake_list_reply& x);
/// `{dp:{tp:…}}`, as the draft has it.
response to_draft_response(std::string_view engine, const handshake_fetch_reply& x);

/// Estimated size of an answer's text: bytes become base64 with `as_json`.
std::uint64_t answer_bytes(const handshake_fetch_reply& x, bool as_json);
/// The answer to a fetch for which there is no room now.
response too_many_answers();

} // namespace troupe::http::handshake
