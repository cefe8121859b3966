#include "actors/client/link/link.hpp"

#include "actors/support/actor_support.hpp"
#include "base/host_identity.hpp"
#include "base/log.hpp"
#include "base/tcp_connect.hpp"

#include <caf/io/all.hpp>

#include <algorithm>
#include <type_traits>
#include <unistd.h>

namespace troupe {

namespace {

link_state_options rules_of(const link_options& options) {
  link_state_options out;
  out.comes_back = !options.local;
  out.backoff_min = options.attach.reconnect_backoff_min;
  out.backoff_max = options.attach.reconnect_backoff_max;
  out.seed = options.seed;
  out.window_bytes = options.window_bytes;
  out.only_loads = !options.cluster.empty();
  // A node logs for its sessions with peers.
  out.caller_logs = !options.cluster.empty();
  if (!options.local)
    out.first_excuse =
        "cannot reach a node at " + to_string(options.where) + ": there was no answer before the timeout";
  return out;
}

node_offer offer_of(const attach_reply& x) {
  node_offer out{x.owner, x.node_name, x.ns_id, x.ns.name, x.ns.geometry, {}};
  for (const auto& rank : x.ranks)
    out.ranks.push_back(rank.rank);
  out.pinned_bytes = x.limits.pinned_bytes;
  return out;
}

template <class Entry>
const Entry* find_rank(const std::vector<Entry>& all, rank_number rank) {
  const auto i = std::find_if(all.begin(), all.end(), [&](const Entry& x) { return x.rank == rank; });
  return i == all.end() ? nullptr : &*i;
}

} // namespace

std::string why_not_reached(const caf::error& e, const node_address& where) {
  if (e && e.category() == caf::atom("system"))
    switch (static_cast<caf::sec>(e.code())) {
    case caf::sec::cannot_connect_to_node:
      return "connection refused";
    case caf::sec::request_timeout:
    case caf::sec::connection_timeout:
      return where.is_path() || is_numeric_host(where.host)
                 ? "it accepts connections and sends nothing; check that it is a node"
                 : "its name was not resolved in time, or it accepts connections and sends nothing";
    case caf::sec::disconnect_during_handshake:
      return where.is_path() ? "it closed the connection at once: it is not a node of this version, or has reached "
                               "its limit of connections (actors.max_connections)"
                             : "it closed the connection at once: it is not a node of this version, requires other "
                               "certificates (actors.tls), or has reached its limit of connections "
                               "(actors.max_connections)";
    default:
      return "the listener there does not answer as a node of this version";
    }
  return from_caf(e).text;
}

link::link(caf::actor_config& config, link_options options)
    : link_actor::base(config), options_(std::move(options)), state_(rules_of(options_)) {
  set_down_handler([this](caf::down_msg& down) {
    if (tells_of(down, node_)) {
      state_.on_node_lost(now());
      flush();
    } else if (!reply_.shards.empty() && tells_of(down, reply_.shards.front())) {
      state_.on_sent_away(now());
      flush();
    }
  });
  set_exit_handler([this](caf::exit_msg& end) {
    end_reason_ = end.reason;
    state_.end();
    flush();
  });
}

link::behavior_type link::make_behavior() {
  state_.start();
  flush();
  return {
      [this](wait_attached_atom, duration limit) -> caf::result<attach_reply> {
        if (!asked_from_here(*this))
          return to_caf(not_this_process());
        auto promise = make_response_promise();
        state_.wait_attached(add_waiting(promise, true), later(now(), limit));
        flush();
        return promise;
      },
      [this](bind_atom, const client_parts& parts, duration limit) -> caf::result<void> {
        if (!asked_from_here(*this))
          return to_caf(not_this_process());
        std::vector<rank_number> ranks;
        for (const auto& x : parts.ranks)
          ranks.push_back(x.rank);
        if (!state_.refused())
          next_parts_ = parts;
        auto promise = make_response_promise();
        state_.bind(add_waiting(promise, false), std::move(ranks), later(now(), limit));
        flush();
        return promise;
      },
      [this](attached_atom) -> caf::result<attach_reply> { return reply_; },
      [this](caf::tick_atom) {
        tick_.came(now());
        state_.on_time(now());
        flush();
      },
  };
}

link_wait link::add_waiting(const caf::response_promise& promise, bool wants_reply) {
  waiting_.emplace(++last_wait_, waiting_client{promise, wants_reply});
  return last_wait_;
}

const client_rank* link::client_side(rank_number rank) const {
  return find_rank(parts_.ranks, rank);
}

const rank_endpoint* link::node_side(rank_number rank) const {
  return find_rank(reply_.ranks, rank);
}

template <class Reply, class Handle, class OnEnd, class... Ts>
void link::ask(const Handle& to, OnEnd on_end, Ts&&... xs) {
  auto sent = request(to, options_.attach.request_timeout, std::forward<Ts>(xs)...);
  const auto failed_with = [this, on_end](const caf::error& e) {
    on_end(failed<Reply>(e));
    flush();
  };
  if constexpr (std::is_void_v<Reply>)
    sent.then(
        [this, on_end] {
          on_end(result<void>{});
          flush();
        },
        failed_with);
  else
    sent.then(
        [this, on_end](const Reply& reply) {
          on_end(result<Reply>(reply));
          flush();
        },
        failed_with);
}

void link::flush() {
  // Carrying out an effect may lead to more effects, such as for a node of this process, which is found at once.
  for (auto effects = state_.take_outbox(); !effects.empty(); effects = state_.take_outbox())
    for (const auto& effect : effects)
      std::visit([this](const auto& x) { perform(x); }, effect);
  if (const auto next = state_.next_event(); tick_.plan(next))
    delayed_send(this, std::max(next - now(), duration::zero()), caf::tick_atom_v);
}

void link::perform(const link_seek& x) {
  if (options_.local) {
    node_ = options_.local;
    state_.on_found(x.number);
    return;
  }
  // Unlike the blocking call, the request to the middleman also ends when the port accepts and sends nothing.
  request(options_.dialer ? options_.dialer : system().middleman().actor_handle(), options_.attach.request_timeout,
          caf::connect_atom_v, options_.where.host, options_.where.port)
      .then(
          [this, number = x.number](const caf::node_id&, caf::strong_actor_ptr& peer,
                                    const std::set<std::string>& interfaces) {
            if (!peer || !system().assignable(interfaces, system().message_types<reception_actor>())) {
              state_.on_not_found(number,
                                  {errc::unsupported, to_string(options_.where) +
                                                          " is an actor system, but not a Troupe node of this version"},
                                  now());
            } else {
              node_ = caf::actor_cast<reception_actor>(peer);
              state_.on_found(number);
            }
            flush();
          },
          [this, number = x.number](const caf::error& e) {
            state_.on_not_found(number,
                                {errc::unreachable, "cannot reach a node at " + to_string(options_.where) + ": " +
                                                        why_not_reached(e, options_.where)},
                                now());
            flush();
          });
}

void link::perform(const link_attach& x) {
  attach_request wanted;
  wanted.client_name = options_.client_name;
  wanted.process = ::getpid();
  if (!options_.local)
    wanted.home = options_.attach.always_remote ? std::string(home_elsewhere) : host_identity();
  wanted.namespace_name = options_.namespace_name;
  wanted.cluster = options_.cluster;
  if (options_.ns) {
    wanted.wish = options_.make_namespace ? namespace_wish::made : namespace_wish::exact;
    wanted.ns = *options_.ns;
  }
  monitor(node_);
  const auto on_end = [this, number = x.number, to = node_](result<attach_reply> reply) {
    // The pinned frames are then memory of this process.
    if (reply && reply->arena.elsewhere)
      reply->limits.pinned_bytes = std::min(reply->limits.pinned_bytes, options_.remote_bytes);
    if (!reply) {
      state_.on_not_attached(number, reply.error(), now());
    } else if (!state_.on_attached(number, offer_of(*reply))) {
      send(to, caf::leave_atom_v, reply->owner);
      send(to, owner_quiesced_atom_v, reply->owner); // no actor has used this attachment
    } else {
      reply_ = *reply;
      // The shards of this attachment end with it.
      if (state_.owner() != 0 && !reply_.shards.empty())
        monitor(reply_.shards.front());
      if (state_.owner() != 0)
        log::get("link")->info("attached to node '{}', namespace '{}', {} ranks, {} shards", reply_.node_name,
                               reply_.ns.name, reply_.ranks.size(), reply_.shards.size());
    }
  };
  ask<attach_reply>(node_, on_end, wanted, caf::actor_cast<caf::actor>(this));
}

void link::perform(const link_part& x) {
  if (node_) {
    demonitor(node_.address());
    if (x.owner != 0) {
      send(node_, caf::leave_atom_v, x.owner);
      left_.emplace(x.owner, node_);
    }
  }
  node_ = nullptr;
  if (!reply_.shards.empty())
    demonitor(reply_.shards.front().address());
  reply_ = attach_reply{};
}

void link::perform(const link_take_parts&) {
  parts_ = std::move(next_parts_);
}

void link::perform(const link_bind_lookup& x) {
  ask<void>(
      parts_.lookup, [this, epoch = x.epoch](const result<void>& outcome) { state_.on_bound(epoch, outcome, now()); },
      bind_atom_v,
      lookup_binding{reply_.owner, 0, reply_.ns_id, reply_.limits, reply_.shards, reply_.cluster,
                     reply_.wants_descriptions});
}

void link::perform(const link_map& x) {
  const auto* const mine = client_side(x.rank);
  if (mine != nullptr && reply_.arena.elsewhere)
    offer(x, *mine);
  else if (mine != nullptr)
    ask<void>(
        mine->copier, [this, x](const result<void>& outcome) { state_.on_mapped(x.epoch, x.rank, outcome, now()); },
        bind_atom_v, reply_.owner, reply_.arena);
}

void link::offer(const link_map& x, const client_rank& mine) {
  const auto on_offered = [this, x](const result<void>& outcome) {
    state_.on_offered(x.epoch, x.rank, outcome, now());
  };
  const auto on_exposed = [this, x, on_offered](const result<remote_offer>& exposed) {
    const auto* const theirs = node_side(x.rank);
    if (!exposed)
      state_.on_offered(x.epoch, x.rank, tl::unexpected<error>(exposed.error()), now());
    else if (theirs != nullptr && reply_.owner != 0)
      ask<void>(theirs->worker, on_offered, bind_atom_v, *exposed);
  };
  ask<remote_offer>(mine.copier, on_exposed, lend_atom_v, reply_.owner, reply_.arena);
}

void link::perform(const link_bind_transfer& x) {
  const auto* mine = client_side(x.rank);
  const auto* theirs = node_side(x.rank);
  if (mine == nullptr || theirs == nullptr)
    return; // the epoch has ended
  ask<void>(
      x.save ? mine->save : mine->load,
      [this, epoch = x.epoch](const result<void>& outcome) { state_.on_bound(epoch, outcome, now()); }, bind_atom_v,
      coordinator_binding{reply_.owner, x.ticket_stream, reply_.limits, reply_.shards, theirs->worker, x.window_pages,
                          theirs->slab});
}

void link::perform(const link_unbind&) {
  const auto unbind = [this](const auto& actor) {
    if (actor)
      send(actor, unbind_atom_v);
  };
  unbind(parts_.lookup);
  for (const auto& x : parts_.ranks) {
    unbind(x.load);
    unbind(x.save);
  }
}

void link::perform(const link_quiesce& x) {
  const auto on_end = [this, x](const result<void>& outcome) {
    // A copy may take longer than the timeout, and a stopped process answers late, so the request is repeated until the
    // end.
    if (!outcome && outcome.error().code == errc::timeout && !state_.ending())
      perform(x);
    else
      state_.on_quiesced(x.owner, outcome);
  };
  if (const auto* mine = client_side(x.rank))
    ask<void>(mine->copier, on_end, unbind_atom_v, x.owner);
  else
    on_end(fail(errc::internal, "no copy engine"));
}

void link::perform(const link_report_quiesced& x) {
  const auto left = left_.find(x.owner);
  const auto on_end = [this, owner = x.owner](const result<void>& outcome) {
    state_.on_quiesced_reported(owner, outcome, now());
  };
  if (const auto& node = x.to_left && left != left_.end() ? left->second : node_)
    ask<void>(node, on_end, owner_quiesced_atom_v, x.owner);
  else
    on_end(fail(errc::unreachable, "the node has disconnected"));
}

void link::perform(const link_forget_left& x) {
  left_.erase(x.owner);
}

void link::perform(const link_ended&) {
  quit(end_reason_);
}

void link::perform(const link_answer& x) {
  auto waiting = waiting_.extract(x.wait);
  if (waiting.empty())
    return;
  auto& [promise, wants_reply] = waiting.mapped();
  if (!x.outcome)
    promise.deliver(to_caf(x.outcome.error()));
  else if (wants_reply)
    promise.deliver(reply_);
  else
    promise.deliver(caf::unit);
}

void link::perform(const link_news& x) {
  const auto logger = log::get("link");
  switch (x.how) {
  case link_news::weight::debug:
    logger->debug(x.text);
    break;
  case link_news::weight::warning:
    logger->warn(x.text);
    break;
  case link_news::weight::error:
    logger->error(x.text);
    break;
  }
}

void link::on_exit() {
  state_.end();
  flush();
  options_.local = nullptr;
  // The clock may still refer to this actor, for a delayed message: the dialer, with what it has, is not kept so long.
  options_.dialer = nullptr;
  parts_ = next_parts_ = client_parts{};
  left_.clear();
  node_ = nullptr;
}

} // namespace troupe
