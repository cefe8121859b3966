#include "actors/node/supervisor/node.hpp"
#include "actors/support/listeners/handshake_name.hpp"
#include "base/log.hpp"
#include "io/memory/arena_name.hpp"

#include <cerrno>
#include <fcntl.h>
#include <utility>

namespace troupe {

namespace {

/// Whether the client requests to be treated as one on another host. The opposite needs no request: the connection
/// proves that a client is on this host.
bool wants_elsewhere(const attach_request& wanted) {
  return wanted.home == home_elsewhere;
}

/// A process that the listener watches as well, as long as the connection lasts.
class shared_watch final : public watched_process {
public:
  explicit shared_watch(std::shared_ptr<watched_process> of) : of_(std::move(of)) {}
  bool gone() override { return of_->gone(); }

private:
  std::shared_ptr<watched_process> of_;
};

/// Duplicates the descriptors of the arena and of its proof for another process.
result<std::vector<unique_descriptor>> descriptors_of(const io::shared_memory_name& name) {
  const auto own = io::decode_arena_name(name);
  if (!own)
    return tl::unexpected<error>(own.error());
  std::vector<unique_descriptor> out;
  for (const auto number : {own->descriptor, own->proof_descriptor}) {
    out.emplace_back(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (!out.back())
      return tl::unexpected<error>(system_error(errno, "the node cannot pass its memory descriptors to the client"));
  }
  return out;
}

} // namespace

result<node::origin> node::origin_of(const attach_request& wanted, const caf::actor& link) const {
  origin out;
  out.number = wanted.process;
  out.elsewhere = wants_elsewhere(wanted);
  if (out.elsewhere)
    return out;
  // An actor of this process is trusted to name the process whose pages it moves. So is every client of a node without
  // listeners, as in a simulation.
  if (link.node() == system().node() || !local_peers_) {
    // The process is watched while it exists, because its process id may be reused later.
    auto process = processes_(wanted.process);
    if (!process)
      return tl::unexpected<error>(process.error());
    out.process = std::move(*process);
    out.ends_itself = wanted.home == home_in_node && link.node() == system().node();
    return out;
  }
  const auto local = local_peers_->find(handshake_name(system(), link.node()));
  if (local)
    out.number = local->number;
  if (local && !local->watch && !options_->remote.enabled)
    return fail(errc::unsupported,
                "the node cannot watch the process of this client, and so does not share memory with it: " +
                    local->unwatched + "; or set remote.enabled in the node's config");
  if (!local || !local->watch) {
    out.elsewhere = true;
    return out;
  }
  out.process = std::make_unique<shared_watch>(local->watch);
  if (!children_.extents)
    return out;
  auto arena = descriptors_of(children_.extents->info().name);
  if (!arena)
    return tl::unexpected<error>(arena.error());
  out.arena = std::move(*arena);
  out.handover = local->handover;
  return out;
}

void node::note_failed(const attach_request& wanted, const error& why) {
  const bool is_of_node = why.code == errc::io_error || why.code == errc::no_space || why.code == errc::no_memory ||
                          why.code == errc::unsupported;
  if (is_of_node && failed_attachments_.tell(clock().now()))
    log::get("node")->warn("client not attached: '{}' (process {}): {}", wanted.client_name, wanted.process,
                           to_string(why));
}

node_watch::places node::places_of_clients() const {
  constexpr std::size_t named_max = 8;
  node_watch::places out{state_.clients(), state_.disconnected_clients(), options_->io.max_clients, {}};
  std::size_t named = 0;
  for (const auto& [owner, x] : disconnected_) {
    if (++named > named_max) {
      out.processes += ", …";
      break;
    }
    out.processes += out.processes.empty() ? "" : ", ";
    out.processes += x.elsewhere ? "on another host" : std::to_string(x.process_id);
  }
  return out;
}

} // namespace troupe
