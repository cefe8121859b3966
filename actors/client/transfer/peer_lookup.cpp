#include "actors/client/transfer/peer_lookup.hpp"

namespace troupe::transfer {

peer_lookup::peer_lookup(const key_lookup::terms& how, const lookup_task& work)
    : ns_(how.ns), asked_(work.keys), step_(work.peers), keys_(how, asked_.items) {}

void peer_lookup::start(const ticket& lease, timestamp) {
  lease_ = lease;
  if (is_search()) {
    outbox_.search = search_peers_request{ns_, std::move(asked_), step_.waited};
    return;
  }
  fetching_ = true;
  outbox_.fetch = fetch_pages_request{ns_, step_.search, std::move(asked_), std::move(step_.parents)};
}

void peer_lookup::on_search(result<search_peers_reply> reply) {
  if (is_search() && !searched_)
    searched_ = std::move(reply);
}

void peer_lookup::on_fetch(timestamp now) {
  if (!std::exchange(fetching_, false) || failed_)
    return;
  // Also where the fetch failed: another one may have brought the pages meanwhile.
  keys_.start(lease_, now);
}

void peer_lookup::on_match(std::size_t part, result<match_reply> reply, timestamp now) {
  keys_.on_match(part, std::move(reply), now);
}

void peer_lookup::on_tick(timestamp now) {
  if (now < deadline() || ended())
    return;
  if (is_search())
    searched_ = fail(errc::timeout, "the search at other nodes was not answered in time");
  else if (fetching_)
    failed_ = fail(errc::timeout, "the fetch from other nodes was not answered in time");
  else
    keys_.on_tick(now);
}

peer_lookup::effects peer_lookup::take_outbox() {
  auto out = std::exchange(outbox_, {});
  out.lookup = keys_.take_outbox();
  return out;
}

} // namespace troupe::transfer
