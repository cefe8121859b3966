#include "tests/simulation/key_tree.hpp"
#include "tests/simulation/server.hpp"

#include <algorithm>
#include <utility>

/// Keys that go before others: another node of the cluster, and what its words lead to.

namespace troupe::simulation {

using std::chrono::milliseconds;

// -- the other node ---------------------------------------------------------------------------------------------------

void server::plan_other_node() {
  if (!world_.p.other_node)
    return;
  world_.schedule.after(random_.skewed_time(milliseconds(1), milliseconds(200)), [this, run = run_] {
    if (run != run_ || !running() || world_.winding_down)
      return world_.schedule.idle();
    play_other_node();
    plan_other_node();
  });
}

void server::play_other_node() {
  const auto i = static_cast<std::uint32_t>(random_.below(world_.p.shards));
  const ticket lease{evict_first_ledger::other_node, ++leases_of_other_};
  // The keys of one shard in a path: it looks up at each of them by itself, as all do.
  match_request ask{ns_, lease, random_.skewed_time(milliseconds(1), world_.p.lease_max), {}};
  ask.lease_for = std::min(ask.lease_for, world_.p.lease_max);
  ask.by_peer = true;
  key_digest parent;
  for (auto left = random_.number(1, std::min(world_.p.depth, world_.p.batch_keys)); left > 0; --left) {
    parent = child_of(parent, random_.one_in(2) ? 0 : random_.below(world_.p.branches));
    if (shard_of(parent, world_.p.shards) == i)
      ask.keys.items.push_back(parent);
  }
  if (ask.keys.empty())
    return;
  const auto until = random_.skewed_time(milliseconds(1), 2 * ask.lease_for);
  const auto keys = ask.keys.items;
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(std::move(ask)),
            [this, i, lease, keys, until](caf::message& answer) {
              const auto found = answer_as<match_reply>(answer);
              if (!found || found->matched == 0)
                return;
              world_.count("other node: finds pages");
              // It has made some of them new. What it says of others is not to matter.
              std::vector<key_digest> kept;
              for (std::size_t n = 0; n < keys.size(); ++n)
                if (n < found->matched ? !random_.one_in(4) : random_.one_in(4))
                  kept.push_back(keys[n]);
              world_.schedule.after(until, [this, run = run_, i, lease, kept] {
                if (run == run_ && running())
                  say_kept_there(i, lease, kept);
                else
                  world_.schedule.idle();
              });
            });
}

void server::say_kept_there(std::uint32_t i, const ticket& lease, std::vector<key_digest> kept) {
  release_request notified{ns_, lease};
  notified.kept_there.items = std::move(kept);
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(std::move(notified)),
            [](caf::message&) {});
}

// -- what comes of it -------------------------------------------------------------------------------------------------

void server::to_shard_of_evict_first(std::uint32_t i, passing& x) {
  if (x.content.match_elements<release_request>()) {
    const auto& notified = x.content.get_as<release_request>(0);
    if (notified.kept_there.empty())
      return;
    if (world_.has(defect::evict_first_without_lease))
      forge_evict_first(i, notified.kept_there.items);
    if (world_.has(defect::forget_kept)) {
      words_left_out_[notified.lease] = notified.kept_there.items;
      x.content.get_mutable_as<release_request>(0).kept_there = {};
    }
  } else if (x.content.match_elements<reserve_request>()) {
    evict_first_.wanted(x.content.get_as<reserve_request>(0).keys.items);
  } else if (x.content.match_elements<commit_atom, finish_request>() && world_.has(defect::forget_transient)) {
    auto& what = x.content.get_mutable_as<finish_request>(1);
    if (what.origin == page_origin::transient)
      transient_left_out_.insert(what.ticket);
    what.origin = page_origin::client;
  }
}

void server::kept_there(std::uint32_t i, const release_request& x) {
  auto kept = x.kept_there.items;
  if (const auto left_out = words_left_out_.extract(x.lease); !left_out.empty())
    kept = left_out.mapped();
  for (const auto& key : kept) {
    if (book_.lists(i, x.lease, key, world_.now()))
      world_.count("other node: keeps a page");
    else
      world_.count(book_.lasts(i, x.lease, world_.now()) ? "other node: keeps what its lease does not have"
                                                         : "other node: speaks too late");
  }
  evict_first_.kept_there(i, x.lease, kept, world_.now());
}

void server::used(std::uint32_t i, const ticket& lease, std::span<const key_digest> keys) {
  std::vector<key_digest> evict_first;
  if (world_.has(defect::evict_first_for_ever))
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(evict_first), [&](const key_digest& key) {
      return evict_first_.is_evict_first(i, key, world_.now(), noticed_before());
    });
  evict_first_.used(lease, keys);
  if (!evict_first.empty())
    forge_evict_first(i, evict_first);
}

void server::forge_evict_first(std::uint32_t i, const std::vector<key_digest>& keys) {
  const ticket lease{evict_first_ledger::other_node, ++leases_of_other_};
  const auto tell = [&](caf::message what) {
    tap_of(shards_[i]).behind()->enqueue(nullptr, caf::make_message_id(), std::move(what), nullptr);
  };
  for (const auto& key : keys) {
    match_request ask{ns_, lease, world_.p.lease_max, {}};
    ask.keys.items.push_back(key);
    tell(caf::make_message(std::move(ask)));
  }
  release_request notified{ns_, lease};
  notified.kept_there.items = keys;
  tell(caf::make_message(std::move(notified)));
}

void server::check_evict_first(std::uint32_t i, const registry_stats& stats) {
  const auto [least, most] = evict_first_.count(i, world_.now(), noticed_before());
  world_.count("spare keys", stats.evict_first_keys);
  if (stats.evict_first_keys < least || stats.evict_first_keys > most)
    world_.fail("spare", "shard " + std::to_string(i) + " has " + std::to_string(stats.evict_first_keys) +
                             " keys that go before others, and there are " + std::to_string(least) + " to " +
                             std::to_string(most));
}

} // namespace troupe::simulation
