#pragma once

#include <spdlog/logger.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace troupe::log {

using logger = std::shared_ptr<spdlog::logger>;

/// The logger of one component ("registry", "io", "node"). All write to stderr as
/// `2026-01-31T12:00:00.123Z level component: text`. Thread-safe; the same name gives the same logger.
///
/// Logging waits for nobody: a thread of its own writes the lines. Where stderr is read too slowly or not at all, the
/// oldest lines that wait are dropped and counted, and a line says how many once it moves again. Only a critical line,
/// after which a program may abort, waits for a moment until it is out.
logger get(std::string_view component);

/// Sets the level of all components, present and future: trace, debug, info, warn, error or off.
/// False if there is no such level.
bool set_level(std::string_view level);

/// Waits until all lines so far are written. False if stderr did not take them within the limit.
bool flush(std::chrono::milliseconds limit);

/// Lines since the start that nobody will read: stderr did not take them in time.
std::uint64_t dropped_lines();

/// Writes out what waits, for a second at most, and forgets the loggers; the last call of a program. One that does not
/// call it has its lines written when it leaves `main`.
void shutdown();

} // namespace troupe::log
