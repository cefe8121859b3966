#include "actors/client/link/node_address.hpp"
#include "actors/cluster/cluster.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

/// The part of the actor `cluster` that deals with the list of nodes in etcd.

namespace troupe::cluster {

void cluster::begin_etcd() {
  const auto& options = parts_.options->cluster;
  if (options.etcd.endpoints.empty())
    return;
  const auto& own = options.advertise;
  const auto& actors = parts_.options->actors;
  etcd_options rules;
  std::vector<etcd_channel::member> members;
  for (const auto& x : options.etcd.endpoints) {
    members.push_back({x.host, x.port});
    rules.endpoints += (rules.endpoints.empty() ? "" : ", ") + to_string(node_address{x.host, x.port});
  }
  rules.prefix = options.etcd.prefix.empty() ? "/troupe/" + options.name + "/nodes/" : options.etcd.prefix;
  rules.address = to_string(node_address{own.host.empty() ? actors.host : own.host,
                                         own.port != 0 ? own.port : static_cast<std::uint16_t>(actors.port)});
  rules.self = {parts_.self.node, parts_.self.incarnation};
  rules.lease = options.etcd.lease;
  rules.backoff_min = parts_.options->attach.reconnect_backoff_min;
  rules.backoff_max = std::min(parts_.options->attach.reconnect_backoff_max, options.etcd.lease / 3);
  rules.seed = std::random_device{}();
  rules.user = options.etcd.user;
  etcd_.emplace(std::move(rules));
  // A request that is not answered is repeated while the lease is still valid.
  constexpr duration longest = std::chrono::seconds(3);
  channel_ = std::make_shared<etcd_channel>(
      std::move(members), etcd_access(options.etcd), std::min(longest, options.etcd.lease / 4),
      etcd_channel::listeners{[post = poster()](std::uint64_t number, result<etcd_reply> answer) {
                                post(etcd_answered{number, std::move(answer)});
                              },
                              [post = poster()](std::uint64_t number, std::string text) {
                                post(etcd_watch_line{number, std::move(text)});
                              },
                              [post = poster()](std::uint64_t number) { post(etcd_watch_ended{number}); }});
}

void cluster::on(const etcd_answered& x) {
  etcd_->on_answer(x.number, x.answer, now());
  etcd_->on_time(now());
}

void cluster::on(const etcd_watch_line& x) {
  etcd_->on_watch(x.number, x.line, now());
}

void cluster::on(const etcd_watch_ended& x) {
  etcd_->on_watch_end(x.number, now());
}

void cluster::perform(const etcd_request& x) {
  channel_->ask(x.number, x.path, x.body, x.token);
}

void cluster::perform(const etcd_login& x) {
  channel_->log_in(x.number);
}

void cluster::perform(const etcd_watch& x) {
  channel_->watch(x.number, x.body, x.token);
}

void cluster::perform(const etcd_members& x) {
  members_.on_listed(x.addresses, now());
  members_.on_time(now());
}

void cluster::perform(const etcd_notified& x) {
  if (x.bad)
    log::get("cluster")->warn("{}", x.text);
  else
    log::get("cluster")->info("{}", x.text);
}

} // namespace troupe::cluster
