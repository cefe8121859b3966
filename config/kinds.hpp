#pragma once

#include "base/clock.hpp"
#include "config/document.hpp"

#include <tl/expected.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The kinds of values that a key can have. Each kind can read a value within its bounds, write one so that it reads
/// back equal, and describe itself.

namespace troupe::config {

/// A value, or a sentence with what was expected.
template <class T>
using reading = tl::expected<T, std::string>;

struct flag {};

/// A whole number; bounds included.
struct whole {
  std::uint64_t min = 0;
  std::uint64_t max = 0;
};

/// A whole number from 1 on, or "auto", which is 0 in the program.
struct whole_or_auto {
  std::uint64_t max = 0;
};

/// A TCP port: 0 for any free one, or "off", which is `port_off` in the program.
struct port_or_off {};

/// A number of bytes.
struct size {
  std::uint64_t min = 0;
  std::uint64_t max = 0;
};

struct time_span {
  duration min{};
  duration max{};
};

/// A real number; bounds included.
struct fraction {
  double min = 0;
  double max = 1;
};

/// One of a few words.
struct choice {
  std::span<const std::string_view> words;
};

/// Text that follows a rule.
struct text {
  /// As in the documentation: "name".
  std::string_view type;
  /// As in a message: "a name of …".
  std::string_view expected;
  bool (*accepts)(std::string_view);
  /// The way out of a common mistake in such a text; empty for any other text. May be null.
  std::string_view (*advice)(std::string_view) = nullptr;
};

/// Any text up to 256 bytes, may be empty.
extern const text free_text;
/// Text of 1 to 256 bytes.
extern const text some_text;
/// Text that can be the name of a file and the value of a metric's label.
extern const text plain_name;
extern const text host_name;
/// `tcp://HOST:PORT`, `ipc://PATH` with an absolute path, or empty.
extern const text zmq_endpoint;
/// The name or address of a host, or empty.
extern const text host_name_or_none;
/// None, or several of them separated by commas.
extern const text host_names;
/// None, or up to 16 of them separated by commas, valid beyond one link.
extern const text ip_addresses;
extern const text any_path;
/// A relative path that stays below its start.
extern const text path_below;

reading<bool> read(const flag& kind, const element& x);
reading<std::uint64_t> read(const whole& kind, const element& x);
reading<std::uint64_t> read(const whole_or_auto& kind, const element& x);
reading<std::int32_t> read(const port_or_off& kind, const element& x);
reading<std::uint64_t> read(const size& kind, const element& x);
reading<duration> read(const time_span& kind, const element& x);
reading<double> read(const fraction& kind, const element& x);
reading<std::string> read(const choice& kind, const element& x);
reading<std::string> read(const text& kind, const element& x);

/// As JSON text.
std::string write(const flag& kind, bool x);
std::string write(const whole& kind, std::uint64_t x);
std::string write(const whole_or_auto& kind, std::uint64_t x);
std::string write(const port_or_off& kind, std::int32_t x);
std::string write(const size& kind, std::uint64_t x);
std::string write(const time_span& kind, duration x);
std::string write(const fraction& kind, double x);
std::string write(const choice& kind, std::string_view x);
std::string write(const text& kind, std::string_view x);

/// The value of a key, which may be a path or not set: as JSON text, or none.
template <class Kind, class T>
std::optional<std::string> write_value(const Kind& kind, const T& value) {
  return write(kind, value);
}
template <class Kind>
std::optional<std::string> write_value(const Kind& kind, const std::filesystem::path& value) {
  return write(kind, value.generic_string());
}
template <class Kind, class T>
std::optional<std::string> write_value(const Kind& kind, const std::optional<T>& value) {
  return value ? write_value(kind, *value) : std::nullopt;
}

/// As in the documentation: "whole number, 1 to 256".
std::string type_of(const flag& kind);
std::string type_of(const whole& kind);
std::string type_of(const whole_or_auto& kind);
std::string type_of(const port_or_off& kind);
std::string type_of(const size& kind);
std::string type_of(const time_span& kind);
std::string type_of(const fraction& kind);
std::string type_of(const choice& kind);
std::string type_of(const text& kind);

} // namespace troupe::config
