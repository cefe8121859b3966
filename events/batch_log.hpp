#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace troupe::events {

/// A published batch. The text is shared by those who send it.
struct sent_batch {
  std::uint64_t number = 0;
  std::shared_ptr<const std::string> text;
};

/// The batches of one stream, numbered without a gap; the last ones are kept for subscribers that missed some.
class batch_log {
public:
  /// `first`: the number of the first batch.
  batch_log(std::uint64_t first, std::size_t batches_max, std::size_t bytes_max)
      : next_(first), batches_max_(batches_max), bytes_max_(bytes_max) {}

  sent_batch append(std::string text) {
    bytes_ += text.size();
    kept_.push_back({next_++, std::make_shared<const std::string>(std::move(text))});
    trim();
    return kept_.back();
  }

  /// Keeps so many batches from now on.
  void keep(std::size_t batches_max) {
    batches_max_ = batches_max;
    trim();
  }

  /// The number of the next batch, and of the oldest one that is kept (`next` if there is none).
  std::uint64_t next() const noexcept { return next_; }
  std::uint64_t oldest() const noexcept { return next_ - kept_.size(); }
  /// For numbers from `oldest` to before `next`.
  const sent_batch& at(std::uint64_t number) const noexcept { return kept_[number - oldest()]; }
  std::size_t bytes() const noexcept { return bytes_; }

private:
  void trim() {
    // The newest one is kept in any case.
    while (kept_.size() > 1 && (kept_.size() > batches_max_ || bytes_ > bytes_max_)) {
      bytes_ -= kept_.front().text->size();
      kept_.pop_front();
    }
  }

  std::uint64_t next_;
  std::size_t batches_max_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::deque<sent_batch> kept_;
};

} // namespace troupe::events
