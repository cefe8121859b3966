#include "config/node_config.hpp"
#include "config/schema.hpp"

namespace troupe::config {

namespace {

/// Visits the schema of one object and writes its members, one per line.
class writer {
public:
  writer(std::string& out, std::size_t depth) : out_(out), indent_(2 * depth, ' ') {}

  template <class T, class Kind>
  void field(std::string_view key, const T& value, const Kind& kind, std::string_view) {
    if (const auto text = write_value(kind, value))
      member(key) += *text;
  }

  template <class T, class Kind>
  void required(std::string_view key, const T& value, const Kind& kind, std::string_view meaning) {
    field(key, value, kind, meaning);
  }

  template <class T>
  void group(std::string_view key, T& value, std::string_view) {
    write_object(member(key), indent_, value);
  }

  template <class T>
  void list(std::string_view key, std::vector<T>& items, std::size_t, std::string_view) {
    auto& out = member(key);
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      out += (i == 0 ? "\n" : ",\n") + indent_ + "  ";
      write_object(out, indent_ + "  ", items[i]);
    }
    out += items.empty() ? "]" : "\n" + indent_ + "]";
  }

  template <class T>
  static void write_object(std::string& out, const std::string& indent, T& value) {
    out += '{';
    writer inner{out, indent.size() / 2 + 1};
    describe(inner, value);
    out += "\n" + indent + "}";
  }

private:
  std::string& member(std::string_view key) {
    out_ += (first_ ? "\n" : ",\n") + indent_;
    first_ = false;
    // Keys are words of the schema: nothing to escape.
    return out_.append("\"").append(key).append("\": ");
  }

  std::string& out_;
  std::string indent_;
  bool first_ = true;
};

} // namespace

std::string to_json(const node_config& config) {
  // The schema describes a mutable object, since it is mostly used for reading.
  auto copy = config;
  std::string out;
  writer::write_object(out, {}, copy);
  out += '\n';
  return out;
}

} // namespace troupe::config
