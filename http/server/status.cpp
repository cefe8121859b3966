#include "http/server/status.hpp"

namespace troupe::http {

std::string_view reason(status code) noexcept {
  switch (code) {
  case status::ok:
    return "OK";
  case status::created:
    return "Created";
  case status::accepted:
    return "Accepted";
  case status::no_content:
    return "No Content";
  case status::not_modified:
    return "Not Modified";
  case status::bad_request:
    return "Bad Request";
  case status::unauthorized:
    return "Unauthorized";
  case status::forbidden:
    return "Forbidden";
  case status::not_found:
    return "Not Found";
  case status::method_not_allowed:
    return "Method Not Allowed";
  case status::request_timeout:
    return "Request Timeout";
  case status::conflict:
    return "Conflict";
  case status::gone:
    return "Gone";
  case status::content_too_large:
    return "Content Too Large";
  case status::uri_too_long:
    return "URI Too Long";
  case status::unsupported_media_type:
    return "Unsupported Media Type";
  case status::expectation_failed:
    return "Expectation Failed";
  case status::misdirected_request:
    return "Misdirected Request";
  case status::unprocessable_content:
    return "Unprocessable Content";
  case status::too_many_requests:
    return "Too Many Requests";
  case status::header_fields_too_large:
    return "Request Header Fields Too Large";
  case status::internal_server_error:
    return "Internal Server Error";
  case status::not_implemented:
    return "Not Implemented";
  case status::service_unavailable:
    return "Service Unavailable";
  case status::gateway_timeout:
    return "Gateway Timeout";
  case status::insufficient_storage:
    return "Insufficient Storage";
  }
  return "Unknown";
}

status status_of(errc code) noexcept {
  switch (code) {
  case errc::ok:
    return status::ok;
  case errc::invalid_argument:
  case errc::out_of_range:
    return status::bad_request;
  case errc::not_found:
  case errc::unknown_namespace:
    return status::not_found;
  case errc::exists:
  case errc::busy:
  case errc::not_owner:
  case errc::stale:
  case errc::identity_mismatch:
    return status::conflict;
  case errc::expired:
    return status::gone;
  case errc::limit_exceeded:
    return status::too_many_requests;
  case errc::unsupported:
    return status::not_implemented;
  case errc::cancelled:
  case errc::unreachable:
  case errc::shutting_down:
    return status::service_unavailable;
  case errc::timeout:
    return status::gateway_timeout;
  case errc::full:
  case errc::no_space:
  case errc::no_memory:
    return status::insufficient_storage;
  case errc::corrupt:
  case errc::io_error:
  case errc::slab_damaged:
  case errc::internal:
  case errc::device_error:
    return status::internal_server_error;
  }
  return status::internal_server_error;
}

} // namespace troupe::http
