#include "io/claims/claim_record.hpp"

#include "base/digest.hpp"
#include "base/parse_number.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace troupe::io {

namespace {

constexpr std::string_view title = "troupe claim 1";
static_assert(title.back() == '0' + claim_version);
constexpr std::size_t name_bytes_max = 255;

std::string one_line(std::string_view name) {
  std::string out(name.substr(0, name_bytes_max));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return out;
}

std::string_view name_of(claim_kind x) {
  return x == claim_kind::owner ? "owner" : "adopter";
}

std::string_view name_of(claim_phase x) {
  if (x == claim_phase::waiting)
    return "waiting";
  return x == claim_phase::holding ? "holding" : "released";
}

std::string sum_of(std::string_view text) {
  return to_string(hash_key(std::as_bytes(std::span(text))));
}

void append_line(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(" ").append(value).append("\n");
}

/// Removes "NAME VALUE\n" from the start of the text.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view name) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(name) || end <= name.size() || text[name.size()] != ' ')
    return std::nullopt;
  const auto value = text.substr(name.size() + 1, end - name.size() - 1);
  text.remove_prefix(end + 1);
  return value;
}

std::optional<std::uint64_t> take_number(std::string_view& text, std::string_view name) {
  const auto value = take_line(text, name);
  return value ? parse_number(*value) : std::nullopt;
}

template <class Enum>
std::optional<Enum> named(std::optional<std::string_view> name, std::initializer_list<Enum> all) {
  for (const auto x : all)
    if (name && *name == name_of(x))
      return x;
  return std::nullopt;
}

} // namespace

std::string text_of(const claim_record& x) {
  std::string out(title);
  out.append("\n");
  append_line(out, "holder", one_line(x.holder));
  append_line(out, "incarnation", std::to_string(x.incarnation));
  append_line(out, "kind", name_of(x.kind));
  append_line(out, "phase", name_of(x.phase));
  append_line(out, "lease_ns", std::to_string(x.lease.count()));
  append_line(out, "counter", std::to_string(x.counter));
  append_line(out, "cluster", one_line(x.cluster));
  append_line(out, "sum", sum_of(out));
  out.resize(claim_record_bytes - 1, ' ');
  out.append("\n");
  return out;
}

std::optional<claim_record> read_claim(std::span<const std::byte> bytes) {
  if (bytes.size() != claim_record_bytes)
    return std::nullopt;
  const std::string_view whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto text = whole;
  if (!text.starts_with(title) || text[title.size()] != '\n')
    return std::nullopt;
  text.remove_prefix(title.size() + 1);
  claim_record out;
  const auto holder = take_line(text, "holder");
  const auto incarnation = take_number(text, "incarnation");
  const auto kind = named(take_line(text, "kind"), {claim_kind::owner, claim_kind::adopter});
  const auto phase =
      named(take_line(text, "phase"), {claim_phase::waiting, claim_phase::holding, claim_phase::released});
  const auto lease = take_number(text, "lease_ns");
  const auto counter = take_number(text, "counter");
  const auto cluster = take_line(text, "cluster");
  const auto said = whole.substr(0, whole.size() - text.size());
  const auto sum = take_line(text, "sum");
  if (!holder || !incarnation || !kind || !phase || !lease || !counter || !cluster || !sum || *sum != sum_of(said))
    return std::nullopt;
  if (*lease > static_cast<std::uint64_t>(longest_claim_lease.count()))
    return std::nullopt;
  return claim_record{std::string(*holder), *incarnation, *kind, *phase, duration(*lease), *counter,
                      std::string(*cluster)};
}

} // namespace troupe::io
