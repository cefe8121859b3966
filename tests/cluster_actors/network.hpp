#pragma once

#include "actors/cluster/peer_network.hpp"
#include "tests/cluster_actors/clients.hpp"
#include "tests/cluster_actors/host.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster_actors {

/// The network of one run of a node. Attaching and detaching take their time one after the other, as in a thread that
/// blocks.
class network final : public cluster::peer_network {
public:
  explicit network(host& home) : home_(home), system_(home.in()->system()) {}

  caf::actor_system& system() override { return system_; }
  result<void> connect(cluster::line_order order, std::function<void(result<cluster::connected_peer>)> then) override;
  void end_dialer(caf::io::middleman_actor which) override;
  result<void> open(cluster::client_order order, std::function<void(result<cluster::opened_client>)> then) override;
  void close(cluster::opened_client client) override;
  bool has_resolver() const override { return home_.world().p.by_name; }
  result<void> resolve(std::vector<config::cluster_seed> names,
                       std::function<void(cluster::seeds_resolved)> then) override;
  void close(std::shared_ptr<cluster::etcd_channel>, std::optional<cluster::etcd_request>) override {}

  /// The process ends.
  void end();
  void connection_lost(std::size_t to, std::uint64_t connection);
  void namespace_removed(const namespace_id& ns);
  void attachment_ended(owner_id owner);

  /// Clients that are open, or are being closed.
  std::size_t clients() const noexcept { return sessions_.size() + own_.size(); }
  /// What the clients have in progress; empty if nothing.
  std::string under_way() const;
  /// Staging buffers that are still referred to, of all clients that were ever made here.
  std::size_t staging_buffers() const;

private:
  using opened = std::function<void(result<cluster::opened_client>)>;

  /// Whether an order may be enqueued: not at the end, and now and then not because the queue is full.
  result<void> accept();
  /// Runs one after the other; each calls what it is passed when it has ended.
  void enqueue(std::function<void(std::function<void()>)> task);
  void run_next();
  void dial(std::uint64_t dialer, const simulation::passing& request);
  /// The host at an address, or any host that runs behind the common name.
  std::optional<std::size_t> host_at(const std::string& name) const;
  caf::strong_actor_ptr reception_of(std::size_t to, std::uint64_t connection);
  void on_hello(std::size_t to, std::uint64_t connection, const simulation::passing& x);
  void open_own(const cluster::client_order& order, const opened& then);
  void open_session(const cluster::client_order& order, const opened& then, const std::function<void()>& done);
  cluster::opened_client describe(const namespace_spec& ns, const std::string& node, owner_id owner) const;

  host& home_;
  caf::actor_system& system_;
  bool ended_ = false;
  bool at_work_ = false;
  std::deque<std::function<void(std::function<void()>)>> tasks_;
  /// Those that have not been ended.
  std::map<std::uint64_t, caf::strong_actor_ptr> dialers_;
  std::uint64_t last_dialer_ = 0;
  std::vector<caf::strong_actor_ptr> stubs_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<caf::strong_actor_ptr>> receptions_;
  std::vector<std::shared_ptr<session_client>> sessions_;
  std::vector<std::shared_ptr<own_client>> own_;
  std::vector<std::weak_ptr<cluster::staging_buffer>> memory_;
};

} // namespace troupe::cluster_actors
