#include "actors/cluster/pages/staging_client.hpp"

#include "actors/client/copy_engine/copy_engine.hpp"
#include "actors/cluster/pages/session_rules.hpp"
#include "actors/cluster/pages/staging_copier.hpp"
#include "actors/cluster/pages/staging_mover.hpp"
#include "base/processors.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

/// A batch is copied when all of it has arrived. With twice as many as usual the copy of a chunk's first half overlaps
/// with the arrival of its second one, where a chunk is large since few are copied at once.
constexpr std::uint32_t load_batches = 8;

} // namespace

result<opened_client> open_staging_client(caf::actor_system& system, const node_client::options& how,
                                          link_options where, const namespace_id& ns, std::uint64_t memory_bytes,
                                          const std::optional<namespace_here>& like) {
  opened_client out;
  out.client = std::make_shared<node_client>(system, how);
  auto attached = out.client->attach(std::move(where), session_limit);
  if (!attached)
    return tl::unexpected<error>(attached.error());
  out.node = std::move(*attached);
  // The ranks are sorted so that a rank uses the same memory at all nodes.
  std::ranges::sort(out.node.ranks, {}, &rank_endpoint::rank);
  const auto& geometry = out.node.ns.geometry;
  if (like)
    out.memory = like->memory;
  namespace_shape found{out.node.ns_id, geometry, {}};
  for (const auto& x : out.node.ranks)
    found.ranks.push_back(x.rank);
  if (auto fits = check_session(found, ns, like ? like->geometry : geometry,
                                like ? like->memory.size() : out.node.ranks.size());
      !fits)
    return tl::unexpected<error>(fits.error());
  const auto blocks = staging_blocks(memory_bytes, geometry.page_bytes());
  out.copies_at_once = calls_for(usable_processors(), out.node.ranks.size());
  for (std::size_t i = 0; i < out.node.ranks.size(); ++i) {
    if (out.memory.size() == i)
      out.memory.push_back(std::make_shared<staging_buffer>(geometry, blocks));
    node_client::rank_memory rank;
    if (like)
      rank.batches_in_window = load_batches;
    rank.rank = out.node.ranks[i].rank;
    // Pages from another node are scattered, into a frame or a block. A page is saved at this node from its block.
    rank.mover = make_staging_mover(out.memory[i],
                                    like ? staging_calls{1, out.copies_at_once} : staging_calls{out.copies_at_once, 1});
    if (!like) {
      out.coming.push_back(std::make_shared<inbound_transfers>());
      rank.make_copier = [coming = out.coming.back(), memory = out.memory[i]](
                             caf::actor_system& in,
                             std::shared_ptr<copy_engine_state> state) -> result<copy_engine_actor> {
        auto copies = spawn_copy_engine(in, state);
        if (!copies)
          return copies;
        return copy_engine_actor(spawn_actor<staging_copier>(in, std::move(state), coming, memory, std::move(*copies)));
      };
    }
    if (!out.node.ranks[i].slab.path.empty())
      rank.as_pages = out.memory[i]->blocks();
    if (auto added = out.client->add_rank(std::move(rank)); !added)
      return tl::unexpected<error>(added.error());
  }
  if (auto bound = out.client->bind(session_limit); !bound)
    return tl::unexpected<error>(bound.error());
  out.lookup = out.client->lookup();
  for (std::size_t i = 0; i < out.node.ranks.size(); ++i) {
    out.load.push_back(out.client->load(i));
    out.save.push_back(out.client->save(i));
  }
  return out;
}

} // namespace troupe::cluster
