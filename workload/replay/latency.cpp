#include "workload/replay/latency.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::replay {

namespace {

double microseconds(duration d) {
  return static_cast<double>(d.count()) / 1e3;
}

} // namespace

void latency_samples::record(duration d) {
  samples_.push_back(std::max(d, duration::zero()));
  sorted_ = false;
}

duration latency_samples::percentile(double percent) const {
  if (samples_.empty())
    return duration::zero();
  if (!sorted_) {
    std::sort(samples_.begin(), samples_.end());
    sorted_ = true;
  }
  const auto count = static_cast<double>(samples_.size());
  const auto rank = std::ceil(std::clamp(percent, 0.0, 100.0) * count / 100.0);
  return samples_[static_cast<std::size_t>(std::clamp(rank, 1.0, count)) - 1];
}

latency_summary latency_samples::summary() const {
  return {microseconds(percentile(50)), microseconds(percentile(99)), microseconds(percentile(100))};
}

void busy_time::begin(timestamp now) noexcept {
  if (active_++ == 0)
    since_ = std::max(now, until_);
}

void busy_time::end(timestamp now) noexcept {
  if (active_ == 0)
    return;
  until_ = std::max(until_, now);
  if (--active_ == 0)
    total_ += std::max(duration(until_ - since_), duration::zero());
}

duration busy_time::total(timestamp now) const noexcept {
  return active_ == 0 ? total_ : total_ + std::max(duration(now - since_), duration::zero());
}

} // namespace troupe::replay
