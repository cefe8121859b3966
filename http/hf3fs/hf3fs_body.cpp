#include "http/hf3fs/hf3fs_body.hpp"

#include <limits>
#include <optional>

namespace troupe::http::hf3fs {

namespace {

accepted<std::vector<key_digest>> keys_member(const simdjson::dom::object& body, const slots::body_rules& rules) {
  const auto list = slots::list_member(body, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  return slots::read_keys(*list, "keys", rules);
}

/// The body of a rank's request, which comes with its number.
struct body_of_rank {
  simdjson::dom::object members;
  rank_number rank = 0;
};

accepted<body_of_rank> read_body_of_rank(std::string_view text) {
  const auto body = parse_json_object(text);
  if (!body)
    return tl::unexpected(body.error());
  const auto rank = slots::rank_member(*body);
  if (!rank)
    return tl::unexpected(rank.error());
  return body_of_rank{*body, *rank};
}

} // namespace

accepted<initialize_body> read_initialize(std::string_view text) {
  const auto body = parse_json_object(text);
  if (!body)
    return tl::unexpected(body.error());
  const auto refuse = [](std::string_view why) {
    return tl::unexpected(rejection{status::bad_request, "Invalid initialization parameters: " + std::string{why}});
  };
  const auto role = optional_string_member(*body, "role");
  if (!role || (*role && **role != "worker" && **role != "scheduler"))
    return refuse("role must be \"worker\" or \"scheduler\"");
  if (*role && **role == "scheduler")
    return initialize_body{true, 0};
  const auto pages = unsigned_member(*body, "num_pages", 1, std::numeric_limits<std::uint32_t>::max());
  if (!pages)
    return refuse("num_pages must be a whole number from 1 on");
  return initialize_body{false, static_cast<std::uint32_t>(*pages)};
}

accepted<allocate_body> read_allocate(std::string_view text, const slots::body_rules& rules) {
  const auto body = read_body_of_rank(text);
  if (!body)
    return tl::unexpected(body.error());
  const auto list = slots::list_member(body->members, "keys", rules.max_keys);
  if (!list)
    return tl::unexpected(list.error());
  auto wanted = slots::read_wanted(*list, "keys", rules, true);
  if (!wanted)
    return tl::unexpected(wanted.error());
  return allocate_body{body->rank, std::move(*wanted)};
}

accepted<confirm_body> read_confirm(std::string_view text, const slots::body_rules& rules) {
  const auto body = read_body_of_rank(text);
  if (!body)
    return tl::unexpected(body.error());
  auto pages = slots::read_written(body->members, "confirmations", "pages_to_release", rules);
  if (!pages)
    return tl::unexpected(pages.error());
  return confirm_body{body->rank, std::move(*pages)};
}

accepted<std::vector<key_digest>> read_exists(std::string_view text, const slots::body_rules& rules) {
  const auto body = parse_json_object(text);
  if (!body)
    return tl::unexpected(body.error());
  return keys_member(*body, rules);
}

accepted<locate_body> read_locate(std::string_view text, const slots::body_rules& rules) {
  const auto body = read_body_of_rank(text);
  if (!body)
    return tl::unexpected(body.error());
  auto keys = keys_member(body->members, rules);
  if (!keys)
    return tl::unexpected(keys.error());
  return locate_body{body->rank, std::move(*keys)};
}

} // namespace troupe::http::hf3fs
