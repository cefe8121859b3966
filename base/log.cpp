#include "base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <mutex>

namespace troupe::log {

namespace {

std::mutex& registry_mutex() {
  static std::mutex instance;
  return instance;
}

std::shared_ptr<spdlog::sinks::sink> stderr_sink() {
  static auto instance = [] {
    // A logger that is registered gets spdlog's own format, over what its sink had before: so it is set there.
    spdlog::set_formatter(
        std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc));
    return std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }();
  return instance;
}

} // namespace

logger get(std::string_view component) {
  const std::string name(component);
  std::lock_guard guard(registry_mutex());
  if (auto existing = spdlog::get(name))
    return existing;
  auto created = std::make_shared<spdlog::logger>(name, stderr_sink());
  created->flush_on(spdlog::level::warn);
  spdlog::initialize_logger(created); // takes over the level and format set for all
  return created;
}

bool set_level(std::string_view level) {
  const std::string name(level);
  const auto parsed = spdlog::level::from_str(name);
  if (parsed == spdlog::level::off && name != "off")
    return false;
  spdlog::set_level(parsed);
  return true;
}

void shutdown() {
  spdlog::shutdown();
}

} // namespace troupe::log
