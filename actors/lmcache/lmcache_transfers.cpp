#include "actors/lmcache/lmcache_runs.hpp"
#include "actors/lmcache/lmcache_server.hpp"
#include "actors/lmcache/page_lane.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/shard_batches.hpp"
#include "actors/support/spawn_with_thread.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace troupe {

namespace {

/// How long a store waits for room: the worker's thread, and so its engine, waits as well.
constexpr duration place_patience = std::chrono::seconds(2);

/// Where pages have to be on the disk before they are committed.
constexpr duration fill_deadline = std::chrono::seconds(30);

/// Stores and retrieves of one worker that it has not committed. Its workers do one after the other.
constexpr std::size_t jobs_max = 256;

bool page_is_bad(errc code) noexcept {
  return code == errc::corrupt || code == errc::identity_mismatch || code == errc::io_error ||
         code == errc::slab_damaged;
}

} // namespace

// -- jobs -------------------------------------------------------------------------------------------------------------

lmcache_server::open_jobs::job_name lmcache_server::open_jobs::name_of(const lmcache::incoming& x) {
  return {x.chunks.request, *x.chunks.worker, x.chunks.begin, x.chunks.end};
}

std::optional<lmcache_server::open_pages> lmcache_server::open_jobs::begin(const request_ptr& x) {
  auto old = end(*x);
  preparing_[name_of(*x)] = x;
  return old;
}

bool lmcache_server::open_jobs::end_preparing(const request_ptr& x) {
  const auto i = preparing_.find(name_of(*x));
  if (i == preparing_.end() || i->second != x)
    return false;
  preparing_.erase(i);
  return true;
}

std::optional<lmcache_server::open_pages> lmcache_server::open_jobs::end(const lmcache::incoming& x) {
  const auto name = name_of(x);
  preparing_.erase(name);
  auto node = prepared_.extract(name);
  if (node.empty())
    return std::nullopt;
  return std::move(node.mapped());
}

client_worker_actor lmcache_server::worker_of(const instance& of, rank_number rank) {
  for (const auto& x : of.node->node.ranks)
    if (x.rank == rank)
      return x.worker;
  return {};
}

std::vector<lmcache::wire::slot_place> lmcache_server::places_of(const instance& of, const open_pages& pages) const {
  std::vector<lmcache::wire::slot_place> out;
  const auto bytes = of.node->node.space.geometry.page_bytes();
  for (const auto offset : pages.offsets)
    out.push_back({offset + io::page_header_bytes, bytes});
  return out;
}

void lmcache_server::work_on_pages(bool seal, const instance_ptr& of, rank_number rank, const open_pages& pages,
                                   std::function<void(std::vector<errc>)> then) {
  struct whole {
    std::vector<errc> codes;
    std::size_t waiting = 0;
    std::function<void(std::vector<errc>)> then;
  };
  const auto all = std::make_shared<whole>();
  all->codes.resize(pages.pages.size(), errc::internal);
  all->then = std::move(then);
  if (pages.pages.empty())
    return all->then({});
  // Frames may be another one's when the registration has ended.
  if (!rules_.begin_copy(of->number))
    return all->then(std::vector<errc>(pages.pages.size(), errc::cancelled));
  while (lanes_.size() < std::max(parts_.lanes, 1U)) {
    auto lane = spawn_with_thread<page_lane>(system(), "the thread that checks pages", held_arena());
    if (!lane && !lanes_.empty())
      break; // those that there are do all of it
    lanes_.push_back(lane ? std::move(*lane) : spawn_actor<page_lane>(system(), held_arena()));
  }
  const auto each = (pages.pages.size() + lanes_.size() - 1) / lanes_.size();
  all->waiting = (pages.pages.size() + each - 1) / each;
  for (std::size_t first = 0; first < pages.pages.size(); first += each) {
    lane_order order{seal, of->space, rank, of->node->node.space.geometry.page_bytes(), {}};
    for (auto i = first; i < std::min(first + each, pages.pages.size()); ++i)
      order.items.push_back({pages.pages[i], pages.offsets[i]});
    const auto part_done = [this, all, of] {
      if (--all->waiting > 0)
        return;
      all->then(std::move(all->codes));
      rules_.end_copy(of->number, now());
      flush();
    };
    request(lanes_[next_lane_++ % lanes_.size()], until_answered, std::move(order))
        .then(
            [all, first, part_done](const io_reply& reply) {
              for (std::size_t i = 0; i < reply.results.size() && first + i < all->codes.size(); ++i)
                all->codes[first + i] = code_at(reply.results, i);
              part_done();
            },
            [part_done](const caf::error&) { part_done(); });
  }
}

// -- store ------------------------------------------------------------------------------------------------------------

void lmcache_server::prepare_store(const request_ptr& x) {
  const auto of = find(x);
  if (!of || of->memory || !fits(*of, x->chunks) || of->stores.size() >= jobs_max)
    return refuse(x);
  const auto& chunks = x->chunks;
  if (auto old = of->stores.begin(x))
    give_up(*of, *chunks.worker, *old);
  const auto run = std::make_shared<store_run>();
  run->request = x;
  run->of = of;
  std::vector<std::uint32_t> all(chunks.end - chunks.begin);
  std::iota(all.begin(), all.end(), 0U);
  reserve(run, all);
}

void lmcache_server::reserve(const std::shared_ptr<store_run>& run, const std::vector<std::uint32_t>& which) {
  const auto& chunks = run->request->chunks;
  auto& node = run->of->node->node;
  run->name = run->of->node->new_ticket();
  run->where.resize(chunks.end - chunks.begin);
  std::vector<key_digest> keys;
  keys.reserve(which.size());
  for (const auto i : which)
    keys.push_back(chunks.keys[chunks.begin + i]);
  auto parts = transfer::split_by_shard(keys, static_cast<std::uint32_t>(node.shards.size()));
  run->waiting = parts.size();
  if (parts.empty())
    return place(run);
  for (auto& part : parts) {
    for (auto& position : part.positions)
      position = which[position];
    reserve_request wanted{node.space_id, run->rank(), run->name, node.limits.reservation, part.items, {}};
    for (const auto i : part.positions)
      wanted.parents.items.push_back(chunks.begin + i == 0 ? key_digest{} : chunks.keys[chunks.begin + i - 1]);
    ask(node.shards[part.shard], std::move(wanted))
        .then(
            [this, run, positions = part.positions](const reserve_reply& reply) {
              for (std::size_t i = 0; i < positions.size(); ++i) {
                const auto code = i < reply.results.size() ? reply.results[i].code() : errc::internal;
                if (code == errc::ok)
                  run->where[positions[i]] = reply.results[i].where;
                else
                  // What another one is writing is not missing.
                  run->short_of |= code != errc::exists && code != errc::busy;
              }
              if (--run->waiting == 0)
                place(run);
            },
            [this, run](const caf::error&) {
              run->short_of = true;
              if (--run->waiting == 0)
                place(run);
            });
  }
}

void lmcache_server::place(const std::shared_ptr<store_run>& run) {
  const auto& chunks = run->request->chunks;
  for (std::uint32_t i = 0; i < run->where.size(); ++i)
    if (run->where[i]) {
      run->chunks.push_back(i);
      run->reserved.push_back({chunks.keys[chunks.begin + i], *run->where[i]});
    }
  run->offsets.resize(run->reserved.size());
  const auto worker = worker_of(*run->of, run->rank());
  const std::size_t most = std::max(run->of->node->node.limits.batch_pages, 1U);
  run->waiting = (run->reserved.size() + most - 1) / most;
  if (run->waiting == 0)
    return placed(run);
  for (std::size_t first = 0; first < run->reserved.size(); first += most)
    request(worker, until_answered, place_atom_v,
            frame_request{part_of(run->reserved, first, std::min(most, run->reserved.size() - first)), place_patience})
        .then(
            [this, run, first](const frame_reply& reply) {
              run->placed.emplace_back(first, reply);
              if (--run->waiting == 0)
                placed(run);
            },
            [this, run](const caf::error&) {
              if (--run->waiting == 0)
                placed(run);
            });
}

void lmcache_server::placed(const std::shared_ptr<store_run>& run) {
  const auto most = std::max(run->of->node->node.limits.batch_pages, 1U);
  for (const auto& [first, reply] : run->placed)
    for (std::size_t i = 0; i < reply.frames.size() && first + i < run->offsets.size(); ++i)
      if (reply.frames[i].code() == errc::ok)
        run->offsets[first + i] = reply.frames[i].offset;
  auto& job = run->job;
  job.name = run->name;
  std::vector<std::uint32_t> chunks;
  std::vector<std::optional<std::size_t>> position(run->reserved.size());
  std::vector<page_ref> without;
  for (std::size_t i = 0; i < run->reserved.size(); ++i) {
    if (!run->offsets[i]) {
      without.push_back(run->reserved[i]);
      continue;
    }
    position[i] = job.pages.size();
    job.pages.push_back(run->reserved[i]);
    job.offsets.push_back(*run->offsets[i]);
    chunks.push_back(run->chunks[i]);
  }
  for (const auto& [first, reply] : run->placed) {
    if (reply.pin == 0)
      continue;
    const auto end = std::min<std::size_t>(first + most, position.size());
    job.batches.push_back(
        {reply.pin,
         {position.begin() + static_cast<std::ptrdiff_t>(first), position.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  abort_pages(*run->of, run->rank(), run->name, without);
  run->short_of |= !without.empty();
  run->chunks = std::move(chunks);
  if (run->copy)
    return gather(run);
  if (!run->of->stores.end_preparing(run->request) || (is_known(*run->of) && !open_requests_.is_open(run->request))) {
    give_up(*run->of, run->rank(), job);
    return refuse(run->request);
  }
  if (!is_known(*run->of)) {
    // The node gives back what belongs to the attachment, which is over.
    return refuse(run->request);
  }
  if (job.pages.empty() && run->short_of)
    return refuse(run->request);
  answer(run->request, lmcache::wire::answer_prepared_store(places_of(*run->of, job), run->chunks, run->of->shape));
  if (!job.pages.empty())
    run->of->stores.prepared(*run->request, std::move(job));
}

void lmcache_server::commit_store(const request_ptr& x) {
  const auto of = find(x);
  if (!of)
    end_job_of_lost(x);
  if (!of || !fits(*of, x->chunks))
    return refuse(x);
  auto job = of->stores.end(*x);
  if (!job)
    return refuse(x);
  if (x->carries_tensors) {
    // The frames hold whatever they held before, which must not become pages.
    give_up(*of, *x->chunks.worker, *job);
    return refuse(x);
  }
  const auto run = std::make_shared<store_run>();
  run->request = x;
  run->of = of;
  run->job = std::move(*job);
  run->name = run->job.name;
  work_on_pages(true, of, run->rank(), run->job, [this, run](const std::vector<errc>&) { sealed(run); });
}

void lmcache_server::sealed(const std::shared_ptr<store_run>& run) {
  const auto worker = worker_of(*run->of, run->rank());
  const auto filled = std::make_shared<std::vector<errc>>(run->job.pages.size(), errc::internal);
  run->waiting = run->job.batches.size();
  if (run->waiting == 0)
    return commit_pages(run, *filled);
  for (const auto& batch : run->job.batches) {
    fill_request fill{batch.pin, {}, fill_deadline};
    for (const auto& position : batch.asked)
      fill.gathered.items.push_back(static_cast<std::uint8_t>(position ? run->gathered_of(*position) : errc::full));
    request(worker, until_answered, fill_atom_v, std::move(fill))
        .then(
            [this, run, filled, asked = batch.asked](const io_reply& reply) {
              for (std::size_t i = 0; i < asked.size(); ++i)
                if (asked[i] && run->gathered_of(*asked[i]) == errc::ok)
                  (*filled)[*asked[i]] = code_at(reply.results, i);
              if (--run->waiting == 0)
                commit_pages(run, *filled);
            },
            [this, run, filled](const caf::error&) {
              if (--run->waiting == 0)
                commit_pages(run, *filled);
            });
  }
}

void lmcache_server::commit_pages(const std::shared_ptr<store_run>& run, const std::vector<errc>& filled) {
  std::vector<page_ref> good;
  std::vector<page_ref> bad;
  for (std::size_t i = 0; i < filled.size(); ++i)
    (filled[i] == errc::ok ? good : bad).push_back(run->job.pages[i]);
  abort_pages(*run->of, run->rank(), run->name, bad);
  run->committed = bad.empty() && !(run->copy && run->short_of);
  auto& node = run->of->node->node;
  const auto parts = transfer::split_by_shard(good, static_cast<std::uint32_t>(node.shards.size()));
  run->waiting = parts.size();
  if (parts.empty())
    return end_store(run, false);
  const auto part_done = [this, run] {
    if (--run->waiting == 0)
      end_store(run, run->committed);
  };
  for (const auto& part : parts)
    ask(node.shards[part.shard], commit_atom_v, finish_request{node.space_id, run->rank(), run->name, part.items})
        .then(
            [this, run, part_done, count = part.items.size()](const finish_reply& reply) {
              for (std::size_t i = 0; i < count; ++i) {
                const bool stored = code_at(reply.results, i) == errc::ok;
                run->committed &= stored;
                if (stored)
                  parts_.counters->stored_pages.fetch_add(1, std::memory_order_relaxed);
              }
              part_done();
            },
            [run, part_done](const caf::error&) {
              run->committed = false;
              part_done();
            });
}

void lmcache_server::end_store(const std::shared_ptr<store_run>& run, bool stored) {
  if (run->copy)
    return go_on(run->copy, stored);
  if (run->job.pages.empty())
    return refuse(run->request);
  answer(run->request, lmcache::wire::answer(stored));
}

void lmcache_server::give_up(const instance& of, rank_number rank, open_pages& pages) {
  const auto worker = worker_of(of, rank);
  for (const auto& batch : pages.batches) {
    fill_request fill{batch.pin, {}, fill_deadline};
    fill.gathered.items.assign(batch.asked.size(), static_cast<std::uint8_t>(errc::cancelled));
    ask(worker, fill_atom_v, std::move(fill)).then([](const io_reply&) {}, [](const caf::error&) {});
  }
  abort_pages(of, rank, pages.name, pages.pages);
}

void lmcache_server::abort_pages(const instance& of, rank_number rank, const ticket& name,
                                 const std::vector<page_ref>& pages) {
  auto& node = of.node->node;
  for (const auto& part : transfer::split_by_shard(pages, static_cast<std::uint32_t>(node.shards.size())))
    ask(node.shards[part.shard], abort_atom_v, finish_request{node.space_id, rank, name, part.items})
        .then([](const finish_reply&) {}, [](const caf::error&) {});
}

// -- retrieve ---------------------------------------------------------------------------------------------------------

void lmcache_server::prepare_retrieve(const request_ptr& x) {
  const auto of = find(x);
  if (!of || of->memory || !fits(*of, x->chunks) || of->retrieves.size() >= jobs_max)
    return refuse(x);
  if (const auto old = of->retrieves.begin(x))
    end_retrieve(*of, *x->chunks.worker, *old);
  const auto run = std::make_shared<retrieve_run>();
  run->request = x;
  run->of = of;
  locate(run);
}

void lmcache_server::locate(const std::shared_ptr<retrieve_run>& run) {
  const auto& chunks = run->request->chunks;
  auto& node = run->of->node->node;
  run->job.name = run->of->node->new_ticket();
  const std::vector<key_digest> keys(chunks.keys.begin() + chunks.begin, chunks.keys.end());
  for (const auto& key : keys)
    run->job.pages.push_back({key, {}});
  run->job.offsets.resize(keys.size());
  run->codes.resize(keys.size(), errc::internal);
  run->tiers.resize(keys.size(), page_tier::unknown);
  const auto parts = transfer::split_by_shard(keys, static_cast<std::uint32_t>(node.shards.size()));
  run->waiting = parts.size();
  const auto part_done = [this, run] {
    if (--run->waiting == 0)
      run->failed ? refuse_retrieve(run) : run->of->memory ? fetch_some(run) : fetch(run);
  };
  for (const auto& part : parts) {
    run->job.leased_shards.push_back(part.shard);
    ask(node.shards[part.shard],
        locate_request{node.space_id, run->rank(), run->job.name, node.limits.lease, part.items})
        .then(
            [run, part_done, positions = part.positions](const locate_reply& reply) {
              for (std::size_t i = 0; i < positions.size(); ++i) {
                if (i >= reply.locations.size() || reply.locations[i].code() != errc::ok)
                  run->failed = true;
                else
                  run->job.pages[positions[i]].where = reply.locations[i].where;
              }
              part_done();
            },
            [run, part_done](const caf::error&) {
              run->failed = true;
              part_done();
            });
  }
}

void lmcache_server::fetch(const std::shared_ptr<retrieve_run>& run) {
  const auto worker = worker_of(*run->of, run->rank());
  const std::size_t most = std::max(run->of->node->node.limits.batch_pages, 1U);
  const auto& pages = run->job.pages;
  run->waiting = (pages.size() + most - 1) / most;
  const auto part_done = [this, run] {
    if (--run->waiting > 0)
      return;
    if (!run->failed)
      return verify(run);
    invalidate(*run->of, run->rank(), run->job.pages, run->codes, run->tiers, [this, run] { refuse_retrieve(run); });
  };
  for (std::size_t first = 0; first < pages.size(); first += most)
    request(worker, until_answered, fetch_atom_v,
            frame_request{part_of(pages, first, std::min(most, pages.size() - first)), fetch_patience})
        .then(
            [run, part_done, first](const frame_reply& reply) {
              if (reply.pin != 0)
                run->job.batches.push_back({reply.pin, {}});
              for (std::size_t i = 0; i < reply.frames.size() && first + i < run->codes.size(); ++i) {
                run->codes[first + i] = reply.frames[i].code();
                run->tiers[first + i] = tier_of(reply.frames[i]);
                run->failed |= reply.frames[i].code() != errc::ok;
                run->job.offsets[first + i] = reply.frames[i].offset;
              }
              part_done();
            },
            [run, part_done](const caf::error&) {
              run->failed = true;
              part_done();
            });
}

// Whoever has the arena mapped can write to all of it, and a disk can fail: the worker looks at no checksum.
void lmcache_server::verify(const std::shared_ptr<retrieve_run>& run) {
  work_on_pages(false, run->of, run->rank(), run->job, [this, run](const std::vector<errc>& verdicts) {
    const bool sound = std::ranges::all_of(verdicts, [](errc x) { return x == errc::ok; });
    if (!sound)
      return invalidate(*run->of, run->rank(), run->job.pages, verdicts, run->tiers,
                        [this, run] { refuse_retrieve(run); });
    if (!is_known(*run->of) || !open_requests_.is_open(run->request) || !run->of->retrieves.end_preparing(run->request))
      return refuse_retrieve(run);
    answer(run->request, lmcache::wire::answer_prepared_retrieve(places_of(*run->of, run->job), run->of->shape));
    run->of->retrieves.prepared(*run->request, std::move(run->job));
  });
}

void lmcache_server::refuse_retrieve(const std::shared_ptr<retrieve_run>& run) {
  end_retrieve(*run->of, run->rank(), run->job);
  if (run->of->memory)
    return end_copy(run->request, run->of, false);
  run->of->retrieves.end_preparing(run->request);
  refuse(run->request);
}

void lmcache_server::end_retrieve(const instance& of, rank_number rank, const open_pages& pages) {
  const auto worker = worker_of(of, rank);
  for (const auto& batch : pages.batches)
    tell(worker, unpin_atom_v, batch.pin);
  release({of.node, pages.name, pages.leased_shards});
}

void lmcache_server::invalidate(const instance& of, rank_number rank, const std::vector<page_ref>& pages,
                                const std::vector<errc>& reasons, const std::vector<page_tier>& tiers,
                                std::function<void()> then) {
  std::vector<page_ref> bad;
  std::unordered_map<key_digest, std::pair<errc, page_tier>> why;
  for (std::size_t i = 0; i < pages.size() && i < reasons.size(); ++i)
    if (page_is_bad(reasons[i])) {
      bad.push_back(pages[i]);
      why[pages[i].key] = {reasons[i], i < tiers.size() ? tiers[i] : page_tier::unknown};
    }
  auto& node = of.node->node;
  const auto parts = transfer::split_by_shard(bad, static_cast<std::uint32_t>(node.shards.size()));
  if (parts.empty())
    return then();
  const auto part_done = [left = std::make_shared<std::size_t>(parts.size()), then] {
    if (--*left == 0)
      then();
  };
  for (const auto& part : parts) {
    invalidate_request said{node.space_id, rank, part.items, {}, {}};
    for (const auto& x : part.items) {
      const auto& [reason, tier] = why.at(x.key);
      said.reasons.items.push_back(static_cast<std::uint8_t>(reason));
      said.tiers.items.push_back(static_cast<std::uint8_t>(tier));
    }
    ask(node.shards[part.shard], std::move(said))
        .then([part_done](const finish_reply&) { part_done(); }, [part_done](const caf::error&) { part_done(); });
  }
}

void lmcache_server::commit_retrieve(const request_ptr& x) {
  const auto& chunks = x->chunks;
  // Also when nothing was found in the end: it does not come again.
  sessions_.retrieved(chunks.request, *chunks.worker, chunks.begin, chunks.end);
  end_unneeded();
  const auto of = find(x);
  if (!of) {
    end_job_of_lost(x);
    return refuse(x);
  }
  const auto job = of->retrieves.end(*x);
  if (!job)
    return refuse(x);
  parts_.counters->retrieved_pages.fetch_add(job->pages.size(), std::memory_order_relaxed);
  end_retrieve(*of, *chunks.worker, *job);
  answer(x, lmcache::wire::answer(true));
}

} // namespace troupe
