#include "http/server/output_buffer.hpp"

namespace troupe::http {

namespace {

/// A larger buffer is released when its bytes have been written.
constexpr std::size_t kept_bytes = std::size_t{256} * 1024;

} // namespace

std::size_t output_buffer::append(const response& x, const framing& how) {
  const auto before = next_.size();
  if (x.claim)
    next_claims_.push_back(x.claim);
  append_response(next_, x, how);
  return next_.size() - before;
}

std::string_view output_buffer::begin_write() noexcept {
  sending_.swap(next_);
  sending_claims_.swap(next_claims_);
  return sending_;
}

void output_buffer::written() noexcept {
  if (sending_.capacity() > kept_bytes)
    sending_ = {};
  sending_.clear();
  sending_claims_.clear();
}

} // namespace troupe::http
