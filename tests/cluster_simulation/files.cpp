#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

/// Pages that a node reads from the slab files of a peer, on a disk that both share, by the rules of a real load
/// coordinator: what the files do not give comes over the network.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

transfer::coordinator_options coordinator_of(const cluster::fetch_move& x) {
  return {x.ns, x.rank, 4096, 8192, 4, 8};
}

transfer::node_binding binding_to(owner_id owner) {
  transfer::node_binding out;
  out.owner = owner;
  out.ticket_stream = 1;
  out.shard_count = 1;
  out.batch_keys_max = 4096;
  out.batch_pages_max = 4096;
  out.reservation_max = out.lease_max = seconds(60);
  out.window_pages = 4;
  out.shares_slab = true;
  return out;
}

/// Waits for the answer of a shard.
constexpr auto shard_limit = seconds(1);

} // namespace

world::file_load::file_load(const cluster::fetch_move& x, std::size_t at, const session& there,
                            std::shared_ptr<memory> room)
    : what(x), over(x.peer, x.ns), peer(at), attachment(there.attachment), peer_life(there.peer_life), file(there.file),
      into(std::move(room)), state(coordinator_of(x)) {
  state.bind(binding_to(there.attachment));
}

slab_model& world::slab_of(std::size_t i, const namespace_id& ns) {
  return nodes_[i].slabs.try_emplace(ns, ++last_incarnation_, ranks_).first->second;
}

void world::forget_files(std::size_t i, bool keeps_pages) {
  if (keeps_pages)
    return;
  if (random_.one_in(2)) {
    count("file made anew");
    return nodes_[i].slabs.clear();
  }
  for (auto& [ns, slab] : nodes_[i].slabs)
    slab.forget();
}

void world::load_by_files(std::size_t i, const cluster::fetch_move& x, const session& there,
                          const std::shared_ptr<memory>& into) {
  const session_name over(x.peer, x.ns);
  const auto open = std::make_shared<file_load>(x, node_of(i, x.peer), there, into);
  if (has(defect::keep_files_of_before))
    open->file = nodes_[i].first_files.try_emplace(over, there.file).first->second;
  nodes_[i].calls[x.call] = {over, there.attachment, [this, i, open](errc why) {
                               open->state.unbind(why);
                               settle_files(i, open);
                             }};
  if (!open->state.start(x.work, local(i)))
    return broken("files", "a load coordinator takes no task");
  settle_files(i, open);
  tick_files(i, open);
}

void world::tick_files(std::size_t i, const open_load& open) {
  later_on(i, milliseconds(100), [this, i, open] {
    if (open->done)
      return;
    open->state.on_tick(local(i));
    settle_files(i, open);
    tick_files(i, open);
  });
}

void world::settle_files(std::size_t i, const open_load& open) {
  for (const auto& effect : open->state.take_outbox())
    std::visit([&](const auto& x) { perform(i, open, x); }, effect);
}

void world::perform(std::size_t i, const open_load& open, const transfer::task_finished& x) {
  if (std::exchange(open->done, true))
    return broken("ends", "a load is answered twice");
  nodes_[i].calls.erase(open->what.call);
  if (x.result.from_files > 0)
    count("read from a file");
  answer_load(i, open->what, x.result);
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_locate& x) {
  const auto peer = open->peer;
  later_on(i, shard_limit, [this, i, open, call = x.call] {
    open->state.on_locate(call, fail(errc::timeout, "no answer"), local(i));
    settle_files(i, open);
  });
  carry(i, peer, open->peer_life, [this, i, open, x, peer, own_life = nodes_[i].life] {
    carry(peer, i, own_life, [this, i, open, call = x.call, reply = locate(open, x.request)] {
      open->state.on_locate(call, reply, local(i));
      settle_files(i, open);
    });
  });
}

locate_reply world::locate(const open_load& open, const locate_request& x) {
  const auto peer = open->peer;
  const auto& p = nodes_[peer];
  auto& slab = slab_of(peer, x.ns);
  locate_reply out;
  for (const auto& key : x.keys) {
    const auto page = p.clients.contains(open->attachment) ? p.has.page(x.ns, key, x.rank) : std::nullopt;
    const auto is_there = [&](const key_digest& other) { return p.has.page(x.ns, other, x.rank).has_value(); };
    const auto where = page ? slab.place(key, x.rank, random_.next() % 1024, is_there) : std::nullopt;
    // If the file is full, a page is in memory only.
    constexpr slot_ref nowhere{1'000'000, 1};
    out.locations.items.push_back(
        {where.value_or(nowhere), static_cast<std::uint32_t>(page ? errc::ok : errc::not_found)});
    bool in_slab = where && slab.is_written(x.rank, *where, key);
    if (where && !in_slab) {
      // The page is written now or soon; a reader may get its location too early.
      const auto write = [this, peer, ns = x.ns, rank = x.rank, at = *where, key, bytes = *page,
                          of = slab.incarnation()] {
        auto& file = slab_of(peer, ns);
        if (file.incarnation() == of)
          file.write(rank, at.slot, {key, at.generation, bytes});
      };
      in_slab = random_.one_in(2);
      if (in_slab && !random_.one_in(8))
        write();
      else
        after(random_.time(milliseconds(1), milliseconds(500)), write);
    }
    out.in_slab.items.push_back(in_slab ? 1 : 0);
  }
  if (!x.report_in_slab)
    out.in_slab.items.clear();
  return out;
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_read& x) {
  if (open->file != named_files_.at(open->attachment))
    broken("files", nodes_[i].name + " reads a file that is not the one that " + nodes_[open->peer].name +
                        " has named when it was attached to");
  // A file system may hang; then no request waits longer than its limit.
  const bool stands = !is_calm_ && random_.one_in(12);
  const auto takes = stands ? random_.time(seconds(1), seconds(4))
                            : random_.skewed_time(microseconds(100), is_calm_ ? milliseconds(4) : milliseconds(80));
  const bool in_time = takes <= by_world(i, x.patience);
  if (!in_time || has(defect::answer_reads_early)) {
    later_on(i, in_time ? duration(milliseconds(1)) : by_world(i, x.patience), [this, i, open, x] {
      count("file stood still");
      read_reply late;
      late.results.items.assign(x.items.size(), static_cast<std::uint8_t>(errc::timeout));
      open->state.on_read(x.call, late, local(i));
      settle_files(i, open);
    });
    if (!has(defect::answer_reads_early))
      return;
  }
  later_on(i, takes, [this, i, open, x] {
    const auto reply = read_file(i, open, x);
    if (has(defect::answer_reads_early))
      return;
    open->state.on_read(x.call, reply, local(i));
    settle_files(i, open);
  });
}

result<read_reply> world::read_file(std::size_t i, const open_load& open, const transfer::load_read& x) {
  const auto& what = open->what;
  const auto& slab = slab_of(open->peer, what.ns);
  if ((slab.incarnation() != open->file && !has(defect::believe_files)) || (!is_calm_ && random_.one_in(20))) {
    count("file refused");
    return fail(errc::unsupported, "another file lies there");
  }
  read_reply out;
  for (const auto& item : x.items) {
    const auto lies = slab.read(what.rank, item.where.slot);
    auto code = errc::ok;
    // Also where all is well: what a disk has damaged is at the node all the same.
    const bool damaged = random_.one_in(30);
    if (!lies || damaged)
      code = errc::corrupt;
    else if (lies->key != item.key || lies->generation != item.where.generation)
      code = errc::identity_mismatch;
    count(code == errc::ok ? "sound in a file" : code == errc::corrupt ? "damaged in a file" : "stale in a file");
    if (lies && has(defect::believe_files))
      code = errc::ok;
    if (code == errc::ok) {
      if (open->into->gone || !nodes_[i].busy.contains({what.ns, what.rank, item.block}))
        broken("blocks", nodes_[i].name + " reads from a file into a block that is not this load's any more");
      open->into->ranks[what.rank][item.block] = lies->what ^ (damaged ? 2U : 0U);
    }
    out.results.items.push_back(static_cast<std::uint8_t>(code));
    if (code != errc::ok)
      open->refused.insert(item.key);
  }
  return out;
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_fetch& x) {
  const auto peer = open->peer;
  carry(i, peer, open->peer_life, [this, i, open, x, peer, own_life = nodes_[i].life] {
    const auto& p = nodes_[peer];
    std::vector<std::optional<contents>> what;
    for (const auto& page : x.request.pages)
      what.push_back(p.clients.contains(open->attachment) ? p.has.page(open->what.ns, page.key, open->what.rank)
                                                          : std::nullopt);
    carry(peer, i, own_life, [this, i, open, x, what] {
      frame_reply reply{++open->pins, {}};
      for (std::size_t k = 0; k < what.size(); ++k) {
        const bool given = what[k] && !(has(defect::forget_the_wire) && open->refused.contains(x.request.pages[k].key));
        const auto offset = std::uint64_t{8192} * ++open->offsets;
        if (given)
          open->frames[offset] = *what[k];
        reply.frames.items.push_back({offset, static_cast<std::uint32_t>(given ? errc::ok : errc::stale), 0});
      }
      if (std::ranges::none_of(reply.frames, [](const auto& f) { return f.code() == errc::ok; }))
        reply.pin = 0;
      open->state.on_fetch(x.call, reply, local(i));
      settle_files(i, open);
    });
  });
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_scatter& x) {
  later_on(i, random_.skewed_time(microseconds(100), milliseconds(4)), [this, i, open, x] {
    copy_reply reply;
    for (const auto& item : x.order.items) {
      const bool damaged = !is_calm_ && random_.one_in(60);
      if (damaged)
        count("damaged");
      if (open->into->gone || !nodes_[i].busy.contains({open->what.ns, open->what.rank, item.block}))
        broken("blocks", nodes_[i].name + " scatters into a block that is not this load's any more");
      if (!damaged)
        open->into->ranks[open->what.rank][item.block] = open->frames.at(item.frame_offset);
      reply.results.items.push_back(static_cast<std::uint8_t>(damaged ? errc::corrupt : errc::ok));
    }
    open->state.on_scatter(x.call, reply, local(i));
    settle_files(i, open);
  });
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_unpin& x) {
  later_on(i, milliseconds(1), [this, i, open, call = x.call] { open->state.on_unpin(call, {}, local(i)); });
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_invalidate& x) {
  later_on(i, milliseconds(1), [this, i, open, call = x.call] {
    open->state.on_invalidate(call, finish_reply{}, local(i));
    settle_files(i, open);
  });
}

void world::perform(std::size_t i, const open_load& open, const transfer::load_release& x) {
  later_on(i, milliseconds(1), [this, i, open, call = x.call] {
    open->state.on_release(call, {}, local(i));
    settle_files(i, open);
  });
}

} // namespace troupe::cluster_simulation
