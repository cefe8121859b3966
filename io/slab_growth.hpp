#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/page_store.hpp"
#include "io/slab_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

/// How a slab file grows. It has its whole length from the start, with its trailer at the end, and disk space for its
/// first slots only; behind the last slot lie two records of 4 KiB, written in turns, of which the sound one with more
/// slots says how many these are. docs/page-format.md has the layout.

namespace troupe::io {

/// One record. Public for tests.
struct growth_record {
  std::uint64_t slots = 0;
  /// Of the file.
  incarnation_number incarnation = 0;
};

using growth_record_block = std::array<std::byte, slab_trailer_bytes>;
growth_record_block make_growth_record(const growth_record& x);
/// Nothing if it is no sound record.
std::optional<growth_record> read_growth_record(std::span<const std::byte> block);

/// Disk space comes first, then the record that tells of it. So a crash leaves a file that has as many slots as before,
/// or as many as it was to have, and never a record that is torn without the one before it.
class slab_growth final : public store_growth {
public:
  /// Both records.
  static constexpr std::uint64_t record_bytes = 2 * slab_trailer_bytes;

  /// Gives a new, empty file its length, disk space for `spec.first_slots`, and its records. `no_space` where the disk
  /// is full.
  static result<void> begin(int descriptor, const slab_spec& spec);

  /// Of a file whose trailer was judged. Space beyond the slots that the file has, which a crash has left, is given
  /// back to the disk. `slab_damaged` if no record is sound.
  static result<std::shared_ptr<slab_growth>> open(int descriptor, const slab_spec& spec);

  std::uint64_t slots() const noexcept override { return slots_; }
  std::uint64_t slot_bytes() const noexcept override { return spec_.slot_bytes; }
  result<void> grow(std::uint64_t slots) override;

private:
  slab_growth(unique_descriptor descriptor, slab_spec spec, std::uint64_t slots, std::size_t next)
      : descriptor_(std::move(descriptor)), spec_(std::move(spec)), slots_(slots), next_(next) {}

  /// Of its own, but of the same open file, so that lock and flags are the slab's.
  unique_descriptor descriptor_;
  slab_spec spec_;
  std::uint64_t slots_ = 0;
  /// The record that is written next: not the one that counts.
  std::size_t next_ = 0;
};

} // namespace troupe::io
