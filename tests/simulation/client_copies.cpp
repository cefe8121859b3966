#include "io/page.hpp"
#include "tests/simulation/client.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

/// The copy engines of a client. Their copies take time, but the actors that execute them do not: orders are delayed
/// before them. Until an order is answered, it may access any byte of its frames.

namespace troupe::simulation {

std::span<std::byte> client::memory_of(owner_id owner) const {
  const auto found = arenas_.find(owner);
  return found == arenas_.end() ? std::span<std::byte>{} : node_.memory().memory_named(found->second);
}

void client::check_copy(rank_number rank, const copy_order& order, bool scatter) {
  // An order for an earlier run of the node, whose memory is not reused.
  if (node_.running() && node_.frames().knows(order.owner))
    judge("copies", "copy engine", node_.frames().copies(rank, order, scatter));
}

bool client::has_copies(rank_number rank, owner_id owner) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const auto& x) { return x.second.rank == rank && x.second.order.owner == owner; });
}

bool client::at_copier(rank_number rank, passing& x) {
  if (x.content.match_elements<unbind_atom, owner_id>())
    return ends_attachment(rank, x);
  if (x.content.match_elements<scatter_atom, copy_order>() || x.content.match_elements<gather_atom, copy_order>())
    return begins_copy(rank, x);
  return true;
}

bool client::ends_attachment(rank_number rank, passing& x) {
  const auto owner = x.content.get_as<owner_id>(1);
  ranks_[rank].ended.insert(owner);
  if (!has_copies(rank, owner))
    return true;
  world_.count("attachment: ends while copies are under way");
  if (world_.has(defect::early_quiesce)) {
    for (auto& [name, what] : copies_)
      if (what.rank == rank && what.order.owner == owner)
        node_.memory().end_copy(what.number);
    tap::answer(x, caf::message{});
    return false;
  }
  held_words_.push_back({rank, std::move(x)});
  return false;
}

void client::pass_what_may() {
  for (auto& x : std::exchange(held_words_, {}))
    if (has_copies(x.rank, x.what.content.get_as<owner_id>(1)))
      held_words_.push_back(std::move(x));
    else
      tap_of(ranks_[x.rank].copier).pass(std::move(x.what));
}

bool client::begins_copy(rank_number rank, passing& x) {
  const bool scatter = x.content.match_elements<scatter_atom, copy_order>();
  const auto& order = x.content.get_as<copy_order>(1);
  if (ranks_[rank].ended.contains(order.owner)) {
    // The answer of a copy engine that has ended its copies; this one has not if copies are in progress.
    tap::answer(x, caf::make_message(to_caf(error{errc::expired, "the attachment has ended"})));
    return false;
  }
  check_copy(rank, order, scatter);
  copy_reply fine;
  fine.results.items.assign(order.items.size(), static_cast<std::uint8_t>(errc::ok));
  if (scatter && (world_.has(defect::skip_verify) || world_.has(defect::skip_checksum))) {
    scatter_unchecked(rank, order, world_.has(defect::skip_checksum));
    tap::answer(x, caf::make_message(fine));
    return false;
  }
  if (scatter ? world_.has(defect::late_scatter) : world_.has(defect::late_gather)) {
    tap::answer(x, caf::make_message(fine));
    after(random_.time(duration::zero(), std::chrono::milliseconds(50)), [this, rank, scatter, what = x.content] {
      check_copy(rank, what.get_as<copy_order>(1), scatter);
      tap_of(ranks_[rank].copier).pass({nullptr, caf::make_message_id(), what});
    });
    return false;
  }
  const auto name = std::pair(x.sender->id(), x.id.integer_value());
  copies_[name] = {rank, scatter, order, node_.memory().begin_copy(order.owner)};
  if (random_.one_in(4))
    return true;
  after(random_.skewed_time(std::chrono::microseconds(1), world_.p.copy_time),
        [this, rank, what = x] { tap_of(ranks_[rank].copier).pass(what); });
  return false;
}

bool client::copied(const passing& request, caf::message&) {
  if (!request.sender)
    return true;
  auto node = copies_.extract({request.sender->id(), request.id.integer_value()});
  if (node.empty())
    return true;
  const auto& x = node.mapped();
  check_copy(x.rank, x.order, x.scatter);
  node_.memory().end_copy(x.number);
  if (!x.scatter && world_.has(defect::skip_check))
    for (const auto& item : x.order.items)
      node_.memory().sealed(item.frame_offset);
  pass_what_may();
  return true;
}

void client::copy_on_until(timestamp gone) {
  // The kernel reports that a process has ended when all of its copies have ended, and at the same moment some have
  // not.
  const auto last = gone - duration(1);
  for (auto& [name, x] : std::exchange(copies_, {})) {
    const auto memory = memory_of(x.order.owner);
    const auto left = last - world_.now();
    if (left <= duration::zero() || memory.empty()) {
      node_.memory().end_copy(x.number);
      continue;
    }
    world_.count(x.scatter ? "copy: from memory after a kill" : "copy: into memory after a kill");
    // The last bytes may arrive just before the process ends.
    for (int i = 0; i < 3 && !x.scatter; ++i)
      world_.schedule.after(
          random_.time(duration::zero(), left),
          [this, x = x, memory = node_.memory().keep(arenas_[x.order.owner])] { late_copy(x, memory->bytes()); });
    world_.schedule.at(last, [this, number = x.number] { node_.memory().end_copy(number); });
  }
}

void client::late_copy(const copy_under_way& x, std::span<std::byte> memory) {
  const auto& item = random_.pick(x.order.items.items);
  if (node_.running())
    world_.judge("pins", node_.frames().late_copy(x.rank, x.order.owner, item.frame_offset));
  const auto page = world_.p.ns.geometry.page_bytes();
  const auto first = random_.below(page);
  const auto length = random_.between(1, page - first);
  for (std::uint64_t i = 0; i < length; ++i)
    memory[item.frame_offset + io::page_header_bytes + first + i] = static_cast<std::byte>(random_.next());
}

void client::scatter_unchecked(rank_number rank, const copy_order& order, bool look_at_header) {
  const auto all = memory_of(order.owner);
  for (const auto& item : order.items) {
    if (item.frame_offset + slot_bytes_ > all.size())
      continue; // lost with its node
    const auto frame = all.subspan(item.frame_offset, slot_bytes_);
    const io::page_identity is{ns_, item.key, rank, item.where, world_.p.ns.geometry.page_bytes()};
    if (look_at_header && !io::expected_payload(frame, is))
      continue;
    const auto* page = frame.data() + io::page_header_bytes;
    device_of(rank).write(item.block, {page, page + is.payload_bytes});
  }
}

} // namespace troupe::simulation
