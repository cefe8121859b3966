#include "store/handshake_records.hpp"

#include "store/record_bytes.hpp"
#include "store/records.hpp"

#include <utility>

namespace troupe::store {

namespace {

constexpr std::uint8_t handshake_version = 1;
/// The part of the key behind the name of the engine and its terminating zero.
constexpr std::size_t handshake_rank_bytes = 12;

/// The name of the engine, up to the zero. Nothing if the key is not of a handshake, or has not exactly `behind` more
/// bytes.
std::optional<std::string> engine_of(std::string_view key, std::size_t behind) {
  if (!key.starts_with(first_of(table::handshakes)))
    return std::nullopt;
  const auto end = key.find('\0');
  if (end == std::string_view::npos || end < 2 || end - 1 > handshake_name_bytes || key.size() != end + 1 + behind)
    return std::nullopt;
  return std::string(key.substr(1, end - 1));
}

} // namespace

void append_handshake_key(std::string& out, std::string_view engine) {
  out.append(first_of(table::handshakes)).append(engine).push_back('\0');
}

void append_handshake_key(std::string& out, std::string_view engine, const std::array<std::uint32_t, 3>& rank) {
  append_handshake_key(out, engine);
  for (const auto x : rank)
    append_big(out, x);
}

void append_value(std::string& out, const handshake_engine_record& record) {
  append_little(out, handshake_version);
  append_little(out, record.incarnation);
  for (const auto x : record.sizes)
    append_little(out, x);
  append_little(out, static_cast<std::uint64_t>(record.ttl.count()));
  append_little(out, record.over);
  append_little(out, static_cast<std::uint64_t>(record.deadline.time_since_epoch().count()));
  append_text(out, record.compat);
}

void append_value(std::string& out, const handshake_rank_record& record) {
  append_little(out, handshake_version);
  append_little(out, record.incarnation);
  append_little(out, record.form);
  append_text(out, record.payload);
}

bool is_handshake_engine(std::string_view key) noexcept {
  return key.starts_with(static_cast<char>(table::handshakes)) && key.find('\0') + 1 == key.size();
}

result<handshake_engine_record> decode_handshake_engine(std::string_view key, std::string_view value) {
  auto engine = engine_of(key, 0);
  if (!engine)
    return wrong_key(key);
  byte_reader in(value);
  if (const auto version = in.little<std::uint8_t>(); in.sound() && version != handshake_version)
    return wrong_version(key, version, handshake_version);
  handshake_engine_record record;
  record.engine = std::move(*engine);
  record.incarnation = in.little<std::uint64_t>();
  for (auto& x : record.sizes)
    x = in.little<std::uint32_t>();
  record.ttl = std::chrono::nanoseconds(static_cast<std::int64_t>(in.little<std::uint64_t>()));
  record.over = in.little<std::uint8_t>();
  record.deadline =
      decltype(record.deadline)(std::chrono::nanoseconds(static_cast<std::int64_t>(in.little<std::uint64_t>())));
  record.compat = in.text();
  if (!in.ended_well())
    return wrong_value(key, value);
  return record;
}

result<handshake_rank_record> decode_handshake_rank(std::string_view key, std::string_view value) {
  auto engine = engine_of(key, handshake_rank_bytes);
  if (!engine)
    return wrong_key(key);
  byte_reader in(value);
  if (const auto version = in.little<std::uint8_t>(); in.sound() && version != handshake_version)
    return wrong_version(key, version, handshake_version);
  handshake_rank_record record;
  byte_reader name(key.substr(key.size() - handshake_rank_bytes));
  for (auto& x : record.rank)
    x = name.big<std::uint32_t>();
  record.engine = std::move(*engine);
  record.incarnation = in.little<std::uint64_t>();
  record.form = in.little<std::uint8_t>();
  record.payload = in.text();
  if (!in.ended_well())
    return wrong_value(key, value);
  return record;
}

std::optional<std::string> describe_handshake_key(std::string_view key) {
  if (auto engine = engine_of(key, 0))
    return "handshakes of engine " + *engine;
  if (auto engine = engine_of(key, handshake_rank_bytes))
    return "a rank's handshake of engine " + *engine;
  return std::nullopt;
}

} // namespace troupe::store
