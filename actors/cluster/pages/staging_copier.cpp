#include "actors/cluster/pages/staging_copier.hpp"

#include "actors/client/copy_engine/copy_engine.hpp"
#include "messages/answer_codes.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::cluster {

class staging_passage {
public:
  staging_passage(std::shared_ptr<staging_buffer> memory, copy_engine_state::open_gather job, const copy_order& order,
                  timestamp begun)
      : memory_(std::move(memory)), job_(std::make_shared<copy_engine_state::open_gather>(std::move(job))),
        order_(order), begun_(begun) {
    for (const auto& move : job_->moves()) {
      targets_.push_back(std::make_shared<target_frame>(target_frame{move.page, job_, std::nullopt}));
      memory_->redirect(move.block, targets_.back());
    }
  }
  staging_passage(const staging_passage&) = delete;
  staging_passage& operator=(const staging_passage&) = delete;
  ~staging_passage() { arrive(); }

  /// Call this when nothing is written any more: the target frames are detached from the blocks. Any thread.
  void arrive() {
    if (!arrived_.exchange(true))
      for (const auto& move : job_->moves())
        memory_->redirect(move.block, nullptr);
  }

  packed<key_digest> keys() const {
    packed<key_digest> out;
    for (const auto position : job_->positions())
      out.items.push_back(order_.items[position].key);
    return out;
  }
  packed<std::uint32_t> blocks() const {
    packed<std::uint32_t> out;
    for (const auto& move : job_->moves())
      out.items.push_back(move.block);
    return out;
  }

  /// Takes over the results. Pages that were sent but did not go to their frames are in the blocks: their positions
  /// among the moves are returned.
  std::vector<std::size_t> judge(const result<transfer_result>& outcome) {
    std::vector<std::size_t> in_blocks;
    bool is_missing = false;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      auto& move = job_->moves()[i];
      move.verdict = is_missing ? errc::cancelled : code_at(outcome, i);
      is_missing |= move.verdict != errc::ok;
      move.checksum.reset();
      if (const auto& arrived = targets_[i]->arrived) {
        move.checksum = arrived->checksum;
        move.encoding = arrived->encoding;
      }
      if (move.verdict == errc::ok && !move.checksum)
        in_blocks.push_back(i);
    }
    // Only reads of slab files write to a block. If more pages are in blocks than came from files, a block has other
    // bytes.
    if (outcome && in_blocks.size() > outcome->from_files)
      for (const auto i : std::exchange(in_blocks, {}))
        job_->moves()[i].verdict = errc::internal;
    return in_blocks;
  }

  /// Makes an order of these moves alone.
  copy_order order_of(const std::vector<std::size_t>& moves) const {
    copy_order out{order_.owner, {}};
    for (const auto i : moves)
      out.items.items.push_back(order_.items[job_->positions()[i]]);
    return out;
  }

  /// Takes over the results of these moves.
  void judge(const std::vector<std::size_t>& moves, const result<copy_reply>& outcome) {
    for (std::size_t i = 0; i < moves.size(); ++i)
      job_->moves()[moves[i]].verdict = code_at(outcome, i);
  }

  copy_reply end(const copy_engine_state& state, timestamp now) const {
    auto out = state.end_gather(*job_, order_);
    out.move = now - begun_;
    return out;
  }

private:
  std::shared_ptr<staging_buffer> memory_;
  std::shared_ptr<copy_engine_state::open_gather> job_;
  copy_order order_;
  timestamp begun_;
  std::vector<std::shared_ptr<target_frame>> targets_;
  std::atomic<bool> arrived_{false};
};

staging_copier::staging_copier(caf::actor_config& config, std::shared_ptr<copy_engine_state> state,
                               std::shared_ptr<inbound_transfers> expected, std::shared_ptr<staging_buffer> memory,
                               copy_engine_actor copier)
    : staging_copier_base::base(config), state_(std::move(state)), expected_(std::move(expected)),
      memory_(std::move(memory)), copier_(std::move(copier)) {}

void staging_copier::on_exit() {
  promises_.fail_all({errc::unreachable, "the copier of transfers between nodes has stopped"});
  if (copier_)
    send_exit(copier_, caf::exit_reason::user_shutdown);
  copier_ = nullptr;
  state_.reset();
}

staging_copier::behavior_type staging_copier::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { quit(down.reason); });
  monitor(copier_);
  return {
      [this](bind_atom x, owner_id owner, const arena_info& arena) { return delegate(copier_, x, owner, arena); },
      [this](lend_atom x, owner_id owner, const arena_info& arena) { return delegate(copier_, x, owner, arena); },
      [this](unbind_atom x, owner_id owner) { return delegate(copier_, x, owner); },
      [this](gather_atom, const copy_order& order) { return gather(order); },
      [this](scatter_atom x, const copy_order& order) { return delegate(copier_, x, order); },
      [this](const pages_sent& x) { on_sent(x); },
  };
}

caf::result<copy_reply> staging_copier::gather(const copy_order& order) {
  auto job = copy_engine_state::begin_gather(state_, order);
  if (!job)
    return to_caf(job.error());
  const auto what = std::make_shared<staging_passage>(memory_, std::move(*job), order, clock().now());
  auto promise = make_response_promise();
  const auto request = promises_.add(promise);
  const auto asked =
      expected_->ask(order.ready_event, what->keys(), what->blocks(), clock().now(),
                     [request, what, self = caf::actor_cast<caf::actor>(this)](const result<transfer_result>& outcome) {
                       what->arrive();
                       caf::anon_send(self, pages_sent{request, what, outcome});
                     });
  if (!asked)
    promises_.deliver(request, to_caf(error{errc::expired, "the request for these pages has expired"}));
  return promise;
}

void staging_copier::on_sent(const pages_sent& x) {
  const auto& [request, what, outcome] = x;
  const auto in_blocks = what->judge(outcome);
  if (in_blocks.empty())
    return promises_.deliver(request, what->end(*state_, clock().now()));
  const auto gathered = [this, request = request, what = what, in_blocks](const result<copy_reply>& reply) {
    what->judge(in_blocks, reply);
    promises_.deliver(request, what->end(*state_, clock().now()));
  };
  this->request(copier_, caf::infinite, gather_atom_v, what->order_of(in_blocks))
      .then([gathered](const copy_reply& reply) { gathered(reply); },
            [gathered](const caf::error& why) { gathered(tl::unexpected<error>(from_caf(why))); });
}

} // namespace troupe::cluster
