#include "config/default_node.hpp"

#include <algorithm>

namespace troupe::config {

std::uint64_t memory_for_pages(std::uint64_t available) noexcept {
  constexpr std::uint64_t step = 64 * mebibyte;
  if (available == 0)
    return memory_config{}.bytes;
  return std::clamp(available / 4 / step * step, step, tebibyte);
}

node_config default_node(std::uint64_t available_memory) {
  node_config out;
  // A distinctive name, which does not collide with another program's "data".
  out.data_dir = "troupe-data";
  out.http.enabled = true;
  out.memory.bytes = memory_for_pages(available_memory);
  return out;
}

std::vector<std::string> first_keys() {
  return {"node_name",          "data_dir",
          "log_level",          "log",
          "actors.socket",      "actors.make_namespaces",
          "http.enabled",       "http.host",
          "http.port",          "http.tokens_file",
          "storage.disk_bytes", "memory.bytes",
          "memory.huge_pages",  "registry.durability"};
}

} // namespace troupe::config
