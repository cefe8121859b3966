#pragma once

#include "io/memory/extent_source.hpp"
#include "io/page.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// The namespace and rank of the pages, and where they are in memory.
struct page_checker_options {
  namespace_id ns;
  rank_number rank = 0;
  std::uint64_t page_bytes = 0;
  /// The whole arena, or its substitute. It must outlive the checker, or be owned by `keeps`.
  std::span<const std::byte> memory;
  /// Owns the memory, where the checker is its only owner.
  std::shared_ptr<const void> keeps{};
};

/// An actor that verifies pages in memory before they are written to a slab. It runs beside the io worker, so that
/// reading every byte does not delay that.
class page_checker : public page_checker_actor::base {
public:
  page_checker(caf::actor_config& config, const page_checker_options& options)
      : page_checker_actor::base(config), options_(options) {}

  const char* name() const override { return "page_checker"; }

protected:
  behavior_type make_behavior() override;

private:
  errc check(std::span<const std::byte> bytes, const page_ref& page) const;

  page_checker_options options_;
};

} // namespace troupe
