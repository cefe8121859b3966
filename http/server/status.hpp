#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string_view>

namespace troupe::http {

/// The status codes that Troupe answers with, by the names of RFC 9110.
enum class status : std::uint16_t {
  ok = 200,
  created = 201,
  accepted = 202,
  no_content = 204,
  not_modified = 304,
  bad_request = 400,
  unauthorized = 401,
  forbidden = 403,
  not_found = 404,
  method_not_allowed = 405,
  request_timeout = 408,
  conflict = 409,
  gone = 410,
  content_too_large = 413,
  uri_too_long = 414,
  unsupported_media_type = 415,
  expectation_failed = 417,
  misdirected_request = 421,
  unprocessable_content = 422,
  too_many_requests = 429,
  header_fields_too_large = 431,
  internal_server_error = 500,
  not_implemented = 501,
  service_unavailable = 503,
  gateway_timeout = 504,
  insufficient_storage = 507,
};

/// The text in the status line: "Not Found".
std::string_view reason(status code) noexcept;

/// The code for an error. Errors of the client are 4xx, temporary ones 503 or 504, errors of the server 500.
status status_of(errc code) noexcept;

} // namespace troupe::http
