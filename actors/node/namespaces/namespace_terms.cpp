#include "actors/node/namespaces/namespace_terms.hpp"

#include "base/size_text.hpp"
#include "io/page.hpp"

namespace troupe {

namespace {

/// The limit of `storage.ranks`.
constexpr std::uint32_t ranks_max = 64;

/// What a config says about its only namespace, for a client, which has neither that config nor its lines.
std::string without_place(const config::problem& x) {
  constexpr std::string_view list = "namespaces[0].";
  return (x.path.starts_with(list) ? x.path.substr(list.size()) : x.path) + ": " + x.text;
}

} // namespace

result<void> judge_namespace(const config::node_config& options, const io::arena_facts& arena,
                             const namespace_spec& ns) {
  if (!options.actors.make_namespaces)
    return fail(errc::unsupported, "clients cannot create namespaces on this node (actors.make_namespaces): add it to "
                                   "the config, or attach to an existing one");
  if (ns.world_size == 0 || ns.world_size > ranks_max)
    return fail(errc::invalid_argument, "world_size is " + std::to_string(ns.world_size) + ", and must be from 1 to " +
                                            std::to_string(ranks_max));
  // The namespace is validated as part of a config.
  config::node_config judged;
  judged.memory = options.memory;
  judged.transfer.window_bytes = std::max(judged.transfer.window_bytes, options.transfer.window_bytes);
  judged.registry.memory_bytes = options.registry.memory_bytes;
  judged.storage.ranks.resize(ns.world_size);
  judged.namespaces = {ns};
  if (const auto problems = config::validate(judged); !problems.empty())
    return fail(errc::invalid_argument, "a namespace that a client creates: " + without_place(problems.front()));
  const auto slot = io::slot_bytes(ns.geometry.page_bytes());
  if (slot > arena.extent_bytes)
    return fail(errc::invalid_argument,
                "a page of namespace '" + ns.name + "' takes " + size_text(slot) +
                    ", and this node assigns its memory in extents of " + size_text(arena.extent_bytes) +
                    ": give it more memory (memory.bytes), or name the namespace in its config");
  if (options.registry.durability == "strict" &&
      (options.memory.write_back == "never" || options.storage.disk_bytes == 0))
    return fail(errc::unsupported, "this node guarantees that a saved page is on the disk "
                                   "(registry.durability), and has no disk space for namespaces that clients create: "
                                   "give it some (storage.disk_bytes), or name the namespace in its config");
  return {};
}

std::string differing_parts(const namespace_spec& a, const namespace_spec& b) {
  std::string out;
  const auto compare = [&out](bool same, const char* what) {
    if (!same)
      out.append(out.empty() ? "" : ", ").append(what);
  };
  compare(a.model == b.model, "model");
  compare(a.revision == b.revision, "revision");
  compare(a.dtype == b.dtype, "dtype");
  compare(a.layout == b.layout, "layout");
  compare(a.salt == b.salt, "salt");
  compare(a.group_of == b.group_of, "group_of");
  compare(a.world_size == b.world_size, "world_size");
  compare(a.geometry == b.geometry, "kv_cache");
  return out;
}

} // namespace troupe
