#include "io/arena_pool.hpp"

#include "io/arena_name.hpp"

#include <utility>

namespace troupe::io {

arena_pool::arena_pool(std::shared_ptr<arena> memory) : memory_(std::move(memory)) {
  facts_ = {memory_->bytes().size(), memory_->extent_bytes(), encode(memory_->name())};
  counts_.extents = facts_.bytes / facts_.extent_bytes;
  lent_.resize(counts_.extents);
  for (auto number = static_cast<std::uint32_t>(counts_.extents); number-- > 0;)
    fresh_.push_back(number);
}

result<extent> arena_pool::lend() {
  std::unique_lock lock(mutex_);
  if (!returned_.empty()) {
    const auto number = returned_.back();
    returned_.pop_back();
    return lent(number);
  }
  if (fresh_.empty())
    return fail(errc::full, "all " + std::to_string(counts_.extents) + " extents of the arena are lent");
  const auto number = fresh_.back();
  fresh_.pop_back();
  lock.unlock();
  // Outside of the lock, since it takes milliseconds; nobody else has this number.
  const auto provided = memory_->provide(number);
  lock.lock();
  if (!provided) {
    fresh_.push_back(number);
    ++counts_.failed;
    return tl::unexpected(provided.error());
  }
  ++counts_.ready;
  return lent(number);
}

extent arena_pool::lent(std::uint32_t number) {
  lent_[number] = true;
  ++counts_.lent;
  const auto offset = number * facts_.extent_bytes;
  return {number, offset, memory_->bytes().subspan(offset, facts_.extent_bytes)};
}

bool arena_pool::take_back(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (number >= lent_.size() || !lent_[number])
    return false;
  lent_[number] = false;
  --counts_.lent;
  returned_.push_back(number);
  return true;
}

std::uint32_t arena_pool::available() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(returned_.size() + fresh_.size());
}

extent_counts arena_pool::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

} // namespace troupe::io
