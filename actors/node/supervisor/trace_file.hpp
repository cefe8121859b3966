#pragma once

#include "actors/node/registry/request_recorder.hpp"
#include "base/error.hpp"
#include "base/write_gate.hpp"

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

namespace troupe {

/// The path of the trace of the last lookups, for a data directory.
std::filesystem::path recorded_trace(const std::filesystem::path& data_dir);

/// A writer that saves a recorder's lookups to a file, periodically and at the end; the file is a complete trace at any
/// moment. It has a thread of its own, so that no other thread waits for the disk.
class trace_file {
public:
  /// `gate`: whether the file may be written.
  trace_file(std::filesystem::path path, std::shared_ptr<const request_recorder> recorder,
             std::shared_ptr<const write_gate> gate = write_gate::always_open(),
             duration interval = std::chrono::minutes(1));
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;
  /// Writes the file a last time.
  ~trace_file();

  /// Replaces the file. Errors: `io_error`, also while the gate is closed; `no_space`.
  result<void> write() const;

private:
  std::filesystem::path path_;
  std::shared_ptr<const request_recorder> recorder_;
  std::shared_ptr<const write_gate> gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

} // namespace troupe
