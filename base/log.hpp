#pragma once

#include <spdlog/logger.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <string_view>

namespace troupe::log {

using logger = std::shared_ptr<spdlog::logger>;

/// The logger of one component ("registry", "io", "node"). All write to stderr as
/// `2026-01-31T12:00:00.123Z level component: text`. Thread-safe; the same name gives the same logger.
logger get(std::string_view component);

/// Sets the level of all components, present and future: trace, debug, info, warn, error or off.
/// False if there is no such level.
bool set_level(std::string_view level);

/// Writes out what is buffered and stops logging; the last call of a program.
void shutdown();

} // namespace troupe::log
