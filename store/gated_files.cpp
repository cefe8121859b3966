#include "store/gated_files.hpp"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <string>
#include <utility>

namespace troupe::store {

namespace {

using rocksdb::DataVerificationInfo;
using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::FSWritableFileOwnerWrapper;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using shared_gate = std::shared_ptr<const write_gate>;

/// Runs the call if the gate is open.
template <class F>
IOStatus gated(const shared_gate& gate, F&& f) {
  if (gate->is_open())
    return std::forward<F>(f)();
  return IOStatus::NoSpace(std::string(no_claim));
}

class gated_file final : public FSWritableFileOwnerWrapper {
public:
  gated_file(std::unique_ptr<FSWritableFile> file, shared_gate gate)
      : FSWritableFileOwnerWrapper(std::move(file)), gate_(std::move(gate)) {}

  IOStatus Append(const Slice& data, const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::Append(data, how, context); });
  }
  IOStatus Append(const Slice& data, const IOOptions& how, const DataVerificationInfo& sum,
                  IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::Append(data, how, sum, context); });
  }
  IOStatus PositionedAppend(const Slice& data, std::uint64_t offset, const IOOptions& how,
                            IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::PositionedAppend(data, offset, how, context); });
  }
  IOStatus PositionedAppend(const Slice& data, std::uint64_t offset, const IOOptions& how,
                            const DataVerificationInfo& sum, IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::PositionedAppend(data, offset, how, sum, context); });
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::Truncate(size, how, context); });
  }
  // Earlier writes may reach the disk at any time anyway.
  IOStatus Sync(const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::Sync(how, context); });
  }
  IOStatus Fsync(const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FSWritableFileOwnerWrapper::Fsync(how, context); });
  }

private:
  const shared_gate gate_;
};

class gated_files final : public rocksdb::FileSystemWrapper {
public:
  gated_files(std::shared_ptr<rocksdb::FileSystem> under, shared_gate gate)
      : FileSystemWrapper(std::move(under)), gate_(std::move(gate)) {}

  const char* Name() const override { return "troupe_gated_files"; }

  IOStatus NewWritableFile(const std::string& name, const FileOptions& how, std::unique_ptr<FSWritableFile>* made,
                           IODebugContext* context) override {
    return opened(made, [&] { return FileSystemWrapper::NewWritableFile(name, how, made, context); });
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& how, std::unique_ptr<FSWritableFile>* made,
                              IODebugContext* context) override {
    return opened(made, [&] { return FileSystemWrapper::ReopenWritableFile(name, how, made, context); });
  }
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old, const FileOptions& how,
                             std::unique_ptr<FSWritableFile>* made, IODebugContext* context) override {
    return opened(made, [&] { return FileSystemWrapper::ReuseWritableFile(name, old, how, made, context); });
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FileSystemWrapper::DeleteFile(name, how, context); });
  }
  IOStatus Truncate(const std::string& name, std::size_t size, const IOOptions& how, IODebugContext* context) override {
    return gated(gate_, [&] { return FileSystemWrapper::Truncate(name, size, how, context); });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& how,
                      IODebugContext* context) override {
    return gated(gate_, [&] { return FileSystemWrapper::RenameFile(from, to, how, context); });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& how,
                    IODebugContext* context) override {
    return gated(gate_, [&] { return FileSystemWrapper::LinkFile(from, to, how, context); });
  }

private:
  template <class F>
  IOStatus opened(std::unique_ptr<FSWritableFile>* made, F&& open) {
    auto status = gated(gate_, std::forward<F>(open));
    if (status.ok())
      *made = std::make_unique<gated_file>(std::move(*made), gate_);
    return status;
  }

  const shared_gate gate_;
};

} // namespace

std::unique_ptr<rocksdb::Env> make_gated_environment(std::shared_ptr<const write_gate> gate, rocksdb::Env* under) {
  const auto* const env = under != nullptr ? under : rocksdb::Env::Default();
  return rocksdb::NewCompositeEnv(std::make_shared<gated_files>(env->GetFileSystem(), std::move(gate)));
}

} // namespace troupe::store
