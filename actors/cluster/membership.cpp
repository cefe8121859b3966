#include "actors/cluster/membership.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

namespace {

bool same_spaces(const std::vector<cluster_space>& a, const std::vector<cluster_space>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.id == y.id && x.name == y.name; });
}

/// Nodes that are started together do not find each other at once, nor itself.
constexpr std::uint32_t told_failures = 2;

/// What does not pass by itself: somebody has to change a config or a certificate.
bool is_refusal(errc code) {
  return code == errc::identity_mismatch || code == errc::not_owner || code == errc::unsupported;
}

} // namespace

membership::membership(const membership_options& options, std::vector<std::string> addresses) : options_(options) {
  auto seed = options.seed;
  for (auto& x : addresses)
    peers_.push_back({std::move(x), reconnect_backoff(options.backoff_min, options.backoff_max, seed++)});
}

void membership::on_time(timestamp now) {
  for (peer_number i = 0; i < peers_.size(); ++i) {
    auto& x = peers_[i];
    if (x.self || x.waiting || x.next > now)
      continue;
    x.waiting = true;
    outbox_.emplace_back(say_hello{i, ++x.number});
  }
}

timestamp membership::next_event() const noexcept {
  auto out = timestamp::max();
  for (const auto& x : peers_)
    if (!x.self && !x.waiting)
      out = std::min(out, x.next);
  return out;
}

void membership::on_answer(peer_number at, std::uint64_t number, const result<cluster_welcome>& answer, timestamp now) {
  auto& x = peers_[at];
  if (!x.waiting || x.number != number)
    return;
  x.waiting = false;
  if (!answer)
    return away(at, answer.error(), now);
  if (answer->node.cluster != options_.self.cluster)
    return away(at,
                {errc::identity_mismatch, "node '" + answer->node.node + "' is part of cluster '" +
                                              answer->node.cluster + "', and this one of '" + options_.self.cluster +
                                              "'"},
                now);
  welcome(at, *answer, now);
}

void membership::welcome(peer_number at, const cluster_welcome& answer, timestamp now) {
  auto& x = peers_[at];
  x.backoff.reset();
  x.failures = 0;
  x.suspect = false;
  x.next = later(now, options_.hello_interval);
  if (answer.node.incarnation == options_.self.incarnation) {
    x.self = true;
    x.card = answer.node;
    x.trouble.clear();
    say(false, x.address + " is this node itself");
    return;
  }
  const bool changed = !x.up || x.card.incarnation != answer.node.incarnation || !same_spaces(x.spaces, answer.spaces);
  if (!x.up || x.card.incarnation != answer.node.incarnation)
    say(false, "node '" + answer.node.node + "' at " + x.address + " is there" +
                   (x.card.incarnation == 0                         ? ""
                    : x.card.incarnation == answer.node.incarnation ? " again"
                                                                    : ", and has begun anew"));
  x.up = true;
  x.card = answer.node;
  x.spaces = answer.spaces;
  x.trouble.clear();
  if (changed)
    outbox_.emplace_back(peer_came{at});
}

void membership::away(peer_number at, const error& why, timestamp now) {
  auto& x = peers_[at];
  const bool was_up = std::exchange(x.up, false);
  const bool refused = is_refusal(why.code);
  x.next = later(now, refused ? options_.backoff_max : x.backoff.next());
  if (was_up)
    say(true, "node '" + x.card.node + "' at " + x.address + " is away: " + why.text + "; what it has is not found");
  else if (refused ? x.trouble != why.text : x.failures == told_failures)
    say(true, "no node of this cluster at " + x.address + ": " + why.text);
  x.failures = was_up || refused ? told_failures + 1 : std::min(x.failures + 1, told_failures + 1);
  x.trouble = why.text.empty() ? "it does not answer" : why.text;
  if (was_up)
    outbox_.emplace_back(peer_went{at});
}

void membership::on_lost(peer_number at, timestamp now) {
  auto& x = peers_[at];
  if (!x.up)
    return;
  // The answer to a hello that is under way says nothing any more.
  x.waiting = false;
  away(at, {errc::unreachable, "the connection has ended"}, now);
}

} // namespace troupe::cluster
