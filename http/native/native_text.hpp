#pragma once

#include "http/server/caller.hpp"
#include "messages/cluster_messages.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The answers of the native API, as JSON text.

namespace troupe::http::native {

/// `[{"status":"ok","slot":1,"generation":2},{"status":"not_found"}]`: the location of a page is included if `where`
/// has a generation.
void append_results(std::string& out, std::span<const location> results);
/// `[{"status":"ok"},…]`
void append_results(std::string& out, std::span<const std::uint8_t> codes);
/// `{"owner":1,"sequence":2}`
void append_ticket(std::string& out, const ticket& x);

/// `{"name":"a","id":"…"}`
std::string created_text(const namespace_spec& x);
/// The description of a namespace. The salt, which prevents others from naming the same keys, is for administrators
/// only.
std::string namespace_text(const namespace_info& x, const caller& reader);
std::string namespaces_text(std::vector<namespace_info> all, const caller& reader);
std::string key_text(const key_digest& key, const key_reply& x);
std::string stats_text(const registry_stats& x);
std::string cluster_text(const cluster_stats& x);

} // namespace troupe::http::native
