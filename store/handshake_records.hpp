#pragma once

#include "base/error.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The durable records of the handshake directory and their encoding, which follows the rules of store/records.hpp.
///
/// Keys:   table (1 byte), name of the engine, 0; for each rank the same followed by three numbers (4 each).
/// Values: a version byte, the incarnation (8), then the other fields.

namespace troupe::store {

inline constexpr std::size_t handshake_name_bytes = 200;

/// The handshake directory's record of an engine.
struct handshake_engine_record {
  /// At most `handshake_name_bytes`, without a zero byte.
  std::string engine;
  std::uint64_t incarnation = 0;
  std::array<std::uint32_t, 3> sizes{};
  std::string compat;
  std::chrono::nanoseconds ttl{};
  /// 0: it is alive. Otherwise the code of how it ended.
  std::uint8_t over = 0;
  /// The time of day at which it expires, or is forgotten.
  std::chrono::sys_time<std::chrono::nanoseconds> deadline{};

  friend bool operator==(const handshake_engine_record&, const handshake_engine_record&) = default;
};

/// The published data of one rank of an engine.
struct handshake_rank_record {
  std::string engine;
  std::array<std::uint32_t, 3> rank{};
  /// Not valid unless it is that of its engine.
  std::uint64_t incarnation = 0;
  std::uint8_t form = 0;
  std::string payload;

  friend bool operator==(const handshake_rank_record&, const handshake_rank_record&) = default;
};

/// The key of the engine, which is a prefix of the keys of its ranks.
void append_handshake_key(std::string& out, std::string_view engine);
void append_handshake_key(std::string& out, std::string_view engine, const std::array<std::uint32_t, 3>& rank);

void append_value(std::string& out, const handshake_engine_record& record);
void append_value(std::string& out, const handshake_rank_record& record);

/// Decodes a record from any bytes. Error: `corrupt`, naming the record, if they are not a record of that kind.
result<handshake_engine_record> decode_handshake_engine(std::string_view key, std::string_view value);
result<handshake_rank_record> decode_handshake_rank(std::string_view key, std::string_view value);
/// Whether a handshake's key is that of the engine; otherwise it is that of a rank.
bool is_handshake_engine(std::string_view key) noexcept;

/// The key in words for errors. Nothing if it is not one of a handshake.
std::optional<std::string> describe_handshake_key(std::string_view key);

} // namespace troupe::store
