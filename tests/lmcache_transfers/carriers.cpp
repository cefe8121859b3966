#include "tests/lmcache_transfers/world.hpp"

#include <algorithm>

/// The parts that execute the transfers: coordinators, their requests to the node, and lanes.

namespace troupe::lmcache_transfers {

namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

} // namespace

template <class State, class Reply, class Work>
void world::ask_node(change_number of, State made::*state,
                     void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp), transfer::call_id call,
                     bool may_be_lost, Work work) {
  send(of, [this, of, state, on_reply, call, may_be_lost, work] {
    if (made_.at(of).over)
      return;
    result<Reply> reply;
    if constexpr (std::is_void_v<Reply>)
      work();
    else
      reply = work();
    const bool lost = may_be_lost && rarely(30);
    if (lost) {
      count("answer lost");
      reply = fail(errc::timeout, "lost");
    }
    const auto time = lost ? duration(seconds(30)) : random_.skewed_time(milliseconds(1), milliseconds(50));
    after(time, [this, of, state, on_reply, call, reply] {
      auto& x = made_.at(of);
      if (x.over)
        return;
      ((x.*state).*on_reply)(call, reply, now_);
      pump(of);
      flush();
    });
  });
}

void world::pump(change_number of) {
  auto& x = made_.at(of);
  for (auto effects = x.save.take_outbox(); !effects.empty() && !x.over; effects = x.save.take_outbox())
    for (auto& effect : effects)
      std::visit(
          [&](auto& y) {
            if constexpr (std::is_same_v<std::decay_t<decltype(y)>, transfer::task_finished>)
              finished(of, true, y);
            else
              perform(of, y);
          },
          effect);
  for (auto effects = x.load.take_outbox(); !effects.empty() && !x.over; effects = x.load.take_outbox())
    for (auto& effect : effects)
      std::visit(
          [&](auto& y) {
            if constexpr (std::is_same_v<std::decay_t<decltype(y)>, transfer::task_finished>)
              finished(of, false, y);
            else
              perform(of, y);
          },
          effect);
}

void world::send(change_number of, action what) {
  auto& x = made_.at(of);
  x.busy_until = std::max(x.busy_until, later(now_, random_.skewed_time(milliseconds(1), milliseconds(200))));
  at(x.busy_until, std::move(what));
}

void world::perform(change_number of, transfer::save_reserve& x) {
  ask_node(of, &made::save, &transfer::save_state::on_reserve, x.call, true,
           [this, y = x.request] { return node_.reserve(y, now_); });
}

void world::perform(change_number of, transfer::save_place& x) {
  ask_node(of, &made::save, &transfer::save_state::on_place, x.call, false,
           [this, of, y = x.request] { return node_.place(of, y); });
}

void world::perform(change_number of, transfer::save_fill& x) {
  ask_node(of, &made::save, &transfer::save_state::on_fill, x.call, false,
           [this, y = x.request] { return node_.fill(y); });
}

void world::perform(change_number of, transfer::save_commit& x) {
  ask_node(of, &made::save, &transfer::save_state::on_commit, x.call, true,
           [this, y = x.request] { return publish(y); });
}

finish_reply world::publish(const finish_request& x) {
  auto out = node_.commit(x, now_);
  for (std::size_t i = 0; i < out.results.size(); ++i) {
    const auto known = node_.index().find(x.pages[i].key);
    if (out.results[i] != 0 || known == node_.index().end())
      continue;
    count("published");
    const auto& frame = node_.at(*known->second.at * node_model::frame_bytes);
    if (frame.sum != meant_.at(known->first) || frame.page.key != known->first)
      broken("bytes", "a page is published that holds " + std::to_string(frame.sum) + " and not " +
                          std::to_string(meant_.at(known->first)));
  }
  return out;
}

void world::perform(change_number of, transfer::save_abort& x) {
  ask_node(of, &made::save, &transfer::save_state::on_abort, x.call, true, [this, y = x.request] {
    node_.abort(y);
    return finish_reply{};
  });
}

void world::perform(change_number of, transfer::load_locate& x) {
  ask_node(of, &made::load, &transfer::load_state::on_locate, x.call, true,
           [this, y = x.request] { return node_.locate(y); });
}

void world::perform(change_number of, transfer::load_fetch& x) {
  ask_node(of, &made::load, &transfer::load_state::on_fetch, x.call, false,
           [this, of, y = x.request] { return node_.fetch(of, y); });
}

void world::perform(change_number of, transfer::load_unpin& x) {
  ask_node(of, &made::load, &transfer::load_state::on_unpin, x.call, false, [this, pin = x.pin] { node_.unpin(pin); });
}

void world::perform(change_number of, transfer::load_invalidate& x) {
  ask_node(of, &made::load, &transfer::load_state::on_invalidate, x.call, true, [this, y = x.request] {
    node_.invalidate(y);
    count("found damaged");
    return finish_reply{};
  });
}

void world::perform(change_number of, transfer::load_release& x) {
  ask_node(of, &made::load, &transfer::load_state::on_release, x.call, true, [] {});
}

void world::perform(change_number of, transfer::save_gather& x) {
  order(of, true, x.call, x.order);
}

void world::perform(change_number of, transfer::load_scatter& x) {
  order(of, false, x.call, x.order);
}

void world::finished(change_number of, bool saves, const transfer::task_finished& x) {
  auto& y = made_.at(of);
  auto node = (saves ? y.saves : y.loads).extract(x.task);
  if (node.empty() || has(defect::lose_the_end_of_tasks))
    return;
  std::vector<errc> codes;
  for (const auto code : x.result.results.items)
    codes.push_back(static_cast<errc>(code));
  transfers_.part_done(node.mapped(), codes, now_);
}

// -- orders -----------------------------------------------------------------------------------------------------------

void world::order(change_number of, bool saves, transfer::call_id call, const copy_order& what) {
  const auto number = ++last_order_;
  orders_[number] = {of, saves, call, what.items.size()};
  after(milliseconds(1), [this, of, saves, number, what] {
    if (made_.at(of).by_node)
      return move(of, saves, number, what);
    std::vector<transfer_rules::placed_page> pages;
    for (const auto& x : what.items.items)
      pages.push_back({x.block, {x.key, x.where}, x.frame_offset});
    transfers_.order(what.ready_event, number, std::move(pages), now_);
    flush();
  });
}

void world::move(change_number of, bool saves, lmcache::order_number number, const copy_order& what) {
  if (!rules_.begin_work(of)) {
    count("work refused");
    return answer_order(number, fail(errc::cancelled, "the registration has ended"));
  }
  if (has(defect::end_work_early))
    rules_.end_work(of, now_);
  const auto time =
      rarely(20) ? random_.time(minutes(2), minutes(6)) : random_.skewed_time(milliseconds(1), seconds(5));
  after(time, [this, of, saves, number, what] {
    answer_order(number, carry_out(of, saves, what));
    if (!has(defect::end_work_early))
      rules_.end_work(of, now_);
    flush();
  });
}

copy_reply world::carry_out(change_number of, bool saves, const copy_order& what) {
  copy_reply out;
  auto& x = workers_.at(made_.at(of).of);
  for (const auto& item : what.items.items) {
    auto& frame = node_.at(item.frame_offset);
    const page_ref page{item.key, item.where};
    auto code = errc::ok;

    if (saves) {
      frame = {x.blocks[item.block], page, x.blocks[item.block], frame.pins};
    } else if (frame.page != page || frame.sum != frame.holds) {
      code = errc::corrupt;
    } else {
      const bool is_open = std::ranges::any_of(
          x.busy, [&](const auto& y) { return std::ranges::find(y.second, item.block) != y.second.end(); });
      if (!is_open && !x.dead)
        broken("writes", "a lane writes into a block of worker " + std::to_string(x.number) +
                             " that is another request's by now");
      x.blocks[item.block] = frame.holds;
    }
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  }
  return out;
}

void world::answer_order(lmcache::order_number number, result<copy_reply> reply) {
  auto node = orders_.extract(number);
  if (node.empty())
    return;
  const auto what = node.mapped();
  after(milliseconds(1), [this, what, reply = std::move(reply)] {
    auto& x = made_.at(what.of);
    if (x.over)
      return;
    if (what.saves)
      x.save.on_gather(what.call, reply, now_);
    else
      x.load.on_scatter(what.call, reply, now_);
    pump(what.of);
    flush();
  });
}

} // namespace troupe::lmcache_transfers
