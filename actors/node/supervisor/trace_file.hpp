#pragma once

#include "actors/node/registry/request_recorder.hpp"
#include "base/error.hpp"
#include "base/serial_executor.hpp"
#include "base/write_gate.hpp"

#include <filesystem>
#include <memory>

namespace troupe {

/// The path of the trace of the last lookups, for a data directory.
std::filesystem::path recorded_trace(const std::filesystem::path& data_dir);

/// A writer that saves a recorder's lookups to a file, periodically and at the end; the file is a complete trace at any
/// moment. It has a thread of its own, so that no other thread waits for the disk.
class trace_file {
public:
  /// Starts the writer; null where `recorder` is null, since nothing is recorded then. `gate`: whether the file may be
  /// written. Error: `io_error` where no thread can be started.
  static result<std::unique_ptr<trace_file>> start(std::filesystem::path path,
                                                   std::shared_ptr<const request_recorder> recorder,
                                                   std::shared_ptr<const write_gate> gate = write_gate::always_open(),
                                                   duration interval = std::chrono::minutes(1));
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;
  /// Writes the file a last time.
  ~trace_file();

  /// Replaces the file. Errors: `io_error`, also while the gate is closed; `no_space`.
  result<void> write() const;

private:
  trace_file(std::filesystem::path path, std::shared_ptr<const request_recorder> recorder,
             std::shared_ptr<const write_gate> gate);

  /// Writes the file; logs the first of several failures.
  void write_and_report();

  std::filesystem::path path_;
  std::shared_ptr<const request_recorder> recorder_;
  std::shared_ptr<const write_gate> gate_;
  /// Whether the last write failed. Used by the thread, and by the destructor after it.
  bool failing_ = false;
  std::unique_ptr<serial_executor> thread_;
};

} // namespace troupe
