#pragma once

#include "http/server/response.hpp"
#include "http/server/response_writer.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// The answers of a connection that are not written yet. While some are being written, further ones are added behind
/// them. The claim of an answer is held until its last byte has been written. For one thread.
class output_buffer {
public:
  /// Adds bytes that belong to no answer.
  void append(std::string_view bytes) { next_ += bytes; }
  /// Adds an answer. Returns its length.
  std::size_t append(const response& x, const framing& how);

  /// Whether bytes were added since the last `begin_write`.
  bool is_empty() const noexcept { return next_.empty(); }
  std::size_t size() const noexcept { return next_.size(); }

  /// Returns all bytes that were added, to be written; valid until `written`. Not before the last ones are written.
  std::string_view begin_write() noexcept;
  /// The bytes of `begin_write` have been written.
  void written() noexcept;

private:
  using claims = std::vector<std::shared_ptr<const void>>;

  std::string next_;
  std::string sending_;
  claims next_claims_;
  claims sending_claims_;
};

} // namespace troupe::http
