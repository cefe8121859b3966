#include "actors/cluster/cluster.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

/// Nodes that are dead, and whose pages are read where they have left them: asked as peers are, and without a word to
/// anybody.

namespace troupe::cluster {

namespace {

/// Of peers there are never so many.
constexpr peer_number first_adopted = peer_number{1} << 40U;

} // namespace

void cluster::begin_adopting() {
  const auto& options = *parts_.options;
  if (!options.storage.shared || !parts_.storage.reader)
    return;
  next_adopted_ = first_adopted;
  adopted_reads_ = std::make_unique<adopted_reads>(parts_.storage);
  adopter_options how;
  how.shared = parts_.storage.directory;
  how.own = options.data_dir;
  how.node_name = options.node_name;
  how.cluster = options.cluster.name;
  how.lease = options.storage.claim_lease;
  how.memory = parts_.memory;
  how.changed = [this, post = poster()] {
    post([this] {
      look_at_adopted();
      flush();
    });
  };
  adopter_ = std::make_unique<adopter>(std::move(how));
}

void cluster::look_at_adopted() {
  if (!adopter_)
    return;
  auto now_there = adopter_->nodes();
  for (auto known = adopted_.begin(); known != adopted_.end();) {
    const auto same = std::ranges::find(now_there, known->second.index, &adopted_node::index);
    if (same != now_there.end()) {
      known->second.own = same->own;
      now_there.erase(same);
      ++known;
      continue;
    }
    const auto counts = fetching_.counts(known->first);
    adopted_pages_ += counts.pages;
    adopted_failed_ += counts.failed;
    fetching_.forget(known->first);
    known = adopted_.erase(known);
  }
  for (auto& x : now_there)
    adopted_.emplace(next_adopted_++, std::move(x));
  follow();
}

const adopted_node* cluster::adopted(peer_number peer) const {
  const auto found = adopted_.find(peer);
  return found == adopted_.end() ? nullptr : &found->second;
}

void cluster::add_adopted(const namespace_id& space, std::vector<peer_number>& to) const {
  const auto own = spaces_.find(space);
  if (own == spaces_.end())
    return;
  for (const auto& [number, x] : adopted_)
    if (x.index->has(space, own->second.memory.size(), own->second.geometry.page_bytes()))
      to.push_back(number);
}

void cluster::ask_adopted(const adopted_node& of, const fetch_ask& x) {
  lookup_result found;
  found.matched = of.index->match(x.space, x.keys);
  fetching_.on_found(x.call, found, now());
}

void cluster::load_adopted(const adopted_node& of, fetch_load& x) {
  const auto own = spaces_.find(x.space);
  if (own == spaces_.end() || x.rank >= own->second.memory.size())
    return fetching_.on_loaded(x.call, fail(errc::unreachable, "the namespace is not here any more"), now());
  adopted_reads_->post({of.index, own->second.memory[x.rank], x.space, x.rank, std::move(x.work),
                        [this, call = x.call, post = poster()](transfer_result outcome) {
                          post([this, call, outcome = std::move(outcome)] {
                            fetching_.on_loaded(call, outcome, now());
                            flush();
                          });
                        }});
}

void cluster::add_adopted(cluster_stats& to) const {
  to.claims_lost = adopter_ ? adopter_->claims_lost() : 0;
  to.adopted_pages = adopted_pages_;
  to.adopted_failed = adopted_failed_;
  for (const auto& [number, x] : adopted_) {
    const auto counts = fetching_.counts(number);
    to.adopted.push_back(
        {x.name, x.own, x.index->keys(), counts.asked, counts.had, counts.pages, counts.bytes, counts.failed});
    to.adopted_pages += counts.pages;
    to.adopted_failed += counts.failed;
  }
}

} // namespace troupe::cluster
