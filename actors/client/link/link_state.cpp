#include "actors/client/link/link_state.hpp"

#include "base/geometry_bounds.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

/// The stream number distinguishes tickets of one owner's coordinators: the lookup has 0, then each rank has two.
constexpr std::uint32_t load_stream(rank_number rank) {
  return 1 + 2 * rank;
}
constexpr std::uint32_t save_stream(rank_number rank) {
  return 2 + 2 * rank;
}

/// The pause before a notification that the node has not accepted is repeated.
constexpr auto word_pause = std::chrono::milliseconds(500);

/// Whether an error of binding is permanent because something does not fit. A busy host or a recovering network fails
/// with other codes, and not with the same one each time.
constexpr bool stays_so(errc code) {
  return code == errc::invalid_argument || code == errc::unsupported || code == errc::limit_exceeded ||
         code == errc::identity_mismatch || code == errc::out_of_range;
}

/// Whether the node's host lacks a resource, such as threads, memory or disk space.
constexpr bool is_shortage(errc code) {
  return code == errc::io_error || code == errc::no_space || code == errc::no_memory || code == errc::limit_exceeded;
}

/// Checks what a valid node cannot offer; later code divides by the size of a page.
result<void> check(const node_offer& offer) {
  if (auto sound = check_geometry(offer.geometry); !sound)
    return sound;
  if (offer.owner == 0)
    return fail(errc::invalid_argument, "the owner id is missing");
  if (offer.ns_id.is_null())
    return fail(errc::invalid_argument, "the identity of the namespace is missing");
  return {};
}

} // namespace

link_state::link_state(const link_state_options& options)
    : options_(options), backoff_(options.backoff_min, options.backoff_max, options.seed),
      last_error_{errc::unreachable, options.first_excuse}, logged_{{}, options.caller_logs} {}

void link_state::start() {
  if (phase_ == phase::idle)
    seek();
}

void link_state::seek() {
  phase_ = phase::seeking;
  next_try_ = timestamp::max();
  emit(link_seek{++last_try_});
}

// -- callers that wait ------------------------------------------------------------------------------------------------

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
    // Permanent errors have been answered by `refuse`. Other errors are answered as a timeout, because a caller would
    // take the code of a full node for permanent, and the link keeps trying. The text has the cause.
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
    report_quiesced();
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
  // From here on the node knows this client by this id, under which the link leaves it in any case.
  owner_ = offer.owner;
  logged_.shortage.clear();
  report_quiesced();
  if (!ns_.is_null() && ns_ != offer.ns_id) {
    refuse({errc::identity_mismatch, "the node came back with another namespace '" + offer.namespace_name +
                                         "': its pages are not exchangeable with those of this client"});
    return true;
  }
  if (auto sound = check(offer); !sound) {
    refuse({errc::invalid_argument,
            "the node offers namespace '" + offer.namespace_name + "' with invalid parameters: " + sound.error().text});
    return true;
  }
  phase_ = phase::attached;
  ns_ = offer.ns_id;
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
    return; // lost meanwhile, and seeking again
  leave(true);
  // These errors are permanent.
  if (why.code == errc::unsupported || why.code == errc::unknown_namespace || why.code == errc::identity_mismatch ||
      why.code == errc::invalid_argument)
    return refuse(why);
  // A shortage at the node may last, so it is logged at once.
  if (is_shortage(why.code) && why.text != logged_.shortage) {
    logged_.shortage = why.text;
    say(link_news::weight::warning, "attach refused by the node: " + to_string(why) + "; trying again");
  }
  retry(why, now);
}

void link_state::on_node_lost(timestamp now) {
  if (phase_ == phase::attaching || phase_ == phase::attached)
    lost("the node has disconnected", now);
}

void link_state::on_sent_away(timestamp now) {
  if (phase_ != phase::attached)
    return;
  const std::string why =
      "node '" + node_name_ + "' has ended this attachment, for example because its namespace was removed";
  say(link_news::weight::warning, why + "; requests in progress fail, attaching again");
  // The node waits for the notification that the attachment is drained.
  leave(true);
  retry({errc::unreachable, why}, now);
}

void link_state::lost(const std::string& why, timestamp now) {
  if (phase_ == phase::attached)
    say(link_news::weight::warning,
        "node '" + node_name_ + "' disconnected: " + why + "; requests in progress fail, attaching again");
  leave(false);
  retry({errc::unreachable, why}, now);
}

void link_state::leave(bool still_there) {
  if (phase_ != phase::attaching && phase_ != phase::attached)
    return;
  emit(link_part{owner_}); // also if the node seems lost, since it may still be running
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
  const quiescing_attachment over{owner, still_there, ranks.size(), false};
  if (ranks.empty()) {
    note_quiesced(over); // no copy engine was bound to it
    return;
  }
  quiescing_.push_back(over);
  for (const auto rank : ranks)
    emit(link_quiesce{owner, rank});
}

void link_state::on_quiesced(owner_id owner, const result<void>& outcome) {
  const auto at = std::find_if(quiescing_.begin(), quiescing_.end(), [&](const auto& x) { return x.owner == owner; });
  if (at == quiescing_.end())
    return;
  at->failed |= !outcome.has_value();
  if (--at->waiting > 0)
    return;
  const auto over = *at;
  quiescing_.erase(at);
  note_quiesced(over);
}

void link_state::note_quiesced(const quiescing_attachment& over) {
  if (over.failed)
    say(link_news::weight::warning, "a copy engine has not drained; the node keeps the frames that it had pinned until "
                                    "this process ends");
  else if (over.left) {
    emit(link_report_quiesced{over.owner, true});
    quiesced_.push_back({over.owner, true});
  } else if (phase_ != phase::refused) {
    quiesced_.push_back({over.owner, false});
    if (phase_ == phase::attached)
      report_quiesced();
  }
  emit(link_forget_left{over.owner});
  if (phase_ == phase::refused)
    end_if_quiesced();
}

void link_state::report_quiesced() {
  next_word_ = timestamp::max();
  for (auto& x : quiesced_)
    if (!std::exchange(x.said, true))
      emit(link_report_quiesced{x.owner, false});
}

void link_state::on_quiesced_reported(owner_id owner, const result<void>& outcome, timestamp now) {
  const auto at = std::find_if(quiesced_.begin(), quiesced_.end(), [&](const auto& x) { return x.owner == owner; });
  if (at == quiesced_.end())
    return;
  if (outcome) {
    quiesced_.erase(at);
    return;
  }
  at->said = false;
  next_word_ = later(now, word_pause);
}

void link_state::end_if_quiesced() {
  // Notifications for nodes that were lost cannot be delivered, so they are not waited for.
  if (ending_ && std::none_of(quiescing_.begin(), quiescing_.end(), [](const auto& x) { return x.left; }))
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
      to_string(why) + "; retrying in " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(wait).count()) + " ms");
  phase_ = phase::pausing;
  next_try_ = later(now, wait);
}

void link_state::refuse(const error& why) {
  last_error_ = why;
  // Callers that wait get the error and report it; without one it is logged as an error.
  const bool notified = !waiting_attached_.empty() || !waiting_bound_.empty();
  say(notified ? link_news::weight::debug : link_news::weight::error, "not retrying: " + to_string(why));
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
  last_error_ = {errc::shutting_down, "the client is shutting down"};
  answer_all(waiting_attached_, tl::unexpected<error>(last_error_));
  answer_all(waiting_bound_, tl::unexpected<error>(last_error_));
  end_if_quiesced();
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
    return fail(errc::limit_exceeded, "transfer window too small: " + std::to_string(bytes) +
                                          " bytes do not hold two pages of this namespace; raise " +
                                          (pinned_bytes_ < options_.window_bytes
                                               ? "the node's limit of pinned bytes per client, memory.client_bytes, "
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
  const auto for_loads = options_.only_loads ? *pages - 1 : *pages / 2;
  emit(link_bind_transfer{epoch_, rank, false, load_stream(rank), for_loads});
  emit(link_bind_transfer{epoch_, rank, true, save_stream(rank), *pages - for_loads});
}

void link_state::on_offered(link_epoch epoch, rank_number rank, const result<void>& outcome, timestamp now) {
  if (outcome)
    on_mapped(epoch, rank, outcome, now);
  else
    on_mapped(epoch, rank,
              fail(outcome.error().code, "the node cannot reach the memory of this process: " + outcome.error().text),
              now);
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
  logged_.unbound = false;
  backoff_.reset(); // only now: a node that accepts attachments and then fails is retried with back-off
  answer_all(waiting_bound_, {});
  answer_all(waiting_attached_, {});
}

void link_state::on_not_bound(const error& why, timestamp now) {
  if (stays_so(why.code)) {
    refuse(why);
    return;
  }
  // This repeats with each attempt, and its text may differ each time, as where it names a port.
  const bool is_known = std::exchange(logged_.unbound, true);
  say(is_known ? link_news::weight::debug : link_news::weight::warning,
      "attached to node '" + node_name_ + "', but its pages cannot be accessed: " + why.text + "; retrying");
  leave(true);
  retry(why, now);
}

void link_state::say(link_news::weight how, std::string text) {
  emit(link_news{how, std::move(text)});
}

} // namespace troupe
