#include "actors/client/transfer/file_patience.hpp"
#include "actors/cluster/cluster.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

/// Dead nodes whose pages are read from the directories that they have left. They are asked as peers are, without any
/// message.

namespace troupe::cluster {

namespace {

/// Whether not one page could be read. A read may return pages other than those requested, and these count as readable.
bool nothing_readable(const transfer_result& x) {
  return x.files_failed > 0 && x.from_files + x.files_stale + x.files_damaged == 0;
}

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
  how.changed = [post = poster()] { post(adopted_changed{}); };
  auto started = adopter::start(std::move(how));
  if (!started) {
    log::get("cluster")->warn("cannot take over directories of dead nodes ({}); their pages are unavailable",
                              started.error().text);
    return;
  }
  adopter_ = std::move(*started);
}

void cluster::on(const adopted_changed&) {
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
  if (adopted_reads_)
    adopted_reads_->drop_unused();
  follow();
}

const adopted_node* cluster::adopted(peer_number peer) const {
  const auto found = adopted_.find(peer);
  return found == adopted_.end() ? nullptr : &found->second;
}

void cluster::add_adopted(const namespace_id& ns, std::vector<peer_number>& to) const {
  const auto own = namespaces_.find(ns);
  if (own == namespaces_.end())
    return;
  for (const auto& [number, x] : adopted_)
    if (x.files_from <= now() && x.index->has(ns, own->second.memory.size(), own->second.node.ns.geometry.page_bytes()))
      to.push_back(number);
}

void cluster::ask_adopted(const adopted_node& of, const fetch_ask& x) {
  lookup_result found;
  found.matched = of.files_from <= now() ? of.index->match(x.ns, x.keys) : 0;
  fetching_.on_found(x.call, found, now());
}

void cluster::ask_adopted(const adopted_node& of, const search_ask& x) {
  lookup_result found;
  const bool readable = of.files_from <= now();
  for (const auto& key : x.keys) {
    const bool has = readable && of.index->match(x.ns, {&key, 1}) == 1;
    found.found.items.push_back(has ? 1 : 0);
    found.matched += has ? 1 : 0;
  }
  searching_.on_found(x.call, found, now());
}

void cluster::load_adopted(const adopted_node& of, pages_requested& x) {
  adopted_reads_->post({of.index, std::move(x.memory), x.ns, x.rank, std::move(x.work),
                        [peer = x.peer, then = std::move(x.then), post = poster()](const transfer_result& outcome) {
                          if (nothing_readable(outcome))
                            post(adopted_unreadable{peer});
                          then(outcome);
                        }});
}

void cluster::on(const adopted_unreadable& x) {
  if (const auto found = adopted_.find(x.peer); found != adopted_.end())
    found->second.files_from = later(now(), transfer::files_pause);
}

void cluster::add_adopted(cluster_stats& to) const {
  to.claims_lost = adopter_ ? adopter_->claims_lost() : 0;
  to.adopted_pages = adopted_pages_;
  to.adopted_failed = adopted_failed_;
  for (const auto& [number, x] : adopted_) {
    const auto counts = fetching_.counts(number);
    to.adopted.push_back({.node = x.name,
                          .own = x.own,
                          .keys = x.index->keys(),
                          .asked = counts.asked,
                          .had = counts.had,
                          .pages = counts.pages,
                          .bytes = counts.bytes,
                          .failed = counts.failed});
    to.adopted_pages += counts.pages;
    to.adopted_failed += counts.failed;
  }
}

} // namespace troupe::cluster
