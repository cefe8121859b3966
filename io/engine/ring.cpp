#include "io/engine/ring.hpp"

#include "base/log.hpp"
#include "io/engine/engine_resources.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace troupe::io {

namespace {

constexpr std::uint64_t largest_registered = 1ULL << 30U;

// The length from which a worker is used for a read of a cached file. tmpfs has no non-blocking reads, so the kernel
// leaves its transfers to one worker anyway; below 64 KiB a second worker gains little. On other file systems the
// kernel copies cached data at once, which is faster than a worker up to 256 KiB.
constexpr std::uint64_t least_from_memory = 64ULL << 10U;
constexpr std::uint64_t least_from_cache = 512ULL << 10U;

// The best choice first. DEFER_TASKRUN: completions run in one batch when the thread asks for them, and do not
// interrupt it.
constexpr std::array flag_choices{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
                                  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL,
                                  IORING_SETUP_SUBMIT_ALL, 0U};

// Waiting with a timeout without an entry of its own (Linux 5.11), and completions that are never dropped (5.5).
constexpr unsigned needed_features = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;

// The ring is unusable and the kernel may still own buffers: the process cannot continue safely.
[[noreturn]] void abandon(std::string_view call, int code) {
  log::get("io")->critical("{}", system_error(code, std::string(call) + " failed").text);
  std::abort();
}

// Transient: an interruption, a shortage of memory, or completions to be reaped first.
bool passes(int outcome) {
  return outcome == -EINTR || outcome == -EAGAIN || outcome == -EBUSY || outcome == -ETIME;
}

std::string reason(int code) {
  switch (code) {
  case ENOSYS:
    return "this kernel has no io_uring";
  case EPERM:
  case EACCES:
    return "io_uring is forbidden here (by the container's seccomp profile or kernel.io_uring_disabled)";
  case ENOMEM:
    return "io_uring may not lock the memory that it needs (raise the limit: ulimit -l, LimitMEMLOCK)";
  default:
    return system_error(code, "cannot set up io_uring").text;
  }
}

} // namespace

result<std::unique_ptr<ring>> ring::open(const engine_options& options) {
  std::unique_ptr<ring> made(new ring);
  // The extra entries are for the wake-up and some cancellations. A full queue is submitted early, which is no error.
  if (const auto code = made->set_up(options.depth + 16); code != 0)
    return fail(errc::unsupported, reason(code));
  if ((made->ring_.features & needed_features) != needed_features)
    return fail(errc::unsupported, "the io_uring of this kernel is too old (Linux 5.11 is needed)");
  if (const auto code = made->try_out(); code != 0)
    return fail(errc::unsupported, reason(code));
  made->ring_registered_ = io_uring_register_ring_fd(&made->ring_) == 1;
  made->register_tables(options);
  made->limit_workers(options.kernel_workers);
  return made;
}

int ring::set_up(unsigned entries) {
  int code = 0;
  for (const auto flags : flag_choices) {
    io_uring_params parameters{};
    parameters.flags = flags | IORING_SETUP_CLAMP;
    code = -io_uring_queue_init_params(entries, &ring_, &parameters);
    if (code == 0) {
      open_ = true;
      flags_ = flags;
      return 0;
    }
    if (code != EINVAL) // the kernel supports the flags and has another reason
      return code;
  }
  return code;
}

// A seccomp profile may permit creating a ring and forbid using it.
int ring::try_out() {
  io_uring_prep_nop(io_uring_get_sqe(&ring_));
  for (;;) {
    const auto outcome = io_uring_submit_and_wait(&ring_, 1);
    if (outcome < 0 && !passes(outcome))
      return -outcome;
    io_uring_cqe* done = nullptr;
    if (io_uring_peek_cqe(&ring_, &done) == 0) {
      io_uring_cqe_seen(&ring_, done);
      return 0;
    }
  }
}

ring::~ring() {
  if (!open_)
    return;
  // Unregisters explicitly: the kernel closes a ring asynchronously, and until then it would keep files open and memory
  // pinned.
  if (buffers_registered_)
    io_uring_unregister_buffers(&ring_);
  if (files_registered_)
    io_uring_unregister_files(&ring_);
  if (ring_registered_)
    io_uring_unregister_ring_fd(&ring_);
  io_uring_queue_exit(&ring_);
}

void ring::register_tables(const engine_options& options) {
  file_is_registered_.resize(options.max_files);
  backings_.resize(options.max_files);
  registrations_.resize(options.max_buffers);
  if (options.register_files) {
    const auto code = io_uring_register_files_sparse(&ring_, options.max_files);
    files_registered_ = code == 0;
    if (code != 0)
      say_once(-code, "a table for files");
  }
  if (options.register_buffers) {
    const auto code = io_uring_register_buffers_sparse(&ring_, options.max_buffers);
    buffers_registered_ = code == 0;
    if (code != 0)
      say_once(-code, "a table for buffers");
  }
  if (buffers_registered_)
    for (auto place = options.max_buffers; place-- > 0;)
      free_places_.push_back(place);
}

void ring::say_once(int code, const std::string& what) {
  if (std::exchange(said_, true))
    return;
  log::get("io")->warn("{}; transfers continue without registration and cost more CPU{}",
                       system_error(code, "the kernel cannot register " + what).text,
                       code == ENOMEM || code == EPERM ? " (raise the limit of locked memory: ulimit -l, LimitMEMLOCK)"
                                                       : "");
}

// Without a limit (before Linux 5.15) the kernel may start a worker for each transfer. It has one limit for work on
// regular files and one for all other work; requests that are forced to a worker count as other work, since the kernel
// has not looked at the file by then. Hence both limits are set.
void ring::limit_workers(std::uint32_t most) {
  std::array<unsigned, 2> limits{most, most};
  if (most > 0 && io_uring_register_iowq_max_workers(&ring_, limits.data()) == 0)
    workers_ = most;
}

void ring::add_file(std::uint32_t file, int descriptor) {
  backings_[file] = backing_of(descriptor);
  if (!files_registered_)
    return;
  const auto code = io_uring_register_files_update(&ring_, file, &descriptor, 1);
  file_is_registered_[file] = code == 1;
  if (code != 1)
    say_once(-code, "a file");
}

void ring::remove_file(std::uint32_t file) {
  if (!file_is_registered_[file])
    return;
  int nothing = -1;
  io_uring_register_files_update(&ring_, file, &nothing, 1);
  file_is_registered_[file] = false;
}

void ring::add_buffer(std::uint32_t buffer, std::span<std::byte> bytes) {
  const auto places = (bytes.size() + largest_registered - 1) / largest_registered;
  if (!buffers_registered_)
    return;
  if (places > free_places_.size())
    return say_once(ENOBUFS, "more than " + std::to_string(registrations_.size()) + " GiB of buffers");
  auto& made = registrations_[buffer];
  made.begin = bytes.data();
  for (std::uint64_t i = 0; i < places; ++i) {
    const auto part =
        bytes.subspan(i * largest_registered, std::min(largest_registered, bytes.size() - i * largest_registered));
    const iovec memory{part.data(), part.size()};
    const __u64 no_tag = 0;
    const auto place = free_places_.back();
    const auto code = io_uring_register_buffers_update_tag(&ring_, place, &memory, &no_tag, 1);
    if (code != 1) {
      give_back(made);
      return say_once(-code, "a buffer of " + std::to_string(bytes.size()) + " bytes");
    }
    free_places_.pop_back();
    made.places.push_back(place);
  }
}

void ring::remove_buffer(std::uint32_t buffer) {
  give_back(registrations_[buffer]);
}

void ring::give_back(registration& used) {
  for (const auto place : used.places) {
    const iovec nothing{nullptr, 0};
    const __u64 no_tag = 0;
    io_uring_register_buffers_update_tag(&ring_, place, &nothing, &no_tag, 1);
    free_places_.push_back(place);
  }
  used = {};
}

// Nothing where the memory is not registered, or spans two registrations.
std::optional<std::uint32_t> ring::place_of(const request& what, std::uint64_t done, std::uint64_t length) const {
  const auto& made = registrations_[what.buffer];
  if (made.places.empty())
    return std::nullopt;
  const auto begin = static_cast<std::uint64_t>(what.data - made.begin) + done;
  if (begin / largest_registered != (begin + length - 1) / largest_registered)
    return std::nullopt;
  return made.places[begin / largest_registered];
}

io_uring_sqe* ring::next_entry() {
  for (;;) {
    if (auto* entry = io_uring_get_sqe(&ring_))
      return entry;
    submit();
  }
}

bool ring::is_for_worker(const request& what, std::uint64_t length) const noexcept {
  if (workers_ == 0 || what.op != operation::read)
    return false;
  switch (backings_[what.file]) {
  case backing::device:
    return false;
  case backing::cached_device:
    return length >= least_from_cache;
  case backing::memory:
    return length >= least_from_memory;
  }
  return false;
}

void ring::prepare_transfer(const request& what, std::uint64_t done, int descriptor, std::uint64_t user_data) {
  const auto length = std::min(what.length - done, largest_transfer);
  const auto bytes = static_cast<unsigned>(length);
  auto* const data = what.data + done;
  const auto offset = what.file_offset + done;
  const bool fixed_file = file_is_registered_[what.file];
  const int file = fixed_file ? static_cast<int>(what.file) : descriptor;
  auto* const entry = next_entry();
  if (what.op == operation::trim) {
    io_uring_prep_fallocate(entry, file, trim_mode, static_cast<off_t>(offset), static_cast<off_t>(what.length - done));
  } else if (const auto place = place_of(what, done, length)) {
    if (what.op == operation::read)
      io_uring_prep_read_fixed(entry, file, data, bytes, offset, static_cast<int>(*place));
    else
      io_uring_prep_write_fixed(entry, file, data, bytes, offset, static_cast<int>(*place));
  } else {
    if (what.op == operation::read)
      io_uring_prep_read(entry, file, data, bytes, offset);
    else
      io_uring_prep_write(entry, file, data, bytes, offset);
  }
  const bool for_worker = is_for_worker(what, length);
  io_uring_sqe_set_flags(entry, (fixed_file ? IOSQE_FIXED_FILE : 0U) | (for_worker ? IOSQE_ASYNC : 0U));
  io_uring_sqe_set_data64(entry, user_data);
}

void ring::prepare_read(int descriptor, std::span<std::byte> into, std::uint64_t user_data) {
  auto* const entry = next_entry();
  io_uring_prep_read(entry, descriptor, into.data(), static_cast<unsigned>(into.size()), 0);
  io_uring_sqe_set_data64(entry, user_data);
}

void ring::prepare_cancel(std::uint64_t target, std::uint64_t user_data) {
  auto* const entry = next_entry();
  io_uring_prep_cancel64(entry, target, 0);
  io_uring_sqe_set_data64(entry, user_data);
}

void ring::submit() {
  if (const auto outcome = io_uring_submit(&ring_); outcome < 0 && !passes(outcome))
    abandon("io_uring_submit", -outcome);
}

void ring::submit_and_wait(std::optional<duration> patience) {
  int outcome = 0;
  if (patience) {
    const auto left = std::max(*patience, duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    __kernel_timespec limit{};
    limit.tv_sec = seconds.count();
    limit.tv_nsec = (left - seconds).count();
    io_uring_cqe* ignored = nullptr;
    outcome = io_uring_submit_and_wait_timeout(&ring_, &ignored, 1, &limit, nullptr);
  } else {
    outcome = io_uring_submit_and_wait(&ring_, 1);
  }
  if (outcome < 0 && !passes(outcome))
    abandon("io_uring_submit_and_wait", -outcome);
}

std::string ring::features() const {
  std::string out;
  if ((flags_ & IORING_SETUP_DEFER_TASKRUN) != 0)
    out += "deferred completions, ";
  out += files_registered_ ? "registered files, " : "plain files, ";
  out += buffers_registered_ ? "registered buffers" : "plain buffers";
  if (workers_ > 0)
    out += ", up to " + std::to_string(workers_) + " workers for cached files";
  return out;
}

} // namespace troupe::io
