#include "codec/page_codec.hpp"

#include "codec/tile_codec.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>

namespace troupe::codec {

namespace {

bool can_run(instructions x) noexcept {
#ifdef __x86_64__
  switch (x) {
  case instructions::plain:
    return true;
  case instructions::avx2:
    return __builtin_cpu_supports("avx2") != 0;
  case instructions::avx512:
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vbmi") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0;
  }
#endif
  return x == instructions::plain;
}

const tile_codec& tiles_with(instructions x) noexcept {
#ifdef __x86_64__
  if (x == instructions::avx512)
    return avx512_tile_codec;
  if (x == instructions::avx2)
    return avx2_tile_codec;
#endif
  return plain_tile_codec;
}

instructions fastest() noexcept {
  static const auto found = can_run(instructions::avx512) ? instructions::avx512
                            : can_run(instructions::avx2) ? instructions::avx2
                                                          : instructions::plain;
  return found;
}

result<void> check_call(std::uint64_t payload_bytes, std::uint64_t encoded, instructions with) {
  const auto expected = encoded_bytes(payload_bytes);
  if (!expected)
    return tl::unexpected(expected.error());
  if (encoded != *expected)
    return fail(errc::invalid_argument, "a payload of " + std::to_string(payload_bytes) + " bytes is encoded in " +
                                            std::to_string(*expected) + ", and the buffer has " +
                                            std::to_string(encoded));
  if (!can_run(with))
    return fail(errc::unsupported,
                "this processor has no " + std::string(to_string(with)) + ": use one of available_instructions()");
  return {};
}

/// The bytes of tile `i` in the payload; fewer than `tile_bytes` in the last one.
std::size_t bytes_of_tile(std::size_t payload_bytes, std::size_t i) noexcept {
  return std::min<std::size_t>(payload_bytes - i * tile_bytes, tile_bytes);
}

/// Whether such a payload can be cut into tiles.
bool has_layout(std::uint64_t payload_bytes) noexcept {
  return payload_bytes != 0 && payload_bytes % 2 == 0 && payload_bytes <= max_payload_bytes;
}

result<page_header> check_header(std::span<const std::byte> encoded, std::uint64_t payload_bytes) {
  page_header header;
  std::memcpy(&header, encoded.data(), sizeof header);
  if (header.magic != format_magic)
    return fail(errc::corrupt, "not an encoded payload: its first bytes are others");
  if (header.version != format_version)
    return fail(errc::corrupt, "the payload has version " + std::to_string(header.version) +
                                   " of the encoding, and this build reads version " + std::to_string(format_version));
  if (header.payload_bytes != payload_bytes)
    return fail(errc::corrupt, "the encoded payload has " + std::to_string(header.payload_bytes) +
                                   " bytes, and the expected one " + std::to_string(payload_bytes));
  page_header sound;
  sound.payload_bytes = payload_bytes;
  sound.escapes = header.escapes;
  if (header != sound)
    return fail(errc::corrupt, "unused bytes in the header of the encoded payload are not zero");
  return header;
}

} // namespace

std::string_view to_string(instructions x) noexcept {
  constexpr std::array<std::string_view, 3> names{"plain", "AVX2", "AVX-512"};
  return names.at(static_cast<std::size_t>(x));
}

std::vector<instructions> available_instructions() {
  std::vector<instructions> out;
  std::ranges::copy_if(std::array{instructions::plain, instructions::avx2, instructions::avx512},
                       std::back_inserter(out), can_run);
  return out;
}

result<std::uint64_t> encoded_bytes(std::uint64_t payload_bytes) {
  if (!has_layout(payload_bytes))
    return fail(errc::invalid_argument, "a payload of " + std::to_string(payload_bytes) +
                                            " bytes has no encoding: whole elements of BF16 have, up to " +
                                            std::to_string(max_payload_bytes) + " bytes");
  const auto bytes = layout_of(payload_bytes).bytes;
  if (bytes >= payload_bytes)
    return fail(errc::invalid_argument, "a payload of " + std::to_string(payload_bytes) +
                                            " bytes is too short: its encoding would have " + std::to_string(bytes));
  return bytes;
}

std::uint64_t stored_bytes(page_encoding encoding, std::uint64_t payload_bytes) noexcept {
  if (encoding == page_encoding::raw)
    return payload_bytes;
  const auto bytes = has_layout(payload_bytes) ? layout_of(payload_bytes).bytes : payload_bytes;
  return bytes < payload_bytes ? bytes : 0;
}

result<outcome> encode(std::span<const std::byte> payload, std::span<std::byte> to) {
  return encode(payload, to, fastest());
}

result<outcome> encode(std::span<const std::byte> payload, std::span<std::byte> to, instructions with) {
  if (auto checked = check_call(payload.size(), to.size(), with); !checked)
    return tl::unexpected(checked.error());
  const auto layout = layout_of(payload.size());
  const auto& tiles = tiles_with(with);
  auto* const list = to.data() + layout.escapes;
  std::uint32_t escapes = 0;
  tile_target target;
  std::array<std::byte, tile_bytes> padded{};
  for (std::size_t i = 0; i < layout.tiles; ++i) {
    const auto* from = payload.data() + i * tile_bytes;
    if (const auto bytes = bytes_of_tile(payload.size(), i); bytes < tile_bytes) {
      std::memcpy(padded.data(), from, bytes);
      from = padded.data();
    }
    target.mantissas = to.data() + layout.mantissas + i * tile_elements;
    target.codes = to.data() + layout.codes + i * tile_code_bytes;
    const auto choice = tiles.encode(from, target);
    if (choice.escapes > max_tile_escapes || choice.escapes > layout.escape_room - escapes)
      return outcome::does_not_fit;
    std::memcpy(list + escapes, target.escapes.data(), choice.escapes);
    escapes += choice.escapes;
    const auto record = record_of(choice.window, escapes);
    std::memcpy(to.data() + layout.records + i * record_bytes, &record, sizeof record);
  }
  std::memset(list + escapes, 0, layout.bytes - layout.escapes - escapes);
  page_header header;
  header.payload_bytes = payload.size();
  header.escapes = escapes;
  std::memcpy(to.data(), &header, sizeof header);
  return outcome::encoded;
}

result<void> decode(std::span<const std::byte> encoded, std::span<std::byte> payload) {
  return decode(encoded, payload, fastest());
}

result<void> decode(std::span<const std::byte> encoded, std::span<std::byte> payload, instructions with) {
  if (auto checked = check_call(payload.size(), encoded.size(), with); !checked)
    return checked;
  const auto layout = layout_of(payload.size());
  const auto header = check_header(encoded, payload.size());
  if (!header)
    return tl::unexpected(header.error());
  const auto& tiles = tiles_with(with);
  const auto* const list = reinterpret_cast<const std::uint8_t*>(encoded.data() + layout.escapes);
  std::uint32_t begin = 0;
  std::array<std::byte, tile_bytes> padded{};
  for (std::size_t i = 0; i < layout.tiles; ++i) {
    std::uint32_t record = 0;
    std::memcpy(&record, encoded.data() + layout.records + i * record_bytes, sizeof record);
    const auto end = escapes_end_of(record);
    // An end before the begin is a difference beyond any limit.
    if (end > layout.escape_room || end - begin > max_tile_escapes)
      return fail(errc::corrupt,
                  "tile " + std::to_string(i) + " of the encoded payload has an impossible number of escapes");
    const tile_source source{encoded.data() + layout.mantissas + i * tile_elements,
                             encoded.data() + layout.codes + i * tile_code_bytes, window_of(record), list + begin,
                             end - begin};
    const auto bytes = bytes_of_tile(payload.size(), i);
    auto* const to = payload.data() + i * tile_bytes;
    if (!tiles.decode(source, bytes < tile_bytes ? padded.data() : to))
      return fail(errc::corrupt,
                  "tile " + std::to_string(i) + " of the encoded payload has another number of escapes than recorded");
    if (bytes < tile_bytes)
      std::memcpy(to, padded.data(), bytes);
    begin = end;
  }
  if (begin != header->escapes)
    return fail(errc::corrupt, "the encoded payload has more escapes than its tiles");
  return {};
}

} // namespace troupe::codec
