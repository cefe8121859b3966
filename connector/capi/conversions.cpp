#include "connector/capi/conversions.hpp"

#include "base/geometry_bounds.hpp"
#include "base/layouts.hpp"
#include "base/page_limits.hpp"
#include "connector/capi/boundary.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::capi {

namespace {

/// A node accepts 256 bytes for each text of a namespace. Longer texts keep their beginning, for display.
constexpr std::size_t namespace_text_max = 200;

std::string digest_text(std::string_view text) {
  return to_string(hash_namespace(text));
}

std::string bounded(std::string_view text) {
  if (text.size() <= namespace_text_max)
    return std::string(text);
  std::string out(text.substr(0, namespace_text_max - 40));
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0x80U) != 0)
    out.pop_back();
  return out + "#" + digest_text(text);
}

void append(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append("\n");
}

/// A dtype that nodes know, for elements of `element_bytes`; one of the same size where `said` is unknown to them.
std::string_view known_dtype(std::string_view said, std::uint32_t element_bytes) {
  struct known {
    std::string_view name;
    std::uint32_t bytes = 0;
  };
  constexpr std::array<known, 6> all{
      {{"int8", 1}, {"bfloat16", 2}, {"float32", 4}, {"float16", 2}, {"fp8_e4m3", 1}, {"fp8_e5m2", 1}}};
  const auto same =
      std::ranges::find_if(all, [&](const known& x) { return x.bytes == element_bytes && x.name == said; });
  if (same != all.end())
    return same->name;
  return std::ranges::find(all, element_bytes, &known::bytes)->name; // 1, 2 or 4 by the bounds of the geometry
}

/// A digest of everything that distinguishes engines and has no member of its own in a namespace. `dtype`: the engine's
/// name, where nodes use another one.
std::string salt_of(std::string_view layout, std::string_view hash_algorithm, std::string_view dtype,
                    std::string_view salt) {
  if (layout.empty() && hash_algorithm.empty() && dtype.empty())
    return bounded(salt);
  std::string out;
  append(out, "layout", layout);
  append(out, "hash_algorithm", hash_algorithm);
  append(out, "dtype", dtype);
  append(out, "salt", salt);
  return digest_text(out);
}

/// The name of a namespace to which the engine gives none.
std::string name_of(const namespace_spec& ns) {
  return "engine-" + to_string(ns.id()).substr(0, 16);
}

/// Describes `bytes` per token as heads × head size × bytes of an element, within the bounds of geometries.
result<kv_layer_shape> opaque_shape(std::uint64_t bytes) {
  kv_layer_shape out;
  out.parts = 1;
  for (const auto element_bytes : {1U, 2U, 4U}) {
    const auto elements = bytes / element_bytes;
    for (std::uint32_t heads = 1; bytes % element_bytes == 0 && heads <= geometry_bounds::heads.most; ++heads)
      if (elements % heads == 0 && elements / heads <= geometry_bounds::head_size.most) {
        out.heads = heads;
        out.head_size = static_cast<std::uint32_t>(elements / heads);
        out.element_bytes = element_bytes;
        return out;
      }
  }
  return fail(errc::invalid_argument,
              "geometry.opaque_block_bytes: " + std::to_string(bytes) +
                  " bytes per token cannot be described; at most 64 MiB with small factors can; use smaller pages");
}

result<kv_geometry> geometry_of(const troupe_geometry& said, std::uint32_t block_tokens) {
  const auto* x = &said;
  if (block_tokens == 0)
    block_tokens = x->page_tokens == 0 ? 1 : x->page_tokens;
  kv_geometry out;
  out.layers = x->layers;
  out.block_tokens = x->page_tokens == 0 ? block_tokens : x->page_tokens;
  if (x->opaque_block_bytes == 0) {
    out.parts = x->parts;
    out.heads = x->heads;
    out.head_size = x->head_size;
    out.element_bytes = x->element_bytes;
  } else {
    if (x->parts != 0 || x->heads != 0 || x->head_size != 0 || x->element_bytes != 0)
      return fail(errc::invalid_argument,
                  "geometry: parts, heads, head_size and element_bytes must be 0 where blocks are "
                  "opaque; only opaque_block_bytes is used");
    if (x->opaque_block_bytes % block_tokens != 0)
      return fail(errc::invalid_argument, "geometry.opaque_block_bytes: " + std::to_string(x->opaque_block_bytes) +
                                              " bytes are not a multiple of the " + std::to_string(block_tokens) +
                                              " tokens of a block");
    if (out.block_tokens != block_tokens && block_tokens != 1)
      return fail(errc::invalid_argument, "geometry.page_tokens: where blocks are opaque, a page is one block");
    const auto shape = opaque_shape(x->opaque_block_bytes / block_tokens);
    if (!shape)
      return tl::unexpected(shape.error());
    out.parts = shape->parts;
    out.heads = shape->heads;
    out.head_size = shape->head_size;
    out.element_bytes = shape->element_bytes;
  }
  if (auto sound = check_geometry(out); !sound)
    return tl::unexpected(sound.error());
  if (out.block_tokens % block_tokens != 0)
    return fail(errc::invalid_argument, "geometry.page_tokens: " + std::to_string(out.block_tokens) +
                                            " tokens are not a multiple of the engine's block of " +
                                            std::to_string(block_tokens));
  if (out.page_bytes() > max_page_bytes)
    return fail(errc::invalid_argument, "geometry: a page would have " + std::to_string(out.page_bytes()) +
                                            " bytes; at most " + std::to_string(max_page_bytes) + " are possible");
  return out;
}

result<connector::key_source> keys_of(std::uint32_t keys) {
  switch (keys) {
  case TROUPE_KEYS_ENGINE_HASHES:
    return connector::key_source::engine_hashes;
  case TROUPE_KEYS_MD5_CHAIN:
    return connector::key_source::md5_chain;
  case TROUPE_KEYS_ROLLING:
    return connector::key_source::rolling_chunk_hash;
  default:
    return fail(errc::invalid_argument, "engine.keys: " + std::to_string(keys) + " is not a source of keys");
  }
}

result<connector::disk_hits> disk_hits_of(std::uint32_t hits) {
  switch (hits) {
  case TROUPE_DISK_HITS_ALWAYS:
    return connector::disk_hits::always;
  case TROUPE_DISK_HITS_WHEN_FASTER:
    return connector::disk_hits::when_faster;
  case TROUPE_DISK_HITS_NEVER:
    return connector::disk_hits::never;
  default:
    return fail(errc::invalid_argument,
                "engine.disk_hits: " + std::to_string(hits) + " is not one of TROUPE_DISK_HITS_…");
  }
}

result<connector::event_detail> events_of(std::uint32_t events) {
  switch (events) {
  case TROUPE_EVENTS_CHANGES:
    return connector::event_detail::changes;
  case TROUPE_EVENTS_NONE:
    return connector::event_detail::none;
  case TROUPE_EVENTS_ALL:
    return connector::event_detail::all;
  default:
    return fail(errc::invalid_argument, "engine.events: " + std::to_string(events) + " is not one of TROUPE_EVENTS_…");
  }
}

result<bool> flag_of(std::uint32_t x, const char* name) {
  if (x > 1)
    return fail(errc::invalid_argument, std::string(name) + " is " + std::to_string(x) + "; it must be 0 or 1");
  return x == 1;
}

} // namespace

result<std::string_view> text_of(const char* text, std::string_view name) {
  if (text == nullptr)
    return std::string_view{};
  const auto length = ::strnlen(text, text_bytes_max + 1);
  if (length > text_bytes_max)
    return fail(errc::limit_exceeded, std::string(name) + " has more than " + std::to_string(text_bytes_max) +
                                          " bytes, or does not end with NUL");
  return std::string_view(text, length);
}

result<std::string_view> id_of(const char* text) {
  auto out = text_of(text, "the request's id");
  if (out && out->empty())
    return fail(errc::invalid_argument, "the request's id is empty");
  return out;
}

result<void> read_ids(const troupe_ids& ids, std::string_view name, std::vector<std::string_view>& out) {
  out.clear();
  const auto fault = [&](const char* what) { return fail(errc::invalid_argument, std::string(name) + what); };
  if (ids.data == nullptr && ids.length + ids.count > 0)
    return fault(": data is NULL");
  // Each id has a character and a NUL.
  if (ids.count > ids.length / 2)
    return fault(": length is too short for count");
  out.reserve(ids.count);
  std::string_view rest(ids.data, ids.length);
  while (!rest.empty()) {
    const auto length = rest.find('\0');
    if (length == std::string_view::npos)
      return fault(": the last id does not end with NUL");
    if (length == 0 || length > text_bytes_max)
      return fault(": an id is empty or longer than 4096 bytes");
    out.push_back(rest.substr(0, length));
    rest.remove_prefix(length + 1);
  }
  if (out.size() != ids.count)
    return fault(": count is not the number of ids");
  return {};
}

result<std::span<const connector::block_hash>> hashes_of(const std::uint8_t* data, std::size_t count,
                                                         std::uint32_t hash_bytes, std::string_view name,
                                                         std::vector<connector::block_hash>& room) {
  static_assert(sizeof(connector::block_hash) == 32 && alignof(connector::block_hash) == 1);
  if (data == nullptr && count > 0)
    return fail(errc::invalid_argument, std::string(name) + " is NULL but must have elements");
  if (hash_bytes == sizeof(connector::block_hash))
    return std::span(reinterpret_cast<const connector::block_hash*>(data), count);
  room.assign(count, {});
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(room[i].data(), data + i * hash_bytes, hash_bytes);
  return std::span<const connector::block_hash>(room);
}

result<duration> seconds_of(double seconds, duration if_zero, std::string_view name) {
  constexpr double year = 365.0 * 86400;
  if (!(seconds >= 0 && seconds <= year))
    return fail(errc::invalid_argument, std::string(name) + ": must be from 0 to a year, in seconds");
  if (seconds == 0)
    return if_zero;
  return std::chrono::duration_cast<duration>(std::chrono::duration<double>(seconds));
}

key_digest digest_of(const std::uint8_t* bytes) noexcept {
  const auto big = [](const std::uint8_t* from) {
    std::uint64_t out = 0;
    for (int i = 0; i < 8; ++i)
      out = (out << 8U) | from[i];
    return out;
  };
  return {big(bytes), big(bytes + 8)};
}

void put_digest(const key_digest& x, std::uint8_t* to) noexcept {
  for (unsigned i = 0; i < 8; ++i) {
    to[i] = static_cast<std::uint8_t>(x.hi >> (56 - 8 * i));
    to[8 + i] = static_cast<std::uint8_t>(x.lo >> (56 - 8 * i));
  }
}

result<engine_terms> engine_of(const troupe_engine* engine) {
  const auto x = read(engine, "engine");
  if (!x)
    return tl::unexpected(x.error());
  const auto or_default = [](std::uint32_t value, std::uint32_t otherwise) { return value == 0 ? otherwise : value; };
  engine_terms out;
  auto& to = out.options;
  to.parallel.tensor_parallel = or_default(x->tensor_parallel, 1);
  to.parallel.pipeline_parallel = or_default(x->pipeline_parallel, 1);
  to.parallel.context_parallel = or_default(x->context_parallel, 1);
  to.block_tokens = or_default(x->block_tokens, 16);
  to.min_load_tokens = x->min_load_tokens;
  out.hash_bytes = or_default(x->hash_bytes, 32);
  if (out.hash_bytes < 8 || out.hash_bytes > 32)
    return fail(errc::invalid_argument,
                "engine.hash_bytes is " + std::to_string(out.hash_bytes) + "; it must be 8 to 32");
  result<void> sound;
  const auto take = [&sound](auto& target, auto value, auto convert) {
    if (!sound)
      return;
    if (!value)
      sound = tl::unexpected(value.error());
    else
      target = convert(*value);
  };
  const auto same = [](auto v) { return v; };
  take(to.parallel.kv_replicated, flag_of(x->kv_replicated, "engine.kv_replicated"), same);
  take(to.keys, keys_of(x->keys), same);
  take(to.disk, disk_hits_of(x->disk_hits), same);
  take(to.save_generated, flag_of(x->prompts_only, "engine.prompts_only"), [](bool only) { return !only; });
  take(to.synchronous_loads, flag_of(x->synchronous_loads, "engine.synchronous_loads"), same);
  take(to.events, events_of(x->events), same);
  take(to.lease, seconds_of(x->lease_seconds, to.lease, "engine.lease_seconds"), same);
  take(to.lookup_patience, seconds_of(x->lookup_patience_seconds, to.lookup_patience, "engine.lookup_patience_seconds"),
       same);
  take(to.task_deadline, seconds_of(x->task_deadline_seconds, to.task_deadline, "engine.task_deadline_seconds"), same);
  take(to.synchronous_load_limit,
       seconds_of(x->synchronous_load_seconds, to.synchronous_load_limit, "engine.synchronous_load_seconds"), same);
  if (sound)
    sound = connector::validate(to.parallel);
  if (!sound)
    return tl::unexpected(sound.error());
  return out;
}

result<namespace_terms> namespace_of(const troupe_namespace* ns, std::uint32_t world_size, std::uint32_t block_tokens) {
  const auto x = read(ns, "namespace");
  if (!x)
    return tl::unexpected(x.error());
  std::array<std::string_view, 7> texts;
  const std::array<std::pair<const char*, const char*>, 7> said{{{x->name, "namespace.name"},
                                                                 {x->model, "namespace.model"},
                                                                 {x->revision, "namespace.revision"},
                                                                 {x->dtype, "namespace.dtype"},
                                                                 {x->layout, "namespace.layout"},
                                                                 {x->hash_algorithm, "namespace.hash_algorithm"},
                                                                 {x->salt, "namespace.salt"}}};
  for (std::size_t i = 0; i < said.size(); ++i) {
    const auto text = text_of(said[i].first, said[i].second);
    if (!text)
      return tl::unexpected(text.error());
    texts[i] = *text;
  }
  const auto shape = read(x->geometry, "geometry");
  if (!shape)
    return tl::unexpected(shape.error());
  auto geometry = geometry_of(*shape, block_tokens);
  if (!geometry)
    return tl::unexpected(geometry.error());
  namespace_spec out;
  out.model = bounded(texts[1]);
  out.revision = bounded(texts[2]);
  out.geometry = std::move(*geometry);
  out.dtype = known_dtype(texts[3], out.geometry.element_bytes);
  out.layout = shape->opaque_block_bytes != 0 ? layout_of_whole_blocks : layout_of_elements;
  out.salt = salt_of(texts[4], texts[5], texts[3] == out.dtype ? std::string_view{} : texts[3], texts[6]);
  out.world_size = x->world_size == 0 ? world_size : x->world_size;
  out.name = texts[0].empty() ? name_of(out) : std::string(texts[0]);
  return namespace_terms{std::move(out), shape->opaque_block_bytes};
}

namespace {

result<connector::group_kind> kind_of(std::uint32_t kind) {
  switch (kind) {
  case TROUPE_GROUP_FULL:
    return connector::group_kind::full;
  case TROUPE_GROUP_WINDOW:
    return connector::group_kind::window;
  case TROUPE_GROUP_CHUNK:
    return connector::group_kind::chunk;
  case TROUPE_GROUP_STATE:
    return connector::group_kind::state;
  default:
    return fail(errc::invalid_argument, "group.kind: " + std::to_string(kind) + " is unknown");
  }
}

/// Adds one group with its namespace.
result<void> add_group(const troupe_group& said, const connector::engine_options& engine, group_terms& out) {
  const auto x = read(&said, "group");
  if (!x)
    return tl::unexpected(x.error());
  const auto kind = kind_of(x->kind);
  if (!kind)
    return tl::unexpected(kind.error());
  const auto tables = array_of(x->tables, x->table_count, "group.tables");
  if (!tables)
    return tl::unexpected(tables.error());
  const auto parallel = x->stage == 0 ? engine.parallel : connector::one_stage(engine.parallel);
  auto wanted = namespace_of(x->ns, connector::kv_world_size(parallel), 1);
  if (!wanted)
    return tl::unexpected(wanted.error());
  if (x->stage != 0) {
    // Stages with as many layers have pages of one shape, and other bytes in them.
    const bool unnamed = wanted->spec.name == name_of(wanted->spec);
    wanted->spec.salt = digest_text("stage " + std::to_string(x->stage) + " of " +
                                    std::to_string(engine.parallel.pipeline_parallel) + " " + wanted->spec.salt);
    if (unnamed)
      wanted->spec.name = name_of(wanted->spec);
  }
  out.layout.groups.push_back({.kind = *kind,
                               .tokens = x->tokens,
                               .extra_tokens = x->extra_tokens,
                               .block_tokens = x->block_tokens,
                               .tables = {tables->begin(), tables->end()},
                               .ns = wanted->spec.id(),
                               .stage = x->stage});
  out.layout.namespaces.push_back(std::move(wanted->spec));
  out.opaque_block_bytes.push_back(wanted->opaque_block_bytes);
  return {};
}

/// Puts all groups into the identity of each. So pages of an engine with other groups are never combined with these,
/// and the node knows which namespaces belong together.
result<void> relate(connector::grouped_layout& layout) {
  std::string all;
  bool ends_anywhere = false;
  append(all, "page_tokens", std::to_string(layout.page_tokens));
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const auto& group = layout.groups[g];
    const auto same = std::ranges::find(layout.groups, group.ns, &connector::page_group::ns);
    if (same != layout.groups.begin() + static_cast<std::ptrdiff_t>(g))
      return fail(errc::invalid_argument, "groups " + std::to_string(same - layout.groups.begin()) + " and " +
                                              std::to_string(g) +
                                              " have the same identity, so that one would read the pages of the "
                                              "other: give each a namespace.layout of its own");
    ends_anywhere = ends_anywhere || group.kind == connector::group_kind::chunk ||
                    (group.kind == connector::group_kind::window && group.tokens + group.extra_tokens <= 1);
    append(all, "namespace", to_string(group.ns));
    append(all, "kind", std::to_string(static_cast<unsigned>(group.kind)));
    append(all, "tokens", std::to_string(group.tokens));
    append(all, "extra_tokens", std::to_string(group.extra_tokens));
    append(all, "block_tokens", std::to_string(group.block_tokens));
    append(all, "tables", std::to_string(group.tables.size()));
  }
  // A model with one group has the identity of its namespace alone.
  if (layout.groups.size() < 2)
    return {};
  auto whole = digest_text(all);
  if (ends_anywhere)
    whole += namespace_spec::ends_anywhere;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    auto& ns = layout.namespaces[g];
    const bool unnamed = ns.name == name_of(ns);
    ns.group_of = whole;
    layout.groups[g].ns = ns.id();
    if (unnamed)
      ns.name = name_of(ns);
  }
  return {};
}

} // namespace

result<group_terms> groups_of(const troupe_groups* groups, const connector::engine_options& engine) {
  // Some kinds of layers, in each of some pipeline stages.
  constexpr std::size_t groups_max = 128;
  const auto x = read(groups, "groups");
  if (!x)
    return tl::unexpected(x.error());
  if (x->count > groups_max)
    return fail(errc::limit_exceeded, "groups: more than " + std::to_string(groups_max));
  const auto said = array_of(x->groups, x->count, "groups.groups");
  if (!said)
    return tl::unexpected(said.error());
  group_terms out;
  out.layout.page_tokens = x->page_tokens;
  // Elements have the size of the caller's build.
  const auto* at = reinterpret_cast<const std::byte*>(said->data());
  for (std::size_t i = 0; i < x->count; ++i) {
    const auto* group = reinterpret_cast<const troupe_group*>(at);
    if (group->size < 2 * sizeof(std::uint32_t))
      return fail(errc::invalid_argument, "group.size is not the size of the struct");
    if (auto added = add_group(*group, engine, out); !added)
      return tl::unexpected(added.error());
    at += group->size;
  }
  if (auto related = relate(out.layout); !related)
    return tl::unexpected(related.error());
  return out;
}

result<kv_cache_view> cache_of(const kv_geometry& geometry, std::uint32_t blocks_per_page,
                               std::uint64_t opaque_block_bytes, const troupe_layer* layers, std::size_t layer_count,
                               std::uint32_t blocks) {
  const auto said = array_of(layers, layer_count, "layers");
  if (!said)
    return tl::unexpected(said.error());
  if (layer_count != geometry.layer_count())
    return fail(errc::identity_mismatch, std::to_string(layer_count) + " layers, but the namespace has " +
                                             std::to_string(geometry.layer_count()));
  kv_cache_view out;
  out.geometry = geometry;
  out.blocks = blocks;
  out.blocks_per_page = blocks_per_page;
  out.opaque_blocks = opaque_block_bytes != 0;
  out.layers.reserve(layer_count);
  const auto content = geometry.first_shape().content_bytes();
  for (const auto& x : *said) {
    tensor_view view{
        static_cast<std::byte*>(x.base), x.bytes, x.block_stride, x.part_stride, x.token_stride, x.head_stride};
    if (x.base == nullptr)
      return fail(errc::invalid_argument, "a layer's base is NULL");
    if (opaque_block_bytes != 0) {
      view.part_stride = opaque_block_bytes;
      view.token_stride = content;
      view.head_stride = content * out.tokens_per_block();
    }
    out.layers.push_back(view);
  }
  if (auto sound = validate(out); !sound)
    return tl::unexpected(sound.error());
  return out;
}

} // namespace troupe::capi
