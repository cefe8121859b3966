#include "tests/simulation/client.hpp"

#include <algorithm>
#include <utility>

/// The messages from a client to its node and back.

namespace troupe::simulation {

void client::judge(std::string_view property, const std::string& who, const std::string& wrong) {
  if (!wrong.empty())
    world_.fail(property, "client " + std::to_string(number_) + ", " + who + ": " + wrong);
}

std::string client::requests() const {
  for (const auto& [request, x] : asked_)
    if (x.what.match_elements<fetch_atom, frame_request>() || x.what.match_elements<place_atom, frame_request>() ||
        x.what.match_elements<fill_atom, fill_request>())
      return "client " + std::to_string(number_) + ": what it has said of frames is not answered";
  return {};
}

bool client::is_open(rank_number rank, bool is_load, const key_digest& key) const {
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& x) {
    const auto& t = x.second;
    return t.rank == rank && t.is_load == is_load && std::find(t.keys.begin(), t.keys.end(), key) != t.keys.end();
  });
}

void client::forge_answer(const caf::strong_actor_ptr& by, caf::message_id id, duration time, caf::message what) {
  after(time, [by = caf::actor_cast<caf::weak_actor_ptr>(by), id, what = std::move(what)] {
    if (const auto to = by.lock())
      to->get()->enqueue(nullptr, id.response_id(), what, nullptr);
  });
}

// -- said -------------------------------------------------------------------------------------------------------------

bool client::says(const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message_id id,
                  caf::message& what) {
  if (!by)
    return true;
  bool goes_on = true;
  if (const auto load = loads_.find(by->id()); load != loads_.end())
    goes_on = load_says(load->second, by, to, id, what);
  else if (const auto save = saves_.find(by->id()); save != saves_.end())
    goes_on = save_says(save->second, by, to, id, what);
  else if (by->id() == lookup_.id())
    goes_on = lookup_says(to, what);
  if (!goes_on || !id.is_request())
    return goes_on;
  const auto shard = shards_.find(to->id());
  asked_[{by->id(), id.response_id().integer_value()}] = {shard == shards_.end() ? 0 : shard->second, epoch_, what};
  return true;
}

bool client::load_says(rank_number rank, const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to,
                       caf::message_id id, caf::message& what) {
  auto& watch = ranks_[rank].loads;
  if (what.match_elements<locate_request>()) {
    if (world_.has(defect::short_lease))
      what.get_mutable_as<locate_request>(0).lease_for /= 2;
    const auto& x = what.get_as<locate_request>(0);
    // Which of the tasks it is for is not said; one of those with all of these keys.
    std::optional<timestamp> due;
    for (const auto& [number, t] : tasks_)
      if (t.is_load && t.rank == rank && std::all_of(x.keys.begin(), x.keys.end(), [&](const auto& key) {
            return std::find(t.keys.begin(), t.keys.end(), key) != t.keys.end();
          }))
        due = std::min(due.value_or(t.due), t.due);
    if (due && x.lease_for < std::min<duration>(world_.p.lease_max, *due - world_.now()))
      judge("leases", "load", "leases pages for less time than it may read them");
  } else if (what.match_elements<fetch_atom, frame_request>()) {
    const auto& wanted = what.get_as<frame_request>(1);
    if (world_.has(defect::early_release))
      if (const auto holder = watch.holder_of(wanted))
        for (const auto& [front, shard] : shards_)
          if (shard == holder->first) {
            watch.fetches(wanted);
            judge("leases", "load", watch.releases(shard, holder->second));
            line_->carry(line::client, by, proxies_.at(front), caf::make_message_id(),
                         caf::make_message(release_request{ns_, holder->second, 0}));
            return true;
          }
    watch.fetches(wanted);
    if (world_.has(defect::abandon_frames))
      forge_answer(by, id, world_.p.disk_time / 2, caf::make_message(to_caf(error{errc::timeout, "forged"})));
  } else if (what.match_elements<unpin_atom, pin_number>()) {
    watch.unpins(what.get_as<pin_number>(1));
  } else if (what.match_elements<release_request>()) {
    if (const auto shard = shards_.find(to->id()); shard != shards_.end())
      judge("leases", "load", watch.releases(shard->second, what.get_as<release_request>(0).lease));
  }
  return true;
}

bool client::save_says(rank_number rank, const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to,
                       caf::message_id id, caf::message& what) {
  static_cast<void>(to);
  if (what.match_elements<fill_atom, fill_request>()) {
    io_reply fine;
    fine.results.items.resize(what.get_as<fill_request>(1).gathered.size());
    if (world_.has(defect::early_commit))
      forge_answer(by, id, duration::zero(), caf::make_message(fine));
    return true;
  }
  if (what.match_elements<place_atom, frame_request>() && world_.has(defect::abandon_frames))
    forge_answer(by, id, world_.p.disk_time / 2, caf::make_message(to_caf(error{errc::timeout, "forged"})));
  const auto none_open = [&](const finish_request& x) {
    return std::none_of(x.pages.begin(), x.pages.end(),
                        [&](const page_ref& page) { return is_open(rank, false, page.key); });
  };
  if (world_.has(defect::late_commit) && what.match_elements<abort_atom, finish_request>() &&
      none_open(what.get_as<finish_request>(1)))
    what = caf::make_message(commit_atom_v, what.get_as<finish_request>(1));
  if (what.match_elements<commit_atom, finish_request>() && none_open(what.get_as<finish_request>(1)))
    judge("verdicts", "save", "commits pages after it has said what became of them");
  return true;
}

bool client::lookup_says(const caf::strong_actor_ptr& to, caf::message& what) {
  if (!what.match_elements<release_request>())
    return true;
  const auto& x = what.get_as<release_request>(0);
  if (world_.has(defect::forget_trim) && x.keep > 0)
    return false;
  const auto shard = shards_.find(to->id());
  if (const auto found = lookups_.find(x.lease); found != lookups_.end() && shard != shards_.end())
    found->second[shard->second].kept = x.keep;
  return true;
}

// -- received ---------------------------------------------------------------------------------------------------------

bool client::hears(const caf::strong_actor_ptr& from, const caf::strong_actor_ptr& who, caf::message_id id,
                   caf::message& what) {
  static_cast<void>(from);
  if (what.match_elements<attach_reply>()) {
    const auto& shards = what.get_as<attach_reply>(0).shards;
    arenas_[what.get_as<attach_reply>(0).owner] = what.get_as<attach_reply>(0).arena.name.items;
    shards_.clear();
    proxies_.clear();
    for (std::uint32_t i = 0; i < shards.size(); ++i) {
      shards_[shards[i].id()] = i;
      proxies_[shards[i].id()] = caf::actor_cast<caf::strong_actor_ptr>(shards[i]);
    }
    return true;
  }
  if (world_.has(defect::lose_reply) && !world_.winding_down && random_.one_in(16) &&
      (what.match_elements<io_reply>() || what.match_elements<frame_reply>()))
    return false;
  auto node = asked_.extract({who->id(), id.integer_value()});
  if (node.empty())
    return true;
  const auto& request = node.mapped();
  if (const auto load = loads_.find(who->id()); load != loads_.end()) {
    auto& watch = ranks_[load->second].loads;
    if (request.what.match_elements<locate_request>() && what.match_elements<locate_reply>())
      watch.located(request.shard, request.what.get_as<locate_request>(0), what.get_as<locate_reply>(0));
    if (request.what.match_elements<fetch_atom, frame_request>())
      watch.fetched(request.what.get_as<frame_request>(1),
                    what.match_elements<frame_reply>() ? what.get_as<frame_reply>(0).pin : 0);
  } else if (request.what.match_elements<match_request>() && what.match_elements<match_reply>()) {
    const auto& x = request.what.get_as<match_request>(0);
    const auto found = std::min<std::size_t>(what.get_as<match_reply>(0).matched, x.keys.size());
    lookups_[x.lease][request.shard].leased.assign(x.keys.begin(), x.keys.begin() + static_cast<std::ptrdiff_t>(found));
  }
  return true;
}

void client::check_lookup(const lookup_task& work, const lookup_result& found) {
  if (found.on_disk.size() != (work.report_on_disk ? found.matched : 0))
    judge("tiers", "lookup",
          "found " + std::to_string(found.matched) + " keys and says where " + std::to_string(found.on_disk.size()) +
              " of them lie");
  const auto node = lookups_.extract(found.lease);
  if (found.matched == 0 || node.empty())
    return;
  // If an answer was lost and the request repeated, a shard may hold keys that only the first answer had.
  for (const auto& [request, x] : asked_)
    if (x.what.match_elements<match_request>() && x.what.get_as<match_request>(0).lease == found.lease)
      return;
  const auto end = work.keys.begin() + static_cast<std::ptrdiff_t>(found.matched);
  for (const auto& [shard, x] : node.mapped()) {
    const auto right = static_cast<std::uint32_t>(std::count_if(x.leased.begin(), x.leased.end(), [&](const auto& key) {
      return std::find(work.keys.begin(), end, key) != end;
    }));
    const auto kept = std::min(x.kept, static_cast<std::uint32_t>(x.leased.size()));
    if (kept != right)
      judge("leases", "lookup",
            "found " + std::to_string(found.matched) + " keys and keeps " + std::to_string(kept) + " of shard " +
                std::to_string(shard) + " leased instead of " + std::to_string(right));
  }
}

} // namespace troupe::simulation
