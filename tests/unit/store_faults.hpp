#pragma once

#include "tests/unit/io_support.hpp"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>

namespace troupe::test {

/// A file system that fails on request and that knows what a power loss would leave of its files.
class faulty_file_system : public rocksdb::FileSystemWrapper {
public:
  faulty_file_system() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

  const char* Name() const override { return "faulty_file_system"; }

  /// Each later write to a log file fails with `why`; `but_first` bytes of a write are still written.
  void fail_log_writes(rocksdb::IOStatus why, std::size_t but_first = 0) {
    const std::lock_guard guard(mutex_);
    write_failure_ = std::move(why);
    but_first_ = but_first;
  }
  void fail_log_syncs(rocksdb::IOStatus why) {
    const std::lock_guard guard(mutex_);
    sync_failure_ = std::move(why);
  }
  void heal() {
    const std::lock_guard guard(mutex_);
    write_failure_ = sync_failure_ = rocksdb::IOStatus::OK();
  }

  std::uint64_t log_syncs() {
    const std::lock_guard guard(mutex_);
    return log_syncs_;
  }

  /// Copies the directory as a power loss at this moment would leave it. Of the data written after the last sync of a
  /// file any part may exist, with garbage towards its end.
  void copy_as_after_power_loss(const std::filesystem::path& from, const std::filesystem::path& to,
                                std::mt19937_64& random) {
    const std::lock_guard guard(mutex_);
    std::filesystem::create_directories(to);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string text{std::istreambuf_iterator<char>{in}, {}};
      if (const auto at = files_.find(entry.path().string()); at != files_.end() && at->second.synced < text.size()) {
        const auto loose = text.size() - at->second.synced;
        text.resize(at->second.synced + random() % (loose + 1));
        if (random() % 2 == 0 && text.size() > at->second.synced)
          text.back() = static_cast<char>(random());
      }
      std::ofstream(to / entry.path().filename(), std::ios::binary) << text;
    }
  }

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* made,
                                    rocksdb::IODebugContext* context) override {
    const std::lock_guard guard(mutex_);
    auto status = FileSystemWrapper::NewWritableFile(name, options, made, context);
    if (status.ok()) {
      files_[name] = {};
      *made = std::make_unique<file>(*this, name, std::move(*made));
    }
    return status;
  }

  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override {
    const std::lock_guard guard(mutex_);
    auto status = FileSystemWrapper::RenameFile(from, to, options, context);
    if (status.ok())
      if (auto moved = files_.extract(from)) {
        files_.erase(to);
        moved.key() = to;
        files_.insert(std::move(moved));
      }
    return status;
  }

  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override {
    const std::lock_guard guard(mutex_);
    files_.erase(name);
    return FileSystemWrapper::DeleteFile(name, options, context);
  }

private:
  struct extent {
    std::uint64_t written = 0;
    std::uint64_t synced = 0;
  };

  class file : public rocksdb::FSWritableFileWrapper {
  public:
    file(faulty_file_system& owner, std::string name, std::unique_ptr<rocksdb::FSWritableFile> real)
        : FSWritableFileWrapper(real.get()), owner_(owner), name_(std::move(name)), real_(std::move(real)) {}

    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override {
      return owner_.append(name_, data, [&](const rocksdb::Slice& part) {
        return FSWritableFileWrapper::Append(part, options, context);
      });
    }
    rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                             const rocksdb::DataVerificationInfo&, rocksdb::IODebugContext* context) override {
      return Append(data, options, context);
    }
    rocksdb::IOStatus Sync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return owner_.sync(name_); }
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions&, rocksdb::IODebugContext*) override { return owner_.sync(name_); }

  private:
    faulty_file_system& owner_;
    const std::string name_;
    const std::unique_ptr<rocksdb::FSWritableFile> real_;
  };

  static bool is_log(const std::string& name) { return name.ends_with(".log"); }

  template <class Write>
  rocksdb::IOStatus append(const std::string& name, const rocksdb::Slice& data, Write&& write) {
    const std::lock_guard guard(mutex_);
    const bool fails = is_log(name) && !write_failure_.ok();
    const rocksdb::Slice part(data.data(), fails ? std::min(but_first_, data.size()) : data.size());
    if (part.size() > 0 || !fails) {
      if (auto status = write(part); !status.ok())
        return status;
      files_[name].written += part.size();
    }
    return fails ? write_failure_ : rocksdb::IOStatus::OK();
  }

  // No real sync: tests do not lose power, and there are many of them.
  rocksdb::IOStatus sync(const std::string& name) {
    const std::lock_guard guard(mutex_);
    if (is_log(name)) {
      if (!sync_failure_.ok())
        return sync_failure_;
      ++log_syncs_;
    }
    auto& known = files_[name];
    known.synced = known.written;
    return rocksdb::IOStatus::OK();
  }

  std::mutex mutex_;
  std::map<std::string, extent> files_;
  rocksdb::IOStatus write_failure_;
  rocksdb::IOStatus sync_failure_;
  std::size_t but_first_ = 0;
  std::uint64_t log_syncs_ = 0;
};

/// An environment over a faulty file system, for `rocksdb_store_options::env`.
class faulty_environment {
public:
  faulty_environment() : files_(std::make_shared<faulty_file_system>()), env_(rocksdb::NewCompositeEnv(files_)) {}

  faulty_file_system& files() { return *files_; }
  rocksdb::Env* env() { return env_.get(); }

private:
  std::shared_ptr<faulty_file_system> files_;
  std::unique_ptr<rocksdb::Env> env_;
};

} // namespace troupe::test
