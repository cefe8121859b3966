#include "actors/client/link/link.hpp"

#include "actors/support/actor_support.hpp"
#include "base/geometry_bounds.hpp"
#include "base/log.hpp"
#include "io/page.hpp"

#include <caf/io/all.hpp>

#include <string_view>
#include <unistd.h>

namespace troupe {

namespace {

/// Ticket streams of one client: the lookup has 0, then two per rank.
constexpr std::uint32_t load_stream(rank_number rank) {
  return 1 + 2 * rank;
}
constexpr std::uint32_t save_stream(rank_number rank) {
  return 2 + 2 * rank;
}

constexpr auto tick_interval = std::chrono::milliseconds(50);

/// What CAF says of connecting, in a sentence.
std::string why_not_reached(const caf::error& e, const node_address& where) {
  if (e && e.category() == caf::atom("system"))
    switch (static_cast<caf::sec>(e.code())) {
    case caf::sec::cannot_connect_to_node:
      return "nobody listens there";
    case caf::sec::request_timeout:
      return "it says nothing: is it a node?";
    case caf::sec::disconnect_during_handshake:
      return where.is_path() ? "it closed the connection at once: it is not a node of this version, or has as many "
                               "connections as it allows (actors.max_connections)"
                             : "it closed the connection at once: it is not a node of this version, wants other "
                               "certificates (actors.tls), or has as many connections as it allows "
                               "(actors.max_connections)";
    default:
      return "what listens there does not answer as a node of this version";
    }
  return from_caf(e).text;
}

} // namespace

link::link(caf::actor_config& config, link_options options)
    : link_actor::base(config), options_(std::move(options)),
      backoff_(options_.attach.reconnect_backoff_min, options_.attach.reconnect_backoff_max, options_.seed) {
  if (!options_.local)
    last_error_.text =
        "cannot reach a node at " + to_string(options_.where) + ": there was no answer in the time given";
  set_down_handler([this](caf::down_msg& down) {
    if (node_ && down.source == node_.address())
      lost("the node is gone");
  });
}

link::behavior_type link::make_behavior() {
  connect();
  delayed_send(this, tick_interval, caf::tick_atom_v);
  return {
      [this](wait_attached_atom, duration limit) -> caf::result<attach_reply> {
        if (ready())
          return reply_;
        if (refused_)
          return to_caf(last_error_);
        auto promise = make_response_promise();
        waiting_attached_.push_back({promise, later(now(), limit)});
        return promise;
      },
      [this](bind_atom, const client_parts& parts, duration limit) -> caf::result<void> {
        if (refused_)
          return to_caf(last_error_);
        lookup_ = parts.lookup;
        ranks_ = parts.ranks;
        auto promise = make_response_promise();
        waiting_bound_.push_back({promise, later(now(), limit)});
        if (reply_.owner != 0)
          bind_all();
        return promise;
      },
      [this](attached_atom) -> caf::result<attach_reply> { return reply_; },
      [this](caf::connect_atom) { connect(); },
      [this](caf::tick_atom) {
        answer_waiting();
        delayed_send(this, tick_interval, caf::tick_atom_v);
      },
  };
}

void link::connect() {
  if (node_ || refused_)
    return;
  if (options_.local) {
    attach(options_.local);
    return;
  }
  // The request to the middleman, unlike the blocking call, ends also when the port accepts and stays silent.
  request(options_.entrance ? options_.entrance : system().middleman().actor_handle(), options_.attach.request_timeout,
          caf::connect_atom_v, options_.where.host, options_.where.port)
      .then(
          [this](const caf::node_id&, caf::strong_actor_ptr& peer, const std::set<std::string>& interfaces) {
            if (!peer || !system().assignable(interfaces, system().message_types<reception_actor>())) {
              refuse({errc::unsupported,
                      to_string(options_.where) + " is an actor system, but no Troupe node of this version"});
              return;
            }
            attach(caf::actor_cast<reception_actor>(peer));
          },
          [this](const caf::error& e) {
            retry({errc::unreachable,
                   "cannot reach a node at " + to_string(options_.where) + ": " + why_not_reached(e, options_.where)});
          });
}

void link::attach(const reception_actor& to) {
  attach_request wanted;
  wanted.client_name = options_.client_name;
  wanted.process = ::getpid();
  wanted.space_name = options_.space_name;
  node_ = to;
  monitor(node_);
  request(to, options_.attach.request_timeout, wanted, caf::actor_cast<caf::actor>(this))
      .then([this](const attach_reply& reply) { attached(reply); },
            [this, to](const caf::error& e) {
              if (!node_ || node_.address() != to.address())
                return; // lost meanwhile, and trying again
              const auto why = from_caf(e);
              demonitor(node_.address());
              node_ = nullptr;
              if (why.code == errc::unsupported || why.code == errc::unknown_namespace)
                refuse(why);
              else
                retry(why);
            });
}

void link::attached(const attach_reply& reply) {
  if (!node_)
    return; // lost while the answer was on its way
  if (!space_.is_null() && space_ != reply.space_id) {
    send(node_, caf::leave_atom_v, reply.owner);
    refuse({errc::identity_mismatch, "the node came back with another namespace '" + reply.space.name +
                                         "': its pages are not exchangeable with ours"});
    return;
  }
  auto sound = check_geometry(reply.space.geometry); // what follows divides by the size of a page
  if (reply.owner == 0)
    sound = fail(errc::invalid_argument, "it gave no owner id");
  if (reply.space_id.is_null())
    sound = fail(errc::invalid_argument, "it gave no identity of the namespace");
  if (!sound) {
    send(node_, caf::leave_atom_v, reply.owner);
    refuse({errc::invalid_argument, "the node lets this client attach to namespace '" + reply.space.name +
                                        "' in a way that cannot be: " + sound.error().text});
    return;
  }
  space_ = reply.space_id;
  reply_ = reply;
  log::get("link")->info("attached to node '{}', namespace '{}', {} ranks, {} shards", reply.node_name,
                         reply.space.name, reply.ranks.size(), reply.shards.size());
  if (lookup_) {
    bind_all();
    return;
  }
  backoff_.reset();
  for (auto& x : std::exchange(waiting_attached_, {}))
    x.promise.deliver(reply_);
}

void link::bind_all() {
  const auto epoch = ++epoch_;
  all_bound_ = false;
  close_segments();
  binding_ = 1 + 2 * ranks_.size();
  request(lookup_, options_.attach.request_timeout, bind_atom_v,
          lookup_binding{reply_.owner, 0, space_, reply_.limits, reply_.shards})
      .then([this, epoch] { bound(epoch); },
            [this, epoch](const caf::error& e) {
              if (epoch == epoch_)
                refuse(from_caf(e));
            });
  for (std::size_t i = 0; i < ranks_.size() && epoch == epoch_; ++i)
    bind_rank(i, epoch);
}

void link::bind_rank(std::size_t index, std::uint64_t epoch) {
  const auto& mine = ranks_[index];
  const rank_endpoint* theirs = nullptr;
  for (const auto& x : reply_.ranks)
    if (x.rank == mine.rank)
      theirs = &x;
  if (theirs == nullptr) {
    refuse({errc::out_of_range, "the node has no rank " + std::to_string(mine.rank)});
    return;
  }
  request(theirs->worker, options_.attach.request_timeout, open_segment_atom_v, options_.buffer_bytes, mine.memory_node)
      .then(
          [this, index, epoch, worker = theirs->worker](const segment_info& segment) {
            if (epoch != epoch_) {
              send(worker, close_segment_atom_v, segment.segment);
              return;
            }
            segments_.emplace_back(worker, segment.segment);
            request(ranks_[index].copier, options_.attach.request_timeout, bind_atom_v, segment)
                .then([this, index, epoch, segment] { bind_coordinators(index, segment, epoch); },
                      [this, epoch](const caf::error& e) {
                        if (epoch == epoch_)
                          refuse(from_caf(e));
                      });
          },
          [this, epoch](const caf::error& e) {
            if (epoch != epoch_)
              return;
            if (auto why = from_caf(e); why.code == errc::limit_exceeded || why.code == errc::invalid_argument)
              refuse(why);
            else
              lost("no page buffers: " + to_string(why));
          });
}

void link::bind_coordinators(std::size_t index, const segment_info& segment, std::uint64_t epoch) {
  if (epoch != epoch_)
    return;
  const auto& mine = ranks_[index];
  const auto slot = io::slot_bytes(reply_.space.geometry.page_bytes());
  const auto buffers = static_cast<std::uint32_t>(segment.bytes / slot);
  const auto for_loads = buffers / 2;
  if (for_loads == 0) {
    refuse({errc::limit_exceeded, "page buffers of " + std::to_string(segment.bytes) +
                                      " bytes hold no two pages of this namespace: raise "
                                      "transfer.buffers_per_rank_bytes"});
    return;
  }
  coordinator_binding node{reply_.owner, load_stream(mine.rank), reply_.limits, reply_.shards, {}, segment.segment, 0,
                           for_loads};
  for (const auto& x : reply_.ranks)
    if (x.rank == mine.rank)
      node.worker = x.worker;
  const auto one_more = [this, epoch] { bound(epoch); };
  const auto failed_to_bind = [this, epoch](const caf::error& e) {
    if (epoch == epoch_)
      refuse(from_caf(e));
  };
  request(mine.load, options_.attach.request_timeout, bind_atom_v, node).then(one_more, failed_to_bind);
  node.ticket_stream = save_stream(mine.rank);
  node.buffer_offset = std::uint64_t{for_loads} * slot;
  node.buffer_count = buffers - for_loads;
  request(mine.save, options_.attach.request_timeout, bind_atom_v, node).then(one_more, failed_to_bind);
}

void link::bound(std::uint64_t epoch) {
  if (epoch != epoch_ || --binding_ > 0)
    return;
  all_bound_ = true;
  backoff_.reset(); // not before: a node that lets us attach and then fails is not to be asked all the time
  for (auto& x : std::exchange(waiting_bound_, {}))
    x.promise.deliver(caf::unit);
  for (auto& x : std::exchange(waiting_attached_, {}))
    x.promise.deliver(reply_);
}

void link::lost(const std::string& why) {
  if (reply_.owner != 0)
    log::get("link")->warn("lost node '{}': {}; everything under way ends, trying to come back", reply_.node_name, why);
  leave();
  if (!refused_)
    retry({errc::unreachable, why});
}

void link::leave() {
  if (node_) {
    demonitor(node_.address());
    if (reply_.owner != 0)
      send(node_, caf::leave_atom_v, reply_.owner); // also if it seems to be lost: it may be there after all
  }
  node_ = nullptr;
  reply_ = attach_reply{};
  ++epoch_;
  all_bound_ = false;
  segments_.clear(); // the node closes them
  unbind_all();
}

void link::unbind_all() {
  const auto unbind = [](const auto& actor) {
    if (actor)
      caf::anon_send(actor, unbind_atom_v);
  };
  unbind(lookup_);
  for (const auto& x : ranks_) {
    unbind(x.load);
    unbind(x.save);
  }
}

void link::close_segments() {
  for (const auto& [worker, segment] : std::exchange(segments_, {}))
    send(worker, close_segment_atom_v, segment);
}

void link::retry(const error& why) {
  last_error_ = why;
  if (options_.local) {
    refuse(why); // a node of this process does not come back
    return;
  }
  const auto wait = backoff_.next();
  log::get("link")->debug("{}; trying again in {} ms", to_string(why),
                          std::chrono::duration_cast<std::chrono::milliseconds>(wait).count());
  delayed_send(this, wait, caf::connect_atom_v);
}

void link::refuse(const error& why) {
  last_error_ = why;
  refused_ = true;
  log::get("link")->error("giving up: {}", to_string(why));
  leave();
  for (auto* list : {&waiting_attached_, &waiting_bound_})
    for (auto& x : std::exchange(*list, {}))
      x.promise.deliver(to_caf(why));
}

void link::answer_waiting() {
  for (auto* list : {&waiting_attached_, &waiting_bound_}) {
    std::vector<waiting_client> still;
    for (auto& x : std::exchange(*list, {})) {
      if (x.until <= now())
        x.promise.deliver(to_caf(last_error_));
      else
        still.push_back(std::move(x));
    }
    *list = std::move(still);
  }
}

void link::on_exit() {
  leave();
  const auto gone = to_caf(error{errc::shutting_down, "the client is ending"});
  for (auto* list : {&waiting_attached_, &waiting_bound_})
    for (auto& x : std::exchange(*list, {}))
      x.promise.deliver(gone);
  options_.local = nullptr;
  // It has a thread of its own, which the actor system waits for until nobody holds the actor any more; and the clock
  // may hold this one, for a message that was to come later, when it is no longer wound.
  options_.entrance = nullptr;
  lookup_ = nullptr;
  ranks_.clear();
}

} // namespace troupe
