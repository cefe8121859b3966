#include "fuzz/config_text.hpp"

#include "config/node_config.hpp"
#include "fuzz/check.hpp"

#include <string>
#include <vector>

namespace troupe::fuzz {

int read_config_text(std::string_view text) {
  const auto end = text.find('\0');
  std::vector<std::string> overrides;
  for (auto at = end; at != std::string_view::npos;) {
    const auto next = text.find('\0', at + 1);
    overrides.emplace_back(text.substr(at + 1, next == std::string_view::npos ? next : next - at - 1));
    at = next;
  }
  int accepted = 0;
  for (const auto what_for : {config::purpose::server, config::purpose::client}) {
    const auto read = config::parse(text.substr(0, end), "fuzz.json", overrides, what_for);
    if (!read) {
      demand(!read.error().empty(), "a refusal without a problem");
      for (const auto& p : read.error())
        demand(!p.path.empty() && !p.text.empty(), "a problem without a place or a text");
      continue;
    }
    ++accepted;
    demand(config::validate(*read, what_for).empty(), "a config that is accepted and breaks rules");
    const auto again = config::parse(config::to_json(*read), "again.json", {}, what_for);
    demand(again.has_value() && *again == *read, "a config that changes when it is written and read again");
  }
  return accepted;
}

} // namespace troupe::fuzz
