#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "io/engine.hpp"
#include "io/foreign_slab.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::io {

/// Reads slots of slab files of other nodes through one io engine, for as many threads as like. Whoever reads waits,
/// but never longer than it wants to: what has not come by then may come later, into memory that is nobody's until it
/// has.
class foreign_reader {
public:
  /// A file that the engine knows. Does not outlive the reader.
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

  /// Memory for some slots, which the engine knows. Of one thread. Does not outlive the reader.
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
    /// Those that nothing is read into, and who waits for more of them; guarded by the reader.
    std::vector<std::size_t> free_;
    std::condition_variable* wanted_ = nullptr;
  };

  /// Starts the engine. Errors: those of `make_engine`.
  static result<std::shared_ptr<foreign_reader>> make(const engine_options& how);

  foreign_reader(const foreign_reader&) = delete;
  foreign_reader& operator=(const foreign_reader&) = delete;
  /// Waits until nothing is read any more.
  ~foreign_reader();

  /// Waits until that time at most, also for a file system that does not answer. Errors: `timeout`, those of
  /// `foreign_slab::open` and of `engine::add_file`.
  result<std::shared_ptr<file>> open(const std::filesystem::path& path, const slab_spec& expected, bool try_direct,
                                     timestamp until);

  /// Errors: those of `engine::add_buffer`; `no_space` where there is no memory.
  result<std::shared_ptr<frames>> make_frames(std::uint64_t slot_bytes, std::size_t count);

  /// Reads these slots, all of which the file has, by way of these frames. `arrived` is told, in the calling thread, of
  /// each that came, by its place in the list, with the bytes, which are the frame's again when it returns; or what
  /// became of it instead: what the engine says, or `timeout` when that time has come first.
  void read(const std::shared_ptr<file>& from, const std::shared_ptr<frames>& by, std::span<const slot_number> slots,
            timestamp until, const std::function<void(std::size_t, errc, std::span<std::byte>)>& arrived);

  /// Transfers that have not ended.
  std::size_t under_way() const;

  /// For logs.
  std::string describe() const { return engine_->describe(); }

private:
  /// Slots that one caller waits for.
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
  /// What the opener's thread does.
  void open_what_comes();
  void complete(std::span<const completion> done);
  /// Lets go of what the engine's thread must not.
  void bury();

  mutable std::mutex mutex_;
  std::uint64_t last_tag_ = 0;
  std::map<std::uint64_t, transfer> transfers_;
  /// Of transfers that nobody waited for.
  std::vector<std::pair<std::shared_ptr<file>, std::shared_ptr<frames>>> left_;
  std::shared_ptr<engine> engine_;
  /// Files that are to be opened, by a thread of its own, since that may take for ever.
  std::deque<std::function<void()>> to_open_;
  std::condition_variable more_to_open_;
  bool ends_ = false;
  std::thread opener_;
};

} // namespace troupe::io
