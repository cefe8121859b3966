#include "http/server/router.hpp"

#include "base/hex.hpp"
#include "http/server/text.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace troupe::http {

namespace {

struct endpoint {
  http::route route;
  /// In the order of the pattern.
  std::vector<std::string> parameter_names;
};

/// Decodes percent signs, and plus signs that mean blanks. Appends to `store` only what differs from `text`; `store`
/// has enough capacity. None if a percent sign is not followed by two hexadecimal digits.
std::optional<std::string_view> decode(std::string_view text, bool plus_is_blank, std::string& store) {
  if (text.find('%') == std::string_view::npos && !(plus_is_blank && text.find('+') != std::string_view::npos))
    return text;
  const auto begin = store.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto c = text[i];
    if (c == '+' && plus_is_blank) {
      c = ' ';
    } else if (c == '%') {
      const auto high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const auto low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0)
        return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    store += c;
  }
  return std::string_view{store}.substr(begin);
}

/// Takes the text before `separator`, and the separator.
std::string_view take(std::string_view& text, char separator) noexcept {
  const auto end = text.find(separator);
  const auto result = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return result;
}

/// The path and query of a target: all of it, or the part after "http://host". None if it is neither.
std::optional<std::string_view> origin_form(std::string_view target) noexcept {
  if (target.starts_with('/'))
    return target;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() <= scheme.size() || !equal_ignoring_case(target.substr(0, scheme.size()), scheme))
      continue;
    target.remove_prefix(scheme.size());
    const auto path = target.find_first_of("/?");
    if (path == 0 || (path != std::string_view::npos && target[path] == '?'))
      return std::nullopt;
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return std::nullopt;
}

bool is_parameter(std::string_view segment) noexcept {
  return segment.size() > 2 && segment.front() == '{' && segment.back() == '}' &&
         segment.substr(1, segment.size() - 2).find_first_of("{}") == std::string_view::npos;
}

bool read_query(std::string_view query, route_match& found) {
  while (!query.empty()) {
    auto value = take(query, '&');
    if (value.empty())
      continue;
    const auto raw_name = take(value, '=');
    const auto name = decode(raw_name, true, found.decoded);
    const auto decoded = decode(value, true, found.decoded);
    if (!name || !decoded || found.query_parameters.size() == max_query_parameters)
      return false;
    found.query_parameters.push_back({*name, *decoded});
  }
  return true;
}

} // namespace

struct router::node {
  std::vector<std::pair<std::string, std::unique_ptr<node>>> literals;
  std::unique_ptr<node> parameter;
  std::array<std::unique_ptr<endpoint>, method_count> endpoints;
  bool is_leaf = false;

  node* literal(std::string_view segment) const noexcept {
    for (const auto& [name, child] : literals)
      if (name == segment)
        return child.get();
    return nullptr;
  }

  const endpoint* find(method m) const noexcept {
    const auto* exact = endpoints[static_cast<std::size_t>(m)].get();
    return exact == nullptr && m == method::head ? endpoints[static_cast<std::size_t>(method::get)].get() : exact;
  }

  /// The leaf of these segments; fills `values` with the parameters.
  const node* walk(std::span<const std::string_view> segments, std::span<named_value> values,
                   std::size_t& used) const noexcept {
    if (segments.empty())
      return is_leaf ? this : nullptr;
    const auto before = used;
    if (const auto* child = literal(segments.front()))
      if (const auto* leaf = child->walk(segments.subspan(1), values, used))
        return leaf;
    used = before;
    if (!parameter || segments.front().empty() || used == values.size())
      return nullptr;
    values[used++].value = segments.front();
    return parameter->walk(segments.subspan(1), values, used);
  }
};

struct router::exact_paths {
  struct hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view x) const noexcept { return std::hash<std::string_view>{}(x); }
  };

  std::unordered_map<std::string, const node*, hash, std::equal_to<>> leaves;
};

router::router() : root_(std::make_unique<node>()), exact_(std::make_unique<exact_paths>()) {}
router::router(router&&) noexcept = default;
router& router::operator=(router&&) noexcept = default;
router::~router() = default;

void router::add(method method, std::string_view pattern, route r) {
  const auto refuse = [&](std::string_view what) {
    if (check_)
      check_ = fail(errc::internal, "route " + std::string{to_string(method)} + " " + std::string{pattern} + " (" +
                                        r.name + "): " + std::string{what});
  };
  if (r.name.empty() || !r.handle)
    return refuse("needs a name and a handler");
  if (!pattern.starts_with('/'))
    return refuse("does not begin with a slash");
  auto rest = pattern.substr(1);
  auto* at = root_.get();
  std::vector<std::string> names;
  for (std::size_t depth = 0, more = 1; more != 0; ++depth) {
    more = rest.find('/') != std::string_view::npos ? 1 : 0;
    const auto segment = take(rest, '/');
    if (depth == max_path_segments)
      return refuse("has too many segments");
    if (is_parameter(segment)) {
      names.emplace_back(segment.substr(1, segment.size() - 2));
      if (names.size() > max_path_parameters)
        return refuse("has too many parameters");
      if (std::ranges::count(names, names.back()) > 1)
        return refuse("has a parameter twice");
      if (!at->parameter)
        at->parameter = std::make_unique<node>();
      at = at->parameter.get();
    } else if (segment.find_first_of("{}%?#") != std::string_view::npos) {
      return refuse("has a segment that is neither literal nor a parameter");
    } else if (auto* known = at->literal(segment)) {
      at = known;
    } else {
      at = at->literals.emplace_back(segment, std::make_unique<node>()).second.get();
    }
  }
  auto& place = at->endpoints[static_cast<std::size_t>(method)];
  if (place)
    return refuse("is already registered as " + place->route.name);
  at->is_leaf = true;
  // Without parameters: no other pattern that matches this path has priority.
  if (names.empty())
    exact_->leaves.emplace(pattern, at);
  place = std::make_unique<endpoint>(endpoint{std::move(r), std::move(names)});
}

void router::match(std::optional<method> method, std::string_view target, route_match& found) const {
  found.route = nullptr;
  found.path_parameter_count = 0;
  found.query_parameters.clear();
  found.decoded.clear();
  const auto refuse = [&](status code, std::string_view detail) {
    found.code = code;
    found.detail = detail;
  };
  const auto origin = origin_form(target);
  if (!origin)
    return refuse(status::bad_request, "the target of the request is neither a path nor an http address");
  // Decoding never lengthens the text, so views into it stay valid.
  if (origin->find('%') != std::string_view::npos || origin->find('+') != std::string_view::npos)
    found.decoded.reserve(origin->size());
  auto query = *origin;
  auto path = take(query, '?');
  const node* leaf = nullptr;
  if (const auto exact = exact_->leaves.find(path); exact != exact_->leaves.end()) {
    leaf = exact->second;
  } else {
    path.remove_prefix(1);
    std::array<std::string_view, max_path_segments> segments;
    std::size_t count = 0;
    for (bool more = true; more;) {
      more = path.find('/') != std::string_view::npos;
      const auto segment = decode(take(path, '/'), false, found.decoded);
      if (!segment)
        return refuse(status::bad_request, "the path has a percent sign without two hexadecimal digits");
      if (count == segments.size())
        return refuse(status::not_found, "there is nothing at this path");
      segments[count++] = *segment;
    }
    leaf = root_->walk(std::span{segments}.first(count), found.path_parameters, found.path_parameter_count);
    if (leaf == nullptr)
      return refuse(status::not_found, "there is nothing at this path");
  }
  const auto* target_endpoint = method ? leaf->find(*method) : nullptr;
  if (target_endpoint == nullptr) {
    found.allow.clear();
    for (std::size_t i = 0; i < method_count; ++i) {
      const auto m = static_cast<http::method>(i);
      if (leaf->find(m) != nullptr)
        found.allow.append(found.allow.empty() ? "" : ", ").append(to_string(m));
    }
    return refuse(status::method_not_allowed, "this path does not have this method");
  }
  if (!read_query(query, found))
    return refuse(status::bad_request, "the query is malformed, or has too many parameters");
  for (std::size_t i = 0; i < found.path_parameter_count; ++i)
    found.path_parameters[i].name = target_endpoint->parameter_names[i];
  found.code = status::ok;
  found.detail = {};
  found.route = &target_endpoint->route;
}

} // namespace troupe::http
