#pragma once

#include "actors/cluster/adopted_index.hpp"
#include "actors/cluster/passing_memory.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "io/foreign_pages.hpp"
#include "messages/transfer_messages.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::cluster {

/// Pages of a dead node that are to be read into passing memory.
struct adopted_read {
  std::shared_ptr<const adopted_index> index;
  std::shared_ptr<passing_memory> memory;
  namespace_id space;
  rank_number rank = 0;
  transfer_task work;
  /// By one of the threads.
  std::function<void(transfer_result)> done;
};

/// Reads them, in threads of its own, since whoever reads waits for a file system.
class adopted_reads {
public:
  explicit adopted_reads(io::foreign_storage storage);
  adopted_reads(const adopted_reads&) = delete;
  adopted_reads& operator=(const adopted_reads&) = delete;
  /// What has not been begun is answered with nothing read.
  ~adopted_reads();

  /// Any thread.
  void post(adopted_read what);

private:
  /// Of one thread: files that it has open.
  using open_files = std::map<std::string, std::unique_ptr<io::foreign_pages>>;

  void run();
  transfer_result read(open_files& files, const adopted_read& what);

  const io::foreign_storage storage_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<adopted_read> waiting_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

} // namespace troupe::cluster
