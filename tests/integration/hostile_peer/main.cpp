/// A peer that speaks CAF as well as a node does, was let in, and means harm: sends everything that could move a node's
/// own actors to every number an actor might have. Then it asks, as a client may, whether it is still served.
///
///     troupe-hostile-peer NODE

#include "actors/client/link/node_address.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"

#include <caf/io/basp_broker.hpp>

#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <unistd.h>
#include <vector>

using namespace troupe;

namespace {

constexpr caf::actor_id most_actors = 400;
constexpr auto patience = std::chrono::seconds(20);

/// Actors of that node by number, whether there are such or not.
std::vector<caf::actor> all_actors(caf::actor_system& system, const caf::node_id& node) {
  std::promise<std::vector<caf::actor>> found;
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  system.middleman().backend().post([&] {
    auto* const by = dynamic_cast<caf::io::basp_broker*>(caf::actor_cast<caf::abstract_actor*>(broker));
    // The broker keeps a pointer to the sender of the last message, on the stack of its reader; outside of reading it
    // is invalid, and a new proxy would follow it.
    by->set_last_hop(nullptr);
    std::vector<caf::actor> out;
    for (caf::actor_id number = 1; number <= most_actors; ++number)
      out.push_back(caf::actor_cast<caf::actor>(by->instance.proxies().get_or_put(node, number)));
    found.set_value(std::move(out));
  });
  return found.get_future().get();
}

class peer {
public:
  peer(caf::actor_system& system, reception_actor node) : self_(system), node_(std::move(node)) {}

  bool attach(std::int32_t process = ::getpid()) {
    bool in = false;
    attach_request wanted;
    wanted.process = process;
    self_->request(node_, patience, wanted, caf::actor_cast<caf::actor>(self_))
        .receive([&](attach_reply& x) { reply_ = std::move(x), in = true; },
                 [](const caf::error& e) { std::cerr << to_string(from_caf(e)) << '\n'; });
    return in && reply_.ns.salt.empty() && !reply_.shards.empty() && !reply_.ranks.empty();
  }

  /// Whether the client's own handles answer.
  bool is_served() {
    bool served = false;
    self_->request(reply_.shards.front(), patience, stats_atom_v)
        .receive([&](const registry_stats&) { served = true; },
                 [](const caf::error& e) { std::cerr << to_string(from_caf(e)) << '\n'; });
    return served;
  }

  /// Asks for memory as well, so that it may be in use as this process ends; whether it was answered.
  bool asks_for_frames() {
    bool answered = false;
    self_->request(reply_.ranks.front().worker, patience, fetch_atom_v, frame_request{{}, std::chrono::seconds(1)})
        .receive([&](const frame_reply&) { answered = true; },
                 // Over TCP it has no memory, as it offers none.
                 [&](const caf::error& e) { answered = from_caf(e).code == errc::unreachable; });
    return answered;
  }

  /// The codes of requests that are a client's, but not this one's to make.
  bool is_held_back() {
    const frame_request live{{{page_ref{{1, 1}, {0, 0xffffffff}}}}, std::chrono::seconds(5)};
    const auto& worker = reply_.ranks.front().worker;
    const auto& shard = reply_.shards.front();
    const ticket other{reply_.owner + 1, 1};
    return refused(worker, place_atom_v, live) && refused(worker, fill_atom_v, fill_request{1, {}, patience}) &&
           refused(worker, unpin_atom_v, pin_number{1}) && refused(shard, release_request{reply_.ns_id, other, 0}) &&
           refused(shard, commit_atom_v, finish_request{reply_.ns_id, 0, other, {}}) &&
           refused(shard, match_request{namespace_id{1, 2}, {reply_.owner, 1}, {}, {}});
  }

  void attack() {
    slot_batch all{{}, false};
    for (std::uint32_t slot = 0; slot < 5000; ++slot)
      all.slots.items.push_back({slot, 0xffffffff});
    frame_request everything{{}, std::chrono::seconds(1)};
    for (std::uint32_t slot = 0; slot < 100; ++slot)
      everything.pages.items.push_back({{slot, slot}, {slot, 1}});
    children_request children{reply_.ns_id, {}};
    for (std::uint64_t i = 1; i <= 20'000; ++i)
      children.changes.items.push_back({{i, i}, 1});
    const auto actors = all_actors(self_->system(), node_->node());
    const auto me = self_->address();
    for (const auto& x : actors)
      for (const auto reason : {caf::exit_reason::user_shutdown, caf::exit_reason::kill})
        say(x, caf::exit_msg{me, reason});
    for (const auto& x : actors) {
      say(x, caf::exit_msg{x.address(), caf::exit_reason::kill});
      say(x, caf::down_msg{me, caf::exit_reason::kill});
      say(x, caf::make_error(caf::sec::runtime_error));
      say(x, written_atom_v, std::uint8_t{13}, std::string("forged"));
      say(x, written_atom_v, std::uint8_t{0}, std::string());
      say(x, drain_atom_v);
      say(x, remove_namespace_request{reply_.ns_id, true});
      say(x, fence_atom_v, all);
      say(x, take_atom_v, std::uint32_t{5000}, duration(std::chrono::hours(1)));
      say(x, bind_atom_v, registry_peers{});
      say(x, owner_died_atom_v, reply_.owner);
      say(x, evict_request{reply_.ns_id, 0, 5000});
      say(x, erase_request{reply_.ns_id, all_ranks, {}});
      say(x, clear_request{reply_.ns_id, all_ranks, 0});
      say(x, fetch_atom_v, owner_id{5}, everything);
      say(x, unpin_atom_v, owner_id{5}, pin_number{1});
      say(x, owner_quiesced_atom_v, reply_.owner);
      say(x, grow_atom_v, std::uint32_t{1'000'000});
      say(x, io_completions{{{io_completion_record{1, 0, 0}}}});
      say(x, restored_atom_v);
      say(x, caf::leave_atom_v, reply_.owner, caf::actor_cast<caf::actor>(self_));
      say(x, caf::link_atom_v, caf::actor_cast<caf::strong_actor_ptr>(self_));
      say(x, caf::link_atom_v, caf::actor_cast<caf::strong_actor_ptr>(x));
      say(x, caf::sys_atom_v, caf::get_atom_v, std::string("info"));
      say(x, caf::spawn_atom_v, std::string("x"), caf::make_message());
    }
    // Long ones to few.
    for (std::size_t i = 0; i < 20; ++i)
      say(actors[i], children);
    // Messages of clients, sent to actors that they have no handle of.
    for (const auto& x : actors) {
      say(x, unpin_atom_v, pin_number{1});
      say(x, fetch_atom_v, everything);
      say(x, stats_atom_v);
    }
  }

private:
  template <class... Ts>
  void say(const caf::actor& to, const Ts&... xs) {
    self_->send(to, xs...);
    caf::anon_send(to, xs...);
  }

  template <class Handle, class... Ts>
  bool refused(const Handle& to, const Ts&... xs) {
    bool out = false;
    self_->request(caf::actor_cast<caf::actor>(to), patience, xs...)
        .receive([](const caf::message&) {},
                 [&](const caf::error& e) {
                   const auto code = from_caf(e).code;
                   out = code == errc::not_owner || code == errc::not_found || code == errc::unknown_namespace;
                   if (!out)
                     std::cerr << to_string(from_caf(e)) << '\n';
                 });
    return out;
  }

  caf::scoped_actor self_;
  reception_actor node_;
  attach_reply reply_;
};

} // namespace

int main(int argc, char** argv) {
  // With a number: claims to be that process, requests memory, and dies.
  const auto where = parse_node_address(argc == 2 || argc == 3 ? argv[1] : "");
  if (!where) {
    std::cerr << where.error().text << '\n';
    return 2;
  }
  system_config config{config::caf_config{}};
  caf::actor_system system(config);
  const auto ways = *listeners::make(system, {});
  reception_actor node;
  caf::scoped_actor self{system};
  self->request(ways->dialer(), patience, caf::connect_atom_v, where->host, where->port)
      .receive([&](const caf::node_id&, caf::strong_actor_ptr& found,
                   const std::set<std::string>&) { node = caf::actor_cast<reception_actor>(found); },
               [&](const caf::error& e) { std::cerr << system.render(e) << '\n'; });
  if (!node)
    return 1;
  peer attacker(system, node);
  if (argc == 3) {
    if (!attacker.attach(std::atoi(argv[2])) || !attacker.is_served() || !attacker.asks_for_frames())
      return 1;
    std::cout << "attached as another\n" << std::flush;
    ::_exit(0);
  }
  if (!attacker.attach() || !attacker.is_held_back())
    return 1;
  attacker.attack();
  if (!attacker.is_served() || !attacker.is_held_back())
    return 1;
  std::cout << "served to the end\n";
  return 0;
}
