#include "base/log.hpp"

#include "base/json_string.hpp"
#include "base/line_ring.hpp"
#include "base/line_writer.hpp"
#include "base/single_line.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unistd.h>
#include <utility>

namespace troupe::log {

namespace {

/// The longest wait for stderr at the end of a program: its last lines explain why it ended, but there may be no
/// reader.
constexpr std::chrono::milliseconds end_patience{1000};
/// The longest wait of the actor that writes a critical line: the process may be about to abort, or may continue.
constexpr std::chrono::milliseconds critical_patience{200};

std::mutex& registry_mutex() {
  static std::mutex instance;
  return instance;
}

constexpr const char* time_pattern = "%Y-%m-%dT%H:%M:%S.%eZ";

/// Formats a line as a JSON object.
class json_formatter final : public spdlog::formatter {
public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    spdlog::memory_buf_t when;
    time_.format(message, when);
    std::string line = R"({"time":)";
    append_json_string(line, {when.data(), when.size()});
    const auto add = [&line](std::string_view key, const spdlog::string_view_t& value) {
      line.append(key);
      append_json_string(line, {value.data(), value.size()});
    };
    add(R"(,"level":)", spdlog::level::to_string_view(message.level));
    add(R"(,"component":)", message.logger_name);
    add(R"(,"text":)", message.payload);
    line += "}\n";
    to.append(line.data(), line.data() + line.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<json_formatter>(); }

private:
  spdlog::pattern_formatter time_{time_pattern, spdlog::pattern_time_type::utc, ""};
};

std::atomic<bool> writes_json{false};

std::unique_ptr<spdlog::formatter> make_formatter() {
  if (writes_json.load(std::memory_order_relaxed))
    return std::make_unique<json_formatter>();
  return std::make_unique<spdlog::pattern_formatter>(std::string(time_pattern) + " %l %n: %v",
                                                     spdlog::pattern_time_type::utc);
}

std::string say_dropped(std::uint64_t count) {
  const auto text = std::to_string(count) + (count == 1 ? " line was" : " lines were") +
                    " dropped: the log was not read in time, or could not be written";
  spdlog::memory_buf_t line;
  make_formatter()->format({"log", spdlog::level::warn, text}, line);
  return {line.data(), line.size()};
}

std::string_view as_view(const spdlog::string_view_t& x) {
  return {x.data(), x.size()};
}

/// The sink of all loggers.
class stderr_sink final : public spdlog::sinks::sink {
public:
  /// Texts contain names that clients, peers and other programs choose. They are escaped here, for every format and for
  /// the tail, so that no caller has to do it.
  void log(const spdlog::details::log_msg& message) override {
    auto harmless = message;
    std::string text;
    if (!is_single_line(as_view(message.payload))) {
      append_single_line(text, as_view(message.payload));
      harmless.payload = text;
    }
    {
      const std::lock_guard guard(mutex_);
      spdlog::memory_buf_t line;
      formatter_->format(harmless, line);
      writer.write({line.data(), line.size()});
      newest_.add({line.data(), line.size() - std::min<std::size_t>(line.size(), 1)});
    }
    if (message.level == spdlog::level::critical)
      writer.flush(critical_patience);
  }

  /// Does nothing: lines are passed on at once.
  void flush() override {}

  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }

  void set_formatter(std::unique_ptr<spdlog::formatter> x) override {
    const std::lock_guard guard(mutex_);
    formatter_ = std::move(x);
  }

  std::vector<std::string> tail() const {
    const std::lock_guard guard(mutex_);
    return newest_.lines();
  }

  line_writer writer{STDERR_FILENO, line_writer_limits{}, say_dropped};

private:
  mutable std::mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ = make_formatter();
  line_ring newest_{tail_lines, tail_bytes};
};

/// Never destroyed: threads may log until the process has ended.
const std::shared_ptr<stderr_sink>& the_sink() {
  static const auto& instance = *[] {
    // Registering a logger replaces the format of its sink by spdlog's own: so the format is set there as well.
    spdlog::set_formatter(make_formatter());
    std::atexit([] { flush(end_patience); });
    return new std::shared_ptr<stderr_sink>(std::make_shared<stderr_sink>());
  }();
  return instance;
}

} // namespace

logger get(std::string_view component) {
  const std::string name(component);
  std::lock_guard guard(registry_mutex());
  if (auto existing = spdlog::get(name))
    return existing;
  auto created = std::make_shared<spdlog::logger>(name, the_sink());
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

bool set_format(std::string_view format) {
  if (format != "text" && format != "json")
    return false;
  writes_json.store(format == "json", std::memory_order_relaxed);
  the_sink()->set_formatter(make_formatter());
  spdlog::set_formatter(make_formatter()); // of loggers that come later, which set their sink's
  return true;
}

std::vector<std::string> tail() {
  return the_sink()->tail();
}

bool flush(std::chrono::milliseconds limit) {
  return the_sink()->writer.flush(limit);
}

std::uint64_t dropped_lines() {
  return the_sink()->writer.dropped();
}

void shutdown() {
  flush(end_patience);
  spdlog::shutdown();
}

} // namespace troupe::log
