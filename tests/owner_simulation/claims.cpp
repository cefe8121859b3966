#include "tests/owner_simulation/world.hpp"

#include <algorithm>
#include <set>

/// Claims: the results of the rules' steps on a file system that is slow, late and unreliable; and which node may
/// write.

namespace troupe::owner_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using step_kind = io::claim_step::kind;
using state = io::claim_state;

/// A listing may be so old; less than the margin of the shortest lease.
constexpr auto stale_max = milliseconds(500);

} // namespace

// -- files ------------------------------------------------------------------------------------------------------------

io::claim_sighting world::look_at(std::size_t where, contender& x, duration stale) {
  const auto& all = directories_[where].claims;
  io::claim_sighting out;
  for (const auto& [number, file] : all)
    if (file.made <= now_ - stale || x.own.number == number)
      out = {number, file.fingerprint, file.record};
  if (has(defect::reuse_a_number) && out.number != 0) {
    out.number = all.size();
    const auto found = all.find(out.number);
    out.record = found == all.end() ? out.record : found->second.record;
  }
  x.seen_at = now_;
  return out;
}

void world::write_claim(std::size_t where, io::claim_number number, const io::claim_record& what) {
  const auto found = directories_[where].claims.find(number);
  if (found == directories_[where].claims.end())
    return;
  found->second.record = what;
  found->second.fingerprint = ++last_fingerprint_;
  found->second.written = now_;
}

result<void> world::make_claim(const contender& x, io::claim_number number, const io::claim_record& what) {
  auto& where = directories_[x.directory];
  if (where.claims.contains(number)) {
    count("another node was faster");
    return fail(errc::exists, "there is such a claim");
  }
  // A node that was frozen before it made the claim may have made it, as a higher one shows.
  if (number <= where.highest_ever && (where.claims.empty() || where.claims.rbegin()->first < number))
    broken("numbers", "claim " + std::to_string(number) + " is made again");
  check_take(x, number);
  where.highest_ever = std::max(where.highest_ever, number);
  where.claims[number] = {std::nullopt, ++last_fingerprint_, now_, now_};
  write_claim(x.directory, number, what);
  return {};
}

/// The directory of a node that renews in time is not taken.
void world::check_take(const contender& x, io::claim_number number) {
  const auto& claims = directories_[x.directory].claims;
  const auto before = claims.find(number - 1);
  if (before == claims.end() || !before->second.record)
    return;
  const auto& what = *before->second.record;
  if (what.phase == io::claim_phase::released)
    return count("taken of one that gave it back");
  if (what.kind == io::claim_kind::adopter && x.kind == io::claim_kind::owner)
    return count("taken back from an adopter");
  count(what.kind == io::claim_kind::adopter ? "followed an adopter" : "taken over");
  // The claim was as it was when it was last read; later changes could not be known.
  if (before->second.written <= x.seen_at && x.seen_at - before->second.written < what.lease)
    broken("alive", "a claim was taken over that was renewed a moment ago");
  // Nor the directory of a node that could not renew, nor had the time to do so since it can.
  if (away_until_ <= now_ && now_ - away_until_ < what.lease / 3)
    broken("alive", "a claim was taken over as soon as the file system was there again");
}

// -- steps ------------------------------------------------------------------------------------------------------------

void world::carry_out(std::uint64_t number, std::size_t which, incarnation_number life) {
  auto* const x = find(number);
  if (x == nullptr || !x->contenders[which].rules || x->contenders[which].incarnation != life)
    return;
  auto& c = x->contenders[which];
  auto what = c.rules->next();
  if (has(defect::report_own_lease))
    what.record.lease = c.lease;
  const auto again = [this, number, which, life] {
    in_turn(number, [this, number, which, life] { carry_out(number, which, life); });
  };
  if (what.what == step_kind::end)
    return;
  if (what.at > local(*x))
    return at(when(*x, what.at), again);
  const auto begun = local(*x);
  // Comes to the file system after a while, whatever becomes of the process; and the answer after another while.
  const bool fails = !is_calm_ && random_.one_in(40);
  const bool comes = !fails || random_.one_in(2);
  const auto stale = is_calm_ ? duration::zero() : random_.skewed_time(milliseconds(1), stale_max);
  auto found = std::make_shared<io::claim_sighting>();
  auto outcome = std::make_shared<result<void>>();
  if (fails) {
    count("failed");
    *outcome = fail(errc::io_error, "the file system says no");
  }
  const auto there = file_time();
  // The process that requested it has ended: the request takes effect all the same.
  const auto asker = std::make_shared<contender>(c);
  after(there, [this, number, which, life, what, comes, stale, found, outcome, asker] {
    auto* const p = find(number);
    auto& me = p != nullptr && p->contenders[which].incarnation == life ? p->contenders[which] : *asker;
    if (is_away()) {
      count("unreachable");
      *outcome = fail(errc::io_error, "the file system is unreachable");
      return;
    }
    if (!comes)
      return;
    if (what.what == step_kind::look) {
      me.seen = *found = look_at(me.directory, me, stale);
      if (has(defect::renew_without_looking) && me.own.number != 0)
        *found = me.own;
    } else if (what.what == step_kind::make) {
      const auto made = make_claim(me, what.number, what.record);
      if (made)
        me.own = {what.number, 0, what.record};
      if (*outcome)
        *outcome = made;
      // It ended between making the file and writing it.
      if (made && p == nullptr)
        directories_[me.directory].claims[what.number].record.reset();
    } else if (what.what == step_kind::write) {
      if (*outcome && !directories_[me.directory].claims.contains(what.number))
        *outcome = fail(errc::not_found, "there is no such claim");
      write_claim(me.directory, what.number, what.record);
    } else {
      std::erase_if(directories_[me.directory].claims, [&](const auto& y) { return y.first < what.number; });
    }
  });
  after(there + (is_calm_ ? milliseconds(1) : file_time()), [this, number, which, life, what, begun, found, outcome] {
    in_turn(number, [this, number, which, life, what, begun, found, outcome] {
      auto& p = *find(number);
      auto& me = p.contenders[which];
      if (!me.rules || me.incarnation != life)
        return;
      auto ended = local(p);
      switch (what.what) {
      case step_kind::look: {
        const auto early =
            has(defect::take_the_frozen_for_dead) ? io::claim_rules::wait_of(io::longest_claim_lease) : duration();
        const bool tells = *outcome || (has(defect::look_from_memory) && me.seen.number != 0);
        if (!*outcome && tells)
          *found = me.seen;
        me.rules->looked(later(begun, early), ended,
                         tells ? result<io::claim_sighting>(*found) : tl::unexpected(outcome->error()));
        break;
      }
      case step_kind::make:
        if (has(defect::take_without_waiting))
          ended = later(ended, -2 * io::claim_rules::wait_of(io::longest_claim_lease));
        me.rules->made(begun, ended, *outcome);
        break;
      case step_kind::write:
        me.rules->written(begun, ended, *outcome);
        break;
      default:
        me.rules->removed(begun, ended);
      }
      settle(number, which);
    });
  });
}

/// The consequences of the current state of a claim.
void world::settle(std::uint64_t number, std::size_t which) {
  auto& x = *find(number);
  auto& c = x.contenders[which];
  const auto how = c.rules->state();
  const auto& place = directories_[c.directory];
  if (how == state::holding && !c.held) {
    c.held = true;
    c.index = place.index;
    count(c.kind == io::claim_kind::owner ? "owner holds" : "adopted");
    if (c.kind == io::claim_kind::owner)
      c.opened = ++directories_[c.directory].opened;
    std::set<std::uint32_t> slots;
    for (const auto& [key, where] : c.index)
      if (!slots.insert(where.slot).second)
        broken("index", "the index has two keys for one slot");
  }
  if (how == state::lost && c.held)
    count(c.kind == io::claim_kind::owner ? "owner lost" : "adopter lost");
  if ((how == state::lost || how == state::refused) && c.kind == io::claim_kind::adopter) {
    // It keeps watching: the holder may die.
    if (!has(defect::keep_the_adopted))
      c.held = false;
    c.own = {};
    c.rules.reset();
    return after(random_.time(milliseconds(100), seconds(3)), [this, number, which] {
      in_turn(number, [this, number, which] {
        const bool kept = find(number)->contenders[which].held;
        begin(*find(number), which);
        find(number)->contenders[which].held = kept;
      });
    });
  }
  if (how == state::refused) {
    // For example by a late write of a killed node. Its operator restarts the node.
    count("refused");
    if (is_calm_)
      after(seconds(10), [this, home = x.home] { start(home); });
    processes_.erase(number);
    return;
  }
  carry_out(number, which, c.incarnation);
}

// -- checks -----------------------------------------------------------------------------------------------------------

bool world::believes(const process& x, const contender& c) const {
  if (!c.rules || c.kind != io::claim_kind::owner)
    return false;
  if (has(defect::write_after_lease))
    return c.rules->state() == state::holding;
  return c.rules->may_write(local(x));
}

void world::check() {
  for (std::size_t i = 0; i < directories_.size(); ++i) {
    std::size_t writers = 0;
    for (const auto& [number, x] : processes_)
      for (const auto& c : x.contenders)
        writers += c.directory == i && believes(x, c) ? 1 : 0;
    if (writers > 1)
      broken("writers", std::to_string(writers) + " nodes may write to one directory");
  }
}

} // namespace troupe::owner_simulation
