#include "actors/support/io_engine_options.hpp"

#include <filesystem>
#include <string_view>

namespace troupe {

namespace {

io::engine_kind kind_of(std::string_view choice) {
  if (choice == "io_uring")
    return io::engine_kind::uring;
  if (choice == "usrbio")
    return io::engine_kind::usrbio;
  if (choice == "usrbio_or_uring")
    return io::engine_kind::usrbio_or_uring;
  return choice == "threads" ? io::engine_kind::threads : io::engine_kind::automatic;
}

} // namespace

io::engine_options engine_options_of(const config::node_config& options) {
  io::engine_options out;
  out.depth = options.io.queue_depth;
  out.threads = options.io.threads;
  out.kind = kind_of(options.io.engine);
  out.usrbio.library = options.storage.usrbio_library;
  out.usrbio.mount_point = options.storage.mount_point.value_or(std::filesystem::path()).string();
  out.usrbio.quarantine = options.storage.usrbio_quarantine;
  return out;
}

} // namespace troupe
