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

/// Where a node with that data directory keeps the trace of its last lookups.
std::filesystem::path recorded_trace(const std::filesystem::path& data_dir);

/// Writes what a recorder has to a file, now and then and at the end: a trace that is whole at any moment. Has a thread
/// of its own, since nobody else should wait for a disk.
class trace_file {
public:
  /// `gate`: whether it may be written; null where nobody else could take the directory over.
  trace_file(std::filesystem::path path, std::shared_ptr<const request_recorder> recorder,
             std::shared_ptr<const write_gate> gate = nullptr, duration interval = std::chrono::minutes(1));
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;
  /// Writes it a last time.
  ~trace_file();

  /// Replaces the file; leaves everything as it is while the gate is closed. io_error, no_space.
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
