#pragma once

#include "base/digest.hpp"
#include "base/namespace_spec.hpp"
#include "messages/event_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

namespace troupe::events {

/// A namespace that the shard serves from now on. Every shard reports it.
struct namespace_served {
  std::shared_ptr<const namespace_spec> spec;
};

/// A shard does not serve the namespace any more. All shards report it, behind the removals of their keys.
struct namespace_ended {};

/// A client has described pages: those at `positions` are complete. `in_memory`: parallel, 1 where every rank's page is
/// in the memory of the node.
struct pages_described {
  page_descriptions pages;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint8_t> in_memory;
};

/// Described keys that are not complete any more: evicted, erased, damaged, or their namespace was removed.
struct keys_removed {
  std::vector<key_digest> keys;
};

/// Described keys that have moved between memory and disk, with their new place.
struct keys_moved {
  std::vector<key_digest> keys;
  std::vector<std::uint8_t> in_memory;
};

/// A change in one namespace of one shard. Changes of a key are in the order in which they happened, as one shard has
/// all of them.
struct change {
  namespace_id ns;
  std::variant<namespace_served, pages_described, keys_removed, keys_moved, namespace_ended> what;
};

/// The queue from registry shards to the publisher of events. Shards never wait: when the publisher does not keep up
/// and the limit is reached, all that is queued is dropped, and the publisher begins again with nothing. Thread-safe.
class feed {
public:
  explicit feed(std::size_t bytes_max = std::size_t{64} << 20U) : bytes_max_(bytes_max) {}

  /// Called by `push` when there is something again, in the thread of a shard; null to end that.
  void wake_with(std::function<void()> wake);

  void push(std::vector<change> changes);

  struct batch {
    std::vector<change> changes;
    /// Changes before these were dropped.
    bool overflowed = false;
  };
  batch take();

  /// Of all that is queued.
  std::size_t queued_bytes() const;
  std::size_t bytes_max() const noexcept { return bytes_max_; }

private:
  std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  batch queued_;
  std::size_t bytes_ = 0;
};

} // namespace troupe::events
