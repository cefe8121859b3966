#pragma once

#include "http/server/request.hpp"
#include "http/server/response.hpp"

#include <tl/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>

/// Parsing of JSON bodies. The whole of a body is validated before any of it is used: a body that is not JSON gets 400,
/// JSON of the wrong shape gets 422, always as `{"detail":"…"}`. Unknown members are allowed; of a repeated member, the
/// first counts.

namespace troupe::http {

/// Why a body is rejected.
struct rejection {
  status code = status::bad_request;
  std::string detail;
};

/// A value, or why the request is rejected.
template <class T>
using accepted = tl::expected<T, rejection>;

/// The answer to a rejected body.
response to_response(const rejection& x);

/// Deeper nesting is refused with 400.
inline constexpr std::size_t max_json_depth = 32;

/// Parses the body of a request. The result is valid until the next call on the same thread, and no longer than the
/// request's body. Each thread has a parser of its own, whose memory is kept unless it is large.
accepted<simdjson::dom::element> parse_json(const request& r);
/// The same, for a body that must be an object.
accepted<simdjson::dom::object> parse_json_object(const request& r);
/// The same, from text that is followed by `body_padding` readable bytes.
accepted<simdjson::dom::element> parse_json(std::string_view padded_text);
accepted<simdjson::dom::object> parse_json_object(std::string_view padded_text);

/// Memory that the parser of a thread needs for a body of this size, beyond what each thread keeps, which is less than
/// 16 MiB: 0 for most bodies.
std::uint64_t json_reading_bytes(std::uint64_t body_bytes) noexcept;

/// Releases the memory for a large body; invalidates views into the parsed data.
void release_large_parser() noexcept;

// Members of objects: 422 if they are missing, of another type, or out of bounds. Optional members may also be null.
accepted<std::string_view> string_member(const simdjson::dom::object& x, std::string_view name);
accepted<std::optional<std::string_view>> optional_string_member(const simdjson::dom::object& x, std::string_view name);
/// Bounds included.
accepted<std::uint64_t> unsigned_member(const simdjson::dom::object& x, std::string_view name, std::uint64_t min,
                                        std::uint64_t max);
accepted<std::optional<std::uint64_t>> optional_unsigned_member(const simdjson::dom::object& x, std::string_view name,
                                                                std::uint64_t min, std::uint64_t max);
accepted<std::optional<bool>> optional_bool_member(const simdjson::dom::object& x, std::string_view name);
accepted<simdjson::dom::object> object_member(const simdjson::dom::object& x, std::string_view name);
/// An array of at most `max_items`.
accepted<simdjson::dom::array> array_member(const simdjson::dom::object& x, std::string_view name,
                                            std::size_t max_items);

// Elements in any place; `where` is for the error text: "keys[3]".
accepted<std::string_view> as_string(const simdjson::dom::element& x, std::string_view where);
accepted<std::uint64_t> as_unsigned(const simdjson::dom::element& x, std::string_view where, std::uint64_t min,
                                    std::uint64_t max);
accepted<bool> as_bool(const simdjson::dom::element& x, std::string_view where);
accepted<simdjson::dom::object> as_object(const simdjson::dom::element& x, std::string_view where);
accepted<simdjson::dom::array> as_array(const simdjson::dom::element& x, std::string_view where, std::size_t max_items);

} // namespace troupe::http
