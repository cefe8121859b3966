#pragma once

#include "gpu/remote_cache.hpp"
#include "io/extent_source.hpp"
#include "io/page.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Asks a lane to open a worker's memory; answered with `opened_cache`. Never leaves the process, as all of these.
struct open_order {
  std::shared_ptr<const remote_layout> layout;
};

struct opened_cache {
  std::shared_ptr<remote_cache> cache;
  /// Where there is none.
  error why_not;
};

/// Pages of one rank, in frames that are pinned meanwhile, and the worker's blocks that they are made of or go to. What
/// is gathered is sealed, what is scattered is verified before a byte of its blocks is written. Answered with
/// `io_reply`.
struct block_copy {
  move_direction direction = move_direction::gather;
  namespace_id space;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  std::vector<check_item> items;
  /// As many for each page.
  std::vector<std::uint32_t> blocks;
  /// What the worker's device is at before that.
  std::string event;
};

/// Locks the arena for the worker's device, which takes long where it is large. Pages move meanwhile, only slower.
void lock_arena(const std::shared_ptr<remote_cache>& cache, std::span<std::byte> arena);

/// Copies between the arena and a worker's own memory, on a thread of its own: the worker's device may be slow, and
/// may never answer.
class block_lane : public caf::event_based_actor {
public:
  /// The arena stays at least as long as the actor, which may be at work when everybody else is done with it. `cache`:
  /// if it is open already.
  block_lane(caf::actor_config& config, std::shared_ptr<io::extent_source> arena,
             std::shared_ptr<remote_cache> cache = nullptr)
      : caf::event_based_actor(config), arena_(std::move(arena)), cache_(std::move(cache)) {}

  const char* name() const override { return "block_lane"; }
  /// What is closed may have locked the arena, and so goes first.
  void on_exit() override {
    cache_.reset();
    arena_.reset();
  }

protected:
  caf::behavior make_behavior() override;

private:
  opened_cache open(const open_order& order);
  io_reply copy(const block_copy& order);

  std::shared_ptr<io::extent_source> arena_;
  std::shared_ptr<remote_cache> cache_;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::open_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::opened_cache)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_copy)
