#include "actors/cluster/adopted_reads.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <pthread.h>

namespace troupe::cluster {

namespace {

constexpr int threads_max = 4;
/// Of each thread.
constexpr std::size_t files_max = 8;

/// For each page, that it was not read.
transfer_result nothing_read(std::size_t pages, errc why) {
  transfer_result out;
  out.results.items.assign(pages, static_cast<std::uint8_t>(why));
  return out;
}

} // namespace

adopted_reads::adopted_reads(io::foreign_storage storage) : storage_(std::move(storage)) {
  for (int i = 0; i < threads_max; ++i)
    threads_.emplace_back([this] {
      ::pthread_setname_np(::pthread_self(), "adopted-reads");
      run();
    });
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
  {
    const std::lock_guard guard(mutex_);
    waiting_.push_back(std::move(what));
  }
  more_.notify_one();
}

void adopted_reads::run() {
  open_files files;
  for (;;) {
    adopted_read next;
    {
      std::unique_lock guard(mutex_);
      more_.wait(guard, [this] { return ends_ || !waiting_.empty(); });
      if (ends_)
        return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next.done(read(files, next));
    // They know the memory of a namespace, which may go.
    if (files.size() > files_max)
      files.clear();
  }
}

transfer_result adopted_reads::read(open_files& files, const adopted_read& what) {
  const auto& keys = what.work.keys.items;
  const auto* const rank = what.index->rank(what.space, what.rank);
  if (rank == nullptr || what.work.blocks.size() != keys.size())
    return nothing_read(keys.size(), errc::not_found);
  const auto page_bytes = what.memory->view().geometry.page_bytes();
  std::vector<io::foreign_page> pages;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto where = rank->find(keys[i]);
    // One that is not there is none of the file: it is refused as any other wrong slot.
    pages.push_back({keys[i], where.value_or(slot_ref{static_cast<slot_number>(-1), 0}), what.work.blocks.items[i]});
  }
  const auto blocks = what.memory->blocks();
  // The same file may be read into the memory of a namespace that was made anew.
  const auto name = rank->path + "@" + std::to_string(reinterpret_cast<std::uintptr_t>(blocks.data())) + "+" +
                    std::to_string(blocks.size()) + "/" + std::to_string(page_bytes);
  auto& file = files[name];
  if (!file)
    file = std::make_unique<io::foreign_pages>(
        io::foreign_pages::options{storage_, what.space, what.rank, page_bytes, blocks});
  const auto now = std::chrono::steady_clock::now();
  const auto codes = file->read(rank->path, rank->incarnation, pages, later(now, what.work.deadline), now);
  if (const auto trouble = file->take_trouble(); !trouble.empty())
    log::get("cluster")->warn("pages of a dead node cannot be read: {}", trouble);
  transfer_result out;
  for (const auto code : codes) {
    out.results.items.push_back(static_cast<std::uint8_t>(code));
    out.from_files += code == errc::ok ? 1 : 0;
    out.files_stale += code == errc::identity_mismatch ? 1 : 0;
    out.files_damaged += code == errc::corrupt ? 1 : 0;
    out.files_failed += code != errc::ok && code != errc::identity_mismatch && code != errc::corrupt ? 1 : 0;
  }
  out.bytes = out.from_files * page_bytes;
  return out;
}

} // namespace troupe::cluster
