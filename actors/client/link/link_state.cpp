#include "actors/client/link/link_state.hpp"

#include "base/geometry_bounds.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

/// Tickets of one owner's coordinators are told apart by their streams: the lookup has 0, then two per rank.
constexpr std::uint32_t load_stream(rank_number rank) {
  return 1 + 2 * rank;
}
constexpr std::uint32_t save_stream(rank_number rank) {
  return 2 + 2 * rank;
}

/// Until a node is told again what it has not taken.
constexpr auto word_pause = std::chrono::milliseconds(500);

/// Whether it does not pass by itself that the client's actors are not bound: what does not fit. A busy host, or a
/// network that is coming up again, fails in other ways, and not in the same one each time.
constexpr bool stays_so(errc code) {
  return code == errc::invalid_argument || code == errc::unsupported || code == errc::limit_exceeded ||
         code == errc::identity_mismatch || code == errc::out_of_range;
}

/// Whether the host of the node lacks something, such as threads, memory or room on the disk.
constexpr bool is_shortage(errc code) {
  return code == errc::io_error || code == errc::no_space || code == errc::no_memory || code == errc::limit_exceeded;
}

/// What a node cannot be like; all that follows divides by the size of a page.
result<void> check(const node_offer& offer) {
  if (auto sound = check_geometry(offer.geometry); !sound)
    return sound;
  if (offer.owner == 0)
    return fail(errc::invalid_argument, "it gave no owner id");
  if (offer.space_id.is_null())
    return fail(errc::invalid_argument, "it gave no identity of the namespace");
  return {};
}

} // namespace

link_state::link_state(const link_state_options& options)
    : options_(options),
      backoff_(options.backoff_min, options.backoff_max, options.seed), last_error_{errc::unreachable,
                                                                                    options.first_excuse} {}

void link_state::start() {
  if (phase_ == phase::idle)
    seek();
}

void link_state::seek() {
  phase_ = phase::seeking;
  next_try_ = timestamp::max();
  emit(link_seek{++last_try_});
}

// -- who waits --------------------------------------------------------------------------------------------------------

void link_state::wait_attached(link_wait who, timestamp until) {
  if (at_work())
    emit(link_answer{who, {}});
  else if (refused())
    emit(link_answer{who, tl::unexpected<error>(last_error_)});
  else
    waiting_attached_.push_back({who, until});
}

void link_state::bind(link_wait who, std::vector<rank_number> ranks, timestamp until) {
  if (refused()) {
    emit(link_answer{who, tl::unexpected<error>(last_error_)});
    return;
  }
  const bool bound_before = phase_ == phase::attached && has_parts_;
  if (bound_before)
    leave(true);
  emit(link_take_parts{});
  has_parts_ = true;
  ranks_ = std::move(ranks);
  waiting_bound_.push_back({who, until});
  if (bound_before)
    seek();
  else if (phase_ == phase::attached)
    bind_all();
}

void link_state::answer_all(std::vector<open_wait>& waits, const result<void>& outcome) {
  for (const auto& x : std::exchange(waits, {}))
    emit(link_answer{x.who, outcome});
}

void link_state::answer_late(std::vector<open_wait>& waits, timestamp now) {
  std::erase_if(waits, [&](const open_wait& x) {
    if (x.until > now)
      return false;
    // What stays so has been answered by `refuse`. A node that is full will have room, and is tried on: by its code,
    // who waits would take that for the end. The text says it.
    auto why = last_error_;
    if (why.code != errc::unreachable && why.code != errc::shutting_down && why.code != errc::timeout)
      why = {errc::timeout, to_string(last_error_)};
    emit(link_answer{x.who, tl::unexpected<error>(std::move(why))});
    return true;
  });
}

void link_state::on_time(timestamp now) {
  answer_late(waiting_attached_, now);
  answer_late(waiting_bound_, now);
  if (phase_ == phase::pausing && next_try_ <= now)
    seek();
  if (phase_ == phase::attached && next_word_ <= now)
    say_who_is_at_rest();
}

timestamp link_state::next_event() const noexcept {
  auto out = phase_ == phase::attached ? std::min(next_try_, next_word_) : next_try_;
  for (const auto* waits : {&waiting_attached_, &waiting_bound_})
    for (const auto& x : *waits)
      out = std::min(out, x.until);
  return out;
}

// -- the node ---------------------------------------------------------------------------------------------------------

void link_state::on_found(link_try number) {
  if (phase_ != phase::seeking || number != last_try_)
    return;
  phase_ = phase::attaching;
  emit(link_attach{number});
}

void link_state::on_not_found(link_try number, const error& why, timestamp now) {
  if (phase_ != phase::seeking || number != last_try_)
    return;
  if (why.code == errc::unsupported)
    refuse(why);
  else
    retry(why, now);
}

bool link_state::on_attached(link_try number, const node_offer& offer) {
  if (phase_ != phase::attaching || number != last_try_)
    return false;
  // From here on the node knows this client, whatever comes of it, and is left by this id.
  owner_ = offer.owner;
  told_shortage_.clear();
  say_who_is_at_rest();
  if (!space_.is_null() && space_ != offer.space_id) {
    refuse({errc::identity_mismatch, "the node came back with another namespace '" + offer.space_name +
                                         "': its pages are not exchangeable with ours"});
    return true;
  }
  if (auto sound = check(offer); !sound) {
    refuse({errc::invalid_argument, "the node lets this client attach to namespace '" + offer.space_name +
                                        "' in a way that cannot be: " + sound.error().text});
    return true;
  }
  phase_ = phase::attached;
  space_ = offer.space_id;
  node_name_ = offer.node_name;
  page_bytes_ = offer.geometry.page_bytes();
  pinned_bytes_ = offer.pinned_bytes;
  node_ranks_ = offer.ranks;
  if (has_parts_) {
    bind_all();
    return true;
  }
  backoff_.reset();
  answer_all(waiting_attached_, {});
  return true;
}

void link_state::on_not_attached(link_try number, const error& why, timestamp now) {
  if (phase_ != phase::attaching || number != last_try_)
    return; // lost meanwhile, and trying again
  leave(true);
  // What does not pass by itself.
  if (why.code == errc::unsupported || why.code == errc::unknown_namespace || why.code == errc::identity_mismatch ||
      why.code == errc::invalid_argument)
    return refuse(why);
  // What the node is short of may take long to mend, and who waits wants to know at once.
  if (is_shortage(why.code) && why.text != told_shortage_) {
    told_shortage_ = why.text;
    say(link_news::weight::warning, "the node cannot let this client attach: " + to_string(why) + "; trying again");
  }
  retry(why, now);
}

void link_state::on_node_gone(timestamp now) {
  if (phase_ == phase::attaching || phase_ == phase::attached)
    lost("the node is gone", now);
}

void link_state::on_sent_away(timestamp now) {
  if (phase_ != phase::attached)
    return;
  const std::string why = "node '" + node_name_ + "' has ended this attachment, as when its namespace is removed";
  say(link_news::weight::warning, why + "; everything under way ends, trying to come back");
  // It waits to hear that nothing of the attachment is under way.
  leave(true);
  retry({errc::unreachable, why}, now);
}

void link_state::lost(const std::string& why, timestamp now) {
  if (phase_ == phase::attached)
    say(link_news::weight::warning,
        "lost node '" + node_name_ + "': " + why + "; everything under way ends, trying to come back");
  leave(false);
  retry({errc::unreachable, why}, now);
}

void link_state::leave(bool still_there) {
  if (phase_ != phase::attaching && phase_ != phase::attached)
    return;
  emit(link_part{owner_}); // also if it seems to be lost: it may be there after all
  emit(link_unbind{});
  phase_ = phase::pausing;
  node_ranks_.clear();
  ++epoch_;
  all_bound_ = false;
  if (const auto owner = std::exchange(owner_, 0); owner != 0)
    rest(owner, still_there);
}

void link_state::rest(owner_id owner, bool still_there) {
  const auto ranks = std::exchange(mapped_ranks_, {});
  const resting_attachment over{owner, still_there, ranks.size(), false};
  if (ranks.empty()) {
    came_to_rest(over); // no copy engine has ever heard of it
    return;
  }
  resting_.push_back(over);
  for (const auto rank : ranks)
    emit(link_rest{owner, rank});
}

void link_state::on_rested(owner_id owner, const result<void>& outcome) {
  const auto at = std::find_if(resting_.begin(), resting_.end(), [&](const auto& x) { return x.owner == owner; });
  if (at == resting_.end())
    return;
  at->failed |= !outcome.has_value();
  if (--at->waiting > 0)
    return;
  const auto over = *at;
  resting_.erase(at);
  came_to_rest(over);
}

void link_state::came_to_rest(const resting_attachment& over) {
  if (over.failed)
    say(link_news::weight::warning, "a copy engine has not come to rest: the node keeps what it had pinned until this "
                                    "process ends");
  else if (over.left) {
    emit(link_say_at_rest{over.owner, true});
    at_rest_.push_back({over.owner, true});
  } else if (phase_ != phase::refused) {
    at_rest_.push_back({over.owner, false});
    if (phase_ == phase::attached)
      say_who_is_at_rest();
  }
  emit(link_forget_left{over.owner});
  if (phase_ == phase::refused)
    end_if_at_rest();
}

void link_state::say_who_is_at_rest() {
  next_word_ = timestamp::max();
  for (auto& x : at_rest_)
    if (!std::exchange(x.said, true))
      emit(link_say_at_rest{x.owner, false});
}

void link_state::on_said_at_rest(owner_id owner, const result<void>& outcome, timestamp now) {
  const auto at = std::find_if(at_rest_.begin(), at_rest_.end(), [&](const auto& x) { return x.owner == owner; });
  if (at == at_rest_.end())
    return;
  if (outcome) {
    at_rest_.erase(at);
    return;
  }
  at->said = false;
  next_word_ = later(now, word_pause);
}

void link_state::end_if_at_rest() {
  // Of a node that was lost nobody will hear any more.
  if (ending_ && std::none_of(resting_.begin(), resting_.end(), [](const auto& x) { return x.left; }))
    emit(link_ended{});
}

void link_state::retry(const error& why, timestamp now) {
  last_error_ = why;
  if (!options_.comes_back) {
    refuse(why);
    return;
  }
  const auto wait = backoff_.next();
  say(link_news::weight::debug,
      to_string(why) + "; trying again in " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count()) + " ms");
  phase_ = phase::pausing;
  next_try_ = later(now, wait);
}

void link_state::refuse(const error& why) {
  last_error_ = why;
  // Who waits is told, and says it to the user; only where nobody does, the log has to.
  const bool told = !waiting_attached_.empty() || !waiting_bound_.empty();
  say(told ? link_news::weight::debug : link_news::weight::error, "giving up: " + to_string(why));
  leave(true);
  phase_ = phase::refused;
  next_try_ = timestamp::max();
  answer_all(waiting_attached_, tl::unexpected<error>(why));
  answer_all(waiting_bound_, tl::unexpected<error>(why));
}

void link_state::end() {
  if (std::exchange(ending_, true))
    return;
  leave(true);
  phase_ = phase::refused;
  next_try_ = timestamp::max();
  last_error_ = {errc::shutting_down, "the client is ending"};
  answer_all(waiting_attached_, tl::unexpected<error>(last_error_));
  answer_all(waiting_bound_, tl::unexpected<error>(last_error_));
  end_if_at_rest();
}

// -- binding ----------------------------------------------------------------------------------------------------------

void link_state::bind_all() {
  const auto epoch = ++epoch_;
  all_bound_ = false;
  for (const auto rank : ranks_)
    if (std::find(node_ranks_.begin(), node_ranks_.end(), rank) == node_ranks_.end()) {
      refuse({errc::out_of_range, "the node has no rank " + std::to_string(rank)});
      return;
    }
  if (const auto pages = window_pages(); !pages && !ranks_.empty()) {
    refuse(pages.error());
    return;
  }
  unbound_ = 1 + 2 * ranks_.size();
  emit(link_bind_lookup{epoch});
  mapped_ranks_ = ranks_;
  for (const auto rank : ranks_)
    emit(link_map{epoch, rank});
}

result<std::uint32_t> link_state::window_pages() const {
  const auto bytes = std::min(options_.window_bytes, pinned_bytes_);
  const auto pages = bytes / io::slot_bytes(page_bytes_);
  if (pages < 2)
    return fail(errc::limit_exceeded, "a window of " + std::to_string(bytes) +
                                          " bytes holds no two pages of this namespace: raise " +
                                          (pinned_bytes_ < options_.window_bytes
                                               ? "what the node lets a client have pinned, its memory.client_bytes, "
                                                 "or transfer.remote_bytes for a node on another host"
                                               : "transfer.window_bytes"));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, std::numeric_limits<std::uint32_t>::max()));
}

void link_state::on_mapped(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now) {
  if (epoch != epoch_)
    return;
  if (!outcome) {
    on_not_bound(outcome.error(), now);
    return;
  }
  const auto pages = window_pages();
  if (!pages)
    return; // refused before
  emit(link_bind_transfer{epoch_, rank, false, load_stream(rank), *pages / 2});
  emit(link_bind_transfer{epoch_, rank, true, save_stream(rank), *pages - *pages / 2});
}

void link_state::on_offered(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now) {
  if (outcome)
    on_mapped(epoch, rank, outcome, now);
  else
    on_mapped(epoch, rank,
              fail(outcome.error().code, "the memory of this process is not reached: " + outcome.error().text), now);
}

void link_state::on_bound(link_epoch epoch, const result<void>& outcome, timestamp now) {
  if (epoch != epoch_ || unbound_ == 0)
    return;
  if (!outcome) {
    on_not_bound(outcome.error(), now);
    return;
  }
  if (--unbound_ > 0)
    return;
  all_bound_ = true;
  backoff_.reset(); // not before: a node that lets us attach and then fails is not to be asked all the time
  answer_all(waiting_bound_, {});
  answer_all(waiting_attached_, {});
}

void link_state::on_not_bound(const error& why, timestamp now) {
  if (stays_so(why.code)) {
    refuse(why);
    return;
  }
  say(link_news::weight::warning, "node '" + node_name_ + "' is there, but no pages move: " + why.text);
  leave(true);
  retry(why, now);
}

void link_state::say(link_news::weight how, std::string text) {
  emit(link_news{how, std::move(text)});
}

} // namespace troupe
