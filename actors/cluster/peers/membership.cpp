#include "actors/cluster/peers/membership.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

bool same_namespaces(const std::vector<cluster_namespace>& a, const std::vector<cluster_namespace>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.id == y.id && x.name == y.name; });
}

/// Failures before the log says so. Nodes that are started together do not find each other, or themselves, at once.
constexpr std::uint32_t notified_failures = 2;

/// Whether retrying does not help until an operator changes a config or a certificate.
bool is_refusal(errc code) {
  return code == errc::identity_mismatch || code == errc::not_owner || code == errc::unsupported;
}

} // namespace

membership::membership(const membership_options& options, std::vector<std::string> addresses) : options_(options) {
  for (auto& x : addresses)
    add(std::move(x), true, timestamp{});
}

void membership::add(std::string address, bool fixed, timestamp now) {
  const auto number = next_number_++;
  entry x{std::move(address), reconnect_backoff(options_.backoff_min, options_.backoff_max, options_.seed + number)};
  x.next = now;
  x.fixed = fixed;
  x.listed = !fixed;
  peers_.emplace(number, std::move(x));
}

const membership::entry& membership::at(peer_number peer) const {
  static const entry unknown_peer{{}, reconnect_backoff({}, {}, 0)};
  const auto found = peers_.find(peer);
  return found == peers_.end() ? unknown_peer : found->second;
}

std::vector<peer_number> membership::numbers() const {
  std::vector<peer_number> out;
  for (const auto& [number, x] : peers_)
    out.push_back(number);
  return out;
}

void membership::on_listed(const std::vector<std::string>& addresses, timestamp now) {
  listed_ = addresses;
  follow_lists(now);
}

void membership::on_resolved(const std::string& name, const std::vector<std::string>& addresses, timestamp now) {
  if (addresses.size() > 1) {
    if (!resolved_.contains(name))
      say(false,
          "seed " + name + " has " + std::to_string(addresses.size()) + " addresses; each of them is used as a seed");
    resolved_[name] = addresses;
    replace_name(name);
  } else if (!addresses.empty() && resolved_.erase(name) > 0) {
    add(name, true, now);
  } else {
    // A name that does not resolve at the moment keeps the addresses that it had.
    return;
  }
  follow_lists(now);
}

void membership::replace_name(const std::string& name) {
  std::erase_if(peers_, [&](const auto& x) {
    const bool replaced = x.second.fixed && x.second.address == name;
    if (replaced && x.second.up)
      outbox_.emplace_back(peer_went{x.first});
    return replaced;
  });
}

void membership::follow_lists(timestamp now) {
  auto addresses = listed_;
  for (const auto& [name, all] : resolved_)
    addresses.insert(addresses.end(), all.begin(), all.end());
  for (auto i = peers_.begin(); i != peers_.end();) {
    auto& x = i->second;
    x.listed = std::ranges::find(addresses, x.address) != addresses.end();
    if (x.fixed || x.listed || x.up) {
      ++i;
      continue;
    }
    // The log mentions only peers that were reached before.
    if (x.card.incarnation != 0 && !x.self)
      say_left_out(x);
    i = peers_.erase(i);
  }
  for (const auto& address : addresses)
    if (std::ranges::none_of(peers_, [&](const auto& x) { return x.second.address == address; }))
      add(address, false, now);
}

void membership::say_left_out(const entry& x) {
  say(false, "peer removed: node '" + x.card.node + "' at " + x.address +
                 " is not in the list of nodes any more and does not answer");
}

void membership::on_late(peer_number peer) {
  if (const auto found = peers_.find(peer); found != peers_.end())
    found->second.suspect = true;
}

void membership::on_time(timestamp now) {
  for (auto& [i, x] : peers_) {
    if (x.self || x.waiting || x.next > now)
      continue;
    x.waiting = true;
    x.asked_at = now;
    outbox_.emplace_back(say_hello{i, ++x.number});
  }
}

timestamp membership::next_event() const noexcept {
  auto out = timestamp::max();
  for (const auto& [number, x] : peers_)
    if (!x.self && !x.waiting)
      out = std::min(out, x.next);
  return out;
}

void membership::on_answer(peer_number at, std::uint64_t number, const result<cluster_welcome>& answer, timestamp now) {
  const auto found = peers_.find(at);
  if (found == peers_.end() || !found->second.waiting || found->second.number != number)
    return;
  found->second.waiting = false;
  if (!answer)
    return mark_unreachable(at, answer.error(), now);
  if (answer->node.cluster != options_.self.cluster)
    return mark_unreachable(at,
                            {errc::identity_mismatch, "node '" + answer->node.node + "' is part of cluster '" +
                                                          answer->node.cluster + "', and this node of '" +
                                                          options_.self.cluster + "'"},
                            now);
  welcome(at, *answer, now);
}

void membership::welcome(peer_number at, const cluster_welcome& answer, timestamp now) {
  auto& x = peers_.at(at);
  x.backoff.reset();
  x.failures = 0;
  x.suspect = false;
  x.next = later(now, options_.hello_interval);
  if (answer.node.incarnation == options_.self.incarnation) {
    x.self = true;
    x.card = answer.node;
    x.trouble.clear();
    say(false, x.address + " is this node's own address; it is not used as a peer");
    return;
  }
  const bool changed =
      !x.up || x.card.incarnation != answer.node.incarnation || !same_namespaces(x.namespaces, answer.namespaces);
  if (!x.up || x.card.incarnation != answer.node.incarnation)
    say(false, "peer connected: node '" + answer.node.node + "' at " + x.address + " is available" +
                   (x.card.incarnation == 0                         ? ""
                    : x.card.incarnation == answer.node.incarnation ? " again"
                                                                    : " after a restart"));
  x.up = true;
  x.lag = std::max<duration>(now - x.asked_at, duration::zero());
  x.card = answer.node;
  x.namespaces = answer.namespaces;
  x.trouble.clear();
  if (changed)
    outbox_.emplace_back(peer_came{at});
}

void membership::mark_unreachable(peer_number at, const error& why, timestamp now) {
  auto& x = peers_.at(at);
  const bool was_up = std::exchange(x.up, false);
  x.lag = {};
  const bool refused = is_refusal(why.code);
  x.next = later(now, refused ? options_.backoff_max : x.backoff.next());
  if (was_up)
    say(true, "peer disconnected: node '" + x.card.node + "' at " + x.address + " (" + why.text +
                  "); its pages are unavailable until it returns");
  else if (refused ? x.trouble != why.text : x.failures == notified_failures)
    say(true, "no node of this cluster at " + x.address + ": " + why.text);
  x.failures = was_up || refused ? notified_failures + 1 : std::min(x.failures + 1, notified_failures + 1);
  x.trouble = why.text.empty() ? "no answer" : why.text;
  if (was_up)
    outbox_.emplace_back(peer_went{at});
  if (!x.fixed && !x.listed) {
    say_left_out(x);
    peers_.erase(at);
  }
}

void membership::on_lost(peer_number at, timestamp now) {
  const auto found = peers_.find(at);
  if (found == peers_.end() || !found->second.up)
    return;
  // The answer to a hello that was sent before has no meaning any more.
  found->second.waiting = false;
  mark_unreachable(at, {errc::unreachable, "the connection has ended"}, now);
}

} // namespace troupe::cluster
