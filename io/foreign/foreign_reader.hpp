#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/serial_executor.hpp"
#include "io/engine/engine.hpp"
#include "io/foreign/foreign_slab.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::io {

/// Reads slots of slab files of other nodes through one I/O engine, for any number of threads. A caller waits for a
/// bounded time: a transfer that has not ended by then may end later, into memory that is not reused before.
class foreign_reader {
public:
  /// A file that is registered with the engine. Does not outlive the reader.
  class file {
  public:
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    ~file();
    const foreign_slab& slab() const noexcept { return slab_; }

  private:
    friend foreign_reader;
    file(foreign_slab slab, std::shared_ptr<engine> mover, std::uint32_t number)
        : slab_(std::move(slab)), engine_(std::move(mover)), number_(number) {}

    foreign_slab slab_;
    std::shared_ptr<engine> engine_;
    std::uint32_t number_ = 0;
  };

  /// Memory for some slots, registered with the engine. Used by one thread. Does not outlive the reader.
  class frames {
  public:
    frames(const frames&) = delete;
    frames& operator=(const frames&) = delete;
    ~frames();
    std::span<std::byte> slot(std::size_t i) const noexcept {
      return {memory_.get() + i * slot_bytes_, static_cast<std::size_t>(slot_bytes_)};
    }

  private:
    friend foreign_reader;
    struct releaser {
      void operator()(std::byte* p) const noexcept;
    };
    frames(std::uint64_t slot_bytes, std::size_t count, std::shared_ptr<engine> mover);

    std::uint64_t slot_bytes_;
    std::unique_ptr<std::byte, releaser> memory_;
    std::shared_ptr<engine> engine_;
    std::optional<std::uint32_t> number_;
    /// The frames without a transfer, and the condition for callers that wait for one; guarded by the reader.
    std::vector<std::size_t> free_;
    std::condition_variable* wanted_ = nullptr;
  };

  /// Starts the engine. Errors: those of `make_engine`.
  static result<std::shared_ptr<foreign_reader>> make(const engine_options& how);

  foreign_reader(const foreign_reader&) = delete;
  foreign_reader& operator=(const foreign_reader&) = delete;
  /// Waits until all reads have ended.
  ~foreign_reader();

  /// Opens a slab file; waits until `until` at most, also for a file system that does not respond. Errors: `timeout`,
  /// those of `foreign_slab::open` and of `engine::add_file`.
  result<std::shared_ptr<file>> open(const std::filesystem::path& path, const slab_spec& expected, bool try_direct,
                                     timestamp until);

  /// Errors: those of `engine::add_buffer`; `no_space` where there is no memory.
  result<std::shared_ptr<frames>> make_frames(std::uint64_t slot_bytes, std::size_t count);

  /// Reads these slots, which the file must have, through these frames. Calls `arrived` in the calling thread for each
  /// slot, with its place in the list and either the bytes, which are valid during the call, or an error: the engine's,
  /// or `timeout` when the deadline passes first.
  void read(const std::shared_ptr<file>& from, const std::shared_ptr<frames>& by, std::span<const slot_number> slots,
            timestamp until, const std::function<void(std::size_t, errc, std::span<std::byte>)>& arrived);

  /// The number of transfers in progress.
  std::size_t under_way() const;

  /// A description for logs.
  std::string describe() const { return engine_->describe(); }

private:
  /// The slots of one waiting caller.
  struct batch {
    std::condition_variable news;
    struct arrival {
      std::size_t place = 0;
      std::size_t frame = 0;
      errc code = errc::ok;
    };
    std::vector<arrival> arrived;
    bool abandoned = false;
  };
  struct transfer {
    std::shared_ptr<batch> of;
    std::size_t place = 0;
    std::size_t frame = 0;
    std::shared_ptr<file> from;
    std::shared_ptr<frames> by;
  };

  foreign_reader() = default;
  result<std::shared_ptr<file>> open_now(const std::filesystem::path& path, const slab_spec& expected, bool try_direct);
  void complete(std::span<const completion> done);
  /// Releases what the engine's thread must not release.
  void bury();

  mutable std::mutex mutex_;
  std::uint64_t last_tag_ = 0;
  std::map<std::uint64_t, transfer> transfers_;
  /// Files and frames of transfers whose caller no longer waits.
  std::vector<std::pair<std::shared_ptr<file>, std::shared_ptr<frames>>> left_;
  std::shared_ptr<engine> engine_;
  /// Opens files, since that may block forever.
  std::unique_ptr<serial_executor> opener_;
};

} // namespace troupe::io
