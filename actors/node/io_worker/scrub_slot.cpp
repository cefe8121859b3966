#include "actors/node/io_worker/scrub_slot.hpp"

namespace troupe {

void scrub_slot::set_memory(std::span<std::byte> memory, std::uint32_t buffer) noexcept {
  memory_ = memory;
  buffer_ = buffer;
}

io::page_request scrub_slot::read(const page_ref& page, std::uint64_t tag, timestamp deadline) noexcept {
  page_ = page;
  tag_ = tag;
  return {io::operation::read, page.where, memory_.data(), memory_.size(), buffer_, tag, deadline};
}

bool scrub_slot::ended(std::uint64_t tag, errc status) noexcept {
  if (tag_ == 0 || tag != tag_)
    return false;
  tag_ = 0;
  if (status == errc::ok)
    check_ = page_;
  return true;
}

} // namespace troupe
