#include "actors/node/remote/remote_worker.hpp"

#include "actors/node/io_worker/page_checker.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// The job number of a probe; jobs are numbered from 1.
constexpr remote_job probe_job = 0;

constexpr duration tick_pause = std::chrono::milliseconds(100);

error not_here() {
  return {errc::unsupported,
          "this client does not share the node's memory, since it attaches over TCP or from another "
          "host, and the node does not move pages over the network: attach by the node's Unix socket "
          "(its data_dir), or set remote.enabled in the node's config"};
}

} // namespace

remote_worker::remote_worker(caf::actor_config& config, remote_worker_parts parts)
    : remote_worker_actor::base(config), parts_(std::move(parts)), state_(parts_.options) {}

template <class Reply>
caf::result<Reply> remote_worker::wait_for(const result<remote_job>& begun) {
  if (!begun)
    return to_caf(begun.error());
  auto promise = make_response_promise();
  promises_.emplace(*begun, promise);
  flush();
  return promise;
}

template <class Reply>
void remote_worker::answer(remote_job job, const result<Reply>& reply) {
  auto waiting = promises_.extract(job);
  if (waiting.empty())
    return;
  if (reply)
    waiting.mapped().deliver(*reply);
  else
    waiting.mapped().deliver(to_caf(reply.error()));
}

remote_worker::behavior_type remote_worker::make_behavior() {
  return {
      [this](bind_atom, const remote_offer& offer) -> caf::result<void> {
        if (!parts_.mover)
          return to_caf(not_here());
        if (auto begun = state_.bind(offer, now()); !begun)
          return to_caf(begun.error());
        auto promise = make_response_promise();
        binding_ = promise;
        flush();
        return promise;
      },
      [this](place_atom, owner_id, const frame_request& x) { return wait_for<frame_reply>(state_.place(x)); },
      [this](fetch_atom, owner_id, const frame_request& x) { return wait_for<frame_reply>(state_.fetch(x)); },
      [this](fill_atom, owner_id, const fill_request& x) { return wait_for<io_reply>(state_.fill(x, now())); },
      [this](unpin_atom, owner_id, pin_number pin) -> caf::result<void> { return to_caf(state_.unpin(pin)); },
      [this](unbind_atom, owner_id) {
        state_.end();
        flush();
      },
      [this](const remote_news& x) {
        on_news(x);
        flush();
      },
      [this](caf::tick_atom) {
        ticking_ = false;
        state_.tick(now(), peer_ ? peer_->progress() : 0);
        flush();
      },
  };
}

void remote_worker::flush() {
  if (parts_.totals)
    parts_.totals->add(state_.take_counts());
  for (auto effects = state_.take_outbox(); !effects.empty(); effects = state_.take_outbox())
    for (const auto& effect : effects)
      std::visit([this](const auto& x) { perform(x); }, effect);
  if (!ticking_ && state_.needs_ticks()) {
    ticking_ = true;
    delayed_send(this, tick_pause, caf::tick_atom_v);
  }
}

std::function<void(result<void>)> remote_worker::teller(remote_news::kind what, remote_job job) {
  // The buffer lives as long as a transfer may access it, also after the end of the actor.
  return [what, job, to = caf::weak_actor_ptr(ctrl()), memory = parts_.extents,
          seen = proof_seen_](const result<void>& outcome) {
    const auto self = caf::actor_cast<caf::strong_actor_ptr>(to);
    if (!self)
      return;
    remote_news news{static_cast<std::uint8_t>(what), 0, job, {}};
    if (!outcome) {
      news.code = static_cast<std::uint8_t>(outcome.error().code);
      news.text = outcome.error().text;
    }
    caf::anon_send(caf::actor_cast<remote_worker_actor>(self), std::move(news));
  };
}

void remote_worker::on_news(const remote_news& x) {
  result<void> outcome;
  if (x.code != 0)
    outcome = fail(errc_from_wire(x.code), x.text);
  switch (static_cast<remote_news::kind>(x.what)) {
  case remote_news::kind::lost:
    state_.on_lost(outcome ? error{errc::unreachable, "connection lost"} : outcome.error());
    break;
  case remote_news::kind::closed:
    state_.on_closed();
    break;
  case remote_news::kind::moved:
    if (x.job != probe_job)
      state_.on_moved(x.job, outcome, now());
    else if (outcome && !std::exchange(proof_got_, true)) {
      if (*proof_seen_ == proof_)
        probe(io::remote_direction::put);
      else
        state_.on_probed(
            fail(errc::identity_mismatch, "the memory at this address is not the one that this client offers"));
    } else
      state_.on_probed(outcome);
    break;
  }
}

void remote_worker::perform(const remote_ask& x) {
  const auto on_reply = [this, job = x.job](const frame_reply& reply) {
    state_.on_frames(job, reply, now());
    flush();
  };
  const auto on_error = [this, job = x.job](const caf::error& e) {
    state_.on_frames(job, failed<frame_reply>(e), now());
    flush();
  };
  if (x.fetch)
    request(parts_.worker, caf::infinite, fetch_atom_v, parts_.owner, x.request).then(on_reply, on_error);
  else
    request(parts_.worker, caf::infinite, place_atom_v, parts_.owner, x.request).then(on_reply, on_error);
}

void remote_worker::perform(const remote_order& x) {
  std::vector<io::remote_move> moves;
  moves.reserve(x.pages.size());
  std::uint64_t saved = 0;
  for (const auto& page : x.pages) {
    auto here = parts_.extents->memory().subspan(page.here, page.bytes);
    // What is behind the page belongs to an earlier one, which may be of another rank or namespace.
    if (x.direction == io::remote_direction::put)
      here = here.first(io::used_bytes(here));
    saved += parts_.options.slot_bytes - here.size();
    moves.push_back({here, page.there});
  }
  state_.on_shortened(x.job, saved);
  if (peer_)
    peer_->move(x.direction, std::move(moves), teller(remote_news::kind::moved, x.job));
}

void remote_worker::probe(io::remote_direction direction) {
  peer_->move(direction, {{std::span(*proof_seen_), 0}}, teller(remote_news::kind::moved, probe_job));
}

void remote_worker::perform(const remote_probe& x) {
  const auto& offer = x.offer;
  proof_.clear();
  for (const auto byte : offer.proof)
    proof_.push_back(std::byte{byte});
  proof_seen_ = std::make_shared<std::vector<std::byte>>(proof_.size());
  const auto tell = teller(remote_news::kind::lost, probe_job);
  auto made = parts_.mover->connect({offer.address.items, offer.key.items, offer.base, offer.bytes},
                                    [tell](const error& why) { tell(tl::unexpected<error>(why)); });
  if (!made)
    return state_.on_probed(tl::unexpected<error>(made.error()));
  peer_ = std::move(*made);
  probe(io::remote_direction::get);
}

void remote_worker::perform(const remote_check& x) {
  if (!checker_)
    checker_ = spawn<page_checker, caf::linked>(
        page_checker_options{parts_.ns, parts_.rank, parts_.page_bytes, parts_.extents->memory()});
  request(checker_, caf::infinite, x.order)
      .then(
          [this, job = x.job](const io_reply& verdicts) {
            state_.on_checked(job, verdicts);
            flush();
          },
          [this, job = x.job](const caf::error& e) {
            state_.on_checked(job, failed<io_reply>(e));
            flush();
          });
}

void remote_worker::perform(const remote_fill& x) {
  request(parts_.worker, caf::infinite, fill_atom_v, parts_.owner, x.request)
      .then(
          [this, job = x.job](const io_reply& reply) {
            state_.on_filled(job, reply);
            flush();
          },
          [this, job = x.job](const caf::error& e) {
            state_.on_filled(job, failed<io_reply>(e));
            flush();
          });
}

void remote_worker::perform(const remote_unpin& x) {
  request(parts_.worker, caf::infinite, unpin_atom_v, parts_.owner, x.pin).then([] {}, [](const caf::error&) {});
}

void remote_worker::perform(const remote_answer_bind& x) {
  // A promise holds a reference to its actor, which must not hold itself.
  auto promise = std::exchange(binding_, caf::response_promise{});
  if (x.outcome)
    promise.deliver(caf::unit);
  else
    promise.deliver(to_caf(x.outcome.error()));
}

void remote_worker::perform(const remote_lost& x) {
  log::get("remote")->warn("memory of remote client lost: {:016x}, rank {} ({}); its attachment ends", parts_.owner,
                           parts_.rank, x.why.text);
  if (parts_.node)
    request(parts_.node, caf::infinite, unbind_atom_v, parts_.owner).then([] {}, [](const caf::error&) {});
}

void remote_worker::perform(const remote_close&) {
  if (!peer_)
    return state_.on_closed();
  const auto tell = teller(remote_news::kind::closed, probe_job);
  peer_->close([tell] { tell({}); });
}

void remote_worker::perform(const remote_quiesced&) {
  --*parts_.presence;
  parts_.presence = nullptr;
  quit();
}

void remote_worker::on_exit() {
  const auto ending = to_caf(error{errc::shutting_down, "the node is ending"});
  for (auto& [job, promise] : std::exchange(promises_, {}))
    promise.deliver(ending);
  if (auto promise = std::exchange(binding_, caf::response_promise{}); promise.pending())
    promise.deliver(ending);
  // Transfers in progress end with the peer; the memory that they access is owned by their callbacks.
  if (peer_ && parts_.presence)
    peer_->close([presence = parts_.presence, memory = parts_.extents] { --*presence; });
  else if (parts_.presence)
    --*parts_.presence;
  peer_ = nullptr;
  parts_ = {};
  if (checker_)
    send_exit(checker_, caf::exit_reason::user_shutdown);
  checker_ = nullptr;
}

} // namespace troupe
