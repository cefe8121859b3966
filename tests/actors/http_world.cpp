#include "tests/actors/http_world.hpp"

#include "actors/node/metrics/metrics.hpp"
#include "actors/node/namespaces/namespaces.hpp"
#include "actors/node/registry/registry.hpp"
#include "http/registry/asking_rounds.hpp"

#include <caf/all.hpp>

#include <utility>

namespace troupe::test {

struct http_world::system_options : caf::actor_system_config {
  system_options() {
    register_messages(*this);
    set("scheduler.max-threads", std::size_t{2});
    set("work-stealing.moderate-poll-attempts", std::size_t{0});
  }
};

namespace {

/// Stands before an actor, counts what comes, and hands it on as it is.
class counting_proxy final : public caf::monitorable_actor {
public:
  counting_proxy(caf::actor_config& config, caf::strong_actor_ptr behind, std::atomic<std::uint64_t>& count)
      : caf::monitorable_actor(config), behind_(std::move(behind)), count_(count) {}

  void enqueue(caf::mailbox_element_ptr message, caf::execution_unit* thread) override {
    ++count_;
    behind_->enqueue(std::move(message), thread);
  }

  const char* name() const override { return "counting_proxy"; }

private:
  caf::strong_actor_ptr behind_;
  std::atomic<std::uint64_t>& count_;
};

registry_actor counted(caf::actor_system& system, const registry_actor& shard, std::atomic<std::uint64_t>& count) {
  caf::actor_config config;
  return caf::actor_cast<registry_actor>(caf::make_actor<counting_proxy, caf::strong_actor_ptr>(
      system.next_actor_id(), system.node(), &system, config, caf::actor_cast<caf::strong_actor_ptr>(shard), count));
}

} // namespace

http_world::http_world(const add_routes& add, const config::http_config& config, std::uint32_t shards,
                       http::observer* watcher)
    : options_(std::make_unique<system_options>()), system_(std::make_unique<caf::actor_system>(*options_)) {
  metrics_ = spawn_actor<::troupe::metrics>(*system_, "test");
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    registry_options how;
    how.shard = shard;
    how.shard_count = shards;
    shards_.push_back(spawn_actor<registry>(*system_, how, std::vector<namespace_spec>{}, metrics_));
  }
  // Sent before the shards are known elsewhere, so it is the first message that each of them receives.
  for (const auto& x : shards_)
    caf::anon_send(x, bind_atom_v, registry_peers{shards_, {}, {}, {}});
  namespaces_config how;
  how.shards = shards_;
  namespaces_ = spawn_actor<namespaces>(*system_, how, std::vector<add_namespace_request>{}, std::vector<known_rank>{});
  std::vector<registry_actor> listening_sockets;
  for (const auto& x : shards_)
    listening_sockets.push_back(counted(*system_, x, asked_shards_));
  service_ = std::make_shared<const metadata_service>(*system_, listening_sockets, namespaces_, how.names);
  http::router routes;
  routes.set_rounds(http::asking_rounds(*system_));
  add(routes, service_);
  server_ = http::started(config, std::move(routes), watcher);
}

http_world::~http_world() {
  server_.reset();
  caf::scoped_actor self{*system_};
  const auto end = [&](const auto& x) {
    self->monitor(x);
    self->send_exit(x, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {});
  };
  end(namespaces_);
  for (const auto& x : shards_)
    end(x);
  end(metrics_);
}

http_answer http_world::call(std::string_view method, std::string_view path, std::string_view body,
                             std::string_view more_headers) const {
  http::client c{port()};
  std::string request{method};
  request.append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\nConnection: close\r\n").append(more_headers);
  if (!body.empty())
    request.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  request.append("\r\n").append(body);
  auto reply = c.call(request);
  http_answer out{reply.code, std::move(reply.head), std::move(reply.body), {}};
  out.body = nlohmann::json::parse(out.text, nullptr, false);
  if (out.body.is_discarded())
    out.body = nullptr;
  return out;
}

} // namespace troupe::test
