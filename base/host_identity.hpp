#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Identifies the scope of process numbers: this boot of this kernel, and the process namespace. Empty where the system
/// does not provide it.
const std::string& host_identity();

/// The IPv4 addresses of this host except loopback ones, in host byte order.
std::vector<std::uint32_t> host_addresses();

/// The IPv4 address from which this host sends to another one, given by name or IPv4 address. Nothing is sent.
std::optional<std::uint32_t> address_towards(const std::string& host);

/// The interface from which this host sends to another one, given by name or IPv4 address; empty where it is unknown.
std::string interface_towards(const std::string& host);

/// Whether the name is a name of this host's loopback interface.
bool is_loopback_name(const std::string& host);

} // namespace troupe
