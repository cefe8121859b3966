#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Says where numbers of processes mean the same as in this one: this boot of this kernel, and the process namespace.
/// Empty where the system does not tell.
const std::string& host_identity();

/// The IPv4 addresses of this host but for loopback ones, in the byte order of the host.
std::vector<std::uint32_t> host_addresses();

/// The IPv4 address from which this host sends to another one, by its name or IPv4 address. Nothing is sent.
std::optional<std::uint32_t> address_towards(const std::string& host);

/// The interface by which this host sends to another one, by its name or IPv4 address; empty where that is not known.
std::string interface_towards(const std::string& host);

/// Whether this name means the host itself.
bool is_loopback_name(const std::string& host);

} // namespace troupe
