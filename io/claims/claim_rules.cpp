#include "io/claims/claim_rules.hpp"

#include <algorithm>
#include <utility>

namespace troupe::io {

claim_rules::claim_rules(claim_options options, timestamp now) : options_(std::move(options)) {
  look_at(now);
}

void claim_rules::look_at(timestamp when) {
  next_ = {claim_step::kind::look, 0, {}, when};
}

claim_record claim_rules::record(timestamp now) const {
  const bool waits = state_ != claim_state::holding && now < holds_from_;
  return {options_.holder, options_.incarnation,
          options_.kind,   waits ? claim_phase::waiting : claim_phase::holding,
          options_.lease,  counter_,
          options_.cluster};
}

void claim_rules::begin_renewal(timestamp when) {
  ++counter_;
  auto what = record(when);
  if (what.phase == claim_phase::waiting)
    what.lease = std::max(what.lease, lease_before_);
  next_ = {claim_step::kind::write, number_, std::move(what), when};
}

void claim_rules::end_as(claim_state how) {
  state_ = how;
  valid_until_ = timestamp::min();
  next_ = {};
}

// -- acquiring a claim ------------------------------------------------------------------------------------------------

void claim_rules::looked(timestamp begun, timestamp ended, const result<claim_sighting>& found) {
  trouble_.reset();
  if (!found) {
    trouble_ = found.error();
    // The same failure may have kept the holder from renewing: earlier observations do not count.
    watched_.reset();
    // The last renewal may not have reached the disk: the next one begins with a write again.
    return state_ == claim_state::watching ? look_at(later(ended, pause())) : begin_renewal(later(ended, pause() / 2));
  }
  in_force_ = std::max(in_force_, found->number);
  if (state_ == claim_state::watching)
    watch(begun, ended, *found);
  else
    judge_renewal(ended, *found);
}

void claim_rules::watch(timestamp begun, timestamp ended, const claim_sighting& found) {
  other_ = found.record;
  const bool owns = options_.kind == claim_kind::owner;
  // The directory is not shared, or belongs to another cluster.
  if (!owns && (found.number == 0 || (found.record && found.record->cluster != options_.cluster)))
    return end_as(claim_state::refused);
  if (found.number == 0)
    return make_next(found, duration::zero(), ended);
  const auto& record = found.record;
  if (owns && record && record->phase == claim_phase::released)
    return make_next(found, duration::zero(), ended);
  const auto lease = record ? record->lease : longest_claim_lease;
  // An adopter that holds its claim has waited until the previous holder stopped.
  const bool is_adopters = record && record->kind == claim_kind::adopter;
  const auto wait = is_adopters && record->phase == claim_phase::holding ? duration::zero() : wait_of(lease);
  if (owns && is_adopters)
    return make_next(found, wait, ended);
  const auto last_look = std::exchange(last_look_, ended);
  const bool same = watched_ && watched_->number == found.number;
  const bool still = same && watched_->fingerprint == found.fingerprint;
  if (owns && same && !still && watched_->record && record)
    return end_as(claim_state::refused);
  // The holder may have renewed during a gap in which no look succeeded.
  if (!still || ended - last_look > lease) {
    watched_ = found;
    still_since_ = ended;
  } else if (begun - still_since_ >= wait_of(lease)) {
    const bool is_free = record && record->phase == claim_phase::released;
    return make_next(found, is_free ? duration::zero() : wait, ended);
  }
  look_at(later(ended, std::min(pause(), lease / 4)));
}

void claim_rules::make_next(const claim_sighting& found, duration wait, timestamp now) {
  number_ = found.number + 1;
  wait_ = wait;
  lease_before_ = wait == duration::zero() ? duration::zero()
                  : found.record           ? found.record->lease
                                           : longest_claim_lease;
  counter_ = 0;
  auto what = record(now);
  what.phase = wait > duration::zero() ? claim_phase::waiting : claim_phase::holding;
  what.lease = std::max(options_.lease, lease_before_);
  next_ = {claim_step::kind::make, number_, std::move(what), now};
}

void claim_rules::made(timestamp, timestamp ended, const result<void>& outcome) {
  trouble_.reset();
  watched_.reset();
  if (!outcome) {
    if (outcome.error().code != errc::exists)
      trouble_ = outcome.error();
    // The claim may have been made despite the error: then its counter stands still, as that of a dead node.
    return look_at(later(ended, outcome.error().code == errc::exists ? duration::zero() : pause()));
  }
  state_ = claim_state::waiting;
  holds_from_ = later(ended, wait_);
  begin_renewal(ended);
}

// -- holding a claim --------------------------------------------------------------------------------------------------

void claim_rules::written(timestamp begun, timestamp ended, const result<void>& outcome) {
  trouble_.reset();
  if (outcome) {
    renewal_ = begun;
    return look_at(ended);
  }
  trouble_ = outcome.error();
  if (outcome.error().code == errc::not_found)
    return end_as(claim_state::lost);
  begin_renewal(later(ended, pause() / 2));
}

void claim_rules::judge_renewal(timestamp ended, const claim_sighting& found) {
  // The own claim exists, or its last write would have failed; and no other node writes it.
  if (found.number < number_ || (found.number == number_ && !found.record))
    return begin_renewal(later(ended, pause() / 2));
  const bool is_ours = found.number == number_ && found.record && found.record->incarnation == options_.incarnation;
  if (!is_ours) {
    other_ = found.record;
    return end_as(claim_state::lost);
  }
  if (renewal_ < holds_from_)
    return begin_renewal(std::max(ended, std::min(later(renewal_, pause()), holds_from_)));
  const auto until = later(renewal_, options_.lease);
  // An answer this late describes the past: another node may have taken over by now and opened the files. The previous
  // holder may not write either, and looks again.
  if (state_ == claim_state::waiting && ended >= until)
    return begin_renewal(ended);
  state_ = claim_state::holding;
  valid_until_ = until;
  // Removal waits this long so that a node that makes a number again finds the higher claim when it looks, however
  // stale its view of the directory was.
  if (!has_cleaned_ && renewal_ - holds_from_ >= wait_of(options_.lease)) {
    has_cleaned_ = true;
    next_ = {claim_step::kind::remove_below, number_, {}, ended};
    return;
  }
  begin_renewal(std::max(ended, later(renewal_, pause())));
}

void claim_rules::removed(timestamp, timestamp ended) {
  begin_renewal(std::max(ended, later(renewal_, pause())));
}

std::optional<claim_step> claim_rules::release() {
  if (state_ != claim_state::holding)
    return std::nullopt;
  ++counter_;
  auto what = record(valid_until_);
  what.phase = claim_phase::released;
  const claim_step out{claim_step::kind::write, number_, std::move(what), {}};
  end_as(claim_state::released);
  return out;
}

} // namespace troupe::io
