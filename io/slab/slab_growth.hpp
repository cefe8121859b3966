#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/page.hpp"
#include "io/slab/page_store.hpp"
#include "io/slab/slab_file.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

/// The growth of a slab file. The file has its whole length from the start, with its trailer at the end, and disk space
/// for its first slots only. Behind the last slot are two records of 4 KiB, written in turns; of the valid ones, that
/// with more slots gives their number. docs/page-format.md has the layout.
///
/// In a sparse file, slots with encoded pages give the disk space of their ends back, and there are further slots
/// without disk space of their own. The record says how many slots there are and how many whole pages the file has disk
/// space for; the pages together never occupy more than that. Who writes pages counts that (`slab_usage`).

namespace troupe::io {

/// One record. Public for tests.
struct growth_record {
  std::uint64_t slots = 0;
  /// The incarnation of the file.
  incarnation_number incarnation = 0;
  /// In a sparse file, for how many whole pages it has disk space; else as many as `slots`.
  std::uint64_t granted = 0;
};

using growth_record_block = std::array<std::byte, slab_trailer_bytes>;
growth_record_block make_growth_record(const growth_record& x);
/// Nothing if the block is no valid record.
std::optional<growth_record> read_growth_record(std::span<const std::byte> block);

/// The record of a growing file that counts, and which of the two it is.
struct current_record {
  growth_record record;
  std::size_t at = 0;
};

/// Nothing if neither is valid, for a file with this spec.
std::optional<current_record> current_growth_record(int descriptor, const slab_spec& spec);

/// Grows a slab file. Disk space is allocated first, then the record is written. So a crash leaves a file with the old
/// or the new number of slots, and never a torn record without the one before it.
class slab_growth final : public store_growth {
public:
  /// The size of both records.
  static constexpr std::uint64_t record_bytes = 2 * slab_trailer_bytes;

  /// Gives a new, empty file its length, disk space for `spec.first_slots`, and its records. Error: `no_space`.
  static result<void> begin(int descriptor, const slab_spec& spec);

  /// Opens a file whose trailer was checked. Space beyond its slots, which a crash has left, is freed. Error:
  /// `slab_damaged` if no record is valid.
  static result<std::shared_ptr<slab_growth>> open(int descriptor, const slab_spec& spec);

  std::uint64_t slots() const noexcept override { return slots_; }
  std::uint64_t slot_bytes() const noexcept override { return spec_.slot_bytes; }
  std::uint64_t granted() const noexcept override { return granted_.load(std::memory_order_relaxed); }
  bool is_sparse() const noexcept override { return spec_.sparse; }
  slab_grant take_granted() override;
  result<void> grow(std::uint64_t slots) override;
  result<void> extend(std::uint64_t slots) override;

private:
  slab_growth(unique_descriptor descriptor, slab_spec spec, const growth_record& x, std::size_t next)
      : descriptor_(std::move(descriptor)), spec_(std::move(spec)), slots_(x.slots), granted_(x.granted), next_(next) {}

  result<void> check_number(std::uint64_t slots) const;
  /// Records both numbers, on the disk, and then uses them.
  result<void> record(std::uint64_t slots, std::uint64_t granted);

  /// A duplicate that refers to the same open file, so that lock and flags are the slab's.
  unique_descriptor descriptor_;
  slab_spec spec_;
  std::uint64_t slots_ = 0;
  std::atomic<std::uint64_t> granted_{0};
  /// Guards `given_`, and `granted_` against changes between the two.
  std::mutex given_mutex_;
  std::vector<slot_range> given_;
  /// The index of the record that is written next: not the current one.
  std::size_t next_ = 0;
};

} // namespace troupe::io
