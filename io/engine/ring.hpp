#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "io/engine/engine.hpp"
#include "io/memory/backing.hpp"

#include <liburing.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::io {

/// One io_uring with the features of this kernel. Is made, used and destroyed by one thread. Prepared entries are
/// passed to the kernel by the next `submit` or `submit_and_wait`.
class ring {
public:
  /// Error: `unsupported`, with the reason: no io_uring in this kernel, forbidden in this container, or too old.
  static result<std::unique_ptr<ring>> open(const engine_options& options);

  ring(const ring&) = delete;
  ring& operator=(const ring&) = delete;
  /// Requires that nothing is in flight.
  ~ring();

  /// Registers the file under this id; where that fails, transfers name the descriptor instead. Large reads of a cached
  /// file are left to threads of the kernel, see `engine_options::kernel_workers`.
  void add_file(std::uint32_t file, int descriptor);
  void remove_file(std::uint32_t file);

  /// Registers the memory under this id; where that fails, the kernel pins it anew for each transfer.
  void add_buffer(std::uint32_t buffer, std::span<std::byte> bytes);
  void remove_buffer(std::uint32_t buffer);

  /// Whether the kernel carries out requests of this kind one at a time: writes to a cached file exclude each other.
  /// They are not forced to workers, which would wait for each other: by default the kernel lets the submitting thread
  /// copy, or one worker do all of them.
  bool is_serial(const request& what) const noexcept {
    return workers_ > 0 && what.op == operation::write && backings_[what.file] != backing::device;
  }

  /// Prepares a request, or the rest of one of which `done` bytes have been transferred.
  void prepare_transfer(const request& what, std::uint64_t done, int descriptor, std::uint64_t user_data);
  void prepare_read(int descriptor, std::span<std::byte> into, std::uint64_t user_data);
  void prepare_cancel(std::uint64_t target, std::uint64_t user_data);

  void submit();

  /// Submits, and waits for a completion, at most for `patience` if given.
  void submit_and_wait(std::optional<duration> patience);

  /// Calls `f(user_data, outcome)` for each available completion.
  template <class F>
  void reap(F f) {
    std::array<io_uring_cqe*, 64> batch{};
    for (;;) {
      const auto count = io_uring_peek_batch_cqe(&ring_, batch.data(), static_cast<unsigned>(batch.size()));
      for (unsigned i = 0; i < count; ++i)
        f(batch[i]->user_data, batch[i]->res);
      io_uring_cq_advance(&ring_, count);
      if (count < batch.size())
        return;
    }
  }

  /// "deferred completions, registered files, registered buffers, up to 8 workers for cached files"
  std::string features() const;

private:
  // The kernel limits a registered buffer to 1 GiB, so large memory takes several places of its table.
  struct registration {
    std::byte* begin = nullptr;
    std::vector<std::uint32_t> places;
  };

  ring() = default;

  int set_up(unsigned entries);
  int try_out();
  void register_tables(const engine_options& options);
  void limit_workers(std::uint32_t most);
  io_uring_sqe* next_entry();
  std::optional<std::uint32_t> place_of(const request& what, std::uint64_t done, std::uint64_t length) const;
  bool is_for_worker(const request& what, std::uint64_t length) const noexcept;
  void give_back(registration& used);
  void say_once(int code, const std::string& what);

  io_uring ring_{};
  bool open_ = false;
  bool ring_registered_ = false;
  unsigned flags_ = 0;
  bool files_registered_ = false;
  bool buffers_registered_ = false;
  bool said_ = false;
  /// The most workers of the kernel; 0 disables them.
  std::uint32_t workers_ = 0;
  std::vector<bool> file_is_registered_;
  std::vector<backing> backings_;
  std::vector<registration> registrations_;
  std::vector<std::uint32_t> free_places_;
};

} // namespace troupe::io
