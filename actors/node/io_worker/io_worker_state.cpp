#include "actors/node/io_worker/io_worker_state.hpp"

#include "messages/answer_codes.hpp"

#include <algorithm>
#include <unordered_set>

namespace troupe {

namespace {

/// The number of disconnected owners that are remembered, or the number that may be attached if that is larger, in case
/// all disconnect at once. Their late requests arrive within seconds.
constexpr std::size_t dead_owners_min = 1024;

constexpr std::uint8_t byte_of(errc code) noexcept {
  return static_cast<std::uint8_t>(code);
}

} // namespace

io_worker_state::io_worker_state(const io_worker_options& options)
    : options_(options),
      frames_(options.slot_bytes, options.eviction, options.resident,
              options.memory_slots > 0 ? static_cast<slot_number>(options.slots - options.memory_slots)
                                       : frame_table::no_memory_slots,
              options.encoded_bytes),
      pins_(options.first_pin), to_write_(options.write_retry, options.write_trouble_time),
      usage_({options.slab_slots(), options.slot_bytes, options.sparse ? options.encoded_bytes : 0}),
      ahead_(options.prefetch_waiting_max), scrub_([&] {
        auto how = options.scrub;
        how.slot_bytes = options.slot_bytes;
        return how;
      }()),
      fences_(options.slots), sizes_(options.slots, options.encoded_bytes > 0) {}

// -- memory --

void io_worker_state::add_extent(const frame_table::extent& x, timestamp now) {
  frames_.add_extent(x, sizes_.of_new_extent(sizes_.wish().requested(), frames_.lasting(frame_size::whole) > 0));
  sizes_.wish().added();
  sizes_.noticed(report_sizes(), now);
  serve(now);
}

void io_worker_state::no_extent(bool on_its_way, timestamp now) {
  sizes_.wish().refused(on_its_way, now);
  exchange_extents(now);
  serve(now);
  write_behind();
}

// -- clients --

result<void> io_worker_state::admit(owner_id owner, const frame_request& work) const {
  if (draining_)
    return fail(errc::shutting_down, "the node is draining");
  if (is_dead(owner))
    return fail(errc::expired, "the client has disconnected; attach again");
  if (work.pages.size() > options_.batch_pages_max)
    return fail(errc::limit_exceeded, std::to_string(work.pages.size()) + " pages in one batch; at most " +
                                          std::to_string(options_.batch_pages_max));
  if (work.patience <= duration::zero())
    return fail(errc::timeout, "the deadline has passed");
  const auto asked = asked_.find(owner);
  const auto held = pins_.pinned_by(owner) + (asked == asked_.end() ? 0 : asked->second);
  if ((held + work.pages.size()) * options_.slot_bytes > options_.pinned_bytes_max)
    return fail(errc::limit_exceeded, "a client may have " + std::to_string(options_.pinned_bytes_max) +
                                          " bytes of a rank's memory pinned (memory.client_bytes); it has " +
                                          std::to_string(held) + " pages of " + std::to_string(options_.slot_bytes));
  if (queue_.size() >= options_.waiting_max)
    return fail(errc::limit_exceeded, std::to_string(queue_.size()) + " requests wait for memory, which is the limit");
  return {};
}

bool io_worker_state::is_dead(owner_id owner) const noexcept {
  return std::find(dead_owners_.begin(), dead_owners_.end(), owner) != dead_owners_.end();
}

errc io_worker_state::check_page(const page_ref& page, bool fetch) const {
  if (!fences_.has(page.where.slot))
    return errc::out_of_range;
  if (fences_.rejects(page.where))
    return errc::stale;
  if (was_dropped(page.where))
    return fetch ? errc::not_found : errc::stale;
  if (fetch)
    return errc::ok;
  if (damaged_)
    return errc::slab_damaged;
  return frames_.in_slot(page.where.slot) == no_frame ? errc::ok : errc::busy;
}

io_worker_state::request_id io_worker_state::begin(owner_id owner, const frame_request& work, bool fetch,
                                                   timestamp now) {
  frames_.pass_time(now);
  const auto id = ++last_request_;
  const auto pages = work.pages.size();
  auto& r = requests_open_[id];
  r.owner = owner;
  r.fetch = fetch;
  r.deadline = now + std::min(work.patience, options_.deadline_max);
  r.pages = work.pages.items;
  r.sizes = work.sizes.items;
  r.reply.resize(pages);
  r.frames.resize(pages, no_frame);
  asked_[owner] += pages;
  for (std::uint32_t i = 0; i < pages; ++i) {
    if (!do_without_frame(id, r, i))
      r.short_of.push_back(i);
  }
  if (r.short_of.empty()) {
    answer_if_done(id);
  } else {
    queue_.push_back(id);
    serve(now);
  }
  // A page that is asked for again may stay from now on.
  drop_displaced();
  write_behind();
  promote_ahead(now);
  return id;
}

result<io_worker_state::request_id> io_worker_state::place(owner_id owner, const frame_request& work, timestamp now) {
  if (auto ok = admit(owner, work); !ok)
    return tl::unexpected(std::move(ok.error()));
  return begin(owner, work, false, now);
}

result<io_worker_state::request_id> io_worker_state::fetch(owner_id owner, const frame_request& work, timestamp now) {
  if (auto ok = admit(owner, work); !ok)
    return tl::unexpected(std::move(ok.error()));
  return begin(owner, work, true, now);
}

void io_worker_state::set_code(request& r, std::uint32_t position, errc code) {
  r.reply[position] = {0, static_cast<std::uint32_t>(code)};
  if (code == errc::stale)
    ++stats_.fenced;
}

void io_worker_state::give_frame(request& r, std::uint32_t position, frame_number f, bool promoted) {
  r.frames[position] = f;
  r.reply[position] = {frames_.offset(f), 0, static_cast<std::uint16_t>(promoted ? 1 : 0),
                       static_cast<std::uint16_t>(frames_.size_of(f))};
}

errc io_worker_state::fetch_from_memory(request_id id, request& r, std::uint32_t position) {
  const auto f = frames_.find(r.pages[position].where);
  if (f == no_frame) {
    // A page of an older generation, which its fence will drop.
    if (frames_.in_slot(r.pages[position].where.slot) != no_frame)
      return errc::busy;
    return in_memory_only(r.pages[position].where.slot) ? errc::not_found : errc::full;
  }
  switch (frames_.state(f)) {
  case frame_state::filling:
    return errc::busy;
  case frame_state::reading:
    stats_.prefetch_hits += ahead_.fetched(f) ? 1 : 0;
    frames_.pin(f);
    frames_.touch(f);
    r.frames[position] = f;
    ++r.reading;
    read_waiters_[f].push_back({id, position});
    return errc::ok;
  default: {
    const bool was_ahead = ahead_.fetched(f);
    stats_.prefetch_hits += was_ahead ? 1 : 0;
    stats_.memory_loads += was_ahead ? 0 : 1;
    ask_again(f);
    frames_.pin(f);
    frames_.touch(f);
    give_frame(r, position, f, false);
    ++stats_.memory_hits;
    return errc::ok;
  }
  }
}

bool io_worker_state::do_without_frame(request_id id, request& r, std::uint32_t position) {
  auto code = check_page(r.pages[position], r.fetch);
  if (code == errc::ok)
    code = r.fetch ? fetch_from_memory(id, r, position) : errc::full;
  if (code == errc::full)
    return false;
  if (code != errc::ok)
    set_code(r, position, code);
  return true;
}

void io_worker_state::refuse_rest(request& r, errc code) {
  for (const auto i : std::exchange(r.short_of, {}))
    set_code(r, i, code);
}

void io_worker_state::start_read(request_id id, request& r, std::uint32_t position, frame_number f) {
  const auto& page = r.pages[position];
  const auto tag = begin_transfer({f, page.where.slot, true});
  r.frames[position] = f;
  ++r.reading;
  read_waiters_[f].push_back({id, position});
  ask_for_read(f, page.where, tag, r.deadline);
}

frame_size io_worker_state::needed(const request& r, std::uint32_t position) const {
  if (r.fetch)
    return sizes_.of_stored(r.pages[position].where.slot);
  const bool encoded = position < r.sizes.size() && r.sizes[position] == static_cast<std::uint8_t>(frame_size::encoded);
  return encoded && sizes_.enabled() ? frame_size::encoded : frame_size::whole;
}

void io_worker_state::serve(timestamp now) {
  short_of_ = 0;
  end_fresh(now);
  drop_displaced();
  while (!queue_.empty()) {
    const auto id = queue_.front();
    auto& r = requests_open_.at(id);
    if (!serve(id, r, now))
      break;
    queue_.pop_front();
    answer_if_done(id);
  }
  if (short_of_ > 0)
    write_behind();
  promote_ahead(now);
}

bool io_worker_state::serve(request_id id, request& r, timestamp now) {
  while (!r.short_of.empty()) {
    const auto i = r.short_of.front();
    // The state may have changed since the request came.
    if (do_without_frame(id, r, i)) {
      r.short_of.pop_front();
      continue;
    }
    if (r.fetch && transfers_.reads() >= options_.reads_max)
      return false;
    // Unused memory is taken before pages are evicted that may be requested again.
    const auto size = needed(r, i);
    if (waits_for_memory(size, now))
      return false;
    const auto f = take_fitting(r.pages[i], r.fetch ? frame_state::reading : frame_state::filling, size);
    if (f == no_frame)
      exchange_extents(now);
    if (f == no_frame && !has_all_frames(r, size, now)) {
      short_of_ = r.short_of.size();
      return false;
    }
    if (f == no_frame) {
      // No more frames can become available, and the request would block the ones it has until its timeout.
      refuse_rest(r, errc::full);
      return true;
    }
    r.short_of.pop_front();
    if (r.fetch)
      start_read(id, r, i, f);
    else
      give_frame(r, i, f, false);
  }
  return true;
}

bool io_worker_state::has_all_frames(const request& r, frame_size needed, timestamp now) const {
  const bool any = needed == frame_size::encoded;
  // Frames for encoded pages may be about to become whole ones.
  if (frames_.size() == 0 || (!any && sizes_.may_exchange(now)))
    return false;
  std::unordered_set<frame_number> own;
  for (const auto f : r.frames)
    if (f != no_frame && !frames_.stays(f) && (any || frames_.size_of(f) == needed))
      own.insert(f);
  const auto usable = any ? frames_.size() - frames_.staying() : frames_.size(needed) - frames_.staying(needed);
  return own.size() == usable;
}

void io_worker_state::answer_if_done(request_id id) {
  const auto found = requests_open_.find(id);
  auto& r = found->second;
  if (!r.short_of.empty() || r.reading > 0)
    return;
  answered_frames out;
  out.request = id;
  out.pages = static_cast<std::uint32_t>(r.pages.size());
  out.fetched = r.fetch;
  if (r.fetch) {
    const auto loaded = static_cast<std::uint64_t>(
        std::count_if(r.frames.begin(), r.frames.end(), [](frame_number f) { return f != no_frame; }));
    stats_.loaded_pages += loaded;
    count_pages({r.owner, loaded, 0});
    out.from_disk = std::ranges::any_of(r.reply, [](const page_frame& x) { return x.promoted != 0; });
  }
  if (std::any_of(r.frames.begin(), r.frames.end(), [](frame_number f) { return f != no_frame; }))
    out.reply.pin = pins_.add({r.owner, r.fetch, std::move(r.frames)});
  out.reply.frames.items = std::move(r.reply);
  out_.frames.push_back(std::move(out));
  if (const auto mine = asked_.find(r.owner); (mine->second -= r.pages.size()) == 0)
    asked_.erase(mine);
  requests_open_.erase(found);
}

void io_worker_state::count_pages(const owner_pages& more) {
  // At most `clients_max` clients are attached, and a request counts once.
  const auto known = std::ranges::find(stats_.owners, more.owner, &owner_pages::owner);
  if (known != stats_.owners.end()) {
    known->loaded += more.loaded;
    known->saved += more.saved;
  } else if (!is_dead(more.owner)) {
    stats_.owners.push_back(more);
  }
}

void io_worker_state::release(frame_number f, bool fetch) {
  if (!fetch && frames_.state(f) == frame_state::filling)
    frames_.drop(f);
  frames_.unpin(f);
}

void io_worker_state::release_all(std::span<const frame_number> frames, bool fetch) {
  for (const auto f : frames)
    if (f != no_frame)
      release(f, fetch);
}

result<io_worker_state::request_id> io_worker_state::fill(owner_id owner, const fill_request& work, timestamp now) {
  auto pin = pins_.take(owner, work.pin, false);
  if (!pin)
    return fail(errc::not_found, "this client has no frames to fill under number " + std::to_string(work.pin));
  const auto id = ++last_request_;
  std::uint64_t saved = 0;
  io_reply out;
  std::vector<frame_number> unasked;
  std::vector<pending_fills::unwritten> unwritten;
  out.results.items.resize(pin->frames.size(), byte_of(errc::ok));
  for (std::uint32_t i = 0; i < pin->frames.size(); ++i) {
    const auto f = pin->frames[i];
    auto& code = out.results[i];
    if (f == no_frame) {
      code = byte_of(errc::not_found);
      continue;
    }
    const auto said = code_at(work.gathered, i);
    if (frames_.state(f) != frame_state::filling) {
      code = byte_of(errc::stale); // its slot was fenced
      ++stats_.fenced;
    } else if (said != errc::ok || damaged_) {
      code = byte_of(said != errc::ok ? said : errc::slab_damaged);
    } else {
      frames_.filled(f);
      const auto sizes = io::sizes_of(frames_.bytes(f));
      const auto slot = frames_.page(f).where.slot;
      const auto needed = sizes.stored > 0 ? size_for(sizes.stored) : frame_size::whole;
      if (sizes.stored > 0)
        sizes_.note(slot, needed);
      usage_.assign(slot, needed);
      ++stats_.saved_pages;
      ++saved;
      stats_.saved_payload_bytes += sizes.payload;
      stats_.saved_stored_bytes += sizes.stored;
      if (options_.second_hit)
        unasked.push_back(f);
      else
        add_to_write(f);
      if (options_.write_through)
        unwritten.push_back({f, i});
    }
    release(f, false);
  }
  count_pages({owner, 0, saved});
  fills_.add(id, std::move(out), unwritten);
  hold_back(unasked, now);
  if (draining_)
    drop_all();
  write_behind();
  serve(now);
  return id;
}

result<void> io_worker_state::unpin(owner_id owner, pin_number number, timestamp now) {
  auto pin = pins_.take(owner, number, true);
  if (!pin)
    return fail(errc::not_found, "this client has no pin " + std::to_string(number));
  release_all(pin->frames, true);
  serve(now);
  return {};
}

void io_worker_state::owner_died(owner_id owner, timestamp now) {
  dead_owners_.push_back(owner);
  if (dead_owners_.size() > std::max<std::size_t>(dead_owners_min, options_.clients_max))
    dead_owners_.pop_front();
  // The client does not know the frames of unanswered requests, so it does not access them.
  for (auto i = requests_open_.begin(); i != requests_open_.end();) {
    if (i->second.owner != owner) {
      ++i;
      continue;
    }
    release_all(i->second.frames, i->second.fetch);
    std::erase(queue_, i->first);
    out_.frames.push_back({i->first, errc::expired, {}, 0, i->second.fetch});
    i = requests_open_.erase(i);
  }
  asked_.erase(owner);
  std::erase_if(stats_.owners, [owner](const owner_pages& x) { return x.owner == owner; });
  stats_.prefetches_cancelled += ahead_.end_owner(owner);
  serve(now);
}

void io_worker_state::owner_quiesced(owner_id owner, timestamp now) {
  for (const auto& pin : pins_.take_all(owner))
    release_all(pin.frames, pin.fetch);
  serve(now);
}

void io_worker_state::drain(timestamp now) {
  draining_ = true;
  scrub_.end();
  for (const auto id : std::exchange(queue_, {})) {
    auto& r = requests_open_.at(id);
    refuse_rest(r, errc::shutting_down);
    answer_if_done(id);
  }
  stats_.prefetches_cancelled += ahead_.end_all();
  drop_all();
  if (frames_.emptying())
    end_emptying(errc::shutting_down, now);
  write_behind();
}

bool io_worker_state::quiesced() const noexcept {
  return transfers_.size() == 0 && usage_.trims() == 0 && (damaged_ || to_write_.empty());
}

void io_worker_state::tick(timestamp now) {
  frames_.pass_time(now);
  std::erase_if(queue_, [&](request_id id) {
    auto& r = requests_open_.at(id);
    if (r.deadline > now)
      return false;
    refuse_rest(r, errc::full);
    answer_if_done(id);
    return true;
  });
  to_write_.pass_time(now);
  usage_.retry_trims();
  exchange_extents(now);
  write_behind();
  serve(now);
}

io_stats io_worker_state::stats() const {
  auto out = stats_;
  out.in_flight = transfers_.size();
  out.frames = frames_.size();
  out.frame_bytes = options_.slot_bytes;
  out.memory_bytes = frames_.bytes();
  out.resident_bytes = frames_.resident_bytes();
  out.resident_pages = frames_.resident();
  out.memory_pages = frames_.staying();
  out.dirty_pages = frames_.count(frame_state::dirty) + frames_.count(frame_state::writing) - frames_.staying();
  out.pinned_frames = frames_.pinned();
  out.orphaned_frames = frames_.count(frame_state::orphaned);
  out.demotions = frames_.evicted();
  out.unasked_pages = frames_.held_back();
  out.extents = frames_.extents();
  out.encoded_extents = frames_.extents(frame_size::encoded);
  out.scrub_passes = scrub_.passes();
  out.slab_slots = options_.slab_slots();
  out.memory_slots = options_.memory_slots;
  if (usage_.enabled()) {
    out.slab_bytes = usage_.granted_bytes();
    out.slab_occupied_bytes = usage_.occupied_bytes();
    out.slab_pages = usage_.pages();
    out.slab_page_bytes = usage_.page_bytes();
  }
  return out;
}

std::string io_worker_state::check() const {
  if (auto bad = frames_.check(); !bad.empty())
    return bad;
  if (auto bad = ahead_.check(); !bad.empty())
    return bad;
  if (auto bad = sizes_.check(); !bad.empty())
    return bad;
  if (auto bad = usage_.check(); !bad.empty())
    return bad;
  std::unordered_map<frame_number, std::uint32_t> pins;
  const auto count = [&](const std::vector<frame_number>& frames) {
    for (const auto f : frames)
      if (f != no_frame)
        ++pins[f];
  };
  pins_.for_each([&](pin_number, const pin_table::pin& x) { count(x.frames); });
  for (const auto& [id, r] : requests_open_)
    count(r.frames);
  for (frame_number f = 0; f < frames_.numbers(); ++f)
    if (const auto i = pins.find(f); frames_.pins(f) != (i == pins.end() ? 0 : i->second))
      return "frame " + std::to_string(f) + " has " + std::to_string(frames_.pins(f)) + " pins, of which " +
             std::to_string(i == pins.end() ? 0 : i->second) + " are known";
  std::uint64_t held_back = frames_.expendable();
  for (const auto& x : fresh_)
    for (const auto& where : x.pages)
      held_back += fresh_frame(where) != no_frame ? 1 : 0;
  if (held_back != frames_.held_back())
    return "pages are held back that will never become expendable";
  if (!frames_.emptying() && displaced() > 0)
    for (frame_number f = 0; f < frames_.numbers(); ++f)
      if (frames_.stays(f) && frames_.pins(f) == 0)
        return "pages stay in memory that have no room there any more";
  std::uint64_t moving = 0;
  transfers_.for_each([&](const page_transfer& t) {
    moving += frames_.state(t.frame) == (t.read ? frame_state::reading : frame_state::writing) ? 1 : 0;
  });
  if (moving != transfers_.size() ||
      moving != frames_.count(frame_state::reading) + frames_.count(frame_state::writing))
    return "the transfers do not match the frames that are read or written";
  return {};
}

} // namespace troupe
