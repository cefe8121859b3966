#pragma once

#include "actors/node/registry/shard_namespaces.hpp"
#include "actors/node/tables/chunked_array.hpp"
#include "messages/registry_admin_messages.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

/// Restores one shard from what an earlier run stored, before the shard serves requests. At most one page per slot is
/// restored; if two pages claim a slot, none is.
class shard_restoring {
public:
  explicit shard_restoring(shard_namespaces& namespaces)
      : namespaces_(namespaces), claims_(std::make_unique<claims>()) {}

  /// Takes pages that an earlier run stored, in any order and in any number of calls; one code each, see
  /// `restore_request`. Child counts follow, those of other shards through the outbox. Pages that are not restored are
  /// reported as unpublished, so that the store drops them. invalid_argument after `restored`, limit_exceeded for more
  /// than `restored_pages_max`.
  result<result_codes> restore(std::span<const stored_page> pages);

  /// Drops pages that were restored, because the allocator received another claim on their slots. Codes are ok and
  /// not_found.
  result<result_codes> drop_restored(const namespace_id& ns, rank_number rank, std::span<const slot_ref> slots);

  /// Ends restoring; `keys` is how many keys there are.
  result<restore_report> restored(std::uint64_t keys);
  /// Whether that was called.
  bool ended() const noexcept { return claims_ == nullptr; }

private:
  /// The claim on a slot; zero while there is none. A claim without an entry is disputed: two pages claimed the slot,
  /// and no page gets it any more.
  struct slot_claim {
    std::uint32_t entry_plus_one = 0;
    generation_number generation = 0;
  };

  /// The claims of all slots.
  class claims {
  public:
    slot_claim& of(std::uint32_t ns, rank_number rank, slot_number slot);

  private:
    using of_rank = chunked_array<slot_claim>;

    std::unordered_map<std::uint64_t, std::unique_ptr<of_rank>> by_rank_;
    /// The claims used last: pages of one rank mostly come together.
    of_rank* last_ = nullptr;
    std::uint64_t last_name_ = 0;
  };

  static std::optional<error> check_restored(std::size_t n);
  errc restore_page(const stored_page& page, entry_index hint);
  void drop(key_space& ns, rank_number rank, slot_claim& what);

  shard_namespaces& namespaces_;
  /// Null once service has begun.
  std::unique_ptr<claims> claims_;
  restore_report report_;

  // Kept between calls for their memory.
  std::vector<key_digest> keys_;
  std::vector<entry_index> found_;
};

} // namespace troupe
