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
void world::ask_node(change_number of, std::uint32_t group, State made_group::*state,
                     void (State::*on_reply)(transfer::call_id, result<Reply>, timestamp), transfer::call_id call,
                     bool may_be_lost, Work work) {
  send(of, [this, of, group, state, on_reply, call, may_be_lost, work] {
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
    after(time, [this, of, group, state, on_reply, call, reply] {
      auto& x = made_.at(of);
      if (x.over)
        return;
      ((x.groups[group].*state).*on_reply)(call, reply, now_);
      pump(of);
      flush();
    });
  });
}

void world::pump(change_number of) {
  auto& x = made_.at(of);
  const auto carry_out = [&](std::uint32_t group, bool saves, auto& state) {
    for (auto effects = state.take_outbox(); !effects.empty() && !x.over; effects = state.take_outbox())
      for (auto& effect : effects)
        std::visit(
            [&](auto& y) {
              if constexpr (std::is_same_v<std::decay_t<decltype(y)>, transfer::task_finished>)
                finished(of, group, saves, y);
              else
                perform(of, group, y);
            },
            effect);
  };
  for (std::uint32_t group = 0; group < x.groups.size(); ++group) {
    carry_out(group, true, x.groups[group].save);
    carry_out(group, false, x.groups[group].load);
  }
}

void world::send(change_number of, action what) {
  auto& x = made_.at(of);
  x.busy_until = std::max(x.busy_until, later(now_, random_.skewed_time(milliseconds(1), milliseconds(200))));
  at(x.busy_until, std::move(what));
}

void world::perform(change_number of, std::uint32_t group, transfer::save_reserve& x) {
  ask_node(of, group, &made_group::save, &transfer::save_state::on_reserve, x.call, true,
           [this, of, group, y = x.request] { return node_of(of, group).reserve(y, now_); });
}

void world::perform(change_number of, std::uint32_t group, transfer::save_place& x) {
  ask_node(of, group, &made_group::save, &transfer::save_state::on_place, x.call, false,
           [this, of, group, y = x.request] { return node_of(of, group).place(of, y); });
}

void world::perform(change_number of, std::uint32_t group, transfer::save_fill& x) {
  ask_node(of, group, &made_group::save, &transfer::save_state::on_fill, x.call, false,
           [this, of, group, y = x.request] { return node_of(of, group).fill(y); });
}

void world::perform(change_number of, std::uint32_t group, transfer::save_commit& x) {
  ask_node(of, group, &made_group::save, &transfer::save_state::on_commit, x.call, true,
           [this, of, group, y = x.request] { return publish(made_.at(of).groups[group].node, y); });
}

finish_reply world::publish(std::size_t number, const finish_request& x) {
  auto& node = nodes_[number];
  auto out = node.commit(x, now_);
  for (std::size_t i = 0; i < out.results.size(); ++i) {
    const auto known = node.index().find(x.pages[i].key);
    if (out.results[i] != 0 || known == node.index().end())
      continue;
    count("published");
    const auto& frame = node.at(*known->second.at * node_model::frame_bytes);
    if (frame.sum != meaning(number, known->first) || frame.page.key != known->first)
      broken("bytes", "a page is published that holds " + std::to_string(frame.sum) + " and not " +
                          std::to_string(meaning(number, known->first)));
  }
  return out;
}

void world::perform(change_number of, std::uint32_t group, transfer::save_abort& x) {
  ask_node(of, group, &made_group::save, &transfer::save_state::on_abort, x.call, true,
           [this, of, group, y = x.request] {
             node_of(of, group).abort(y);
             return finish_reply{};
           });
}

void world::perform(change_number of, std::uint32_t group, transfer::load_locate& x) {
  ask_node(of, group, &made_group::load, &transfer::load_state::on_locate, x.call, true,
           [this, of, group, y = x.request] { return node_of(of, group).locate(y); });
}

void world::perform(change_number of, std::uint32_t group, transfer::load_fetch& x) {
  ask_node(of, group, &made_group::load, &transfer::load_state::on_fetch, x.call, false,
           [this, of, group, y = x.request] { return node_of(of, group).fetch(of, y); });
}

void world::perform(change_number of, std::uint32_t group, transfer::load_unpin& x) {
  ask_node(of, group, &made_group::load, &transfer::load_state::on_unpin, x.call, false,
           [this, of, group, pin = x.pin] { node_of(of, group).unpin(pin); });
}

void world::perform(change_number of, std::uint32_t group, transfer::load_invalidate& x) {
  ask_node(of, group, &made_group::load, &transfer::load_state::on_invalidate, x.call, true,
           [this, of, group, y = x.request] {
             node_of(of, group).invalidate(y);
             count("found damaged");
             return finish_reply{};
           });
}

void world::perform(change_number of, std::uint32_t group, transfer::load_release& x) {
  ask_node(of, group, &made_group::load, &transfer::load_state::on_release, x.call, true, [] {});
}

void world::perform(change_number of, std::uint32_t group, transfer::save_gather& x) {
  order(of, group, true, x.call, x.order);
}

void world::perform(change_number of, std::uint32_t group, transfer::load_scatter& x) {
  order(of, group, false, x.call, x.order);
}

void world::finished(change_number of, std::uint32_t group, bool saves, const transfer::task_finished& x) {
  auto& y = made_.at(of).groups[group];
  auto node = (saves ? y.saves : y.loads).extract(x.task);
  if (node.empty() || has(defect::lose_the_end_of_tasks))
    return;
  std::vector<errc> codes;
  for (const auto code : x.result.results.items)
    codes.push_back(static_cast<errc>(code));
  transfers_.part_done(node.mapped(), codes, now_);
}

// -- orders -----------------------------------------------------------------------------------------------------------

void world::order(change_number of, std::uint32_t group, bool saves, transfer::call_id call, const copy_order& what) {
  const auto number = ++last_order_;
  orders_[number] = {of, group, saves, call, what.items.size()};
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
    auto& frame = nodes_.front().at(item.frame_offset);
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
      x.groups[what.group].save.on_gather(what.call, reply, now_);
    else
      x.groups[what.group].load.on_scatter(what.call, reply, now_);
    pump(what.of);
    flush();
  });
}

} // namespace troupe::lmcache_transfers
