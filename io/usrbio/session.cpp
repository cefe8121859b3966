#include "io/usrbio/session.hpp"

#include <cerrno>

namespace troupe::io::usrbio {

namespace {

constexpr std::uint32_t copies_count = 16;

} // namespace

result<std::unique_ptr<session>> session::open(const std::shared_ptr<mount>& at, session_number number,
                                               std::uint32_t depth) {
  std::unique_ptr<session> made(new session(at, number));
  auto reads = transfer_ring::open(at, operation::read, depth);
  if (!reads)
    return tl::unexpected(std::move(reads.error()));
  auto writes = transfer_ring::open(at, operation::write, depth);
  if (!writes)
    return tl::unexpected(std::move(writes.error()));
  made->reads_ = std::move(*reads);
  made->writes_ = std::move(*writes);
  return made;
}

session::~session() {
  if (copies_.base == nullptr)
    return;
  const auto names = copies_;
  mount_->client().iovdestroy(&copies_);
  mount_->unlink_names(names);
}

result<void> session::make_copies() {
  if (copies_.base != nullptr)
    return {};
  const auto code =
      mount_->client().iovcreate(&copies_, mount_->place().c_str(), copies_count * copy_bytes, copy_bytes, -1);
  if (code < 0) {
    copies_ = {};
    return tl::unexpected(system_error(-code, "3FS's daemon of " + mount_->place() + " refuses memory for copies"));
  }
  make_private(copies_.base);
  for (auto i = copies_count; i-- > 0;)
    free_copies_.push_back(i);
  return {};
}

std::optional<std::uint32_t> session::take_copy() {
  if (free_copies_.empty())
    return std::nullopt;
  const auto out = free_copies_.back();
  free_copies_.pop_back();
  return out;
}

void session::give_copy(std::uint32_t which) {
  free_copies_.push_back(which);
}

std::byte* session::copy(std::uint32_t which) const noexcept {
  return reinterpret_cast<std::byte*>(copies_.base) + which * copy_bytes;
}

} // namespace troupe::io::usrbio
