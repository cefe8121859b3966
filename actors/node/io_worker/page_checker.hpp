#pragma once

#include "io/extent_source.hpp"
#include "io/page.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// Whose pages are looked at, and where they lie.
struct page_checker_options {
  namespace_id space;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  /// The whole arena, or what stands for it. Kept by whoever made it for as long as there is a checker, or by `keeps`.
  std::span<const std::byte> memory;
  /// Kept with the checker, where that is the memory's only owner.
  std::shared_ptr<const void> keeps{};
};

/// Verifies pages in memory before they are written to a slab. An actor of its own beside the io worker, which has
/// better things to do than to read every byte.
class page_checker : public page_checker_actor::base {
public:
  page_checker(caf::actor_config& config, const page_checker_options& options)
      : page_checker_actor::base(config), options_(options) {}

  const char* name() const override { return "page_checker"; }

protected:
  behavior_type make_behavior() override;

private:
  errc check(const check_item& item) const;

  page_checker_options options_;
};

} // namespace troupe
