#pragma once

#include "actors/client/link/link.hpp"
#include "io/page.hpp"
#include "tests/actors/registry_support.hpp"

#include <chrono>
#include <memory>
#include <vector>

/// A link between probes: a node with two ranks on one side, a client's actors for both on the other.

namespace troupe::test {

/// The actors of a client and of the node for one rank.
struct linked_rank {
  explicit linked_rank(caf::actor_system& system) : copier(system), load(system), save(system), worker(system) {}
  probe copier;
  probe load;
  probe save;
  probe worker;
};

struct link_world : sim {
  static constexpr owner_id owner = 4711;
  static constexpr std::uint64_t slot = 8192;
  static constexpr auto limit = std::chrono::seconds(30);
  static constexpr auto timeout = std::chrono::seconds(2);

  probe node{system()};
  probe shard{system()};
  probe lookup{system()};
  std::vector<std::unique_ptr<linked_rank>> ranks;
  link_actor session;

  link_world() {
    for (int i = 0; i < 2; ++i)
      ranks.push_back(std::make_unique<linked_rank>(system()));
    session = spawn<troupe::link>(options());
  }

  /// The link does not wait for what no test answers.
  ~link_world() {
    caf::anon_send_exit(session, caf::exit_reason::kill);
    run();
  }

  link_options options() const {
    link_options out;
    out.local = node.as<reception_actor>();
    out.client_name = "an engine";
    out.namespace_name = "small";
    out.window_bytes = 5 * slot + 4096;
    out.attach.request_timeout = timeout;
    return out;
  }

  attach_reply welcome() const {
    attach_reply out;
    out.owner = owner;
    out.node_name = "test node";
    out.ns_id = small_namespace(2).id();
    out.ns = small_namespace(2);
    out.limits = {64 * slot, 64, 32, std::chrono::seconds(60), std::chrono::seconds(50)};
    out.arena = {640 * slot, 64 * slot, std::vector<std::uint8_t>{7, 8, 9}};
    out.shards = {shard.as<client_shard_actor>()};
    for (rank_number rank = 0; rank < ranks.size(); ++rank)
      out.ranks.push_back({rank, 10, ranks[rank]->worker.as<client_worker_actor>()});
    return out;
  }

  client_parts parts() const {
    client_parts out{lookup.as<lookup_actor>(), {}};
    for (rank_number rank = 0; rank < ranks.size(); ++rank) {
      const auto& x = *ranks[rank];
      out.ranks.push_back(
          {rank, x.copier.as<copy_engine_actor>(), x.load.as<transfer_actor>(), x.save.as<transfer_actor>()});
    }
    return out;
  }

  std::uint64_t wait(duration time = limit) { return begin(session, wait_attached_atom_v, time); }
  std::uint64_t bind(duration time = limit) { return begin(session, bind_atom_v, parts(), time); }
  bool came(std::uint64_t number) { return client().answer_to(number).came; }
  owner_id attached_as() { return ask(session, attached_atom_v).value<attach_reply>().owner; }

  received attaching() { return node.take_one<attach_request, caf::actor>(); }
  void attach(const attach_reply& as) {
    node.reply(attaching(), caf::make_message(as));
    run();
  }
  void attach() { attach(welcome()); }

  received mapping(std::size_t rank) { return ranks[rank]->copier.take_one<bind_atom, owner_id, arena_info>(); }
  received binding_lookup() { return lookup.take_one<bind_atom, lookup_binding>(); }
  static received binding(probe& coordinator) { return coordinator.take_one<bind_atom, coordinator_binding>(); }

  template <class... Ts>
  void answer(probe& from, const received& to, Ts... xs) {
    from.reply(to, caf::make_message(std::move(xs)...));
    run();
  }

  /// Completes the binding of one rank.
  void bind_rank(std::size_t rank) {
    auto& x = *ranks[rank];
    answer(x.copier, mapping(rank));
    answer(x.load, binding(x.load));
    answer(x.save, binding(x.save));
  }
  void bind_all() {
    answer(lookup, binding_lookup());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      bind_rank(rank);
  }
  /// From nothing to work.
  void work() {
    attach();
    work_after_attach();
  }
  void work_after_attach() {
    const auto number = bind();
    bind_all();
    REQUIRE(client().answer_to(number).code() == errc::ok);
    check_unbound(false);
  }

  /// Whether all of the client's actors, or none of them, were unbound since the last call.
  void check_unbound(bool notified = true) {
    const auto was_notified = [](probe& x) { return !x.take<unbind_atom>().empty(); };
    CHECK(was_notified(lookup) == notified);
    for (const auto& x : ranks) {
      CHECK(was_notified(x->load) == notified);
      CHECK(was_notified(x->save) == notified);
    }
  }
  /// Whether the node was notified once that the client detaches.
  void check_left() { CHECK(node.take_one<caf::leave_atom, owner_id>().get<owner_id>(1) == owner); }

  /// The request to the copy engine of a rank to quiesce.
  received resting(std::size_t rank) { return ranks[rank]->copier.take_one<unbind_atom, owner_id>(); }
  /// All of them have nothing under way of that attachment.
  void rest(owner_id of = owner) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto x = resting(rank);
      CHECK(x.get<owner_id>(1) == of);
      answer(ranks[rank]->copier, x);
    }
  }
  /// The attachments that were reported to the node as quiesced since the last call.
  std::vector<owner_id> quiesced() {
    std::vector<owner_id> out;
    for (const auto& x : node.take<owner_quiesced_atom, owner_id>())
      out.push_back(x.get<owner_id>(1));
    return out;
  }
  bool session_lives() const {
    return !caf::actor_cast<caf::abstract_actor*>(session)->getf(caf::abstract_actor::is_terminated_flag);
  }
};

} // namespace troupe::test
