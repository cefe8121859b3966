#pragma once

#include "http/server/json_text.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::http {

/// Writes the members of an object: `json_members(out).add("a", 1).add("b", "x").end()`.
class json_members {
public:
  explicit json_members(std::string& out) : out_(out) { out_ += '{'; }

  template <class T>
  json_members& add(std::string_view name, const T& value) {
    append_json(key(name), value);
    return *this;
  }
  json_members& add(std::string_view name, std::uint32_t value) { return add(name, std::uint64_t{value}); }
  /// For a value that other code appends.
  std::string& key(std::string_view name) {
    out_ += is_first_ ? "\"" : ",\"";
    is_first_ = false;
    out_ += name;
    out_ += "\":";
    return out_;
  }
  void end() { out_ += '}'; }

private:
  std::string& out_;
  bool is_first_ = true;
};

} // namespace troupe::http
