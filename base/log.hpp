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

/// The logger of one component ("registry", "io", "node"). All write to stderr as `2026-01-31T12:00:00.123Z level
/// component: text`. Thread-safe; the same name gives the same logger.
///
/// A text stays one line, whatever it contains: line ends, control characters and bytes that are not UTF-8 are written
/// as by `append_single_line` of base/single_line.hpp. So a name from outside can neither forge a line nor control a
/// terminal.
///
/// Logging does not block: a thread of its own writes the lines. Where stderr is read too slowly or not at all, the
/// oldest waiting lines are dropped and counted, and a line reports their number once stderr accepts lines again. Only
/// a critical line, after which a program may abort, waits a moment until it is written.
logger get(std::string_view component);

/// Sets the level of all components, present and future: trace, debug, info, warn, error or off. Returns false if there
/// is no such level.
bool set_level(std::string_view level);

/// Sets the format of all components from now on: "text", or "json", where each line is an object,
/// `{"time":"2026-01-31T12:00:00.123Z","level":"info","component":"node","text":"…"}`. Returns false if there is no
/// such format.
bool set_format(std::string_view format);

/// The number of newest lines that `tail` keeps: enough to read, in no more memory than a thread's stack.
inline constexpr std::size_t tail_lines = 500;
inline constexpr std::size_t tail_bytes = std::size_t{256} << 10U;

/// The newest lines as they were written, without their ends, the oldest first; also those that stderr did not accept.
std::vector<std::string> tail();

/// Waits until all lines so far are written. Returns false if that takes longer than the limit.
bool flush(std::chrono::milliseconds limit);

/// Lines since the start that were lost: stderr did not accept them in time.
std::uint64_t dropped_lines();

/// Writes the waiting lines, for a second at most, and releases the loggers; the last call of a program. Without it,
/// lines are written when the program leaves `main`.
void shutdown();

} // namespace troupe::log
