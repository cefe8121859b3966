// The coordinators and copy engines of a simulated client, as actors/transfer/*.cpp and
// actors/client/copy_engine/copy_engine.cpp run them.

#include "tests/simulation/client.hpp"

#include <type_traits>
#include <utility>
#include <variant>

namespace troupe::simulation {

using transfer::load_state;
using transfer::save_state;

// -- engine to coordinators -------------------------------------------------------------------------------------------

void client::lookup(const lookup_task& work, std::function<void(result<lookup_result>)> done) {
  net_.request<lookup_result>(
      at(role::engine), at(role::lookup), local, duration::zero(), "lookup",
      [this, work](const promise<lookup_result>& answer) {
        const auto id = parts_->lookup->start(work, world_.now());
        if (!id) {
          answer.deliver(tl::unexpected<error>(id.error()));
          return;
        }
        parts_->lookups.emplace(*id, answer);
        parts_->starting = *id;
        parts_->starting_path = work.keys.items;
        flush_lookup();
        parts_->starting = 0;
      },
      std::move(done));
}

void client::release(const ticket& lease) {
  net_.send(at(role::engine), at(role::lookup), local, "release", [this, lease] {
    (void)parts_->lookup->release(lease, world_.now());
    flush_lookup();
  });
}

void client::save(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) {
  net_.request<transfer_result>(
      at(role::engine), at(role::save, rank), local, duration::zero(), "save",
      [this, rank, work](const promise<transfer_result>& answer) {
        start_task(*parts_->ranks[rank].save, work, answer);
      },
      std::move(done));
}

void client::load(rank_number rank, const transfer_task& work, std::function<void(result<transfer_result>)> done) {
  net_.request<transfer_result>(
      at(role::engine), at(role::load, rank), local, duration::zero(), "load",
      [this, rank, work](const promise<transfer_result>& answer) {
        start_task(*parts_->ranks[rank].load, work, answer);
      },
      std::move(done));
}

void client::cancel_save(rank_number rank, std::uint64_t tag, std::function<void()> done) {
  cancel(*parts_->ranks[rank].save, tag, std::move(done));
}

void client::cancel_load(rank_number rank, std::uint64_t tag, std::function<void()> done) {
  cancel(*parts_->ranks[rank].load, tag, std::move(done));
}

// -- load and save ----------------------------------------------------------------------------------------------------

template <class State>
void client::start_task(coordinator<State>& c, const transfer_task& work, const promise<transfer_result>& answer) {
  const auto id = c.state.start(work, world_.now());
  if (!id) {
    answer.deliver(tl::unexpected<error>(id.error()));
    return;
  }
  c.promises.emplace(*id, answer);
  c.starting = *id;
  c.due = world_.now() + work.deadline;
  flush(c);
  c.starting = 0;
}

template <class State>
void client::cancel(coordinator<State>& c, std::uint64_t tag, std::function<void()> done) {
  net_.request<void>(
      at(role::engine), c.self, local, duration::zero(), "cancel",
      [this, &c, tag](const promise<void>& answer) {
        if (!std::is_same_v<State, save_state> || !world_.has(defect::ignore_cancel))
          c.state.cancel({&tag, 1}, world_.now());
        flush(c);
        answer.deliver({});
      },
      [done = std::move(done)](const result<void>&) { done(); });
}

template <class State>
void client::flush(coordinator<State>& c) {
  for (auto& effect : c.state.take_outbox())
    std::visit([&](auto& x) { perform(c, x); }, effect);
  if (c.ticking || c.state.open_tasks() == 0)
    return;
  c.ticking = true;
  net_.after(process_, world_.p.coordinator_tick, [this, &c] {
    c.ticking = false;
    c.state.on_tick(world_.now());
    flush(c);
  });
}

template <class State>
void client::unbind(coordinator<State>& c) {
  c.watch.clear();
  c.state.unbind(errc::unreachable);
  flush(c);
  c.via = local;
}

// The link uses these two.
template void client::unbind(loads& c);
template void client::unbind(saves& c);

template <class State, class Reply>
void client::ask(coordinator<State>& c, const address& to, duration timeout, std::string_view what,
                 transfer::call_id call, void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp),
                 std::function<void(const promise<Reply>&)> serve, std::function<void(const result<Reply>&)> seen) {
  const bool remote = to.process != process_;
  if (remote && c.via == local)
    world_.fail("answers", c.self.name() + " asks a node that it is not bound to");
  net_.request<Reply>(c.self, to, remote ? c.via : local, timeout, what, std::move(serve),
                      [this, &c, call, on_reply, seen = std::move(seen)](result<Reply> reply) {
                        if (seen)
                          seen(reply);
                        (c.state.*on_reply)(call, std::move(reply), world_.now());
                        flush(c);
                      });
}

duration client::io_patience() const {
  return world_.has(defect::early_buffer) ? world_.p.disk_time / 2 : duration::zero();
}

void client::judge(std::string_view property, const address& who, const std::string& wrong) {
  if (!wrong.empty())
    world_.fail(property, who.name() + ": " + wrong);
}

void client::perform(loads& c, transfer::load_locate& x) {
  if (world_.has(defect::short_lease))
    x.request.lease_for /= 2;
  if (c.starting != 0)
    c.watch.begins(x.request.lease, c.due);
  judge("leases", c.self, c.watch.locates(x.request, world_.p.lease_max, world_.now()));
  const auto seen = [&c, epoch = c.watch.epoch(), i = x.shard, request = x.request](const auto& reply) {
    if (reply && epoch == c.watch.epoch())
      c.watch.located(i, request, *reply);
  };
  ask<load_state, locate_reply>(
      c, node::shard(x.shard), world_.p.request_timeout, "locate", x.call, &load_state::on_locate,
      [this, i = x.shard, request = x.request](const auto& answer) { node_.locate(i, request, answer); }, seen);
}

void client::perform(loads& c, transfer::load_read& x) {
  const auto rank = c.self.index;
  c.watch.reads(x.batch);
  const auto seen = [&c, epoch = c.watch.epoch(), batch = x.batch](const auto&) { c.watch.has_read(epoch, batch); };
  ask<load_state, io_reply>(
      c, node::worker(rank), io_patience(), "read", x.call, &load_state::on_read,
      [this, rank, batch = x.batch](const auto& answer) { node_.transfer(rank, io::operation::read, batch, answer); },
      seen);
  if (!world_.has(defect::early_release))
    return;
  if (const auto holder = c.watch.holder_of(x.batch)) {
    transfer::load_release early{0, holder->first, {space_, holder->second, 0}};
    perform(c, early);
  }
}

void client::perform(loads& c, transfer::load_scatter& x) {
  const auto rank = c.self.index;
  const auto work = [this, rank, order = x.order](const auto& answer) { answer.deliver(scatter(rank, order)); };
  if (!world_.has(defect::late_scatter)) {
    ask<load_state, copy_reply>(c, at(role::copier, rank), duration::zero(), "scatter", x.call, &load_state::on_scatter,
                                work);
    return;
  }
  ask<load_state, copy_reply>(c, at(role::copier, rank), 4 * world_.p.local_delay, "scatter", x.call,
                              &load_state::on_scatter, [this, work](const auto& answer) {
                                net_.after(process_, random_.time(duration::zero(), 16 * world_.p.local_delay),
                                           [work, answer] { work(answer); });
                              });
}

void client::perform(loads& c, transfer::load_invalidate& x) {
  ask<load_state, finish_reply>(
      c, node::shard(x.shard), world_.p.request_timeout, "invalidate", x.call, &load_state::on_invalidate,
      [this, i = x.shard, request = x.request](const auto& answer) { node_.invalidate(i, request, answer); });
}

void client::perform(loads& c, transfer::load_release& x) {
  judge("leases", c.self, c.watch.releases(x.shard, x.request.lease));
  ask<load_state, void>(
      c, node::shard(x.shard), world_.p.request_timeout, "release", x.call, &load_state::on_release,
      [this, i = x.shard, request = x.request](const auto& answer) { node_.release(i, request, answer); });
}

void client::perform(saves& c, transfer::save_reserve& x) {
  if (c.starting != 0)
    c.watch.begins(x.request.ticket, c.starting);
  ask<save_state, reserve_reply>(
      c, node::shard(x.shard), world_.p.request_timeout, "reserve", x.call, &save_state::on_reserve,
      [this, i = x.shard, request = x.request](const auto& answer) { node_.reserve(i, request, answer); });
}

void client::perform(saves& c, transfer::save_gather& x) {
  const auto rank = c.self.index;
  ask<save_state, copy_reply>(
      c, at(role::copier, rank), duration::zero(), "gather", x.call, &save_state::on_gather,
      [this, rank, order = x.order](const auto& answer) { answer.deliver(gather(rank, order)); });
}

void client::perform(saves& c, transfer::save_write& x) {
  const auto rank = c.self.index;
  const auto call = x.call;
  const auto pages = x.batch.items.size();
  ask<save_state, io_reply>(c, node::worker(rank), io_patience(), "write", call, &save_state::on_write,
                            [this, rank, batch = std::move(x.batch)](const auto& answer) {
                              node_.transfer(rank, io::operation::write, batch, answer);
                            });
  if (world_.has(defect::early_commit))
    net_.send(c.self, c.self, local, "written, or so it says", [this, &c, call, pages] {
      c.state.on_write(call, io_reply{std::vector<std::uint8_t>(pages)}, world_.now());
      flush(c);
    });
}

void client::perform(saves& c, transfer::save_commit& x) {
  judge("verdicts", c.self, c.watch.commits(x.request.ticket));
  ask<save_state, finish_reply>(
      c, node::shard(x.shard), world_.p.request_timeout, "commit", x.call, &save_state::on_commit,
      [this, i = x.shard, request = x.request](const auto& answer) { node_.commit(i, request, answer); });
}

void client::perform(saves& c, transfer::save_abort& x) {
  const bool commits = world_.has(defect::late_commit) && c.watch.is_answered(x.request.ticket);
  if (commits)
    judge("verdicts", c.self, c.watch.commits(x.request.ticket));
  ask<save_state, finish_reply>(c, node::shard(x.shard), world_.p.request_timeout, commits ? "commit" : "abort", x.call,
                                &save_state::on_abort,
                                [this, commits, i = x.shard, request = x.request](const auto& answer) {
                                  if (commits)
                                    node_.commit(i, request, answer);
                                  else
                                    node_.abort(i, request, answer);
                                });
}

template <class State>
void client::perform(coordinator<State>& c, transfer::task_finished& x) {
  if constexpr (std::is_same_v<State, save_state>)
    c.watch.answers(x.task);
  const auto waiting = c.promises.extract(x.task);
  if (waiting.empty())
    world_.fail("answers", c.self.name() + " answers a task twice");
  else
    waiting.mapped().deliver(std::move(x.result));
}

// -- lookup -----------------------------------------------------------------------------------------------------------

void client::flush_lookup() {
  for (auto& effect : parts_->lookup->take_outbox())
    std::visit([this](auto& x) { perform(x); }, effect);
  if (parts_->lookup_ticking || (parts_->lookup->under_way() == 0 && parts_->lookup->held() == 0))
    return;
  parts_->lookup_ticking = true;
  net_.after(process_, world_.p.coordinator_tick, [this] {
    parts_->lookup_ticking = false;
    parts_->lookup->on_tick(world_.now());
    flush_lookup();
  });
}

void client::perform(transfer::lookup_match& x) {
  if (parts_->starting != 0)
    parts_->watch.begins(parts_->starting, x.request.lease, parts_->starting_path);
  net_.request<match_reply>(
      at(role::lookup), node::shard(x.shard), parts_->lookup_via, world_.p.request_timeout, "match",
      [this, i = x.shard, request = x.request](const promise<match_reply>& answer) { node_.match(i, request, answer); },
      [this, call = x.call, i = x.shard, request = x.request](result<match_reply> reply) {
        if (reply)
          parts_->watch.answered(i, request, reply->matched);
        parts_->lookup->on_match(call, std::move(reply), world_.now());
        flush_lookup();
      });
}

void client::perform(transfer::lookup_release& x) {
  if (world_.has(defect::forget_trim) && x.request.keep > 0)
    return;
  parts_->watch.releases(x.shard, x.request);
  net_.request<void>(
      at(role::lookup), node::shard(x.shard), parts_->lookup_via, world_.p.request_timeout, "release",
      [this, i = x.shard, request = x.request](const promise<void>& answer) { node_.release(i, request, answer); },
      [](const result<void>&) {});
}

void client::perform(transfer::lookup_finished& x) {
  judge("leases", at(role::lookup), parts_->watch.ends(x.lookup, x.answer ? x.answer->matched : 0));
  const auto waiting = parts_->lookups.extract(x.lookup);
  if (waiting.empty())
    world_.fail("answers", "a lookup is answered twice");
  else
    waiting.mapped().deliver(std::move(x.answer));
}

// -- copy engine ------------------------------------------------------------------------------------------------------

void client::check_buffers(rank_number rank, const copy_order& order) {
  const auto all = parts_->ranks[rank].buffers->bytes();
  for (const auto& item : order.items)
    if (item.buffer_offset + slot_bytes_ > all.size())
      world_.fail("buffers", at(role::copier, rank).name() + " is told of a page buffer that does not exist");
    else if (node_.disk_of(rank).uses(all.subspan(item.buffer_offset, slot_bytes_)))
      world_.fail("buffers", at(role::copier, rank).name() + " moves bytes in a page buffer that the disk transfers");
}

result<copy_reply> client::gather(rank_number rank, const copy_order& order) {
  check_buffers(rank, order);
  return parts_->ranks[rank].copier->gather(order);
}

result<copy_reply> client::scatter(rank_number rank, const copy_order& order) {
  check_buffers(rank, order);
  if (!world_.has(defect::skip_verify))
    return parts_->ranks[rank].copier->scatter(order);
  copy_reply reply;
  for (const auto& item : order.items) {
    const auto* page = parts_->ranks[rank].buffers->bytes().data() + item.buffer_offset + io::page_header_bytes;
    device_of(rank).write(item.block, {page, page + world_.p.space.geometry.page_bytes()});
    reply.results.items.push_back(static_cast<std::uint8_t>(errc::ok));
  }
  return reply;
}

} // namespace troupe::simulation
