#include "io/make_engine.hpp"

#include "base/log.hpp"
#include "io/engine/thread_pool_engine.hpp"
#include "io/engine/uring_engine.hpp"
#include "io/usrbio/usrbio_engine.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace troupe::io {

namespace {

// Limits of the kernel: entries of a ring (32768, of which some are for cancellations), and slots for buffers.
constexpr std::uint32_t largest_depth = 16384;
constexpr std::uint32_t most_threads = 1024;
constexpr std::uint32_t most_kernel_workers = 1024;
constexpr std::uint32_t most_files = 32768;
constexpr std::uint32_t most_buffers = 16384;

result<void> check(const engine_options& options) {
  const auto within = [](std::string_view name, std::uint32_t value, std::uint32_t most,
                         std::uint32_t least = 1) -> result<void> {
    if (value >= least && value <= most)
      return {};
    return fail(errc::invalid_argument, "an io engine needs " + std::to_string(least) + " to " + std::to_string(most) +
                                            " " + std::string(name) + ", not " + std::to_string(value));
  };
  return within("requests in flight (depth)", options.depth, largest_depth)
      .and_then([&] { return within("threads", options.threads, most_threads); })
      .and_then([&] { return within("workers of the kernel", options.kernel_workers, most_kernel_workers, 0); })
      .and_then([&] { return within("files", options.max_files, most_files); })
      .and_then([&] { return within("buffers", options.max_buffers, most_buffers); });
}

} // namespace

result<std::unique_ptr<engine>> make_engine(const engine_options& options, completion_sink sink) {
  if (auto sound = check(options); !sound)
    return tl::unexpected(sound.error());
  if (options.kind == engine_kind::threads)
    return thread_pool_engine::start(options, std::move(sink));
  if (options.kind == engine_kind::usrbio)
    return usrbio_engine::start(options, std::move(sink));
  if (options.kind == engine_kind::usrbio_or_uring) {
    auto on_3fs = usrbio_engine::start(options, sink);
    if (on_3fs || on_3fs.error().code != errc::unsupported)
      return on_3fs;
    log::get("io")->warn("{}: {}; using kernel I/O instead, as io.engine permits", options.name.text(),
                         on_3fs.error().text);
  }
  auto made = uring_engine::start(options, sink);
  if (made || made.error().code != errc::unsupported)
    return made;
  if (options.kind == engine_kind::uring)
    return fail(errc::unsupported, made.error().text + "; set io.engine to \"auto\" or \"threads\" to run without it");
  log::get("io")->warn("{}: {}; falling back to a pool of {} threads, which is slower and costs more CPU",
                       options.name.text(), made.error().text, options.threads);
  return thread_pool_engine::start(options, std::move(sink));
}

} // namespace troupe::io
