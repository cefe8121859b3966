#include "actors/cluster/etcd/etcd_rules.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::cluster {

namespace {

/// Failures in a row before a problem is reported. An election of etcd's members causes one.
constexpr std::uint32_t failures_of_trouble = 2;

} // namespace

etcd_rules::etcd_rules(etcd_options options)
    : options_(std::move(options)), registering_{reconnect_backoff(options_.backoff_min, options_.backoff_max,
                                                                   options_.seed)},
      listing_{reconnect_backoff(options_.backoff_min, options_.backoff_max, options_.seed + 1)},
      login_{reconnect_backoff(options_.backoff_min, options_.backoff_max, options_.seed + 3)},
      watch_backoff_(options_.backoff_min, options_.backoff_max, options_.seed + 2),
      nodes_(options_.prefix, options_.address, options_.self) {}

void etcd_rules::on_time(timestamp now) {
  if (next_event() > now)
    return;
  // Without a valid token every other request would fail.
  if (needs_login())
    return ask(asking::login, now);
  // The track that has waited longer runs first, so that a failing one does not block the other.
  if (registering_.next <= listing_.next)
    register_next(now);
  else
    ask(asking::list, now);
}

timestamp etcd_rules::next_event() const noexcept {
  // Requests are sent one at a time; the answer schedules the next one.
  if (asking_ != asking::nothing)
    return timestamp::max();
  // Where a login is needed, its back-off delays both tracks.
  const auto next = std::min(registering_.next, listing_.next);
  return needs_login() ? std::max(next, login_.next) : next;
}

void etcd_rules::register_next(timestamp now) {
  // The keep-alive takes precedence when it is due, because a put does not prolong the lease and may be repeated often.
  ask(lease_ == 0 ? asking::grant : put_ || renewal_ <= now ? asking::keep_alive : asking::put, now);
}

void etcd_rules::ask(asking what, timestamp now) {
  asking_ = what;
  asked_ = now;
  ++requests_;
  etcd_request out{++request_, {}, {}, token_};
  switch (what) {
  case asking::login:
    outbox_.emplace_back(etcd_login{request_});
    return;
  case asking::grant:
    out.path = "/v3/lease/grant";
    out.body = grant_body(std::chrono::floor<std::chrono::seconds>(options_.lease).count());
    break;
  case asking::put:
    out.path = "/v3/kv/put";
    out.body = put_body(options_.prefix + options_.address, write_listed(options_.self), lease_);
    break;
  case asking::keep_alive:
    out.path = "/v3/lease/keepalive";
    out.body = keep_alive_body(lease_);
    break;
  case asking::list:
  // `nothing` is never requested; the case completes the switch.
  case asking::nothing:
    out.path = "/v3/kv/range";
    out.body = range_body(options_.prefix);
    break;
  }
  outbox_.emplace_back(std::move(out));
}

void etcd_rules::on_answer(std::uint64_t number, const result<etcd_reply>& answer, timestamp now) {
  // Only the answer to the current request counts.
  if (number != request_ || asking_ == asking::nothing)
    return;
  const auto what = std::exchange(asking_, asking::nothing);
  const auto was = state();
  if (!answer)
    failed(what == asking::login ? login_ : what == asking::list ? listing_ : registering_, answer.error(), now);
  else if (what == asking::login)
    on_login(*answer, now);
  else if (what == asking::grant)
    on_grant(*answer, now);
  else if (what == asking::put)
    on_put(*answer, now);
  else if (what == asking::keep_alive)
    on_keep_alive(*answer, now);
  else
    on_list(*answer, now);
  say_state(was);
}

void etcd_rules::failed(track& x, const error& why, timestamp now) {
  ++failed_;
  // etcd refuses the token, so a login comes before the next request.
  if (why.code == errc::expired)
    logged_in_ = false;
  // Counted up to the threshold, since only that is compared.
  x.failures = std::min(x.failures + 1, failures_of_trouble);
  x.why = why.text.empty() ? "it does not answer" : why.text;
  x.next = later(now, x.backoff.next());
}

void etcd_rules::answered(track& x) {
  x.failures = 0;
  x.why.clear();
  x.backoff.reset();
}

void etcd_rules::on_login(const etcd_reply& reply, timestamp now) {
  auto token = read_login(reply);
  // An etcd with authentication disabled needs no token, which counts as a login.
  const bool has_users = token || token.error().code != errc::unsupported;
  if (!token && has_users)
    return failed(login_, token.error(), now);
  logged_in_ = true;
  token_ = has_users ? std::move(*token) : std::string{};
  answered(login_);
  login_.next = now;
  // Logged once for each time that authentication is disabled.
  if (!std::exchange(notified_of_no_users_, !has_users) && !has_users)
    say(false, "etcd at " + options_.endpoints + " has authentication disabled, so this node has not logged in as '" +
                   options_.user + "'; it logs in after `etcdctl auth enable`");
}

void etcd_rules::on_grant(const etcd_reply& reply, timestamp now) {
  const auto lease = read_grant(reply);
  if (!lease)
    return failed(registering_, lease.error(), now);
  lease_ = lease->id;
  renewal_ = later(asked_, keep_alive_pause());
  // The entry has to be put again under the new lease.
  put_ = false;
  // Earlier failures are cleared only when the entry is put, so `answered` is not called here.
  registering_.next = now;
}

void etcd_rules::on_put(const etcd_reply& reply, timestamp now) {
  const auto revision = read_put(reply);
  if (!revision) {
    // etcd does not know the lease. The failure is counted too, so that repeated losses back off.
    if (revision.error().code == errc::not_found)
      lease_lost(now);
    return failed(registering_, revision.error(), now);
  }
  put_ = true;
  put_revision_ = *revision;
  answered(registering_);
  registering_.next = renewal_;
}

void etcd_rules::on_keep_alive(const etcd_reply& reply, timestamp now) {
  const auto lease = read_keep_alive(reply);
  // Only not_found means that the lease is lost; after any other error it may still be in force.
  if (!lease && lease.error().code != errc::not_found)
    return failed(registering_, lease.error(), now);
  // etcd reports an expired lease with a remaining time of 0.
  if (!lease || lease->seconds == 0)
    return lease_lost(now);
  renewal_ = later(asked_, keep_alive_pause());
  // A lease without an entry is no registration, so failures are cleared only if the entry is there.
  if (put_)
    answered(registering_);
  registering_.next = put_ ? renewal_ : now;
}

void etcd_rules::lease_lost(timestamp now) {
  ++leases_lost_;
  say(true,
      "lease lost: this node's lease in etcd expired early (etcd may have been unreachable); a new one is requested");
  lease_ = 0;
  put_ = false;
  registering_.next = now;
}

void etcd_rules::put_again(timestamp now) {
  // A put is scheduled already.
  if (!put_)
    return;
  put_ = false;
  // With back-off, in case the entry is removed each time; no later than the renewal of the lease.
  registering_.next = std::min(later(now, registering_.backoff.next()), renewal_);
}

void etcd_rules::on_list(const etcd_reply& reply, timestamp now) {
  const auto range = read_range(reply);
  if (!range)
    return failed(listing_, range.error(), now);
  answered(listing_);
  listing_.next = later(now, options_.lease);
  const bool has_changed = nodes_.replace(range->entries);
  bool has_own = false;
  // The revision is taken over even if it is lower: the store was made again or restored from a backup.
  revision_ = range->revision;
  for (const auto& x : range->entries) {
    if (!nodes_.is_own(x))
      continue;
    has_own = true;
    look_at_own(x.value, now);
  }
  report_warnings();
  // The list was requested after the put, so it shows what is in the entry's place now, whatever its revision; a
  // restored store counts from a lower one. If the list's revision is lower than that of the put, the store was
  // restored since. The entry is then put again, because events of a watch would count as older than the put.
  if (!has_own || range->revision < put_revision_)
    put_again(now);
  const bool is_news = !std::exchange(was_listed_, true) || has_changed;
  if (is_news)
    report_members();
  // The watch should have reported a change that the list shows, so a watch that missed it is replaced.
  if (watch_ == 0 || is_news) {
    watch_ = ++last_watch_;
    watch_began_ = now;
    outbox_.emplace_back(etcd_watch{watch_, watch_body(options_.prefix, revision_ + 1), token_});
  }
}

void etcd_rules::on_watch(std::uint64_t number, std::string_view line, timestamp now) {
  // The line is of a watch that was replaced.
  if (number != watch_ || watch_ == 0)
    return;
  const auto news = read_watch(line);
  // An invalid line also ends the watch; the next list starts a new one.
  if (!news || !news->end.empty())
    return on_watch_end(number, now);
  bool changed = false;
  for (const auto& x : news->entries) {
    // The list that was read last includes it.
    if (x.revision <= revision_)
      continue;
    changed = nodes_.take(x) || changed;
    // Events from before this node's put are about an entry that the put has replaced.
    if (!nodes_.is_own(x) || x.revision <= put_revision_)
      continue;
    if (x.removed)
      put_again(now);
    else
      look_at_own(x.value, now);
  }
  // Raised after the loop, because the entries of one transaction have the same revision.
  for (const auto& x : news->entries)
    revision_ = std::max(revision_, x.revision);
  report_warnings();
  if (changed)
    report_members();
}

void etcd_rules::on_watch_end(std::uint64_t number, timestamp now) {
  // The watch was replaced already.
  if (number != watch_ || watch_ == 0)
    return;
  watch_ = 0;
  // A watch that lasted for a lease worked, so the back-off starts again.
  if (watch_began_ + options_.lease <= now)
    watch_backoff_.reset();
  listing_.next = std::min(listing_.next, later(now, watch_backoff_.next()));
}

void etcd_rules::look_at_own(std::string_view value, timestamp now) {
  // Before the put, any value in its place is replaced anyway. An invalid value does not belong to another node, so it
  // is overwritten. Where another node has put its entry, putting again would only make both overwrite each other.
  if (put_ && nodes_.judge_own(value) == listed_nodes::own_entry::invalid)
    put_again(now);
}

void etcd_rules::report_warnings() {
  for (auto& x : nodes_.take_warnings())
    say(true, std::move(x));
}

void etcd_rules::report_members() {
  outbox_.emplace_back(etcd_members{nodes_.addresses()});
}

etcd_rules::condition etcd_rules::state() const noexcept {
  // The worst condition comes first: without a login neither track makes progress.
  if (login_.failures >= failures_of_trouble)
    return condition::not_let_in;
  if (listing_.failures >= failures_of_trouble)
    return condition::not_read;
  return registering_.failures >= failures_of_trouble ? condition::not_registered : condition::well;
}

std::string etcd_rules::trouble() const {
  const auto at = "etcd at " + options_.endpoints;
  switch (state()) {
  case condition::not_let_in:
    return "this node cannot log in as '" + options_.user + "', so the list of nodes cannot be read from " + at +
           "; the last known nodes stay in use: " + login_.why;
  case condition::not_read:
    return "the list of nodes cannot be read from " + at + "; the last known nodes stay in use: " + listing_.why;
  case condition::not_registered:
    return "this node cannot be registered in the list of nodes in " + at +
           ", so other nodes cannot find it: " + registering_.why;
  case condition::well:
    break;
  }
  return {};
}

void etcd_rules::say_state(condition was) {
  const auto is = state();
  if (is > was)
    say(true, trouble());
  // A partial improvement is not logged.
  else if (was != condition::well && is == condition::well)
    say(false, "etcd at " + options_.endpoints + " answers again");
}

etcd_stats etcd_rules::stats() const {
  return {.endpoints = options_.endpoints,
          .up = trouble().empty() && (was_listed_ || put_),
          .trouble = trouble(),
          .registered = put_,
          .listed = nodes_.size(),
          .senseless = nodes_.invalid(),
          .requests = requests_,
          .failed = failed_,
          .leases_lost = leases_lost_};
}

std::optional<etcd_request> etcd_rules::deregistration() const {
  // Without a lease, a login or an etcd that answers there is nothing to revoke; the lease expires by itself.
  if (lease_ == 0 || needs_login() || !trouble().empty())
    return std::nullopt;
  return etcd_request{0, "/v3/lease/revoke", keep_alive_body(lease_), token_};
}

} // namespace troupe::cluster
