#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe {

/// The name that an engine has given a request, such as "chatcmpl-8f3a…": its first bytes, in place, so that rings of
/// a fixed size hold it. Empty where the client names no requests.
class request_name {
public:
  static constexpr std::size_t most = 95;

  request_name() = default;
  explicit request_name(std::string_view text) noexcept
      : length_(static_cast<std::uint8_t>(std::min(text.size(), most))) {
    std::copy_n(text.begin(), length_, text_.begin());
  }

  std::string_view text() const noexcept { return {text_.data(), length_}; }
  bool empty() const noexcept { return length_ == 0; }

  friend bool operator==(const request_name& a, const request_name& b) noexcept { return a.text() == b.text(); }

private:
  std::uint8_t length_ = 0;
  std::array<char, most> text_{};
};

} // namespace troupe
