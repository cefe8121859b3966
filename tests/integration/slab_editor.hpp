#pragma once

#include "base/digest.hpp"
#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace troupe::test {

/// Reads and damages a slab file behind the back of the node that has it open. What is written is on the disk when the
/// call returns. Throws std::system_error.
class slab_editor {
public:
  slab_editor(const std::filesystem::path& file, std::uint64_t page_bytes);
  slab_editor(const slab_editor&) = delete;
  slab_editor& operator=(const slab_editor&) = delete;
  ~slab_editor();

  std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }

  /// Without the trailer.
  std::uint64_t slots() const;

  std::vector<std::byte> read(slot_number slot) const;
  void write(slot_number slot, std::span<const std::byte> bytes) const;

  /// Inverts the bits of one byte.
  void flip(slot_number slot, std::uint64_t offset) const;

  /// A slot with a sound page of this key that was written to that slot. The only one, as long as each page that was
  /// saved again was damaged before.
  std::optional<slot_number> find(const key_digest& key) const;

  /// Gives the space of all slots back to the file system; they read as zeroes.
  void punch() const;

private:
  int descriptor_ = -1;
  std::uint64_t slot_bytes_;
};

} // namespace troupe::test
