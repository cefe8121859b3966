#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_address.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// Identifies the scope of process numbers: this boot of this kernel, and the process namespace. Empty where the system
/// does not provide it.
const std::string& host_identity();

/// The addresses of this host, IPv4 and IPv6, except loopback and link-local ones.
std::vector<host_address> host_addresses();

/// The address by which this host reaches a listener, given by a name or an address: that of a connection, which is
/// closed at once. So where the name has several addresses, it is one that works. Blocks for `limit` at most, and for
/// `resolve_time` while the name is resolved. Errors: those of `resolve_host` and `connect_to_any`.
result<host_address> address_towards(const std::string& host, std::uint16_t port, duration limit);

/// Whether this host has the address `own`, and reaches the other one by the interface of it without a router.
bool is_on_network_of(const host_address& own, const host_address& other);

/// The interface that has the address; empty where none has it.
std::string interface_with(const host_address& address);

} // namespace troupe
