#include "http/sglang/sglang_body.hpp"

#include <limits>
#include <utility>

namespace troupe::http::sglang {

namespace {

/// Members that all bodies have.
struct opened {
  simdjson::dom::object body;
  std::string ns;
};

accepted<opened> open(std::string_view text) {
  const auto body = parse_json_object(text);
  if (!body)
    return tl::unexpected(body.error());
  const auto given = optional_string_member(*body, "namespace");
  if (!given)
    return tl::unexpected(given.error());
  auto ns = slots::checked_name(given->value_or(default_namespace));
  if (!ns)
    return tl::unexpected(ns.error());
  return opened{*body, std::move(*ns)};
}

} // namespace

accepted<initialize_body> read_initialize(std::string_view text) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto pages = unsigned_member(x->body, "num_pages", 1, std::numeric_limits<std::uint32_t>::max());
  if (!pages)
    return tl::unexpected(pages.error());
  return initialize_body{std::move(x->ns), static_cast<std::uint32_t>(*pages)};
}

accepted<reserve_body> read_reserve(std::string_view text, const slots::body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto list = array_member(x->body, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  auto wanted = slots::read_wanted(*list, "keys", rules, false);
  if (!wanted)
    return tl::unexpected(wanted.error());
  return reserve_body{std::move(x->ns), std::move(*wanted)};
}

accepted<confirm_body> read_confirm(std::string_view text, const slots::body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  auto pages = slots::read_written(x->body, "written_keys_to_confirm", "pages_to_release", rules);
  if (!pages)
    return tl::unexpected(pages.error());
  return confirm_body{std::move(x->ns), std::move(*pages)};
}

accepted<keys_body> read_keys(std::string_view text, const slots::body_rules& rules) {
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  const auto list = array_member(x->body, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  auto keys = slots::read_keys(*list, "keys", rules);
  if (!keys)
    return tl::unexpected(keys.error());
  return keys_body{std::move(x->ns), std::move(*keys)};
}

accepted<clear_body> read_clear(std::string_view text) {
  if (text.empty())
    return clear_body{std::string{default_namespace}};
  auto x = open(text);
  if (!x)
    return tl::unexpected(x.error());
  return clear_body{std::move(x->ns)};
}

} // namespace troupe::http::sglang
