#include "io/foreign/foreign_reader.hpp"

#include "io/make_engine.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace troupe::io {

foreign_reader::file::~file() {
  engine_->remove_file(number_);
}

void foreign_reader::frames::releaser::operator()(std::byte* p) const noexcept {
  std::free(p);
}

foreign_reader::frames::frames(std::uint64_t slot_bytes, std::size_t count, std::shared_ptr<engine> mover)
    : slot_bytes_(slot_bytes), memory_(static_cast<std::byte*>(std::aligned_alloc(page_alignment, slot_bytes * count))),
      engine_(std::move(mover)) {
  for (auto i = count; i > 0; --i)
    free_.push_back(i - 1);
}

foreign_reader::frames::~frames() {
  if (number_)
    engine_->remove_buffer(*number_);
}

result<std::shared_ptr<foreign_reader>> foreign_reader::make(const engine_options& how) {
  std::shared_ptr<foreign_reader> out(new foreign_reader);
  auto mover = make_engine(how, [reader = out.get()](std::span<const completion> done) { reader->complete(done); });
  if (!mover)
    return tl::unexpected<error>(mover.error());
  out->engine_ = std::move(*mover);
  auto opener =
      serial_executor::start(thread_name("troupe-openslab"), "the thread that opens slab files of other nodes");
  if (!opener)
    return tl::unexpected<error>(std::move(opener.error()));
  out->opener_ = std::move(*opener);
  return out;
}

foreign_reader::~foreign_reader() {
  if (opener_)
    opener_->end();
  if (engine_)
    engine_->stop();
}

result<std::shared_ptr<foreign_reader::file>>
foreign_reader::open(const std::filesystem::path& path, const slab_spec& expected, bool try_direct, timestamp until) {
  bury();
  struct answer {
    std::mutex mutex;
    std::condition_variable there;
    std::optional<result<std::shared_ptr<file>>> opened;
  };
  const auto wanted = std::make_shared<answer>();
  // The task may hold the last reference to the file. Releasing that waits for the engine's thread, which may wait for
  // `mutex_`, so it is released without a lock: by the executor.
  const auto posted = opener_->post(
      [this, wanted, path, expected, try_direct] {
        auto opened = open_now(path, expected, try_direct);
        const std::lock_guard answering(wanted->mutex);
        wanted->opened = std::move(opened);
        wanted->there.notify_one();
      },
      serial_executor::at_end::drop);
  if (!posted)
    return fail(errc::timeout, "the file system of '" + path.string() + "' does not respond: " + posted.error().text);
  std::unique_lock lock(wanted->mutex);
  if (!wanted->there.wait_until(lock, until, [&] { return wanted->opened.has_value(); }))
    return fail(errc::timeout, "the file system of '" + path.string() + "' does not respond");
  return std::move(*wanted->opened);
}

result<std::shared_ptr<foreign_reader::file>> foreign_reader::open_now(const std::filesystem::path& path,
                                                                       const slab_spec& expected, bool try_direct) {
  auto slab = foreign_slab::open(path, expected, try_direct);
  if (!slab)
    return tl::unexpected<error>(slab.error());
  const auto number = engine_->add_file(slab->descriptor());
  if (!number)
    return tl::unexpected<error>(number.error());
  return std::shared_ptr<file>(new file(std::move(*slab), engine_, *number));
}

result<std::shared_ptr<foreign_reader::frames>> foreign_reader::make_frames(std::uint64_t slot_bytes,
                                                                            std::size_t count) {
  bury();
  std::shared_ptr<frames> out(new frames(slot_bytes, count, engine_));
  if (!out->memory_)
    return fail(errc::no_memory, "out of memory for pages of other nodes");
  const auto number = engine_->add_buffer({out->memory_.get(), slot_bytes * count});
  if (!number)
    return tl::unexpected<error>(number.error());
  out->number_ = *number;
  return out;
}

void foreign_reader::read(const std::shared_ptr<file>& from, const std::shared_ptr<frames>& by,
                          std::span<const slot_number> slots, timestamp until,
                          const std::function<void(std::size_t, errc, std::span<std::byte>)>& arrived) {
  bury();
  const auto mine = std::make_shared<batch>();
  std::vector<std::uint8_t> notified(slots.size());
  std::size_t next = 0;
  std::size_t left = slots.size();
  std::vector<request> wanted;
  while (left > 0) {
    std::unique_lock lock(mutex_);
    while (next < slots.size() && !by->free_.empty()) {
      const auto frame = by->free_.back();
      by->free_.pop_back();
      transfers_.emplace(++last_tag_, transfer{mine, next, frame, from, by});
      const auto bytes = by->slot(frame);
      wanted.push_back({operation::read, from->number_, std::uint64_t{slots[next]} * bytes.size(), bytes.data(),
                        bytes.size(), *by->number_, last_tag_, until});
      ++next;
    }
    if (!wanted.empty()) {
      lock.unlock();
      // This may wait for pages that this host has still to write.
      if (!engine_->goes_past_the_kernel())
        for (const auto& x : wanted)
          from->slab_.forget(static_cast<slot_number>(x.file_offset / x.length));
      engine_->submit(wanted);
      wanted.clear();
      continue;
    }
    by->wanted_ = &mine->news;
    const bool came = mine->news.wait_until(
        lock, until, [&] { return !mine->arrived.empty() || (next < slots.size() && !by->free_.empty()); });
    by->wanted_ = nullptr;
    if (!came)
      break;
    auto news = std::exchange(mine->arrived, {});
    lock.unlock();
    for (const auto& x : news) {
      arrived(x.place, x.code, by->slot(x.frame));
      notified[x.place] = 1;
      --left;
    }
    lock.lock();
    for (const auto& x : news)
      by->free_.push_back(x.frame);
  }
  {
    const std::lock_guard guard(mutex_);
    mine->abandoned = true;
    for (const auto& x : mine->arrived)
      by->free_.push_back(x.frame);
  }
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (notified[i] == 0)
      arrived(i, errc::timeout, {});
}

void foreign_reader::complete(std::span<const completion> done) {
  const std::lock_guard guard(mutex_);
  for (const auto& x : done) {
    const auto found = transfers_.extract(x.tag);
    if (found.empty())
      continue;
    auto& t = found.mapped();
    if (t.of->abandoned) {
      t.by->free_.push_back(t.frame);
      if (t.by->wanted_ != nullptr)
        t.by->wanted_->notify_one();
      // The last holder has to wait for the engine, whose thread this is; another thread releases them.
      left_.emplace_back(std::move(t.from), std::move(t.by));
      continue;
    }
    // A reader that waits holds both.
    t.of->arrived.push_back({t.place, t.frame, x.status});
    t.of->news.notify_one();
  }
}

void foreign_reader::bury() {
  std::vector<std::pair<std::shared_ptr<file>, std::shared_ptr<frames>>> dead;
  const std::lock_guard guard(mutex_);
  dead.swap(left_);
}

std::size_t foreign_reader::under_way() const {
  const std::lock_guard guard(mutex_);
  return transfers_.size();
}

} // namespace troupe::io
