#include "actors/lmcache/block_lane.hpp"
#include "actors/lmcache/lmcache_runs.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/support/actor_support.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// What an engine has in place of blocks that it has given back, or never had.
constexpr std::uint32_t no_block = 0;

/// Stores and retrieves of one worker that are under way. More than any engine has; each holds a list of blocks.
constexpr std::size_t copies_max = 4096;

} // namespace

// -- both directions --------------------------------------------------------------------------------------------------

bool lmcache_server::copies_fit(const instance& of, const lmcache::incoming& x) const {
  if (!of.memory || !fits(of, x.chunks) || of.copies >= copies_max)
    return false;
  const auto wanted = std::uint64_t{x.chunks.end - x.chunks.begin} * of.memory->blocks_per_page;
  return x.blocks.size() >= wanted &&
         std::all_of(x.blocks.begin(), x.blocks.begin() + static_cast<std::ptrdiff_t>(wanted),
                     [&](std::uint32_t block) { return block < of.memory->blocks; });
}

std::vector<std::uint32_t> lmcache_server::blocks_of(const instance& of, const lmcache::incoming& x,
                                                     std::uint32_t chunk) const {
  const auto each = of.memory->blocks_per_page;
  const auto first = x.blocks.begin() + static_cast<std::ptrdiff_t>(std::uint64_t{chunk} * each);
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

std::pair<std::size_t, std::size_t> lmcache_server::share_of_pins(const instance& of) const {
  const auto& node = of.node->node;
  const auto slot = io::slot_bytes(node.space.geometry.page_bytes());
  const auto pages = std::min(node.limits.pinned_bytes, parts_.extents->info().bytes / 4) / slot;
  // Both directions; where there is so little, every request waits for the one before it.
  const std::size_t requests = pages >= 4 ? 2 : 1;
  const auto each = std::clamp<std::uint64_t>(pages / (2 * requests), 1, std::max(node.limits.batch_pages, 1U));
  return {static_cast<std::size_t>(each), requests};
}

void lmcache_server::queue_copy(const request_ptr& x) {
  const auto of = find(x);
  const bool stores = x->what == lmcache::wire::operation::store;
  if (!of || !copies_fit(*of, *x)) {
    // It does not come again.
    if (!stores) {
      sessions_.retrieved(x->chunks.request, *x->chunks.worker, x->chunks.begin, x->chunks.end);
      end_unneeded();
    }
    return refuse(x);
  }
  if (!rules_.begin_copy(of->number))
    return refuse(x);
  ++of->copies;
  (stores ? of->waiting_stores : of->waiting_retrieves).waiting.push_back(x);
  begin_copies(of);
}

void lmcache_server::begin_copies(const instance_ptr& of) {
  if (std::exchange(of->beginning, true))
    return;
  const auto most = share_of_pins(*of).second;
  for (auto* line : {&of->waiting_retrieves, &of->waiting_stores})
    while ((line->under_way < most || !is_known(*of)) && !line->waiting.empty()) {
      const auto x = std::move(line->waiting.front());
      line->waiting.pop_front();
      ++line->under_way;
      if (!goes_on(x, *of)) {
        end_copy(x, of, false);
      } else if (line == &of->waiting_stores) {
        begin_store(x, of);
      } else {
        const auto run = std::make_shared<retrieve_run>();
        run->request = x;
        run->of = of;
        locate(run);
      }
    }
  of->beginning = false;
}

// There is no event to give back: nothing is under way any more when a request is answered, and clients take an empty
// one for that.
void lmcache_server::end_copy(const request_ptr& x, const instance_ptr& of, bool copied) {
  const bool stores = x->what == lmcache::wire::operation::store;
  --(stores ? of->waiting_stores : of->waiting_retrieves).under_way;
  --of->copies;
  if (!stores) {
    sessions_.retrieved(x->chunks.request, *x->chunks.worker, x->chunks.begin, x->chunks.end);
    end_unneeded();
  }
  if (copied)
    answer(x, lmcache::wire::answer_transfer({}, true));
  else
    refuse(x);
  begin_copies(of);
  rules_.end_copy(of->number, now());
  flush();
}

// -- store ------------------------------------------------------------------------------------------------------------

void lmcache_server::begin_store(const request_ptr& x, const instance_ptr& of) {
  const auto copy = std::make_shared<store_copy>();
  copy->request = x;
  copy->of = of;
  // What the engine has not got is no content of these tokens.
  for (std::uint32_t chunk = 0; chunk < x->chunks.end - x->chunks.begin; ++chunk) {
    const auto blocks = blocks_of(*of, *x, chunk);
    const auto is_none = [](std::uint32_t block) { return block == no_block; };
    if (!(of->sliding ? std::ranges::any_of(blocks, is_none) : std::ranges::all_of(blocks, is_none)))
      copy->chunks.push_back(chunk);
  }
  go_on(copy, true);
}

void lmcache_server::go_on(const std::shared_ptr<store_copy>& copy, bool stored) {
  const auto left = copy->chunks.size() - copy->taken;
  // Behind what is missing nothing is found.
  if (!stored || left == 0 || !goes_on(copy->request, *copy->of))
    return end_copy(copy->request, copy->of, stored && left == 0);
  const auto count = std::min(left, share_of_pins(*copy->of).first);
  const auto first = copy->chunks.begin() + static_cast<std::ptrdiff_t>(copy->taken);
  copy->taken += count;
  const auto run = std::make_shared<store_run>();
  run->request = copy->request;
  run->of = copy->of;
  run->copy = copy;
  reserve(run, {first, first + static_cast<std::ptrdiff_t>(count)});
}

void lmcache_server::gather(const std::shared_ptr<store_run>& run) {
  const auto& of = *run->of;
  if (run->job.pages.empty())
    return end_store(run, !run->short_of);
  block_copy order;
  order.direction = move_direction::gather;
  order.space = of.space;
  order.rank = run->rank();
  order.page_bytes = of.node->node.space.geometry.page_bytes();
  order.event = run->request->event;
  for (std::size_t i = 0; i < run->job.pages.size(); ++i) {
    order.items.push_back({run->job.pages[i], run->job.offsets[i]});
    const auto blocks = blocks_of(of, *run->request, run->chunks[i]);
    order.blocks.insert(order.blocks.end(), blocks.begin(), blocks.end());
  }
  run->gathered.assign(run->job.pages.size(), errc::cancelled);
  if (!goes_on(run->request, of) || !rules_.begin_work(of.number))
    return sealed(run);
  request(of.gathers, until_answered, std::move(order))
      .then(
          [this, run](const io_reply& reply) {
            // A worker whose registration has ended, or that was answered with no, may have used the blocks for
            // something else meanwhile.
            if (goes_on(run->request, *run->of))
              for (std::size_t i = 0; i < run->gathered.size(); ++i)
                run->gathered[i] = code_at(reply.results, i);
            end_work(run->of);
            sealed(run);
          },
          [this, run](const caf::error&) {
            end_work(run->of);
            sealed(run);
          });
}

// -- retrieve ---------------------------------------------------------------------------------------------------------

void lmcache_server::fetch_some(const std::shared_ptr<retrieve_run>& run) {
  if (!goes_on(run->request, *run->of))
    return refuse_retrieve(run);
  const auto first = run->arrived;
  const auto count = std::min(run->job.pages.size() - first, share_of_pins(*run->of).first);
  request(worker_of(*run->of, run->rank()), until_answered, fetch_atom_v,
          frame_request{part_of(run->job.pages, first, count), fetch_patience})
      .then(
          [this, run, first, count](const frame_reply& reply) {
            if (reply.pin != 0)
              run->job.batches.push_back({reply.pin, {}});
            run->failed |= reply.frames.size() != count;
            for (std::size_t i = 0; i < std::min(reply.frames.size(), count); ++i) {
              run->codes[first + i] = reply.frames[i].code();
              run->tiers[first + i] = tier_of(reply.frames[i]);
              run->failed |= reply.frames[i].code() != errc::ok;
              run->job.offsets[first + i] = reply.frames[i].offset;
            }
            if (!run->failed)
              return scatter(run, count);
            invalidate(*run->of, run->rank(), run->job.pages, run->codes, run->tiers,
                       [this, run] { refuse_retrieve(run); });
          },
          [this, run](const caf::error&) { refuse_retrieve(run); });
}

void lmcache_server::scatter(const std::shared_ptr<retrieve_run>& run, std::size_t count) {
  const auto& of = *run->of;
  // From here on its blocks are written: it is answered behind that.
  if (!goes_on(run->request, of) || !rules_.begin_work(of.number))
    return refuse_retrieve(run);
  open_requests_.hold(run->request, true);
  block_copy order;
  order.direction = move_direction::scatter;
  order.space = of.space;
  order.rank = run->rank();
  order.page_bytes = of.node->node.space.geometry.page_bytes();
  order.event = run->request->event;
  // Blocks that the engine shares with requests that read them now. Part of a block is not left out, as it is needed.
  const std::size_t skipped = run->request->skip_tokens / of.memory->block_tokens;
  auto number = run->arrived * of.memory->blocks_per_page;
  for (auto i = run->arrived; i < run->arrived + count; ++i) {
    order.items.push_back({run->job.pages[i], run->job.offsets[i]});
    for (const auto block : blocks_of(of, *run->request, static_cast<std::uint32_t>(i)))
      order.blocks.push_back(number++ < skipped || (of.sliding && block == no_block) ? null_block : block);
  }
  request(of.scatters, until_answered, std::move(order))
      .then(
          [this, run, count](const io_reply& reply) {
            end_scatter(run);
            bool sound = true;
            for (auto i = run->arrived; i < run->arrived + count; ++i) {
              run->codes[i] = code_at(reply.results, i - run->arrived);
              sound &= run->codes[i] == errc::ok;
            }
            if (!sound)
              return invalidate(*run->of, run->rank(), run->job.pages, run->codes, run->tiers,
                                [this, run] { refuse_retrieve(run); });
            parts_.counters->retrieved_pages.fetch_add(count, std::memory_order_relaxed);
            run->arrived += count;
            if (run->arrived == run->job.pages.size()) {
              end_retrieve(*run->of, run->rank(), run->job);
              return end_copy(run->request, run->of, true);
            }
            for (const auto& batch : run->job.batches)
              tell(worker_of(*run->of, run->rank()), unpin_atom_v, batch.pin);
            run->job.batches.clear();
            fetch_some(run);
          },
          [this, run](const caf::error&) {
            end_scatter(run);
            refuse_retrieve(run);
          });
}

void lmcache_server::end_work(const instance_ptr& of) {
  rules_.end_work(of->number, now());
  flush();
}

void lmcache_server::end_scatter(const std::shared_ptr<retrieve_run>& run) {
  open_requests_.hold(run->request, false);
  end_work(run->of);
}

} // namespace troupe
