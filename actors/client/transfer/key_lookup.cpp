#include "actors/client/transfer/key_lookup.hpp"

#include "actors/support/shard_batches.hpp"

#include <algorithm>

namespace troupe::transfer {

key_lookup::key_lookup(const terms& how, std::span<const key_digest> keys) : how_(how), keys_(keys.size()) {
  for (auto& split : split_by_shard(keys, how_.shard_count))
    parts_.push_back(part{split.shard, std::move(split.positions), std::move(split.items)});
}

void key_lookup::start(const ticket& lease, timestamp now) {
  lease_ = lease;
  waiting_ = parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    send(i);
  if (waiting_ == 0)
    finish(now);
}

void key_lookup::send(std::size_t index) {
  const auto& p = parts_[index];
  match out{index, p.shard, {how_.ns, lease_, how_.lease_for, p.keys}};
  out.request.report_on_disk = how_.report_on_disk;
  out.request.each = true;
  out.request.request = how_.request;
  outbox_.matches.push_back(std::move(out));
}

void key_lookup::on_match(std::size_t index, result<match_reply> reply, timestamp now) {
  if (outcome_ || parts_[index].answered)
    return;
  auto& p = parts_[index];
  if (!reply && reply.error().code == errc::timeout && now < how_.deadline)
    return send(index); // with the same lease, so that the shard adds nothing twice
  p.answered = true;
  if (reply)
    p.reply = std::move(*reply);
  else
    failure_ = reply.error();
  if (--waiting_ == 0)
    finish(now);
}

bool key_lookup::add(const part& p, finding& out, bool& tiers_known) {
  const auto& marks = p.reply.found;
  if (marks.size() != p.positions.size())
    return false;
  std::size_t next = 0;
  tiers_known = tiers_known && p.reply.on_disk.size() >= p.reply.matched;
  bool any = false;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i] == 0)
      continue;
    any = true;
    ++out.matched;
    out.found[p.positions[i]] = 1;
    if (next < p.reply.on_disk.size())
      out.on_disk[p.positions[i]] = p.reply.on_disk[next++] != 0 ? 1 : 0;
  }
  if (any)
    out.shards.push_back(p.shard);
  return true;
}

void key_lookup::finish(timestamp now) {
  if (failure_)
    return fail_with(*failure_);
  finding out;
  out.found.resize(keys_, 0);
  out.on_disk.resize(keys_, 0);
  out.expires = later(now, how_.lease_for);
  bool tiers_known = how_.report_on_disk;
  for (const auto& p : parts_)
    if (!add(p, out, tiers_known))
      return fail_with({errc::internal, "a shard has answered a lookup without a mark for each key"});
  if (!tiers_known)
    out.on_disk.clear();
  outcome_ = std::move(out);
}

void key_lookup::fail_with(error why) {
  for (const auto& p : parts_)
    outbox_.releases.push_back({p.shard, {how_.ns, lease_, 0}});
  outcome_ = tl::unexpected<error>(std::move(why));
}

void key_lookup::on_tick(timestamp now) {
  if (!outcome_ && now >= how_.deadline)
    fail_with({errc::timeout, "the registry did not answer in time"});
}

} // namespace troupe::transfer
