#pragma once

#include "base/digest.hpp"
#include "lmcache/protocol/requests.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::lmcache {

/// The keys of the chunks of a sequence, from the first one to `end`, a number of tokens; an incomplete chunk does not
/// count.
///
/// h(0) = SHA-256 of a text that names model, world size and salt; h(i + 1) = SHA-256(h(i) ‖ the tokens of chunk i,
/// four bytes each, the lowest first); the key of chunk i is the first 128 bits of h(i + 1). The namespace is not
/// included: an index belongs to one namespace, and a lookup does not know which one its workers have. SHA-256, because
/// keys of tenants with different salts are in one index.
///
/// Empty if OpenSSL has no SHA-256. For any thread.
std::vector<key_digest> chunk_keys(const protocol::sequence_key& of, std::span<const std::uint32_t> tokens,
                                   std::uint32_t chunk_tokens);

} // namespace troupe::lmcache
