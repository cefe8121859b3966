#include "base/log.hpp"

#include "base/line_writer.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <unistd.h>
#include <utility>

namespace troupe::log {

namespace {

/// How long a program that ends waits for stderr: its last lines say why it ended, but whoever reads them may be gone.
constexpr std::chrono::milliseconds end_patience{1000};
/// How long a critical line does, with the actor that wrote it: the process may be about to abort, and it may not.
constexpr std::chrono::milliseconds critical_patience{200};

std::mutex& registry_mutex() {
  static std::mutex instance;
  return instance;
}

std::unique_ptr<spdlog::formatter> make_formatter() {
  return std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc);
}

std::string say_dropped(std::uint64_t count) {
  const auto text = std::to_string(count) + (count == 1 ? " line was" : " lines were") +
                    " dropped: nobody read the log, or it could not be written";
  spdlog::memory_buf_t line;
  make_formatter()->format({"log", spdlog::level::warn, text}, line);
  return {line.data(), line.size()};
}

/// Where all loggers write to.
class stderr_sink final : public spdlog::sinks::sink {
public:
  void log(const spdlog::details::log_msg& message) override {
    {
      const std::lock_guard guard(mutex_);
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      writer.write({line.data(), line.size()});
    }
    if (message.level == spdlog::level::critical)
      writer.flush(critical_patience);
  }

  /// Lines are on their way at once.
  void flush() override {}

  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }

  void set_formatter(std::unique_ptr<spdlog::formatter> x) override {
    const std::lock_guard guard(mutex_);
    formatter_ = std::move(x);
  }

  line_writer writer{STDERR_FILENO, line_writer_limits{}, say_dropped};

private:
  std::mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_ = make_formatter();
};

/// Never destroyed: threads may log until the process is gone.
const std::shared_ptr<stderr_sink>& the_sink() {
  static const auto& instance = *[] {
    // A logger that is registered gets spdlog's own format, over what its sink had before: so it is set there.
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
