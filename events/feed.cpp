#include "events/feed.hpp"

#include "events/description_rules.hpp"

#include <iterator>
#include <utility>

namespace troupe::events {

namespace {

struct weigher {
  std::size_t operator()(const namespace_served&) const noexcept { return sizeof(change); }
  std::size_t operator()(const namespace_ended&) const noexcept { return sizeof(change); }
  std::size_t operator()(const pages_described& x) const noexcept {
    return weight_of(x.pages) + x.positions.size() * (sizeof(std::uint32_t) + 1);
  }
  std::size_t operator()(const keys_removed& x) const noexcept {
    return sizeof(change) + x.keys.size() * sizeof(key_digest);
  }
  std::size_t operator()(const keys_moved& x) const noexcept {
    return sizeof(change) + x.keys.size() * (sizeof(key_digest) + 1);
  }
};

bool is_about_keys(const change& x) {
  return !std::holds_alternative<namespace_served>(x.what) && !std::holds_alternative<namespace_ended>(x.what);
}

} // namespace

void feed::wake_with(std::function<void()> wake) {
  const std::lock_guard guard(mutex_);
  wake_ = std::move(wake);
}

void feed::push(std::vector<change> changes) {
  if (changes.empty())
    return;
  std::size_t bytes = 0;
  for (const auto& x : changes)
    bytes += std::visit(weigher{}, x.what);
  const std::lock_guard guard(mutex_);
  const bool first = queued_.changes.empty() && !queued_.overflowed;
  bytes_ += bytes;
  if (bytes_ > bytes_max_) {
    // Namespaces are few, and nothing can be said about keys of unknown ones.
    std::erase_if(queued_.changes, is_about_keys);
    std::erase_if(changes, is_about_keys);
    queued_.overflowed = true;
    bytes_ = 0;
  }
  queued_.changes.insert(queued_.changes.end(), std::make_move_iterator(changes.begin()),
                         std::make_move_iterator(changes.end()));
  if (first && wake_)
    wake_();
}

std::size_t feed::queued_bytes() const {
  const std::lock_guard guard(mutex_);
  return bytes_;
}

feed::batch feed::take() {
  const std::lock_guard guard(mutex_);
  bytes_ = 0;
  return std::exchange(queued_, {});
}

} // namespace troupe::events
