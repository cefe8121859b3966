#include "store/records.hpp"

#include "base/hex.hpp"
#include "store/handshake_records.hpp"
#include "store/record_bytes.hpp"

#include <algorithm>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace troupe::store {

namespace {

/// The version without epochs.
constexpr std::uint8_t first_identity_version = 1;
constexpr std::uint8_t identity_version = 2;
/// All layers have one shape.
constexpr std::uint8_t uniform_namespace = 1;
/// Layers may have several shapes.
constexpr std::uint8_t mixed_namespace = 2;
/// The same, with the origin of the namespace.
constexpr std::uint8_t namespace_with_origin = 3;
/// The same, for a namespace that a client made. It is written for these only, so that builds that do not know it
/// refuse nothing else.
constexpr std::uint8_t namespace_of_client = 4;
/// The same, for one of a model's groups of layers: written for these only.
constexpr std::uint8_t namespace_of_group = 5;

constexpr std::size_t digest_bytes = 16;
constexpr std::size_t namespace_key_bytes = 1 + digest_bytes;
constexpr std::size_t rank_key_bytes = namespace_key_bytes + 4;
constexpr std::size_t page_key_bytes = namespace_key_bytes + digest_bytes + 4;
constexpr std::size_t description_key_bytes = namespace_key_bytes + digest_bytes;
constexpr std::size_t page_value_bytes = 8;
constexpr std::size_t incarnation_bytes = 8;
constexpr std::size_t rank_value_bytes = 8;

// More characters of a malformed key are of no use.
constexpr std::size_t most_hex = 128;

void append_geometry(std::string& out, const kv_geometry& x) {
  for (const auto field : {x.layers, x.parts, x.heads, x.head_size, x.element_bytes, x.block_tokens})
    append_little(out, field);
}

void append_further(std::string& out, const std::vector<kv_layer_group>& groups) {
  append_little(out, static_cast<std::uint32_t>(groups.size()));
  for (const auto& x : groups)
    for (const auto field : {x.layers, x.shape.parts, x.shape.heads, x.shape.head_size, x.shape.element_bytes})
      append_little(out, field);
}

kv_geometry read_geometry(byte_reader& in) {
  kv_geometry x;
  for (auto* const field : {&x.layers, &x.parts, &x.heads, &x.head_size, &x.element_bytes, &x.block_tokens})
    *field = in.little<std::uint32_t>();
  return x;
}

std::vector<kv_layer_group> read_further(byte_reader& in) {
  std::vector<kv_layer_group> out;
  const auto count = in.little<std::uint32_t>();
  // A wrong count ends with the bytes, and allocates no more memory than there are bytes.
  for (std::uint32_t i = 0; i < count && in.sound(); ++i) {
    auto& x = out.emplace_back();
    auto& shape = x.shape;
    for (auto* const field : {&x.layers, &shape.parts, &shape.heads, &shape.head_size, &shape.element_bytes})
      *field = in.little<std::uint32_t>();
  }
  return out;
}

} // namespace

node_identity first_identity() {
  node_identity made;
  made.run = 1;
  std::random_device entropy;
  for (auto& b : made.secret)
    b = static_cast<std::byte>(entropy() & 0xffU);
  return made;
}

void append_identity_key(std::string& out) {
  out.append(first_of(table::identity));
}

void append_namespace_key(std::string& out, const namespace_id& ns) {
  out.push_back(static_cast<char>(table::namespaces));
  append_big_digest(out, ns);
}

void append_rank_prefix(std::string& out, const namespace_id& ns) {
  out.push_back(static_cast<char>(table::ranks));
  append_big_digest(out, ns);
}

void append_page_prefix(std::string& out, const namespace_id& ns) {
  out.push_back(static_cast<char>(table::pages));
  append_big_digest(out, ns);
}

void append_description_prefix(std::string& out, const namespace_id& ns) {
  out.push_back(static_cast<char>(table::descriptions));
  append_big_digest(out, ns);
}

void append_description_key(std::string& out, const namespace_id& ns, const key_digest& key) {
  append_description_prefix(out, ns);
  append_big_digest(out, key);
}

void append_value(std::string& out, const description_record& record) {
  out += record.text;
}

void append_rank_key(std::string& out, const namespace_id& ns, rank_number rank) {
  append_rank_prefix(out, ns);
  append_big(out, rank);
}

void append_page_key(std::string& out, const namespace_id& ns, const key_digest& key, rank_number rank) {
  append_page_prefix(out, ns);
  append_big_digest(out, key);
  append_big(out, rank);
}

void append_value(std::string& out, const node_identity& record) {
  append_little(out, identity_version);
  append_little(out, record.run);
  for (const auto b : record.secret)
    out.push_back(to_char(std::to_integer<std::uint64_t>(b)));
  append_little(out, record.epoch);
  append_little(out, record.next_epoch);
}

void append_value(std::string& out, const namespace_record& record) {
  const auto without_group = record.origin == stored_origin::client ? namespace_of_client : namespace_with_origin;
  append_little(out, record.spec.group_of.empty() ? without_group : namespace_of_group);
  append_little(out, static_cast<std::uint8_t>(record.mode));
  append_little(out, static_cast<std::uint8_t>(record.slot_index ? 1 : 0));
  append_little(out, record.max_ranks);
  append_little(out, static_cast<std::uint64_t>(record.created.time_since_epoch().count()));
  const auto& spec = record.spec;
  for (const auto* const text : {&spec.name, &spec.model, &spec.revision, &spec.dtype, &spec.layout, &spec.salt})
    append_text(out, *text);
  append_little(out, spec.world_size);
  append_geometry(out, spec.geometry);
  append_further(out, spec.geometry.further);
  append_little(out, static_cast<std::uint8_t>(record.origin));
  if (!spec.group_of.empty())
    append_text(out, spec.group_of);
}

void append_value(std::string& out, const rank_record& record) {
  append_little(out, record.slots);
  if (record.incarnation != 0)
    append_little(out, record.incarnation);
}

void append_value(std::string& out, const page_record& record) {
  append_little(out, record.where.slot);
  append_little(out, record.where.generation);
  if (record.incarnation != 0)
    append_little(out, record.incarnation);
  if (!record.parent.is_null()) {
    append_little(out, record.parent.hi);
    append_little(out, record.parent.lo);
  }
}

result<node_identity> decode_identity(std::string_view key, std::string_view value) {
  if (!is_key_of(key, table::identity, 1))
    return wrong_key(key);
  byte_reader in(value);
  const auto version = in.little<std::uint8_t>();
  if (version != first_identity_version && version != identity_version && !value.empty())
    return wrong_version(key, version, identity_version);
  node_identity record;
  record.run = in.little<std::uint64_t>();
  const auto secret = in.take(record.secret.size());
  if (version == identity_version) {
    record.epoch = in.little<incarnation_number>();
    record.next_epoch = in.little<incarnation_number>();
  }
  if (!in.ended_well())
    return wrong_value(key, value);
  std::ranges::transform(secret, record.secret.begin(), [](char c) { return static_cast<std::byte>(to_byte(c)); });
  return record;
}

result<namespace_record> decode_namespace(std::string_view key, std::string_view value) {
  if (!is_key_of(key, table::namespaces, namespace_key_bytes))
    return wrong_key(key);
  namespace_record record;
  record.id = byte_reader(key.substr(1)).big_digest<namespace_id>();
  byte_reader in(value);
  const auto version = in.little<std::uint8_t>();
  if ((version < uniform_namespace || version > namespace_of_group) && !value.empty())
    return wrong_version(key, version, namespace_of_group);
  const auto mode = in.little<std::uint8_t>();
  record.mode = static_cast<world_size_mode>(mode);
  const auto slot_index = in.little<std::uint8_t>();
  record.slot_index = slot_index != 0;
  record.max_ranks = in.little<std::uint32_t>();
  using seconds = std::chrono::sys_seconds::duration;
  record.created = std::chrono::sys_seconds(seconds(static_cast<std::int64_t>(in.little<std::uint64_t>())));
  auto& spec = record.spec;
  for (auto* const text : {&spec.name, &spec.model, &spec.revision, &spec.dtype, &spec.layout, &spec.salt})
    *text = in.text();
  spec.world_size = in.little<std::uint32_t>();
  spec.geometry = read_geometry(in);
  if (version >= mixed_namespace)
    spec.geometry.further = read_further(in);
  const auto origin = version >= namespace_with_origin ? in.little<std::uint8_t>() : std::uint8_t{0};
  record.origin = static_cast<stored_origin>(origin);
  if (version == namespace_of_group)
    spec.group_of = in.text();
  if (!in.ended_well() || mode > static_cast<std::uint8_t>(world_size_mode::automatic) || slot_index > 1 ||
      origin > static_cast<std::uint8_t>(version >= namespace_of_client ? stored_origin::client : stored_origin::api) ||
      (version == namespace_of_group && spec.group_of.empty()))
    return wrong_value(key, value);
  return record;
}

result<rank_record> decode_rank(std::string_view key, std::string_view value) {
  if (!is_key_of(key, table::ranks, rank_key_bytes))
    return wrong_key(key);
  byte_reader name(key.substr(1));
  rank_record record;
  record.ns = name.big_digest<namespace_id>();
  record.rank = name.big<rank_number>();
  byte_reader in(value);
  record.slots = in.little<std::uint64_t>();
  if (value.size() == rank_value_bytes + incarnation_bytes)
    record.incarnation = in.little<incarnation_number>();
  if (!in.ended_well())
    return wrong_value(key, value);
  return record;
}

result<page_record> decode_page(std::string_view key, std::string_view value) {
  if (!is_key_of(key, table::pages, page_key_bytes))
    return wrong_key(key);
  const bool has_parent = value.size() >= page_value_bytes + digest_bytes;
  const auto without_parent = value.size() - (has_parent ? digest_bytes : 0);
  if (without_parent != page_value_bytes && without_parent != page_value_bytes + incarnation_bytes)
    return wrong_value(key, value);
  byte_reader name(key.substr(1));
  byte_reader in(value);
  page_record record;
  record.ns = name.big_digest<namespace_id>();
  record.key = name.big_digest<key_digest>();
  record.rank = name.big<rank_number>();
  record.where.slot = in.little<slot_number>();
  record.where.generation = in.little<generation_number>();
  if (without_parent > page_value_bytes)
    record.incarnation = in.little<incarnation_number>();
  if (has_parent) {
    record.parent.hi = in.little<std::uint64_t>();
    record.parent.lo = in.little<std::uint64_t>();
  }
  return record;
}

result<description_record> decode_description(std::string_view key, std::string_view value) {
  if (!is_key_of(key, table::descriptions, description_key_bytes))
    return wrong_key(key);
  byte_reader name(key.substr(1));
  description_record record;
  record.ns = name.big_digest<namespace_id>();
  record.key = name.big_digest<key_digest>();
  record.text = value;
  return record;
}

std::string describe_key(std::string_view key) {
  if (auto handshake = describe_handshake_key(key))
    return *std::move(handshake);
  byte_reader in(key.substr(std::min<std::size_t>(key.size(), 1)));
  if (is_key_of(key, table::identity, 1))
    return "identity of the node";
  if (is_key_of(key, table::namespaces, namespace_key_bytes))
    return "namespace " + to_string(in.big_digest<namespace_id>());
  if (is_key_of(key, table::ranks, rank_key_bytes)) {
    const auto ns = to_string(in.big_digest<namespace_id>());
    return "rank " + std::to_string(in.big<rank_number>()) + " of namespace " + ns;
  }
  if (is_key_of(key, table::pages, page_key_bytes)) {
    const auto ns = to_string(in.big_digest<namespace_id>());
    const auto digest = to_string(in.big_digest<key_digest>());
    return "page of key " + digest + " and rank " + std::to_string(in.big<rank_number>()) + " in namespace " + ns;
  }
  if (is_key_of(key, table::descriptions, description_key_bytes)) {
    const auto ns = to_string(in.big_digest<namespace_id>());
    return "description of key " + to_string(in.big_digest<key_digest>()) + " in namespace " + ns;
  }
  if (is_key_of(key, table::descriptions, namespace_key_bytes))
    return "descriptions of namespace " + to_string(in.big_digest<namespace_id>());
  if (is_key_of(key, table::ranks, namespace_key_bytes))
    return "ranks of namespace " + to_string(in.big_digest<namespace_id>());
  if (is_key_of(key, table::pages, namespace_key_bytes))
    return "pages of namespace " + to_string(in.big_digest<namespace_id>());
  std::string out = "0x";
  append_hex(out, std::as_bytes(std::span(key.substr(0, most_hex / 2))));
  return key.size() > most_hex / 2 ? out + "…" : out;
}

std::string pages_from(const namespace_id& ns, std::uint64_t digest_hi) {
  std::string out = first_of(table::pages);
  append_big_digest(out, ns);
  append_big(out, digest_hi);
  return out;
}

std::string first_of(table which) {
  return std::string(1, static_cast<char>(which));
}

std::string end_of_prefix(std::string_view prefix) {
  std::string out(prefix);
  while (static_cast<unsigned char>(out.back()) == 0xff)
    out.pop_back();
  out.back() = to_char(std::uint64_t{static_cast<unsigned char>(out.back())} + 1);
  return out;
}

} // namespace troupe::store
