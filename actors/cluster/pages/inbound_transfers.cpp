#include "actors/cluster/pages/inbound_transfers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace troupe::cluster {

/// A request for pages, which is answered by its destructor at the latest.
class inbound_transfers::question {
public:
  question(std::shared_ptr<inbound_transfers> to, std::uint64_t number, std::size_t pages, receiver then)
      : to_(std::move(to)), number_(number), pages_(pages), then_(std::move(then)) {}
  question(const question&) = delete;
  question& operator=(const question&) = delete;
  ~question() { answer(fail(errc::unreachable, "the sender of the pages has ended without an answer")); }

  void answer(const result<transfer_result>& outcome) {
    if (is_answered_.exchange(true))
      return;
    then_(outcome);
    to_->answered(number_, outcome, pages_);
  }

private:
  std::shared_ptr<inbound_transfers> to_;
  std::uint64_t number_;
  std::size_t pages_;
  receiver then_;
  std::atomic<bool> is_answered_{false};
};

void inbound_transfers::expect(std::uint64_t number, sender from, timestamp until) {
  const std::lock_guard guard(mutex_);
  expected_.emplace(number, inbound_transfer{std::move(from), until, {}});
}

bool inbound_transfers::ask(std::uint64_t number, packed<key_digest> keys, packed<std::uint32_t> blocks, timestamp now,
                            receiver then) {
  transfer_task work;
  sender from;
  {
    const std::lock_guard guard(mutex_);
    const auto found = expected_.find(number);
    if (found == expected_.end() || found->second.then)
      return false;
    ++found->second.under_way;
    from = found->second.from;
    work.deadline = std::max<duration>(found->second.until - now, std::chrono::milliseconds(1));
  }
  work.keys = std::move(keys);
  work.blocks = std::move(blocks);
  const auto asked = std::make_shared<question>(shared_from_this(), number, work.keys.size(), std::move(then));
  from(std::move(work), [asked](const result<transfer_result>& outcome) { asked->answer(outcome); });
  return true;
}

void inbound_transfers::end(std::uint64_t number, ended then) {
  sending_counts counts;
  {
    const std::lock_guard guard(mutex_);
    const auto found = expected_.find(number);
    if (found != expected_.end() && found->second.under_way > 0) {
      found->second.then = std::move(then);
      return;
    }
    if (found != expected_.end()) {
      counts = found->second.counts;
      expected_.erase(found);
    }
  }
  then(counts);
}

void inbound_transfers::answered(std::uint64_t number, const result<transfer_result>& outcome, std::size_t pages) {
  inbound_transfer last;
  {
    const std::lock_guard guard(mutex_);
    const auto found = expected_.find(number);
    auto& x = found->second; // the entry stays until all its requests have been answered
    x.counts.add(outcome, pages);
    if (--x.under_way > 0 || !x.then)
      return;
    last = std::move(x);
    expected_.erase(found);
  }
  last.then(last.counts);
}

std::size_t inbound_transfers::size() const {
  const std::lock_guard guard(mutex_);
  return expected_.size();
}

} // namespace troupe::cluster
