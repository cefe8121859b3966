#include "actors/lmcache/lmcache_service.hpp"

#include "actors/support/actor_support.hpp"
#include "base/log.hpp"
#include "base/processors.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// How long threads that seal, verify or copy pages may take to finish their current work. Only a hanging device takes
/// longer.
constexpr duration lanes_end = std::chrono::seconds(10);

} // namespace

result<std::unique_ptr<lmcache::listener>> lmcache_service::prepare(const config::lmcache_config& options,
                                                                    std::shared_ptr<lmcache::counters> counts,
                                                                    bool with_events) {
  lmcache::listener_options wanted;
  wanted.host = options.host;
  wanted.port = options.port;
  wanted.chunk_tokens = options.chunk_tokens;
  wanted.counts = std::move(counts);
  wanted.keeps_tokens = with_events;
  return lmcache::listener::open(wanted);
}

lmcache_service::lmcache_service(caf::actor_system& system, const lmcache_node& node,
                                 const config::node_config& options, std::unique_ptr<lmcache::listener> listener)
    : system_(system), listener_(std::move(listener)), users_(std::make_shared<arena_users>(node.extents)),
      log_(node.log) {
  const auto inbox = std::make_shared<lmcache_inbox>();
  lmcache_server_parts parts;
  parts.answer = [listener = listener_](const lmcache::incoming& to, std::optional<std::string> frame) {
    listener->answer(to, std::move(frame));
  };
  parts.answer_again = [listener = listener_](const lmcache::incoming& to, std::string frame) {
    listener->answer_again(to, std::move(frame));
  };
  parts.forget = [listener = listener_](const lmcache::incoming& x) { listener->forget(x); };
  parts.log = node.log;
  parts.inbox = inbox;
  parts.counters = node.counters;
  parts.node = node.node;
  parts.shards = node.shards;
  parts.extents = node.extents;
  parts.users = users_;
  parts.shared_name = node.extents->shared_name();
  parts.chunk_tokens = options.lmcache.chunk_tokens;
  parts.fetch_time = options.cluster.fetch_time;
  // One client of the node looks up for all: lookups that wait for other nodes leave room for others.
  parts.asking_max = options.actors.max_requests / 4;
  parts.lanes = std::clamp(usable_processors() / 4, 1U, 4U);
  server_ = spawn_actor<lmcache_server>(system, std::move(parts));
  const auto put = [inbox, server = server_](lmcache_inbox::event x) {
    if (inbox->put(std::move(x)))
      caf::anon_send(server, caf::update_atom_v);
  };
  if (log_)
    log_->wake_with([server = server_] { caf::anon_send(server, caf::update_atom_v); });
  lmcache::listener::request_handler to;
  to.asked = [put](lmcache::incoming x) { put(std::make_shared<lmcache::incoming>(std::move(x))); };
  to.gone = [put](lmcache::client_number x) { put(x); };
  listener_->serve(std::move(to));
}

lmcache_service::~lmcache_service() {
  stop();
}

void lmcache_service::stop() {
  if (!server_)
    return;
  if (log_)
    log_->wake_with(nullptr);
  caf::scoped_actor self{system_};
  self->request(server_, lanes_end, drain_atom_v)
      .receive([] {},
               [](const caf::error&) {
                 log::get("lmcache")->warn("some requests of LMCache's clients could not be answered before the end");
               });
  listener_->stop();
  self->monitor(server_);
  self->send_exit(server_, caf::exit_reason::user_shutdown);
  self->receive([](const caf::down_msg&) {});
  server_ = nullptr;
  if (!users_->wait(lanes_end))
    log::get("lmcache")->warn("pages of a worker are still being copied: the memory is kept until that has ended");
}

} // namespace troupe
