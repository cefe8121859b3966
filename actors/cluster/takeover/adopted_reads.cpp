#include "actors/cluster/takeover/adopted_reads.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

namespace troupe::cluster {

namespace {

constexpr int threads_max = 4;
constexpr std::size_t files_max = 4;
/// Memory for slots of each file.
constexpr std::uint64_t frame_bytes = std::uint64_t{16} << 20U;

/// A result in which no page was read.
transfer_result nothing_read(std::size_t pages, errc why) {
  transfer_result out;
  out.files_failed = pages;
  out.results.items.assign(pages, static_cast<std::uint8_t>(why));
  return out;
}

/// Whether the read failed, so that the content of the slot is unknown.
bool is_failure(errc code) noexcept {
  return code != errc::ok && code != errc::identity_mismatch && code != errc::corrupt;
}

} // namespace

adopted_reads::adopted_reads(io::foreign_storage storage, duration patience)
    : storage_(std::move(storage)), patience_(patience) {
  for (int i = 0; i < threads_max; ++i)
    threads_.emplace_back(named(thread_name("troupe-adopted"), [this] { run(); }));
}

adopted_reads::~adopted_reads() {
  {
    const std::lock_guard guard(mutex_);
    ends_ = true;
  }
  more_.notify_all();
  for (auto& x : threads_)
    x.join();
  for (const auto& x : waiting_)
    x.done(nothing_read(x.work.keys.size(), errc::shutting_down));
}

void adopted_reads::post(adopted_read what) {
  what.until = later(std::chrono::steady_clock::now(), std::min(what.work.deadline, patience_));
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(what));
  }
  more_.notify_one();
}

void adopted_reads::drop_unused() {
  {
    const std::lock_guard guard(mutex_);
    has_unused_ = true;
  }
  more_.notify_one();
}

std::size_t adopted_reads::open_files() const {
  const std::lock_guard guard(mutex_);
  return files_.size();
}

void adopted_reads::run() {
  for (;;) {
    adopted_read next;
    // Closed after the answer, so that no reader waits for it.
    std::vector<open_file> unused;
    {
      std::unique_lock guard(mutex_);
      more_.wait(guard, [this] { return ends_ || has_unused_ || !waiting_.empty(); });
      if (ends_)
        return;
      if (std::exchange(has_unused_, false))
        unused = take_unused();
      if (waiting_.empty())
        continue;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    unused.clear();
    auto done = std::move(next.done);
    auto outcome = read(next);
    // Released before the answer, because its receiver may release the last other reference to both and calls
    // `drop_unused` only once after that.
    next = {};
    {
      const std::lock_guard guard(mutex_);
      unused = take_unused();
    }
    done(std::move(outcome));
  }
}

std::vector<adopted_reads::open_file> adopted_reads::take_unused() {
  const auto kept = std::partition(files_.begin(), files_.end(), [](const auto& x) { return !x.is_unused(); });
  std::vector<open_file> out(std::make_move_iterator(kept), std::make_move_iterator(files_.end()));
  files_.erase(kept, files_.end());
  return out;
}

adopted_reads::open_file adopted_reads::take(const adopted_read& what, const adopted_rank& rank) {
  const auto page_bytes = what.memory->view().geometry.page_bytes();
  open_file out{rank.path + "/" + std::to_string(page_bytes), what.index, what.memory, nullptr};
  {
    const std::lock_guard guard(mutex_);
    // The same file may be read into the staging buffer of a namespace that was made again.
    const auto found = std::ranges::find_if(files_, [&](const open_file& x) {
      return x.name == out.name && x.index.lock() == what.index && x.memory.lock() == what.memory;
    });
    if (found != files_.end()) {
      out = std::move(*found);
      files_.erase(found);
      return out;
    }
  }
  out.pages = std::make_unique<io::foreign_pages>(
      io::foreign_pages::options{storage_, what.ns, what.rank, page_bytes, what.memory->blocks(), frame_bytes});
  return out;
}

void adopted_reads::give_back(open_file x) {
  open_file oldest;
  const std::lock_guard guard(mutex_);
  files_.push_back(std::move(x));
  if (files_.size() > files_max) {
    oldest = std::move(files_.front());
    files_.erase(files_.begin());
  }
}

transfer_result adopted_reads::read(const adopted_read& what) {
  const auto& keys = what.work.keys.items;
  const auto* const rank = what.index->rank(what.ns, what.rank);
  if (rank == nullptr || what.work.blocks.size() != keys.size())
    return nothing_read(keys.size(), errc::not_found);
  const auto now = std::chrono::steady_clock::now();
  if (now >= what.until)
    return nothing_read(keys.size(), errc::timeout);
  std::vector<io::foreign_page> pages;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto where = rank->find(keys[i]);
    // A page that is not in the index gets an invalid slot, which is refused as any wrong slot is.
    pages.push_back({keys[i], where.value_or(slot_ref{static_cast<slot_number>(-1), 0}), what.work.blocks.items[i]});
  }
  auto file = take(what, *rank);
  const auto codes = file.pages->read(rank->path, rank->incarnation, pages, what.until, now);
  if (const auto trouble = file.pages->take_trouble(); !trouble.empty())
    log::get("cluster")->warn("cannot read pages of a dead node: {}", trouble);
  const auto failed = std::ranges::find_if(codes, is_failure);
  if (failed == codes.end())
    file.fails = false;
  else if (*failed != errc::unsupported && !std::exchange(file.fails, true))
    log::get("cluster")->warn("cannot read '{}' of a dead node ({}); its pages are misses", rank->path,
                              to_string(*failed));
  give_back(std::move(file));
  transfer_result out;
  for (const auto code : codes) {
    out.results.items.push_back(static_cast<std::uint8_t>(code));
    out.from_files += code == errc::ok ? 1 : 0;
    out.files_stale += code == errc::identity_mismatch ? 1 : 0;
    out.files_damaged += code == errc::corrupt ? 1 : 0;
    out.files_failed += is_failure(code) ? 1 : 0;
  }
  out.bytes = out.from_files * what.memory->view().geometry.page_bytes();
  return out;
}

} // namespace troupe::cluster
