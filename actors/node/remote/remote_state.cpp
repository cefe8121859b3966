#include "actors/node/remote/remote_state.hpp"

#include "io/page.hpp"
#include "messages/answer_codes.hpp"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

/// The number of random bytes at the beginning of offered memory.
constexpr std::size_t proof_bytes_least = 16;
constexpr std::size_t proof_bytes_most = 64;

/// A bound above what any transport needs.
constexpr std::size_t name_bytes_most = 65536;

std::uint8_t code_of(errc x) noexcept {
  return static_cast<std::uint8_t>(x);
}

} // namespace

error remote_state::gone() const {
  if (phase_ == phase::unbound || phase_ == phase::probing)
    return {errc::unreachable, "this client has not offered memory for pages yet"};
  return why_lost_.text.empty() ? error{errc::unreachable, "the attachment has ended"} : why_lost_;
}

// -- the client -------------------------------------------------------------------------------------------------------

result<void> remote_state::bind(const remote_offer& offer, timestamp now) {
  if (phase_ == phase::lost || phase_ == phase::quiesced)
    return tl::unexpected<error>(gone());
  if (phase_ != phase::unbound)
    return fail(errc::exists, "a client may offer memory for a rank only once per attachment");
  const auto proof = offer.proof.size();
  if (offer.frame_bytes != options_.slot_bytes || offer.bytes < 2 * options_.slot_bytes ||
      offer.base + offer.bytes < offer.base || proof < proof_bytes_least || proof > proof_bytes_most ||
      offer.address.size() > name_bytes_most || offer.key.size() > name_bytes_most)
    return fail(errc::invalid_argument, "memory of " + std::to_string(offer.bytes) + " bytes in frames of " +
                                            std::to_string(offer.frame_bytes) +
                                            " is offered; pages of this rank take " + "frames of " +
                                            std::to_string(options_.slot_bytes) + ", and two at least");
  phase_ = phase::probing;
  has_peer_ = true;
  frames_ = static_cast<std::size_t>(std::min<std::uint64_t>(offer.bytes / options_.slot_bytes, options_.frames_max));
  for (auto i = frames_; i > 0; --i)
    free_.push_back(static_cast<frame>(i - 1));
  last_progress_ = now;
  emit(remote_probe{offer});
  return {};
}

result<remote_job> remote_state::begin(const frame_request& x, bool fetch) {
  if (phase_ != phase::bound)
    return tl::unexpected<error>(gone());
  if (x.pages.size() > free_.size())
    return fail(errc::limit_exceeded, std::to_string(x.pages.size()) + " frames are requested, and " +
                                          std::to_string(free_.size()) + " of the client's are free");
  const auto job = ++last_job_;
  auto& made = jobs_[job];
  made.fetch = made.what.fetch = fetch;
  made.what.pages = x.pages.items;
  made.what.places.resize(x.pages.size());
  for (std::size_t i = 0; i < x.pages.size(); ++i) {
    made.what.frames.push_back(free_.back());
    free_.pop_back();
  }
  emit(remote_ask{job, fetch, x});
  return job;
}

result<remote_job> remote_state::place(const frame_request& x) {
  return begin(x, false);
}

result<remote_job> remote_state::fetch(const frame_request& x) {
  return begin(x, true);
}

result<remote_job> remote_state::fill(const fill_request& x, timestamp now) {
  const auto found = pins_.find(x.pin);
  if (found == pins_.end() || found->second.fetch)
    return fail(errc::not_found, "this client has no place under this pin");
  if (phase_ != phase::bound)
    return tl::unexpected<error>(gone());
  const auto job = ++last_job_;
  auto& made = jobs_[job];
  made.what = std::move(found->second);
  pins_.erase(found);
  made.fill = {made.what.arena, x.gathered, x.deadline};
  made.fill.gathered.items.resize(made.what.frames.size(), code_of(errc::internal));
  for (std::uint32_t i = 0; i < made.what.frames.size(); ++i)
    if (made.what.frames[i] != none && made.fill.gathered[i] == code_of(errc::ok))
      made.moving.push_back(i);
  if (made.moving.empty()) {
    send_fill(job, made);
    return job;
  }
  made.at = open_job::step::waiting;
  queue_.push_back(job);
  send_next(now);
  return job;
}

result<void> remote_state::unpin(pin_number number) {
  const auto found = pins_.find(number);
  if (found == pins_.end() || !found->second.fetch)
    return fail(errc::not_found, "this client has no fetch under this pin");
  release_all(found->second);
  pins_.erase(found);
  return {};
}

void remote_state::release(frame& x) {
  if (x != none)
    free_.push_back(std::exchange(x, none));
}

void remote_state::release_all(pin& x) {
  for (auto& f : x.frames)
    release(f);
}

// -- the io worker, the checker ---------------------------------------------------------------------------------------

void remote_state::on_frames(remote_job job, const result<frame_reply>& reply, timestamp now) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return;
  auto& x = found->second;
  if (!reply || reply->frames.size() != x.what.frames.size() || phase_ != phase::bound) {
    // Frames of a lost client are never used again.
    if (phase_ == phase::bound)
      release_all(x.what);
    if (reply && reply->pin != 0 && x.fetch)
      emit(remote_unpin{reply->pin});
    emit(remote_answer_frames{
        job,
        !reply ? reply
               : tl::unexpected<error>(phase_ == phase::bound ? error{errc::internal, "a malformed answer"} : gone())});
    jobs_.erase(found);
    return quiesce_if_done();
  }
  x.reply = *reply;
  x.what.arena = reply->pin;
  x.reply.pin = 0;
  for (std::uint32_t i = 0; i < x.what.frames.size(); ++i) {
    auto& notified = x.reply.frames.items[i];
    if (notified.code() != errc::ok) {
      release(x.what.frames[i]);
      continue;
    }
    x.what.places[i] = notified;
    // Its frame is a whole one. A page that is to be saved has to fit into the arena's.
    if (x.fetch)
      notified.size = static_cast<std::uint16_t>(frame_size::whole);
    notified.offset = x.what.frames[i] * options_.slot_bytes;
    x.moving.push_back(i);
  }
  if (x.moving.empty()) {
    if (x.what.arena != 0 && x.fetch)
      emit(remote_unpin{x.what.arena});
    emit(remote_answer_frames{job, std::move(x.reply)});
    jobs_.erase(found);
    return;
  }
  if (x.fetch) {
    x.at = open_job::step::waiting;
    queue_.push_back(job);
    send_next(now);
    return;
  }
  x.reply.pin = ++last_pin_;
  emit(remote_answer_frames{job, std::move(x.reply)});
  pins_.emplace(last_pin_, std::move(x.what));
  jobs_.erase(found);
}

// Starts jobs in order within the window; a job larger than the window runs alone.
void remote_state::send_next(timestamp now) {
  while (phase_ == phase::bound && !queue_.empty()) {
    auto& x = jobs_.at(queue_.front());
    if (under_way_ > 0 && bytes_under_way_ + bytes_of(x) > options_.window_bytes)
      return;
    remote_order order{queue_.front(), x.fetch ? io::remote_direction::put : io::remote_direction::get, {}};
    for (const auto i : x.moving)
      order.pages.push_back(
          {x.what.places[i].offset, x.what.frames[i] * options_.slot_bytes, bytes_of(x.what.places[i])});
    if (under_way_++ == 0)
      last_progress_ = now;
    bytes_under_way_ += bytes_of(x);
    x.at = open_job::step::moving;
    queue_.pop_front();
    emit(std::move(order));
  }
}

void remote_state::answer_fetch(remote_job job, open_job& x) {
  x.reply.pin = ++last_pin_;
  x.what.arena = 0;
  emit(remote_answer_frames{job, std::move(x.reply)});
  pins_.emplace(last_pin_, std::move(x.what));
}

void remote_state::send_fill(remote_job job, open_job& x) {
  x.at = open_job::step::filling;
  emit(remote_fill{job, x.fill});
}

void remote_state::on_checked(remote_job job, const result<io_reply>& verdicts) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return;
  auto& x = found->second;
  for (std::size_t i = 0; i < x.moving.size(); ++i) {
    auto& code = x.fill.gathered.items[x.moving[i]];
    code = code_of(verdicts ? code_at(verdicts->results, i) : errc::internal);
    const bool sound = code == code_of(errc::ok);
    ++(sound ? counts_.got_pages : counts_.got_failures);
    counts_.got_bytes += sound ? bytes_of(x.what.places[x.moving[i]]) : 0;
  }
  send_fill(job, x);
}

void remote_state::on_filled(remote_job job, const result<io_reply>& reply) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return;
  if (phase_ == phase::bound)
    release_all(found->second.what);
  emit(remote_answer_fill{job, reply});
  jobs_.erase(found);
  quiesce_if_done();
}

// -- the transport ----------------------------------------------------------------------------------------------------

void remote_state::on_probed(const result<void>& outcome) {
  if (phase_ != phase::probing)
    return;
  if (!outcome)
    return lose(outcome.error());
  phase_ = phase::bound;
  emit(remote_answer_bind{{}});
}

void remote_state::on_shortened(remote_job job, std::uint64_t bytes) {
  if (const auto found = jobs_.find(job); found != jobs_.end())
    found->second.saved_bytes = std::min(bytes, bytes_of(found->second));
}

void remote_state::on_moved(remote_job job, const result<void>& outcome, timestamp now) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || found->second.at != open_job::step::moving)
    return;
  auto& x = found->second;
  --under_way_;
  bytes_under_way_ -= bytes_of(x);
  last_progress_ = now;
  if (!outcome && phase_ == phase::bound)
    lose(outcome.error());
  if (x.fetch) {
    emit(remote_unpin{x.what.arena});
    if (outcome && phase_ == phase::bound) {
      counts_.put_pages += x.moving.size();
      counts_.put_bytes += bytes_of(x) - x.saved_bytes;
      answer_fetch(job, x);
    } else {
      counts_.put_failures += x.moving.size();
      refuse(job);
    }
    jobs_.erase(found);
  } else if (outcome) {
    x.at = open_job::step::checking;
    check_order order;
    for (const auto i : x.moving)
      order.items.items.push_back({x.what.pages[i], x.what.places[i].offset, bytes_of(x.what.places[i])});
    emit(remote_check{job, std::move(order)});
  } else {
    counts_.got_failures += x.moving.size();
    for (const auto i : x.moving)
      x.fill.gathered.items[i] = code_of(errc::unreachable);
    send_fill(job, x);
  }
  send_next(now);
  quiesce_if_done();
}

// The effect is filled in place: if a temporary is moved into the list, GCC 12 warns that it is not initialized.
void remote_state::refuse(remote_job job) {
  remote_answer_frames answer;
  answer.job = job;
  answer.reply = tl::unexpected<error>(gone());
  emit(std::move(answer));
}

void remote_state::on_lost(const error& why) {
  if (phase_ == phase::probing || phase_ == phase::bound)
    lose(why);
}

void remote_state::lose(error why) {
  const bool probing = phase_ == phase::probing;
  why_lost_ = std::move(why);
  phase_ = phase::lost;
  if (probing)
    emit(remote_answer_bind{tl::unexpected<error>(why_lost_)});
  else if (!ended_) {
    ++counts_.lost;
    emit(remote_lost{why_lost_});
  }
  // Transfers that have not started never will. The arena pins of a save stay until the attachment is quiesced.
  for (const auto job : std::exchange(queue_, {})) {
    auto& x = jobs_.at(job);
    (x.fetch ? counts_.put_failures : counts_.got_failures) += x.moving.size();
    if (x.fetch) {
      emit(remote_unpin{x.what.arena});
      refuse(job);
      jobs_.erase(job);
      continue;
    }
    for (const auto i : x.moving)
      x.fill.gathered.items[i] = code_of(errc::unreachable);
    send_fill(job, x);
  }
  emit(remote_close{});
}

void remote_state::end() {
  if (std::exchange(ended_, true))
    return;
  if (phase_ == phase::unbound)
    phase_ = phase::lost;
  else if (phase_ == phase::probing || phase_ == phase::bound)
    lose({errc::unreachable, "the attachment has ended"});
  quiesce_if_done();
}

void remote_state::on_closed() {
  has_peer_ = false;
  quiesce_if_done();
}

void remote_state::quiesce_if_done() {
  if (!ended_ || phase_ != phase::lost || has_peer_ || !jobs_.empty())
    return;
  phase_ = phase::quiesced;
  emit(remote_quiesced{});
}

void remote_state::tick(timestamp now, std::uint64_t progress) {
  if (std::exchange(progress_, progress) != progress)
    last_progress_ = now;
  if (needs_ticks() && (phase_ == phase::probing || phase_ == phase::bound) &&
      now - last_progress_ >= options_.stall_time)
    lose({errc::unreachable,
          "no bytes move to or from the memory of the client: it may be stopped, or the network may drop packets. "
          "See docs/hosts.md"});
}

std::string remote_state::check() const {
  std::size_t held = free_.size();
  std::vector<bool> seen(frames_);
  bool twice = false;
  const auto count = [&](const std::vector<frame>& all) {
    for (const auto x : all)
      if (x != none) {
        ++held;
        twice = twice || seen[x];
        seen[x] = true;
      }
  };
  for (const auto x : free_) {
    twice = twice || seen[x];
    seen[x] = true;
  }
  for (const auto& [number, x] : pins_)
    count(x.frames);
  std::size_t moving = 0;
  std::uint64_t bytes = 0;
  for (const auto& [job, x] : jobs_) {
    count(x.what.frames);
    if (x.at == open_job::step::moving) {
      ++moving;
      bytes += bytes_of(x);
    }
  }
  if (twice)
    return "a frame has two users";
  if (held != frames_ && phase_ == phase::bound)
    return std::to_string(held) + " of " + std::to_string(frames_) + " frames are known";
  if (moving != under_way_ || bytes != bytes_under_way_)
    return "the counts of transfers in progress are wrong";
  return {};
}

} // namespace troupe
