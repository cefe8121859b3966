#include "config/kinds.hpp"

#include "base/host_address.hpp"
#include "base/text_parts.hpp"
#include "config/node_config.hpp"
#include "config/units.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

namespace troupe::config {

namespace {

constexpr std::size_t max_text = 256;
constexpr std::size_t max_name = 64;
constexpr std::size_t max_host = 253;
constexpr std::size_t max_path = 1024;

constexpr std::int32_t most_port = 65535;

tl::unexpected<std::string> expected(std::string_view what, const element& x) {
  return tl::unexpected("expected " + std::string{what} + ", got " + show(x));
}

std::string range(const std::string& min, const std::string& max) {
  return min + " to " + max;
}

template <class Kind, class T>
reading<T> within(const Kind& kind, T x, const std::string& min, const std::string& max, const element& e) {
  if (x < kind.min || x > kind.max)
    return tl::unexpected("must be " + range(min, max) + ", got " + show(e));
  return x;
}

bool is_free_text(std::string_view x) {
  return x.size() <= max_text && is_plain_text(x);
}

bool is_some_text(std::string_view x) {
  return !x.empty() && is_free_text(x);
}

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_plain_name(std::string_view x) {
  const auto fits = [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; };
  return !x.empty() && x.size() <= max_name && is_alphanumeric(x.front()) && std::ranges::all_of(x, fits);
}

/// An IPv6 address has at least two colons. A name with one colon has a port.
bool has_port(std::string_view x) {
  return std::ranges::count(x, ':') == 1 || x.find("]:") != std::string_view::npos;
}

bool is_host_name(std::string_view x) {
  // Names with an underscore are not valid host names, but resolvers accept them: containers use such names.
  const auto fits = [](char c) {
    return is_alphanumeric(c) || std::string_view("-_.:%").find(c) != std::string_view::npos;
  };
  return !x.empty() && x.size() <= max_host && std::ranges::all_of(x, fits) && !has_port(x);
}

std::string_view host_advice(std::string_view x) {
  if (has_port(x))
    return "the port has a key of its own";
  if (x.starts_with('['))
    return "write an IPv6 address without brackets";
  return {};
}

bool is_host_name_or_none(std::string_view x) {
  return x.empty() || is_host_name(x);
}

bool is_zmq_endpoint(std::string_view x) {
  constexpr std::string_view ipc = "ipc://";
  constexpr std::string_view tcp = "tcp://";
  // The length of a path that a Unix socket can have.
  if (x.empty() || (x.starts_with("ipc:///") && x.size() - ipc.size() < 108))
    return true;
  const auto colon = x.rfind(':');
  if (!x.starts_with(tcp) || colon < tcp.size())
    return false;
  auto host = x.substr(tcp.size(), colon - tcp.size());
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  const auto port = x.substr(colon + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_port = !port.empty() && port.size() <= 5 && std::ranges::all_of(port, is_digit) &&
                       std::stoul(std::string(port)) <= 65535;
  return is_port && (host == "*" || is_host_name(host));
}

bool are_host_names(std::string_view x) {
  while (!x.empty()) {
    const auto comma = std::min(x.find(','), x.size());
    if (!is_host_name(trimmed(x.substr(0, comma))) || comma + 1 == x.size())
      return false;
    x.remove_prefix(std::min(comma + 1, x.size()));
  }
  return true;
}

bool are_ip_addresses(std::string_view x) {
  constexpr std::size_t most = 16;
  const auto all = parse_addresses(x);
  return all && all->size() <= most && std::ranges::none_of(*all, &host_address::is_link_local);
}

std::string_view ip_advice(std::string_view x) {
  return are_host_names(x) && !parse_addresses(x) ? "names are not resolved here, write addresses" : std::string_view{};
}

/// Text that a shell would expand, but a config does not.
bool is_for_a_shell(std::string_view x) {
  return x == "~" || x.starts_with("~/") || x.starts_with('$');
}

std::string_view path_advice(std::string_view x) {
  return is_for_a_shell(x) ? "\"~\" and \"$\" are not replaced here, write the path in full" : std::string_view{};
}

bool is_path(std::string_view x) {
  return !x.empty() && x.size() <= max_path && is_plain_text(x) && !is_for_a_shell(x);
}

bool is_path_below(std::string_view x) {
  if (!is_path(x))
    return false;
  const std::filesystem::path p{x};
  // A ".." inside is refused even if the path comes back: after a symbolic link it would not.
  return p.is_relative() && std::ranges::none_of(p, [](const auto& part) { return part == ".."; }) &&
         p.lexically_normal() != ".";
}

} // namespace

const text free_text{"text", "text of at most 256 bytes", is_free_text};
const text some_text{"text, not empty", "text of 1 to 256 bytes", is_some_text};
const text plain_name{"name", "a name of 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first",
                      is_plain_name};
const text host_name{"host", "the name or address of a host", is_host_name, host_advice};
const text host_name_or_none{"host", "the name or address of a host, or nothing", is_host_name_or_none, host_advice};
const text zmq_endpoint{
    "endpoint", "an endpoint as \"tcp://127.0.0.1:5557\" or \"ipc:///run/troupe/events\", or nothing", is_zmq_endpoint};
const text host_names{"hosts", "names or addresses of hosts, separated by commas", are_host_names};
const text ip_addresses{"addresses", "up to 16 IP addresses of this host, separated by commas, none of them link-local",
                        are_ip_addresses, ip_advice};
const text any_path{"path", "a path", is_path, path_advice};
const text path_below{"relative path", "a relative path below data_dir, without \"..\"", is_path_below, path_advice};

reading<bool> read(const flag&, const element& x) {
  if (const auto* value = std::get_if<bool>(&x.value))
    return *value;
  return expected("true or false", x);
}

reading<std::uint64_t> read(const whole& kind, const element& x) {
  const auto min = std::to_string(kind.min);
  const auto max = std::to_string(kind.max);
  if (const auto* value = std::get_if<std::uint64_t>(&x.value))
    return within(kind, *value, min, max, x);
  return expected("a whole number, " + range(min, max), x);
}

reading<std::uint64_t> read(const whole_or_auto& kind, const element& x) {
  if (const auto* word = std::get_if<std::string>(&x.value); word != nullptr && *word == "auto")
    return std::uint64_t{0};
  const auto max = std::to_string(kind.max);
  if (const auto* value = std::get_if<std::uint64_t>(&x.value); value != nullptr && *value >= 1 && *value <= kind.max)
    return *value;
  return expected("\"auto\" or a whole number, " + range("1", max), x);
}

reading<std::int32_t> read(const port_or_off&, const element& x) {
  if (const auto* word = std::get_if<std::string>(&x.value); word != nullptr && *word == "off")
    return port_off;
  if (const auto* value = std::get_if<std::uint64_t>(&x.value); value != nullptr && *value <= std::uint64_t{most_port})
    return static_cast<std::int32_t>(*value);
  return expected("\"off\" or a whole number, " + range("0", std::to_string(most_port)), x);
}

reading<std::uint64_t> read(const size& kind, const element& x) {
  const auto bytes = [&]() -> std::optional<std::uint64_t> {
    if (const auto* number = std::get_if<std::uint64_t>(&x.value))
      return *number;
    if (const auto* written = std::get_if<std::string>(&x.value))
      return parse_size(*written);
    return std::nullopt;
  }();
  if (!bytes) {
    const auto* written = std::get_if<std::string>(&x.value);
    const auto meant = written != nullptr ? suggest_size(*written) : std::string{};
    auto out = expected("a size such as \"4 MiB\"", x);
    if (!meant.empty())
      out.value() += "; did you mean " + meant + "?";
    return out;
  }
  return within(kind, *bytes, format_size(kind.min), format_size(kind.max), x);
}

reading<duration> read(const time_span& kind, const element& x) {
  const auto* written = std::get_if<std::string>(&x.value);
  const auto time = written != nullptr ? parse_time(*written) : std::nullopt;
  if (!time)
    return expected("a time such as \"30 s\"", x);
  return within(kind, *time, format_time(kind.min), format_time(kind.max), x);
}

reading<double> read(const fraction& kind, const element& x) {
  const auto min = write(kind, kind.min);
  const auto max = write(kind, kind.max);
  if (const auto* value = std::get_if<double>(&x.value))
    return within(kind, *value, min, max, x);
  if (const auto* value = std::get_if<std::uint64_t>(&x.value))
    return within(kind, static_cast<double>(*value), min, max, x);
  return expected("a number, " + range(min, max), x);
}

reading<std::string> read(const choice& kind, const element& x) {
  const auto* word = std::get_if<std::string>(&x.value);
  if (word == nullptr || std::ranges::find(kind.words, *word) == kind.words.end())
    return expected(type_of(kind), x);
  return *word;
}

reading<std::string> read(const text& kind, const element& x) {
  const auto* value = std::get_if<std::string>(&x.value);
  if (value != nullptr && kind.accepts(*value))
    return *value;
  auto out = expected(kind.expected, x);
  if (const auto advice = value != nullptr && kind.advice != nullptr ? kind.advice(*value) : std::string_view{};
      !advice.empty())
    out.value().append(": ").append(advice);
  return out;
}

std::string write(const flag&, bool x) {
  return x ? "true" : "false";
}

std::string write(const whole&, std::uint64_t x) {
  return std::to_string(x);
}

std::string write(const whole_or_auto&, std::uint64_t x) {
  return x == 0 ? "\"auto\"" : std::to_string(x);
}

std::string write(const port_or_off&, std::int32_t x) {
  return x == port_off ? "\"off\"" : std::to_string(x);
}

std::string write(const size&, std::uint64_t x) {
  return '"' + format_size(x) + '"';
}

std::string write(const time_span&, duration x) {
  // Negative times are never read; `validate` reports them to a program that set one.
  return x < duration::zero() ? std::to_string(x.count()) : '"' + format_time(x) + '"';
}

std::string write(const fraction&, double x) {
  return nlohmann::json(x).dump();
}

std::string write(const choice&, std::string_view x) {
  return nlohmann::json(x).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string write(const text&, std::string_view x) {
  return nlohmann::json(x).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string type_of(const flag&) {
  return "true or false";
}

std::string type_of(const whole& kind) {
  return "whole number, " + range(std::to_string(kind.min), std::to_string(kind.max));
}

std::string type_of(const whole_or_auto& kind) {
  return "\"auto\" or whole number, " + range("1", std::to_string(kind.max));
}

std::string type_of(const port_or_off&) {
  return "\"off\" or whole number, " + range("0", std::to_string(most_port));
}

std::string type_of(const size& kind) {
  return "size, " + range(format_size(kind.min), format_size(kind.max));
}

std::string type_of(const time_span& kind) {
  return "time, " + range(format_time(kind.min), format_time(kind.max));
}

std::string type_of(const fraction& kind) {
  return "number, " + range(write(kind, kind.min), write(kind, kind.max));
}

std::string type_of(const choice& kind) {
  std::string result;
  for (std::size_t i = 0; i < kind.words.size(); ++i) {
    if (i > 0)
      result += i + 1 == kind.words.size() ? " or " : ", ";
    result.append("\"").append(kind.words[i]).append("\"");
  }
  return result;
}

std::string type_of(const text& kind) {
  return std::string{kind.type};
}

} // namespace troupe::config
