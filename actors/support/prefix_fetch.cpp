#include "actors/support/prefix_fetch.hpp"

#include "actors/support/shard_batches.hpp"

#include <algorithm>

namespace troupe::transfer {

prefix_fetch::prefix_fetch(const terms& how, std::vector<key_digest> keys) : how_(how), keys_(std::move(keys)) {
  for (auto& split : split_by_shard(keys_, how_.shard_count))
    parts_.push_back(part{split.shard, std::move(split.positions), 0, 0, {}, false});
}

void prefix_fetch::start(const ticket& lease, timestamp now) {
  send_matches(lease);
  if (waiting_ == 0)
    matched_all(now);
}

void prefix_fetch::send_matches(const ticket& lease) {
  lease_ = lease;
  waiting_ = parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    send_match(i);
}

void prefix_fetch::send_match(std::size_t index) {
  const auto& p = parts_[index];
  match out{index, p.shard, {how_.ns, lease_, how_.lease_for, {}}};
  out.request.report_on_disk = how_.report_on_disk;
  out.request.request = how_.request;
  out.request.keys.items.reserve(p.positions.size());
  for (const auto i : p.positions)
    out.request.keys.items.push_back(keys_[i]);
  outbox_.emplace_back(std::move(out));
}

void prefix_fetch::on_match(std::size_t index, result<match_reply> reply, timestamp now) {
  if ((at_ != phase::matching && at_ != phase::matching_again) || parts_[index].answered)
    return;
  auto& p = parts_[index];
  if (!reply && reply.error().code == errc::timeout && now < how_.deadline)
    return send_match(index); // with the same lease, so that the shard adds nothing twice
  p.answered = true;
  if (reply) {
    p.matched = std::min(reply->matched, static_cast<std::uint32_t>(p.positions.size()));
    p.uses = reply->uses;
    p.on_disk = std::move(reply->on_disk.items);
  } else
    failure_ = reply.error();
  if (--waiting_ == 0)
    matched_all(now);
}

void prefix_fetch::matched_all(timestamp now) {
  const bool again = at_ == phase::matching_again;
  if (failure_.code != errc::ok) {
    release_everywhere();
    if (again)
      return end(std::move(before_));
    return end(tl::unexpected<error>(failure_));
  }
  auto found = settle(now);
  if (again)
    give_back(before_);
  // The fetched keys may be followed by keys that were on this node already, and those by keys that other nodes have.
  if (how_.has_peers && found.matched < keys_.size() && asked_ < prefix_fetches_max &&
      (!again || found.matched > brought_)) {
    before_ = std::move(found);
    return send_prefix_fetch(now);
  }
  end(std::move(found));
}

prefix_fetch::finding prefix_fetch::settle(timestamp now) {
  finding out;
  out.matched = matched_prefix(parts_, keys_.size());
  out.expires = later(now, how_.lease_for);
  for (const auto& p : parts_) {
    const auto keep = positions_within(p.positions, out.matched);
    // By its use, which names this lookup. A repeated request has added nothing to the lease, and is trimmed as such.
    if (p.matched > keep)
      outbox_.emplace_back(release{p.shard, {how_.ns, lease_, keep, p.uses == 1 ? 1U : 0U}});
    if (keep > 0)
      out.shards.push_back(p.shard);
  }
  if (out.matched > 0) {
    out.lease = lease_;
    if (how_.report_on_disk)
      out.on_disk = joined_on_disk(out.matched);
  }
  return out;
}

void prefix_fetch::send_prefix_fetch(timestamp now) {
  at_ = phase::prefix_fetch;
  if (asked_++ == 0) {
    asked_at_ = now;
    how_.deadline = std::min(how_.deadline, later(now, how_.peers_limit));
  }
  const auto first = before_.matched;
  wanted_prefix out{{how_.ns, first > 0 ? keys_[first - 1] : key_digest{}, {}}};
  out.request.waited = now - asked_at_;
  out.request.keys.items.assign(keys_.begin() + first, keys_.end());
  outbox_.emplace_back(std::move(out));
}

void prefix_fetch::on_prefix_fetch(const result<prefix_fetch_reply>& reply, const ticket& lease) {
  if (at_ != phase::prefix_fetch)
    return;
  if (!reply || reply->keys == 0)
    return end(std::move(before_));
  at_ = phase::matching_again;
  brought_ = before_.matched + std::min(reply->keys, static_cast<std::uint32_t>(keys_.size()) - before_.matched);
  for (auto& p : parts_)
    p = part{p.shard, std::move(p.positions), 0, 0, {}, false};
  send_matches(lease);
}

void prefix_fetch::on_tick(timestamp now) {
  if (at_ == phase::ended || now < how_.deadline)
    return;
  if (at_ != phase::prefix_fetch)
    release_everywhere();
  if (at_ != phase::matching)
    return end(std::move(before_));
  end(fail(errc::timeout, "the registry did not answer in time"));
}

void prefix_fetch::cancel() {
  if (at_ == phase::ended)
    return;
  if (at_ != phase::prefix_fetch)
    release_everywhere();
  if (at_ != phase::matching)
    give_back(before_);
  end(fail(errc::cancelled, "the request was cancelled"));
}

void prefix_fetch::keep(std::uint32_t count) {
  if (!outcome_ || !*outcome_ || count >= (*outcome_)->matched)
    return;
  auto& found = **outcome_;
  std::vector<std::uint32_t> shards;
  for (const auto& p : parts_) {
    const auto wanted = positions_within(p.positions, count);
    if (wanted < positions_within(p.positions, found.matched))
      outbox_.emplace_back(release{p.shard, {how_.ns, found.lease, wanted}});
    if (wanted > 0)
      shards.push_back(p.shard);
  }
  found.shards = std::move(shards);
  found.matched = count;
  if (!found.on_disk.empty())
    found.on_disk.items.resize(count);
  if (count == 0)
    found.lease = {};
}

void prefix_fetch::give_back(const finding& x) {
  for (const auto shard : x.shards)
    outbox_.emplace_back(release{shard, {how_.ns, x.lease, 0}});
}

void prefix_fetch::release_everywhere() {
  for (const auto& p : parts_)
    outbox_.emplace_back(release{p.shard, {how_.ns, lease_, 0}});
}

void prefix_fetch::end(result<finding> with) {
  at_ = phase::ended;
  outcome_ = std::move(with);
}

packed<std::uint8_t> prefix_fetch::joined_on_disk(std::uint32_t matched) const {
  std::vector<std::uint8_t> out(matched, 0);
  for (const auto& p : parts_) {
    const auto count = positions_within(p.positions, matched);
    if (p.on_disk.size() < count)
      return {};
    for (std::uint32_t i = 0; i < count; ++i)
      out[p.positions[i]] = p.on_disk[i] != 0 ? 1 : 0;
  }
  return out;
}

} // namespace troupe::transfer
