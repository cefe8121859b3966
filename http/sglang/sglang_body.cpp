#include "http/sglang/sglang_body.hpp"

#include <limits>
#include <utility>

namespace troupe::http {

namespace {

/// What all bodies have.
struct opened {
  simdjson::dom::object body;
  std::string space;
};

accepted<opened> open(std::string_view text) {
  const auto body = parse_json_object(text);
  if (!body)
    return tl::unexpected(body.error());
  const auto given = optional_string_member(*body, "namespace");
  if (!given)
    return tl::unexpected(given.error());
  auto space = checked_name(given->value_or(sglang_default_namespace));
  if (!space)
    return tl::unexpected(space.error());
  return opened{*body, std::move(*space)};
}

} // namespace

accepted<sglang_initialize> read_sglang_initialize(std::string_view text) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto pages = unsigned_member(x->body, "num_pages", 1, std::numeric_limits<std::uint32_t>::max());
  if (!pages)
    return tl::unexpected(pages.error());
  return sglang_initialize{std::move(x->space), static_cast<std::uint32_t>(*pages)};
}

accepted<sglang_reserve> read_sglang_reserve(std::string_view text, const body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto list = array_member(x->body, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  auto wanted = read_wanted(*list, "keys", rules, false);
  if (!wanted)
    return tl::unexpected(wanted.error());
  return sglang_reserve{std::move(x->space), std::move(*wanted)};
}

accepted<sglang_confirm> read_sglang_confirm(std::string_view text, const body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  auto pages = read_written(x->body, "written_keys_to_confirm", "pages_to_release", rules);
  if (!pages)
    return tl::unexpected(pages.error());
  return sglang_confirm{std::move(x->space), std::move(*pages)};
}

accepted<sglang_keys> read_sglang_keys(std::string_view text, const body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto list = array_member(x->body, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  auto keys = read_keys(*list, "keys", rules);
  if (!keys)
    return tl::unexpected(keys.error());
  return sglang_keys{std::move(x->space), std::move(*keys)};
}

accepted<std::string> read_sglang_clear(std::string_view text) {
  if (text.empty())
    return std::string{sglang_default_namespace};
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  return std::move(x->space);
}

} // namespace troupe::http
