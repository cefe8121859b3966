#include "handshake/etag.hpp"

#include "base/digest.hpp"

#include <span>

namespace troupe::handshake {

std::string etag_of(std::string_view incarnation, std::string_view payload) {
  return to_string(chain_key(hash_key(std::as_bytes(std::span(incarnation))), std::as_bytes(std::span(payload))));
}

} // namespace troupe::handshake
