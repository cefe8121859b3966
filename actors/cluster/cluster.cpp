#include "actors/cluster/cluster.hpp"

#include "actors/client/link/node_address.hpp"
#include "actors/cluster/pages/staging_client.hpp"
#include "actors/support/ask.hpp"
#include "base/log.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <utility>

namespace troupe::cluster {

namespace {

/// The most small pages that move together, because a slow file system has to read them in one go.
constexpr std::uint32_t chunk_pages = 256;
/// The pause after a peer session could not be opened.
constexpr auto session_pause = std::chrono::seconds(3);
/// Peers change in small numbers. More idle dialers than these exist only after a list was full of false entries.
constexpr std::size_t idle_dialers_kept = 4;

std::vector<std::string> addresses_of(const config::cluster_config& x) {
  std::vector<std::string> out;
  for (const auto& seed : x.seeds)
    out.push_back(to_string(node_address{seed.host, seed.port}));
  return out;
}

membership_options rules_of(const cluster_parts& parts) {
  const auto& options = *parts.options;
  return {parts.self, options.cluster.hello_interval, options.attach.reconnect_backoff_min,
          options.attach.reconnect_backoff_max, std::random_device{}()};
}

auto session_has_ended() {
  return fail(errc::unreachable, "the session with this peer has ended");
}

} // namespace

cluster::cluster(caf::actor_config& config, cluster_parts parts)
    : cluster_self::base(config), parts_(std::move(parts)),
      members_(rules_of(parts_), addresses_of(parts_.options->cluster)),
      fetching_({parts_.options->cluster.ask_time, parts_.options->cluster.fetch_time,
                 parts_.options->transfer.task_deadline, std::min(chunk_pages, parts_.options->registry.max_batch_keys),
                 256, 4096, [this](const namespace_id& ns) { return peers_for(ns); },
                 parts_.options->cluster.keep_copies, first_adopted}),
      searching_({parts_.options->cluster.ask_time, parts_.options->cluster.fetch_time, 4096,
                  std::min<std::size_t>(64, parts_.options->transfer.max_tasks),
                  [this](const namespace_id& ns) { return peers_for(ns); }, parts_.options->cluster.keep_copies,
                  first_adopted},
                 fetching_),
      rules_(session_pause), idle_dialers_(idle_dialers_kept, 10 * parts_.options->cluster.hello_interval) {}

std::function<void(cluster_event)> cluster::poster() {
  return [self = caf::actor_cast<caf::actor>(this)](cluster_event what) {
    caf::anon_send(self, posted_event{std::make_shared<cluster_event>(std::move(what))});
  };
}

cluster::behavior_type cluster::make_behavior() {
  begin_etcd();
  begin_adopting();
  send(this, caf::tick_atom_v);
  return {
      [this](const prefix_fetch_request& wanted) {
        return wait_as<prefix_fetch_reply>({caller_of::fetching, fetching_.wanted_prefix(wanted, now())});
      },
      [this](const search_peers_request& wanted) {
        return wait_as<search_peers_reply>({caller_of::searching, searching_.search(wanted, now())});
      },
      [this](const fetch_pages_request& wanted) {
        return wait_as<prefix_fetch_reply>({caller_of::searching, searching_.fetch(wanted, now())});
      },
      [this](stats_atom) { return stats(); },
      [this](caf::tick_atom) {
        tick_.came(now());
        on_tick();
      },
      [this](posted_event& x) {
        std::visit([this](auto& what) { on(what); }, *x.what);
        flush();
      },
  };
}

void cluster::make_connection(const say_hello& first) {
  const auto where = parse_node_address(members_.address(first.peer));
  if (!where)
    return members_.on_answer(first.peer, first.number, tl::unexpected<error>(where.error()), now());
  line_order order;
  order.where = *where;
  order.spare = idle_dialers_.take().value_or(caf::io::middleman_actor{});
  order.limit = 2 * parts_.options->cluster.hello_interval;
  order.on_lost = [peer = first.peer, post = poster()] { post(line_lost{peer}); };
  const auto accepted =
      parts_.network->connect(std::move(order), [first, post = poster()](result<connected_peer> made) {
        // A failure counts as no answer: the next round sends another hello.
        if (made)
          post(line_made{first, std::move(*made)});
        else
          post(hello_answered{first, tl::unexpected<error>(made.error())});
      });
  if (!accepted)
    members_.on_answer(first.peer, first.number, tl::unexpected<error>(accepted.error()), now());
}

// The peer may have been left out by now: then the line is dropped.
void cluster::on(const line_made& x) {
  lines_[x.first.peer] = x.line;
  send_hello(x.first);
}

void cluster::on(const line_lost& x) {
  members_.on_lost(x.peer, now());
}

void cluster::drop_lines() {
  for (auto i = lines_.begin(); i != lines_.end();) {
    if (members_.is_known(i->first)) {
      ++i;
      continue;
    }
    caf::anon_send_exit(i->second.actor, caf::exit_reason::user_shutdown);
    idle_dialers_.put(std::move(i->second.dialer), now());
    fetching_.forget(i->first);
    if (parts_.condition)
      parts_.condition->ends(trouble::peer_unreachable, static_cast<node_condition::part_number>(i->first));
    i = lines_.erase(i);
    follow();
  }
}

void cluster::end_idle_dialers() {
  while (auto idle = idle_dialers_.take_expired(now()))
    parts_.network->end_dialer(*std::move(idle));
}

void cluster::on_exit() {
  for (auto& [who, promise] : std::exchange(waiting_, {})) {
    if (who.first == caller_of::fetching)
      promise.deliver(prefix_fetch_reply{});
    else
      promise.deliver(to_caf(error{errc::shutting_down, "the node is shutting down"}));
  }
  for (const auto& [call, cancel] : std::exchange(asked_shards_, {}))
    cancel();
  for (const auto& [peer, x] : std::exchange(lines_, {}))
    caf::anon_send_exit(x.actor, caf::exit_reason::user_shutdown);
  idle_dialers_.clear();
  if (channel_)
    parts_.network->close(std::exchange(channel_, nullptr), etcd_->deregistration());
  // These wait for reads in progress and give claims back.
  adopted_reads_.reset();
  adopter_.reset();
  adopted_.clear();
  for (auto& [name, x] : std::exchange(sessions_, {}))
    parts_.network->close(std::move(x.client));
  for (auto& [id, x] : std::exchange(namespaces_, {}))
    parts_.network->close(std::move(x));
  parts_ = {};
}

template <class Reply>
caf::result<Reply> cluster::wait_as(const caller& who) {
  auto promise = make_response_promise();
  waiting_.emplace(who, promise);
  flush();
  return promise;
}

template <class Reply>
void cluster::answer(const caller& who, Reply with) {
  if (auto found = waiting_.extract(who); !found.empty())
    found.mapped().deliver(std::move(with));
}

void cluster::on_tick() {
  members_.on_time(now());
  if (etcd_)
    etcd_->on_time(now());
  fetching_.on_tick(now());
  perform_effects(); // a peer that was late is not asked by the next one
  searching_.on_tick(now());
  learning_.on_time(now());
  if (next_look_ <= now()) {
    next_look_ = now() + parts_.options->cluster.hello_interval;
    look_at_own_namespaces();
    end_idle_dialers();
    resolve_seeds();
  }
  flush();
}

void cluster::plan_tick() {
  // A round of a removed namespace only ends with its calls, and is looked at again until then.
  constexpr auto least_pause = std::chrono::milliseconds(5);
  auto next = std::min({members_.next_event(), next_look_, learning_.next_event(),
                        std::max(std::min(fetching_.next_event(), searching_.next_event()), now() + least_pause)});
  if (etcd_)
    next = std::min(next, etcd_->next_event());
  if (tick_.plan(next))
    delayed_send(this, std::max(next - now(), duration::zero()), caf::tick_atom_v);
}

void cluster::flush() {
  report_condition();
  perform_effects();
  plan_tick();
}

void cluster::perform_effects() {
  // Carrying out an effect may lead to more effects, such as the answer that there is no session.
  for (;;) {
    auto about_list = etcd_ ? etcd_->take_outbox() : std::vector<etcd_effect>{};
    for (const auto& effect : about_list)
      std::visit([this](const auto& x) { perform(x); }, effect);
    drop_lines();
    auto about_members = members_.take_outbox();
    auto about_sessions = rules_.take_outbox();
    auto about_pages = fetching_.take_outbox();
    auto about_searches = searching_.take_outbox();
    auto about_learning = learning_.take_outbox();
    if (about_members.empty() && about_sessions.empty() && about_pages.empty() && about_searches.empty() &&
        about_learning.empty())
      break;
    for (const auto& effect : about_members)
      std::visit([this](const auto& x) { perform(x); }, effect);
    for (const auto& effect : about_sessions)
      std::visit([this](const auto& x) { perform(x); }, effect);
    for (auto& effect : about_pages)
      std::visit([this](auto& x) { perform(x); }, effect);
    for (auto& effect : about_searches)
      std::visit([this](auto& x) { perform(x); }, effect);
    for (const auto& effect : about_learning)
      std::visit([this](const auto& x) { perform(x); }, effect);
  }
}

// -- members ----------------------------------------------------------------------------------------------------------

void cluster::perform(const say_hello& x) {
  if (lines_.contains(x.peer))
    send_hello(x);
  else
    make_connection(x);
}

void cluster::send_hello(const say_hello& x) {
  ask<cluster_welcome>(
      parts_.network->system(), lines_.at(x.peer).actor,
      [x, post = poster()](result<cluster_welcome> answer) {
        post(hello_answered{x, std::move(answer)});
      },
      cluster_hello{protocol_version, parts_.self});
}

void cluster::on(const hello_answered& x) {
  members_.on_answer(x.hello.peer, x.hello.number, x.answer, now());
}

void cluster::perform(const peer_news& x) {
  if (x.bad)
    log::get("cluster")->warn("{}", x.text);
  else
    log::get("cluster")->info("{}", x.text);
}

void cluster::perform(const peer_came&) {
  look_at_own_namespaces();
}

void cluster::perform(const peer_went&) {}

void cluster::look_at_own_namespaces() {
  request(parts_.reception, std::chrono::seconds(5), cluster_hello{protocol_version, parts_.self})
      .then(
          [this](const cluster_welcome& own) {
            here_.clear();
            for (const auto& x : own.namespaces)
              here_.emplace(x.id, x.name);
            follow();
            flush();
          },
          [](const caf::error&) {});
}

void cluster::follow() {
  std::set<namespace_id> adopted;
  for (const auto& [number, x] : adopted_)
    for (const auto& id : x.index->namespaces())
      adopted.insert(id);
  rules_.follow(here_, members_, fetching_, now(), adopted);
}

// -- peer sessions ----------------------------------------------------------------------------------------------------

node_client::options cluster::client_options() const {
  const auto& options = *parts_.options;
  return {options.transfer, options.attach, options.remote, parts_.storage};
}

void cluster::perform(const open_namespace& x) {
  link_options where;
  where.local = parts_.reception;
  where.client_name = parts_.self.node + " (pages of other nodes)";
  where.namespace_name = x.name;
  auto how = client_options();
  how.attach.always_remote = false;
  how.storage = {};
  const auto accepted =
      parts_.network->open({std::move(where), std::move(how), x.ns, parts_.options->cluster.memory_bytes},
                           [post = poster(), id = x.ns](result<opened_client> client) {
                             post(namespace_opened{id, std::move(client)});
                           });
  if (!accepted)
    rules_.on_namespace_opened(x.ns, false, now());
}

void cluster::on(const namespace_opened& x) {
  rules_.on_namespace_opened(x.ns, x.client.has_value(), now());
  if (!x.client) {
    log::get("cluster")->warn("cannot fetch pages of peers for namespace '{}': {}; retrying", rules_.name_of(x.ns),
                              x.client.error().text);
    return;
  }
  const auto& own = namespaces_[x.ns] = *x.client;
  const auto page_bytes = own.node.ns.geometry.page_bytes();
  const auto ranks = static_cast<std::uint32_t>(own.memory.size());
  fetching_.add_namespace(x.ns, page_bytes, ranks, staging_blocks(parts_.options->cluster.memory_bytes, page_bytes),
                          own.copies_at_once);
  follow();
}

void cluster::perform(const leave_namespace& x) {
  if (auto own = namespaces_.extract(x.ns); !own.empty())
    parts_.network->close(std::move(own.mapped()));
  learning_.forget(x.ns);
}

void cluster::perform(const open_session& x) {
  const auto& name = x.session;
  const auto found = lines_.find(name.first);
  const auto address = parse_node_address(members_.address(name.first));
  if (found == lines_.end() || !address)
    return on_session_opened(name, fail(errc::unreachable, "the connection to the peer has ended"));
  link_options where;
  where.where = *address;
  where.dialer = found->second.dialer;
  where.client_name = parts_.self.node;
  where.namespace_name = x.name;
  where.cluster = parts_.self.cluster;
  auto how = client_options();
  const auto& own = namespaces_.at(name.second);
  const auto bytes = parts_.options->cluster.memory_bytes;
  const auto& geometry = own.node.ns.geometry;
  how.transfer.remote_bytes = std::max(bytes, 4 * io::slot_bytes(geometry.page_bytes()));
  const auto accepted =
      parts_.network->open({std::move(where), std::move(how), name.second, bytes, namespace_here{geometry, own.memory}},
                           [post = poster(), name](result<opened_client> client) {
                             post(session_opened{name, std::move(client)});
                           });
  if (!accepted)
    on_session_opened(name, tl::unexpected<error>(accepted.error()));
}

void cluster::on(const session_opened& x) {
  const auto& [name, opened] = x;
  on_session_opened(name, opened ? result<void>() : tl::unexpected<error>(opened.error()));
  if (!opened)
    return;
  sessions_[name] = {*opened, members_.card(name.first).incarnation};
  follow_learning();
  // One attempt at a time is made for a peer, so the next one can start now.
  follow();
  log::get("cluster")->info("peer session opened: namespace '{}' at node '{}'; its pages are fetched on a miss",
                            rules_.name_of(name.second), opened->node.node_name);
}

void cluster::perform(const leave_session& x) {
  if (auto there = sessions_.extract(x.session); !there.empty())
    parts_.network->close(std::move(there.mapped().client));
  follow_learning();
}

const cluster::session* cluster::ready_session(peer_number peer, const namespace_id& ns) const {
  const auto found = sessions_.find({peer, ns});
  return found == sessions_.end() ? nullptr : &found->second;
}

std::vector<peer_number> cluster::peers_for(const namespace_id& ns) const {
  std::vector<peer_number> out;
  for (const auto i : members_.numbers())
    if (members_.is_usable(i) && ready_session(i, ns) != nullptr)
      out.push_back(i);
  add_adopted(ns, out);
  return out;
}

// -- pages ------------------------------------------------------------------------------------------------------------

void cluster::perform(fetch_ask& x) {
  if (const auto* const dead = adopted(x.peer))
    return ask_adopted(*dead, x);
  if (!look_up_at<peer_answered>(x.call, {x.peer, x.ns}, std::move(x.keys), false))
    fetching_.on_found(x.call, session_has_ended(), now());
}

void cluster::on(const peer_answered& x) {
  rules_.on_answered(x.session, x.found || x.found.error().code != errc::unreachable, now());
  fetching_.on_found(x.call, x.found, now());
}

void cluster::perform(search_ask& x) {
  if (const auto* const dead = adopted(x.peer))
    return ask_adopted(*dead, x);
  if (!look_up_at<peer_searched>(x.call, {x.peer, x.ns}, std::move(x.keys), true))
    searching_.on_found(x.call, session_has_ended(), now());
}

void cluster::on(const peer_searched& x) {
  rules_.on_answered(x.session, x.found || x.found.error().code != errc::unreachable, now());
  searching_.on_found(x.call, x.found, now());
}

template <class Answer>
bool cluster::look_up_at(fetch_call call, const session_name& name, std::vector<key_digest> keys, bool each) {
  const auto* const there = ready_session(name.first, name.second);
  if (there == nullptr)
    return false;
  lookup_task work;
  work.keys.items = std::move(keys);
  const auto& limits = there->client.node.limits;
  if (work.keys.size() > limits.batch_keys)
    work.keys.items.resize(limits.batch_keys);
  work.lease_for = std::min(limits.lease, parts_.options->transfer.task_deadline);
  work.each = each;
  ask<lookup_result>(
      parts_.network->system(), there->client.lookup,
      [call, name, post = poster()](result<lookup_result> found) {
        post(Answer{call, name, std::move(found)});
      },
      std::move(work));
  return true;
}

void cluster::perform(fetch_release& x) {
  // The leases of a session end with it, so only those of an open session are released.
  if (const auto* const there = ready_session(x.peer, x.ns))
    ask<void>(
        parts_.network->system(), there->client.lookup, [](const result<void>&) {}, release_atom_v, x.lease,
        packed<key_digest>{std::move(x.kept_here)});
}

void cluster::perform(search_retain& x) {
  if (const auto* const there = ready_session(x.peer, x.ns))
    ask<void>(
        parts_.network->system(), there->client.lookup, [](const result<void>&) {}, retain_atom_v, x.lease,
        packed<key_digest>{std::move(x.keys)});
}

// The save comes first: it allocates a frame, then asks for the page, which is loaded while the frame is pinned.
void cluster::perform(fetch_move& x) {
  const auto own = namespaces_.find(x.ns);
  if (own == namespaces_.end() || x.rank >= own->second.coming.size())
    return fetching_.on_moved(x.call, fail(errc::unreachable, "the namespace has been removed from this node"), {},
                              now());
  const auto& coming = own->second.coming[x.rank];
  const auto& memory = own->second.memory[x.rank];
  coming->expect(
      x.call,
      [peer = x.peer, ns = x.ns, rank = x.rank, memory, post = poster()](transfer_task work,
                                                                         inbound_transfers::receiver then) {
        post(pages_requested{peer, ns, rank, memory, std::move(work), std::move(then)});
      },
      later(now(), x.work.deadline));
  x.work.ready_event = x.call;
  ask<transfer_result>(
      system(), own->second.save[x.rank],
      [coming, call = x.call, ns = x.ns, post = poster()](result<transfer_result> saved) {
        coming->end(call, [post, call, ns, saved = std::move(saved)](const sending_counts& sent) {
          post(pages_moved{call, ns, saved, sent});
        });
      },
      std::move(x.work));
}

void cluster::on(const pages_moved& x) {
  // The node ended the save's attachment, as when the namespace is removed.
  if (!x.saved && x.saved.error().code == errc::unreachable)
    rules_.on_namespace_lost(x.ns);
  fetching_.on_moved(x.call, x.saved, x.sent, now());
}

void cluster::on(pages_requested& x) {
  if (const auto* const dead = adopted(x.peer))
    return load_adopted(*dead, x);
  const auto* const there = ready_session(x.peer, x.ns);
  // A session that was opened before the namespace was removed and made again has other staging buffers.
  if (there == nullptr || x.rank >= there->client.memory.size() || there->client.memory[x.rank] != x.memory)
    return x.then(session_has_ended());
  ask<transfer_result>(
      parts_.network->system(), there->client.load[x.rank],
      [then = std::move(x.then)](const result<transfer_result>& outcome) { then(outcome); }, std::move(x.work));
}

void cluster::perform(const fetch_answer& x) {
  if (!searching_.on_run(x))
    answer({caller_of::fetching, x.requester}, prefix_fetch_reply{x.keys});
}

void cluster::perform(search_found& x) {
  answer({caller_of::searching, x.search}, std::move(x.reply));
}

void cluster::perform(const search_fetched& x) {
  answer({caller_of::searching, x.search}, prefix_fetch_reply{x.keys});
}

void cluster::perform(const fetch_late& x) {
  if (members_.is_known(x.peer))
    members_.on_late(x.peer);
}

// -- learning ---------------------------------------------------------------------------------------------------------

void cluster::follow_learning() {
  for (const auto& [ns, own] : namespaces_) {
    std::vector<shared_learning::peer_shards> peers;
    for (const auto& [name, there] : sessions_)
      if (name.second == ns)
        peers.push_back({name.first, there.incarnation, static_cast<std::uint32_t>(there.client.node.shards.size())});
    learning_.follow(ns, static_cast<std::uint32_t>(parts_.shards.size()), peers);
  }
}

void cluster::perform(const ask_shard& x) {
  const auto notified = [x, post = poster()](result<reuse_reply> answer) {
    post(shard_answered{x, std::move(answer)});
  };
  const auto ask_it = [&](caf::actor_system& through, const auto& shard) {
    asked_shards_[x.call] = ask_for_long<reuse_reply>(through, shard, notified, reuse_request{x.ns});
  };
  if (!x.who.peer)
    return ask_it(system(), parts_.shards.at(x.who.shard));
  const auto* const there = ready_session(*x.who.peer, x.ns);
  if (there == nullptr || x.who.shard >= there->client.node.shards.size())
    return learning_.on_notified(x.call, session_has_ended());
  ask_it(parts_.network->system(), there->client.node.shards[x.who.shard]);
}

void cluster::on(const shard_answered& x) {
  const auto& [asked, answer] = x;
  // The shards belong to an attachment that has ended, so the session has to be opened again.
  if (asked.who.peer && !answer && answer.error().code == errc::unreachable)
    rules_.on_answered({*asked.who.peer, asked.ns}, false, now());
  asked_shards_.erase(asked.call);
  learning_.on_notified(asked.call, answer);
}

void cluster::perform(const cancel_shard& x) {
  if (const auto asked = asked_shards_.extract(x.call); !asked.empty())
    asked.mapped()();
}

void cluster::perform(const teach_shard& x) {
  ask<void>(
      system(), parts_.shards.at(x.shard), [](const result<void>&) {}, learn_request{x.ns, {x.counts.numbers()}});
}

} // namespace troupe::cluster
