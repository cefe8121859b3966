#include "http/server/json_body.hpp"

#include "base/utf8.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>

namespace troupe::http {

namespace {

static_assert(body_padding >= simdjson::SIMDJSON_PADDING);

/// A larger text buffer is released after the body.
constexpr std::size_t kept_text_capacity = std::size_t{1024} * 1024;
/// Memory of simdjson's parser for each byte of its capacity: 8 for the tape, 4 for structural indexes, 5/3 for
/// strings.
constexpr std::uint64_t parser_bytes_per_byte = 14;
/// An upper bound of all rounding.
constexpr std::uint64_t parser_overhead = 4096;
static_assert(parser_bytes_per_byte * kept_text_capacity + parser_overhead < std::uint64_t{16} * 1024 * 1024);

/// A body of the same size, or a little more, is likely to follow; but the capacity is not kept for good.
std::size_t capacity_for(std::size_t bytes) noexcept {
  return 2 * bytes <= kept_text_capacity ? 2 * bytes : std::max(bytes, kept_text_capacity);
}
constexpr std::size_t least_capacity = std::size_t{16} * 1024;

std::unique_ptr<simdjson::dom::parser>& parser_of_thread() noexcept {
  thread_local std::unique_ptr<simdjson::dom::parser> parser;
  return parser;
}

/// The parser of this thread, with room for `bytes`; null if there is no memory.
simdjson::dom::parser* parser_for(std::size_t bytes) {
  auto& parser = parser_of_thread();
  const auto capacity = parser ? parser->capacity() : 0;
  if (capacity < bytes || (capacity > kept_text_capacity && bytes <= kept_text_capacity)) {
    // The old one is released first: two large ones need not exist at once.
    parser.reset();
    auto fresh = std::make_unique<simdjson::dom::parser>();
    if (fresh->allocate(std::max(capacity_for(bytes), least_capacity), max_json_depth) != simdjson::SUCCESS)
      return nullptr;
    parser = std::move(fresh);
  }
  return parser.get();
}

tl::unexpected<rejection> malformed(std::string detail) {
  return tl::unexpected(rejection{status::bad_request, std::move(detail)});
}

tl::unexpected<rejection> wrong(std::string_view where, std::string_view expected) {
  std::string detail{where};
  detail += where.empty() ? "expected " : ": expected ";
  detail += expected;
  return tl::unexpected(rejection{status::unprocessable_content, std::move(detail)});
}

/// Finds the first byte of a text that no JSON can have at its place; builds nothing.
class error_finder final : public nlohmann::json_sax<nlohmann::json> {
public:
  /// Counted from 1; 0 if there was none.
  std::size_t position() const noexcept { return position_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    position_ = position;
    return false;
  }

private:
  std::size_t position_ = 0;
};

/// What the error says of a text that is no JSON: the place of the first mistake in a text that people could have
/// written, which is read once more for that, since simdjson does not know it; else `why`, which may be about a later
/// mistake.
std::string why_not_json(std::string_view text, const char* why) {
  constexpr std::size_t longest = std::size_t{64} * 1024;
  error_finder finder;
  if (text.size() <= longest)
    nlohmann::json::sax_parse(text.begin(), text.end(), &finder);
  if (finder.position() == 0)
    return why;
  const auto before = text.substr(0, std::min(finder.position(), text.size() + 1) - 1);
  const auto line = 1 + std::ranges::count(before, '\n');
  const auto in_line = before.substr(before.rfind('\n') + 1);
  return "line " + std::to_string(line) + ", column " + std::to_string(1 + characters_in(in_line)) +
         (finder.position() > text.size() ? ": it ends in the middle" : ": this cannot stand here");
}

/// The member, null if it is missing.
std::optional<simdjson::dom::element> find(const simdjson::dom::object& x, std::string_view name) {
  simdjson::dom::element found;
  if (x.at_key(name).get(found) != simdjson::SUCCESS)
    return std::nullopt;
  return found;
}

accepted<simdjson::dom::element> require(const simdjson::dom::object& x, std::string_view name) {
  if (auto found = find(x, name))
    return *found;
  return tl::unexpected(rejection{status::unprocessable_content, std::string{name} + ": is missing"});
}

/// Reads a member by `as`, which takes the element and its name.
template <class As>
auto required(const simdjson::dom::object& x, std::string_view name, As as)
    -> decltype(as(std::declval<simdjson::dom::element>(), name)) {
  const auto found = require(x, name);
  if (!found)
    return tl::unexpected(found.error());
  return as(*found, name);
}

template <class T, class As>
accepted<std::optional<T>> optional(const simdjson::dom::object& x, std::string_view name, As as) {
  const auto found = find(x, name);
  if (!found || found->is_null())
    return std::optional<T>{};
  auto value = as(*found, name);
  if (!value)
    return tl::unexpected(value.error());
  return std::optional<T>{*value};
}

} // namespace

std::uint64_t json_reading_bytes(std::uint64_t body_bytes) noexcept {
  return body_bytes <= kept_text_capacity ? 0 : parser_bytes_per_byte * body_bytes + parser_overhead;
}

void release_large_parser() noexcept {
  if (auto& parser = parser_of_thread(); parser && parser->capacity() > kept_text_capacity)
    parser.reset();
}

response to_response(const rejection& x) {
  return response::failure(x.code, x.detail);
}

accepted<simdjson::dom::element> parse_json(std::string_view padded_text) {
  if (padded_text.empty())
    return malformed("the body is empty, JSON is expected");
  auto* parser = parser_for(padded_text.size());
  if (parser == nullptr)
    return tl::unexpected(rejection{status::service_unavailable, "out of memory while reading the body"});
  simdjson::dom::element root;
  const auto failure = parser->parse(padded_text.data(), padded_text.size(), false).get(root);
  switch (failure) {
  case simdjson::SUCCESS:
    return root;
  case simdjson::UTF8_ERROR:
    return malformed("the body is not UTF-8");
  case simdjson::DEPTH_ERROR:
    return malformed("the body is nested deeper than " + std::to_string(max_json_depth) + " levels");
  default:
    return malformed("the body is not JSON: " + why_not_json(padded_text, simdjson::error_message(failure)));
  }
}

accepted<simdjson::dom::element> parse_json(const request& r) {
  return parse_json(r.body());
}

accepted<simdjson::dom::object> parse_json_object(const request& r) {
  return parse_json_object(r.body());
}

accepted<simdjson::dom::object> parse_json_object(std::string_view padded_text) {
  const auto root = parse_json(padded_text);
  if (!root)
    return tl::unexpected(root.error());
  return as_object(*root, "body");
}

accepted<std::string_view> as_string(const simdjson::dom::element& x, std::string_view where) {
  std::string_view value;
  if (x.get_string().get(value) != simdjson::SUCCESS)
    return wrong(where, "a string");
  return value;
}

accepted<std::uint64_t> as_unsigned(const simdjson::dom::element& x, std::string_view where, std::uint64_t min,
                                    std::uint64_t max) {
  std::uint64_t value = 0;
  if (x.get_uint64().get(value) != simdjson::SUCCESS || value < min || value > max)
    return wrong(where, "a whole number, " + std::to_string(min) + " to " + std::to_string(max));
  return value;
}

accepted<bool> as_bool(const simdjson::dom::element& x, std::string_view where) {
  bool value = false;
  if (x.get_bool().get(value) != simdjson::SUCCESS)
    return wrong(where, "true or false");
  return value;
}

accepted<simdjson::dom::object> as_object(const simdjson::dom::element& x, std::string_view where) {
  simdjson::dom::object value;
  if (x.get_object().get(value) != simdjson::SUCCESS)
    return wrong(where, "an object");
  return value;
}

accepted<simdjson::dom::array> as_array(const simdjson::dom::element& x, std::string_view where,
                                        std::size_t max_items) {
  simdjson::dom::array value;
  if (x.get_array().get(value) != simdjson::SUCCESS)
    return wrong(where, "an array");
  // `size` of an array stops counting at 2^24 - 1, which is above every limit.
  if (value.size() > max_items)
    return tl::unexpected(rejection{status::content_too_large, std::string{where} + ": at most " +
                                                                   std::to_string(max_items) + " items are accepted"});
  return value;
}

accepted<std::string_view> string_member(const simdjson::dom::object& x, std::string_view name) {
  return required(x, name, as_string);
}

accepted<std::optional<std::string_view>> optional_string_member(const simdjson::dom::object& x,
                                                                 std::string_view name) {
  return optional<std::string_view>(x, name, as_string);
}

accepted<std::uint64_t> unsigned_member(const simdjson::dom::object& x, std::string_view name, std::uint64_t min,
                                        std::uint64_t max) {
  return required(x, name, [&](const auto& e, std::string_view where) { return as_unsigned(e, where, min, max); });
}

accepted<std::optional<std::uint64_t>> optional_unsigned_member(const simdjson::dom::object& x, std::string_view name,
                                                                std::uint64_t min, std::uint64_t max) {
  return optional<std::uint64_t>(
      x, name, [&](const auto& e, std::string_view where) { return as_unsigned(e, where, min, max); });
}

accepted<std::optional<bool>> optional_bool_member(const simdjson::dom::object& x, std::string_view name) {
  return optional<bool>(x, name, as_bool);
}

accepted<simdjson::dom::object> object_member(const simdjson::dom::object& x, std::string_view name) {
  return required(x, name, as_object);
}

accepted<simdjson::dom::array> array_member(const simdjson::dom::object& x, std::string_view name,
                                            std::size_t max_items) {
  return required(x, name, [&](const auto& e, std::string_view where) { return as_array(e, where, max_items); });
}

} // namespace troupe::http
