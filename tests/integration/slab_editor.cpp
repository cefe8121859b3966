#include "tests/integration/slab_editor.hpp"

#include "io/page.hpp"
#include "tests/integration/process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe::test {

slab_editor::slab_editor(const std::filesystem::path& file, std::uint64_t page_bytes)
    : descriptor_(::open(file.c_str(), O_RDWR | O_CLOEXEC)), slot_bytes_(io::slot_bytes(page_bytes)) {
  check_call(descriptor_ >= 0, "open the slab");
}

slab_editor::~slab_editor() {
  ::close(descriptor_);
}

std::uint64_t slab_editor::slots() const {
  struct stat status {};
  check_call(::fstat(descriptor_, &status) == 0, "fstat");
  return (static_cast<std::uint64_t>(status.st_size) - io::page_alignment) / slot_bytes_;
}

std::vector<std::byte> slab_editor::read(slot_number slot) const {
  std::vector<std::byte> out(slot_bytes_);
  const auto got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(slot * slot_bytes_));
  check_call(got == static_cast<ssize_t>(out.size()), "pread");
  return out;
}

void slab_editor::write(slot_number slot, std::span<const std::byte> bytes) const {
  const auto put = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(slot * slot_bytes_));
  check_call(put == static_cast<ssize_t>(bytes.size()) && ::fdatasync(descriptor_) == 0, "pwrite");
}

void slab_editor::flip(slot_number slot, std::uint64_t offset) const {
  auto bytes = read(slot);
  bytes.at(offset) = ~bytes.at(offset);
  write(slot, bytes);
}

std::optional<slot_number> slab_editor::find(const key_digest& key) const {
  for (slot_number slot = 0; slot < slots(); ++slot) {
    const auto bytes = read(slot);
    const auto page = io::identity_of(bytes);
    if (page && page->key == key && page->where.slot == slot && io::verify_page(bytes, *page) == errc::ok)
      return slot;
  }
  return std::nullopt;
}

void slab_editor::punch() const {
  const auto bytes = static_cast<off_t>(slots() * slot_bytes_);
  check_call(::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) == 0, "punch");
}

} // namespace troupe::test
