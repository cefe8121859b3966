#pragma once

#include "actors/client/transfer/file_patience.hpp"
#include "actors/cluster/pages/staging_buffer.hpp"
#include "actors/cluster/takeover/adopted_index.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "io/foreign/foreign_pages.hpp"
#include "messages/transfer_messages.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::cluster {

/// Pages of a dead node that are to be read into a staging buffer.
struct adopted_read {
  std::shared_ptr<const adopted_index> index;
  std::shared_ptr<staging_buffer> memory;
  namespace_id ns;
  rank_number rank = 0;
  transfer_task work;
  /// Called by one of the threads.
  std::function<void(transfer_result)> done;
  /// Set by `post`.
  timestamp until{};
};

/// Reads pages of dead nodes in threads of its own, because a read waits for a file system; for no longer than
/// `patience` after the post. Memory: that of at most eight files, of which at most four are read at a time.
class adopted_reads {
public:
  explicit adopted_reads(io::foreign_storage storage, duration patience = transfer::read_patience);
  adopted_reads(const adopted_reads&) = delete;
  adopted_reads& operator=(const adopted_reads&) = delete;
  /// Reads that have not started are answered with nothing read; the destructor waits for those in progress.
  ~adopted_reads();

  /// Any thread.
  void post(adopted_read what);

  /// Soon closes files whose index or memory has no other user. Any thread.
  void drop_unused();

  /// The number of open files that are not being read, each with memory for its slots. Any thread.
  std::size_t open_files() const;

private:
  /// The file of a rank, read into the memory of a namespace. It belongs to the thread that has taken it.
  struct open_file {
    std::string name{};
    std::weak_ptr<const adopted_index> index{};
    std::weak_ptr<staging_buffer> memory{};
    std::unique_ptr<io::foreign_pages> pages{};
    /// Whether the log has a line about failing reads.
    bool fails = false;

    bool is_unused() const { return index.expired() || memory.expired(); }
  };

  void run();
  transfer_result read(const adopted_read& what);
  open_file take(const adopted_read& what, const adopted_rank& rank);
  void give_back(open_file x);
  /// The caller holds `mutex_`.
  std::vector<open_file> take_unused();

  const io::foreign_storage storage_;
  const duration patience_;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<adopted_read> waiting_;
  /// Files that no thread has taken; the one that was given back last is at the end.
  std::vector<open_file> files_;
  bool has_unused_ = false;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe::cluster
