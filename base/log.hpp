#pragma once

#include <spdlog/logger.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::log {

using logger = std::shared_ptr<spdlog::logger>;

/// The logger of one component ("registry", "io", "node"). All write to stderr as
/// `2026-01-31T12:00:00.123Z level component: text`. Thread-safe; the same name gives the same logger.
///
/// A text stays one line, whatever it holds: line ends, control characters and bytes that are not UTF-8 are written as
/// `append_single_line` of base/single_line.hpp writes them. So a name that somebody else chose can neither forge a
/// line nor steer a terminal.
///
/// Logging waits for nobody: a thread of its own writes the lines. Where stderr is read too slowly or not at all, the
/// oldest lines that wait are dropped and counted, and a line says how many once it moves again. Only a critical line,
/// after which a program may abort, waits for a moment until it is out.
logger get(std::string_view component);

/// Sets the level of all components, present and future: trace, debug, info, warn, error or off.
/// False if there is no such level.
bool set_level(std::string_view level);

/// Sets how lines are written from now on, of all components: "text", or "json", where each is an object,
/// `{"time":"2026-01-31T12:00:00.123Z","level":"info","component":"node","text":"…"}`. False if there is no such
/// format.
bool set_format(std::string_view format);

/// How much of the newest is kept for `tail`: what a person reads, and no more memory than a thread's stack.
inline constexpr std::size_t tail_lines = 500;
inline constexpr std::size_t tail_bytes = std::size_t{256} << 10U;

/// The newest lines, as they were written and without their ends, the oldest first; also those that stderr did not
/// take.
std::vector<std::string> tail();

/// Waits until all lines so far are written. False if stderr did not take them within the limit.
bool flush(std::chrono::milliseconds limit);

/// Lines since the start that nobody will read: stderr did not take them in time.
std::uint64_t dropped_lines();

/// Writes out what waits, for a second at most, and forgets the loggers; the last call of a program. One that does not
/// call it has its lines written when it leaves `main`.
void shutdown();

} // namespace troupe::log
