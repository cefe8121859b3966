#pragma once

#include "actors/cluster/pages/inbound_transfers.hpp"
#include "actors/cluster/pages/staging_buffer.hpp"
#include "messages/messages.hpp"
#include "tests/cluster_actors/host.hpp"
#include "tests/cluster_actors/stub.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cluster_actors {

using staging_buffers = std::vector<std::shared_ptr<cluster::staging_buffer>>;

/// A client of a node that is attached to a namespace of a peer: models of its lookup and load coordinators. It
/// attaches again when it has lost its peer, until it is closed.
class session_client : public std::enable_shared_from_this<session_client> {
public:
  session_client(host& home, std::size_t to, const namespace_id& ns, staging_buffers memory);

  /// After it is made: its actors.
  void spawn();
  void attached_as(owner_id owner, std::uint64_t connection);
  void connection_lost(std::size_t to, std::uint64_t connection);
  void attachment_ended(owner_id owner);
  /// Everything in progress is answered.
  void close();
  /// Nothing is answered any more.
  void forget();

  const lookup_actor& lookup() const noexcept { return lookup_; }
  const std::vector<transfer_actor>& load() const noexcept { return load_; }
  const std::vector<client_shard_actor>& shards() const noexcept { return shards_; }
  std::size_t loads_under_way() const noexcept { return loads_.size(); }
  /// Null while it is not attached.
  owner_id owner() const noexcept { return owner_; }
  std::size_t to() const noexcept { return to_; }
  const namespace_id& ns() const noexcept { return ns_; }

private:
  struct running_load {
    simulation::passing request;
    rank_number rank = 0;
    transfer_task work;
    std::vector<page_bytes> pages;
    std::vector<errc> codes;
    std::size_t next = 0;
    /// Where it fails on purpose.
    std::optional<std::size_t> breaks_at;
  };

  void on_lookup(const simulation::passing& x);
  void on_release(const simulation::passing& x);
  void on_load(rank_number rank, const simulation::passing& x);
  void on_shard(const simulation::passing& x);
  void on_read(std::uint64_t number, const result<std::vector<page_bytes>>& read);
  void go_on(std::uint64_t number);
  /// Writes the page at a position to its frame or block. False if it is damaged.
  bool write(const running_load& x, std::size_t at);
  void end_load(std::uint64_t number, errc rest);
  void fail_loads();
  void attach_later();

  host& home_;
  const std::size_t to_;
  const namespace_id ns_;
  staging_buffers memory_;
  owner_id owner_ = 0;
  std::uint64_t connection_ = 0;
  bool closed_ = false;
  bool attaching_ = false;
  lookup_actor lookup_;
  std::vector<transfer_actor> load_;
  std::vector<client_shard_actor> shards_;
  std::map<std::uint64_t, running_load> loads_;
  std::uint64_t last_load_ = 0;
};

/// The client that saves pages of peers at its own node: models of its save coordinators and of their copy engines.
class own_client : public std::enable_shared_from_this<own_client> {
public:
  own_client(host& home, const namespace_id& ns, staging_buffers memory);

  void spawn();
  void close();
  void forget();
  void namespace_removed(const namespace_id& ns);

  const std::vector<transfer_actor>& save() const noexcept { return save_; }
  const std::vector<std::shared_ptr<cluster::inbound_transfers>>& coming() const noexcept { return coming_; }
  std::size_t saves_under_way() const noexcept { return saves_.size(); }

private:
  /// Pages of one request to the sender.
  struct batch {
    std::vector<std::size_t> positions;
    std::vector<std::shared_ptr<cluster::target_frame>> frames;
  };
  struct running_save {
    simulation::passing request;
    rank_number rank = 0;
    transfer_task work;
    std::vector<errc> codes;
    std::size_t open_batches = 0;
  };

  void on_save(rank_number rank, const simulation::passing& x);
  void begin(std::uint64_t number);
  void request(std::uint64_t number, running_save& of, std::vector<std::size_t> positions);
  void on_sent(std::uint64_t number, const batch& what, const result<transfer_result>& outcome);
  void keep(const running_save& of, std::size_t position, const batch& what, std::size_t at);
  void end_save(std::uint64_t number, std::optional<error> failed = std::nullopt);
  void detach_frames(rank_number rank, const transfer_task& work, const batch& what) const;

  host& home_;
  const namespace_id ns_;
  staging_buffers memory_;
  bool closed_ = false;
  /// The node has ended its attachment, which does not come back.
  bool lost_ = false;
  std::vector<transfer_actor> save_;
  std::vector<std::shared_ptr<cluster::inbound_transfers>> coming_;
  std::map<std::uint64_t, running_save> saves_;
  std::uint64_t last_save_ = 0;
};

} // namespace troupe::cluster_actors
