#include "http/native/native_text.hpp"

#include "http/server/json_members.hpp"
#include "messages/node_messages.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::http::native {

namespace {

using members = json_members;

std::string_view name_of(key_page::use x) noexcept {
  switch (x) {
  case key_page::use::live:
    return "live";
  case key_page::use::reserved:
    return "reserved";
  case key_page::use::allocated:
    return "allocated";
  case key_page::use::shared:
    return "shared";
  }
  return "unknown";
}

void append_geometry(std::string& out, const kv_geometry& x) {
  members m(out);
  m.add("layers", x.layers).add("parts", x.parts).add("heads", x.heads).add("head_size", x.head_size);
  m.add("element_bytes", x.element_bytes).add("block_tokens", x.block_tokens);
  append_list(m.key("further_layers"), x.further, [&](const kv_layer_group& group) {
    members g(out);
    g.add("layers", group.layers).add("parts", group.shape.parts).add("heads", group.shape.heads);
    g.add("head_size", group.shape.head_size).add("element_bytes", group.shape.element_bytes).end();
  });
  m.end();
}

void append_namespace(std::string& out, const namespace_info& x, const caller& reader) {
  members m(out);
  m.add("name", x.spec.name).add("id", to_string(x.spec.id())).add("model", x.spec.model);
  m.add("revision", x.spec.revision).add("dtype", x.spec.dtype).add("layout", x.spec.layout);
  if (reader.may_see_salts())
    m.add("salt", x.spec.salt);
  if (!x.spec.group_of.empty())
    m.add("group_of", x.spec.group_of);
  m.add("world_size", x.spec.world_size);
  append_geometry(m.key("kv_cache"), x.spec.geometry);
  m.add("page_bytes", x.spec.geometry.page_bytes()).add("automatic", x.options.automatic);
  m.add("slot_index", x.options.slot_index).add("max_ranks", x.options.max_ranks);
  m.add("keys", x.keys).add("complete_keys", x.complete_keys).add("evicted_keys", x.evicted_keys);
  m.add("leases", x.leases).add("reservations", x.reservations);
  append_list(m.key("ranks"), x.ranks, [&](const rank_info& rank) {
    members r(out);
    r.add("rank", rank.rank).add("slots", rank.slots).add("live", rank.pages);
    r.add("reserved", rank.reserved).add("withheld", rank.withheld).end();
  });
  m.end();
}

} // namespace

void append_results(std::string& out, std::span<const location> results) {
  // An item is rarely longer.
  out.reserve(out.size() + results.size() * 56);
  append_list(out, results, [&](const location& x) {
    out += R"({"status":)";
    append_json(out, to_string(x.code()));
    if (x.where.generation != 0) {
      out += R"(,"slot":)";
      append_json(out, std::uint64_t{x.where.slot});
      out += R"(,"generation":)";
      append_json(out, std::uint64_t{x.where.generation});
    }
    out += '}';
  });
}

void append_results(std::string& out, std::span<const std::uint8_t> codes) {
  out.reserve(out.size() + codes.size() * 24);
  append_list(out, codes, [&](std::uint8_t x) {
    out += R"({"status":)";
    append_json(out, to_string(errc_from_wire(x)));
    out += '}';
  });
}

void append_ticket(std::string& out, const ticket& x) {
  members(out).add("owner", x.owner).add("sequence", x.sequence).end();
}

std::string created_text(const namespace_spec& x) {
  std::string out;
  members(out).add("name", x.name).add("id", to_string(x.id())).end();
  return out;
}

std::string namespace_text(const namespace_info& x, const caller& reader) {
  std::string out;
  append_namespace(out, x, reader);
  return out;
}

std::string namespaces_text(std::vector<namespace_info> all, const caller& reader) {
  std::ranges::sort(all, {}, [](const namespace_info& x) -> const std::string& { return x.spec.name; });
  std::string out = R"({"namespaces":)";
  append_list(out, all, [&](const namespace_info& x) { append_namespace(out, x, reader); });
  out += '}';
  return out;
}

std::string key_text(const key_digest& key, const key_reply& x) {
  std::string out;
  members m(out);
  m.add("key", to_string(key));
  if (x.parent.is_null())
    m.key("parent") += "null";
  else
    m.add("parent", to_string(x.parent));
  m.add("children", std::int64_t{x.children}).add("leases", x.leases).add("complete", x.complete);
  m.add("protected_for_ms",
        std::int64_t{std::chrono::duration_cast<std::chrono::milliseconds>(x.protected_for).count()});
  append_list(m.key("pages"), x.pages, [&](const key_page& page) {
    members p(out);
    p.add("rank", page.rank).add("state", name_of(page.state));
    if (page.where.generation != 0)
      p.add("slot", page.where.slot).add("generation", page.where.generation);
    p.end();
  });
  m.end();
  return out;
}

std::string stats_text(const registry_stats& x) {
  std::string out;
  members m(out);
  m.add("keys", x.keys).add("complete_keys", x.complete_keys).add("leases", x.leases);
  m.add("reservations", x.reservations).add("evicted_keys", x.evicted_keys);
  m.add("invalidated_pages", x.invalidated_pages).add("expired_leases", x.expired_leases);
  m.add("expired_reservations", x.expired_reservations).add("refused", x.refused);
  m.add("registry_bytes", x.resident_bytes).add("reclaimed_pages", x.reclaimed_pages);
  m.add("erased_pages", x.erased_pages).add("withheld_slots", x.withheld_slots).end();
  return out;
}

namespace {

std::string_view standing_of(const peer_stats& x) {
  if (x.self)
    return "self";
  return x.up ? "up" : "unreachable";
}

} // namespace

std::string cluster_text(const cluster_stats& x) {
  std::string out;
  members m(out);
  m.add("cluster", x.name).add("protocol", protocol_version);
  m.key("nodes") += '[';
  bool is_first = true;
  for (const auto& peer : x.peers) {
    out += is_first ? "" : ",";
    is_first = false;
    members one(out);
    one.add("address", peer.address).add("node", peer.node).add("state", standing_of(peer));
    one.add("lag_us", peer.lag_us);
    one.add("trouble", peer.trouble).add("namespaces", peer.namespaces).add("asked", peer.asked).add("had", peer.had);
    one.add("late", peer.late).add("pages", peer.pages).add("bytes", peer.bytes).add("failed", peer.failed);
    one.add("learned_keys", peer.learned_keys);
    one.add("file_pages", peer.file_pages).add("file_bytes", peer.file_bytes).add("files_stale", peer.files_stale);
    one.add("files_damaged", peer.files_damaged).add("files_failed", peer.files_failed);
    one.add("served_pages", peer.served_pages).add("served_bytes", peer.served_bytes).end();
  }
  out += ']';
  if (const auto& etcd = x.etcd; !etcd.endpoints.empty()) {
    m.key("etcd");
    members one(out);
    one.add("endpoints", etcd.endpoints).add("state", etcd.up ? "up" : "unreachable").add("trouble", etcd.trouble);
    one.add("registered", etcd.registered).add("listed", etcd.listed).add("senseless", etcd.senseless);
    one.add("requests", etcd.requests).add("failed", etcd.failed).add("leases_lost", etcd.leases_lost).end();
  }
  if (!x.adopted.empty()) {
    m.key("adopted") += '[';
    is_first = true;
    for (const auto& dead : x.adopted) {
      out += is_first ? "" : ",";
      is_first = false;
      members one(out);
      one.add("node", dead.node).add("own", dead.own).add("keys", dead.keys).add("asked", dead.asked);
      one.add("had", dead.had).add("pages", dead.pages).add("bytes", dead.bytes).add("failed", dead.failed).end();
    }
    out += ']';
  }
  m.end();
  return out;
}

} // namespace troupe::http::native
