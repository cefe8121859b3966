#include "actors/lmcache/lmcache_server.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/spawn_with_thread.hpp"

#include <algorithm>

namespace troupe {

namespace {

using lmcache::protocol::operation;

/// The engine's placeholder for blocks that it has freed, or never had.
constexpr std::uint32_t no_block = 0;

} // namespace

// -- requests ---------------------------------------------------------------------------------------------------------

void lmcache_server::begin_transfer(const request_ptr& x) {
  const auto of = find(x);
  const bool by_node = x->what == operation::store || x->what == operation::retrieve;
  if (!of || by_node != (of->memory != nullptr) || !fits(*of, x->chunks) || (by_node && !blocks_fit(*of, *x)))
    return refuse_transfer(x);
  if (!by_node)
    return begin_own_copy(x, *of);
  transfers_.copy(x, of->number, terms_of(of->first()), runs_of(*of, *x), now());
  flush();
}

void lmcache_server::begin_own_copy(const request_ptr& x, const instance& of) {
  std::vector<lmcache::group_needs> groups;
  std::vector<lmcache::transfer_rules::terms> how;
  for (const auto& own : of.groups) {
    groups.push_back(own.needs);
    how.push_back(terms_of(own));
  }
  const auto& chunks = x->chunks;
  if (x->what != operation::prepare_store) {
    transfers_.prepare(x, of.number, std::move(how), lmcache::chunks_to_load(groups, chunks.end - chunks.begin), now());
    return flush();
  }
  // It is a worker of other groups than it has registered.
  if (!x->skipped.empty() && (groups.size() == 1 || x->skipped.size() != groups.size()))
    return refuse(x);
  const auto computed = sessions_.computed_from(chunks.request, chunks.begin);
  transfers_.prepare(x, of.number, std::move(how),
                     lmcache::chunks_to_store(groups, {chunks.begin, chunks.end, x->skipped, computed}), now());
  flush();
}

void lmcache_server::commit_transfer(const request_ptr& x) {
  const auto& chunks = x->chunks;
  // Also if nothing was found in the end: it is not repeated.
  if (x->what == operation::commit_retrieve) {
    sessions_.retrieved(chunks.request, *chunks.worker, chunks.begin, chunks.end);
    end_unneeded();
  }
  const auto of = find(x);
  if (!of)
    end_job_of_lost(x);
  if (!of || !fits(*of, chunks))
    return refuse(x);
  transfers_.commit(x, of->number, now());
  flush();
}

void lmcache_server::refuse_transfer(const request_ptr& x) {
  if (x->what == operation::retrieve)
    end_locks(*x);
  refuse(x);
}

void lmcache_server::end_locks(const lmcache::incoming& x) {
  sessions_.retrieved(x.chunks.request, *x.chunks.worker, x.chunks.begin, x.chunks.end);
  end_unneeded();
}

bool lmcache_server::blocks_fit(const instance& of, const lmcache::incoming& x) {
  const auto wanted = std::uint64_t{x.chunks.end - x.chunks.begin} * of.memory->blocks_per_page;
  return x.blocks.size() >= wanted &&
         std::all_of(x.blocks.begin(), x.blocks.begin() + static_cast<std::ptrdiff_t>(wanted),
                     [&](std::uint32_t block) { return block < of.memory->blocks; });
}

// Missing blocks of the engine do not contain the KV cache of these tokens.
std::deque<lmcache_server::chunk_run> lmcache_server::runs_of(const instance& of, const lmcache::incoming& x) {
  const auto count = x.chunks.end - x.chunks.begin;
  if (x.what == operation::retrieve)
    return {{0, count}};
  std::deque<chunk_run> out;
  const auto each = of.memory->blocks_per_page;
  const auto is_none = [](std::uint32_t block) { return block == no_block; };
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto blocks = std::span(x.blocks).subspan(std::size_t{i} * each, each);
    if (of.sliding ? std::ranges::any_of(blocks, is_none) : std::ranges::all_of(blocks, is_none))
      continue;
    if (!out.empty() && out.back().first + out.back().count == i)
      ++out.back().count;
    else
      out.push_back({i, 1});
  }
  return out;
}

transfer_task lmcache_server::task_of(const instance& of, const lmcache::transfer_rules::start& x) {
  const auto& asked = *x.request;
  const auto begin = asked.chunks.begin + x.chunks.first;
  const auto& keys = asked.chunks.keys;
  transfer_task out;
  out.keys.items.assign(keys.begin() + begin, keys.begin() + begin + x.chunks.count);
  // A later chunk of a window, or a later state, is worth no less without an earlier one.
  out.chained = of.groups[x.chunks.group].needs.window_chunks == 0;
  if (x.stores && begin > 0 && out.chained)
    out.parent = keys[begin - 1];
  out.deadline = std::clamp<duration>(x.deadline, std::chrono::milliseconds(1), transfer::task_time_max);
  out.tag = x.part;
  if (!of.memory) {
    // The part identifies the order, and its blocks identify the chunk of each page.
    out.ready_event = x.part;
    for (std::uint32_t i = 0; i < x.chunks.count; ++i)
      out.blocks.items.push_back(x.chunks.first + i);
    return out;
  }
  // Blocks that the engine shares with requests that read them now. A partly shared block is written, as it is needed.
  const std::size_t each = of.memory->blocks_per_page;
  const std::size_t skipped = x.stores ? 0 : asked.skip_tokens / of.memory->block_tokens;
  for (auto i = x.chunks.first * each; i < (x.chunks.first + x.chunks.count) * each; ++i) {
    const bool is_left_out = !x.stores && (i < skipped || (of.sliding && asked.blocks[i] == no_block));
    out.blocks.items.push_back(is_left_out ? null_block : asked.blocks[i]);
  }
  out.ready_event = of.events->add(asked.event);
  return out;
}

// -- actions of the rules
// ----------------------------------------------------------------------------------------------

void lmcache_server::perform(lmcache::transfer_rules::start& x) {
  const auto known = instances_.find(x.of);
  if (known == instances_.end())
    return transfers_.part_failed(x.part, errc::cancelled, now());
  const auto of = known->second;
  const auto* const rank = rank_of(of, x.chunks.group, *x.request->chunks.worker);
  if (rank == nullptr)
    return transfers_.part_failed(x.part, errc::internal, now());
  auto work = task_of(*of, x);
  const auto event = of->memory ? work.ready_event : 0;
  const auto ended = [of, event] {
    if (event != 0)
      of->events->remove(event);
  };
  // The task has a deadline of its own.
  request(x.stores ? rank->save : rank->load, caf::infinite, std::move(work))
      .then(
          [this, of, x, ended](const transfer_result& reply) {
            ended();
            std::vector<errc> codes;
            for (std::size_t i = 0; i < x.chunks.count; ++i)
              codes.push_back(code_at(reply.results, i));
            const auto moved = static_cast<std::uint64_t>(std::ranges::count(codes, errc::ok));
            if (x.stores)
              parts_.counters->stored_pages.fetch_add(moved, std::memory_order_relaxed);
            else if (of->memory)
              parts_.counters->retrieved_pages.fetch_add(moved, std::memory_order_relaxed);
            transfers_.part_done(x.part, codes, now());
            flush();
          },
          [this, x, ended](const caf::error& e) {
            ended();
            transfers_.part_failed(x.part, from_caf(e).code, now());
            flush();
          });
}

void lmcache_server::perform(lmcache::transfer_rules::cancel& x) {
  const auto known = instances_.find(x.of);
  if (known == instances_.end())
    return;
  if (const auto* const rank = rank_of(known->second, x.group, x.rank))
    tell(x.stores ? rank->save : rank->load, cancel_atom_v, packed<std::uint64_t>{std::move(x.parts)});
}

void lmcache_server::perform(lmcache::transfer_rules::check& x) {
  struct whole {
    std::vector<errc> codes;
    std::size_t waiting = 0;
  };
  while (lanes_.all.size() < std::max(parts_.lanes, 1U)) {
    auto lane = spawn_with_thread<page_lane>(system(), thread_name("troupe-verify"), "the thread that checks pages",
                                             held_arena());
    if (!lane && !lanes_.all.empty())
      break; // the existing ones do all of it
    lanes_.all.push_back(lane ? std::move(*lane) : spawn_actor<page_lane>(system(), held_arena()));
  }
  const auto& of = *instances_.at(x.of);
  const auto all = std::make_shared<whole>();
  all->codes.resize(x.pages.size(), errc::internal);
  const auto each = (x.pages.size() + lanes_.all.size() - 1) / lanes_.all.size();
  // Pages of one group each.
  std::vector<std::size_t> ends;
  for (std::size_t i = 0, first = 0; i < x.pages.size(); ++i)
    if (i + 1 == x.pages.size() || i + 1 - first == each || x.pages[i + 1].group != x.pages[i].group) {
      first = i + 1;
      ends.push_back(first);
    }
  all->waiting = ends.size();
  std::size_t first = 0;
  for (const auto last : ends) {
    const auto& group = of.groups[x.pages[first].group];
    lane_order order{x.seal, group.ns, x.rank, group.node->node.ns.geometry.page_bytes(), {}};
    const auto slot = io::slot_bytes(order.page_bytes);
    for (auto i = first; i < last; ++i)
      order.items.push_back({x.pages[i].page, x.pages[i].offset, slot});
    const auto part_done = [this, all, job = x.job] {
      if (--all->waiting > 0)
        return;
      transfers_.checked(job, all->codes, now());
      flush();
    };
    request(lanes_.all[lanes_.next++ % lanes_.all.size()], until_answered, std::move(order))
        .then(
            [all, first, part_done](const io_reply& reply) {
              for (std::size_t i = 0; i < reply.results.size() && first + i < all->codes.size(); ++i)
                all->codes[first + i] = code_at(reply.results, i);
              part_done();
            },
            [part_done](const caf::error&) { part_done(); });
    first = last;
  }
}

void lmcache_server::perform(lmcache::transfer_rules::end_order& x) {
  copy_reply out;
  for (const auto code : x.codes)
    out.results.items.push_back(static_cast<std::uint8_t>(code));
  if (auto node = orders_.extract(x.order); !node.empty())
    node.mapped().deliver(std::move(out));
}

void lmcache_server::perform(lmcache::transfer_rules::refuse& x) {
  if (x.request->what == operation::retrieve)
    end_locks(*x.request);
  if (open_requests_.is_open(x.request))
    refuse(x.request);
}

void lmcache_server::perform(lmcache::transfer_rules::prepared& x) {
  const auto& of = *instances_.at(x.of);
  std::vector<lmcache::protocol::slot_place> places;
  std::vector<lmcache::protocol::slot_shape> shapes;
  for (const auto& group : of.groups)
    shapes.push_back(group.shape);
  for (const auto& page : x.pages)
    places.push_back({page.offset + io::page_header_bytes, of.groups[page.group].node->node.ns.geometry.page_bytes(),
                      page.chunk, page.group});
  answer(x.request, x.request->what == operation::prepare_store
                        ? lmcache::protocol::answer_prepared_store(places, shapes)
                        : lmcache::protocol::answer_prepared_retrieve(places, shapes));
}

// There is no event to return: no copy is in progress when a request is answered, and clients accept an empty event for
// that.
void lmcache_server::perform(lmcache::transfer_rules::done& x) {
  describe(x);
  switch (x.request->what) {
  case operation::retrieve:
    end_locks(*x.request);
    [[fallthrough]];
  case operation::store:
    return answer(x.request, lmcache::protocol::answer_transfer({}, true));
  case operation::commit_retrieve:
    parts_.counters->retrieved_pages.fetch_add(x.pages, std::memory_order_relaxed);
    [[fallthrough]];
  default:
    return answer(x.request, lmcache::protocol::answer(true));
  }
}

} // namespace troupe
