#include "codec/tile_codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace troupe::codec {

namespace {

using exponents = std::array<std::uint8_t, tile_elements>;

std::uint16_t element_at(const std::byte* payload, std::uint32_t i) noexcept {
  std::uint16_t out = 0;
  std::memcpy(&out, payload + std::size_t{i} * 2, sizeof out);
  return out;
}

window_choice window_for(const exponents& all) noexcept {
  // The number of exponents below each value, and the count of all at the end.
  std::array<std::uint32_t, 257> below{};
  for (const auto e : all)
    ++below[e + 1U];
  for (std::size_t i = 1; i < below.size(); ++i)
    below[i] += below[i - 1];
  const auto next_below = [&](std::uint32_t x) {
    while (x > 0 && below[x] == below[x - 1])
      --x;
    return x == 0 ? 0 : x - 1;
  };
  return choose_window(
      next_below(256), below[1], [&](std::uint32_t x) { return tile_elements - below[x + 1]; },
      [&](std::uint32_t x) { return below[x]; }, next_below);
}

std::uint32_t code_of(std::uint32_t exponent, const tile_window& window) noexcept {
  if (window.has_zero_code && exponent == 0)
    return zero_code;
  const auto code = (window.base - exponent) & 0xffU;
  return code < (window.has_zero_code ? zero_code : escape_code) ? code : escape_code;
}

window_choice encode_plainly(const std::byte* payload, tile_target& to) noexcept {
  exponents all{};
  for (std::uint32_t i = 0; i < tile_elements; ++i) {
    const auto turned = std::rotl(element_at(payload, i), 1);
    to.mantissas[i] = static_cast<std::byte>(turned);
    all[i] = static_cast<std::uint8_t>(turned >> 8U);
  }
  const auto choice = window_for(all);
  if (choice.escapes > max_tile_escapes)
    return choice;
  std::uint32_t escapes = 0;
  for (std::uint32_t i = 0; i < tile_elements; ++i) {
    const auto code = code_of(all[i], choice.window);
    if (code == escape_code)
      to.escapes[escapes++] = all[i];
    const auto byte = i % tile_code_bytes;
    to.codes[byte] = i < tile_code_bytes ? static_cast<std::byte>(code) : to.codes[byte] | std::byte(code << 4U);
  }
  return choice;
}

bool decode_plainly(const tile_source& from, std::byte* payload) noexcept {
  const auto table = exponents_by_code(from.window);
  std::uint32_t escapes = 0;
  for (std::uint32_t i = 0; i < tile_elements; ++i) {
    const auto pair = std::to_integer<std::uint32_t>(from.codes[i % tile_code_bytes]);
    const auto code = i < tile_code_bytes ? pair & 0xfU : pair >> 4U;
    std::uint32_t exponent = table[code];
    if (code == escape_code) {
      if (escapes == from.escape_count)
        return false;
      exponent = from.escapes[escapes++];
    }
    const auto turned = exponent << 8U | std::to_integer<std::uint32_t>(from.mantissas[i]);
    const auto element = std::rotr(static_cast<std::uint16_t>(turned), 1);
    std::memcpy(payload + std::size_t{i} * 2, &element, sizeof element);
  }
  return escapes == from.escape_count;
}

} // namespace

const tile_codec plain_tile_codec{encode_plainly, decode_plainly};

} // namespace troupe::codec
