#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace troupe::test {

/// Checks `x` against `schema`, as far as this API's schemas go; returns what does not match.
inline std::string what_is_wrong(const nlohmann::json& document, const nlohmann::json& schema, const nlohmann::json& x,
                                 const std::string& where) {
  if (schema.contains("$ref")) {
    const auto pointer = schema.at("$ref").get<std::string>().substr(1);
    return what_is_wrong(document, document.at(nlohmann::json::json_pointer{pointer}), x, where);
  }
  if (x.is_null() && schema.value("nullable", false))
    return {};
  const auto type = schema.value("type", "");
  if (type.empty())
    return {};
  const bool fits = type == "object"    ? x.is_object()
                    : type == "array"   ? x.is_array()
                    : type == "string"  ? x.is_string()
                    : type == "integer" ? x.is_number_integer()
                    : type == "number"  ? x.is_number()
                    : type == "boolean" ? x.is_boolean()
                                        : false;
  if (!fits)
    return where + " is no " + type;
  if (schema.contains("enum") && std::ranges::find(schema.at("enum"), x) == schema.at("enum").end())
    return where + " is none of the values";
  if (type == "object" && schema.contains("properties")) {
    for (const auto& name : schema.value("required", nlohmann::json::array()))
      if (!x.contains(name))
        return where + "." + name.get<std::string>() + " is missing";
    for (const auto& [name, value] : x.items()) {
      if (!schema.at("properties").contains(name))
        return where + "." + name + " is not described";
      if (auto bad = what_is_wrong(document, schema.at("properties").at(name), value, where + "." + name); !bad.empty())
        return bad;
    }
  }
  if (type == "object" && schema.contains("additionalProperties"))
    for (const auto& [name, value] : x.items())
      if (auto bad = what_is_wrong(document, schema.at("additionalProperties"), value, where + "." + name);
          !bad.empty())
        return bad;
  if (type == "array")
    for (const auto& item : x)
      if (auto bad = what_is_wrong(document, schema.at("items"), item, where + "[]"); !bad.empty())
        return bad;
  return {};
}

} // namespace troupe::test
