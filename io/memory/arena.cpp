#include "io/memory/arena.hpp"

#include "base/host_memory.hpp"
#include "base/kernel_text.hpp"
#include "base/log.hpp"
#include "base/same_file.hpp"
#include "base/size_text.hpp"
#include "io/memory/extent_source.hpp"
#include "io/memory/page_alignment.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

constexpr int required_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t proof_bytes = 32;

/// The proof file holds: this text, the random number of the proof, the identity of the memory's file, zeroes. The text
/// keeps a lying node from passing off memory of another program whose contents it can guess.
constexpr std::string_view proof_page_name = "troupe arena 2";
/// The text for memory that has a name in /dev/shm and no seal. It is as long as the other one, so that neither
/// contains the other.
constexpr std::string_view named_proof_page_name = "troupe arena N";

using proof_page = std::array<std::uint8_t, page_alignment>;

proof_page page_with(std::string_view name, std::span<const std::uint8_t> proof, const struct stat& memory) {
  proof_page out{};
  auto at = std::copy(name.begin(), name.end(), out.begin());
  at = std::copy(proof.begin(), proof.end(), at);
  // The numbers are read by the same kernel on the same host, so the byte order does not matter.
  for (const std::uint64_t number : {std::uint64_t{memory.st_dev}, std::uint64_t{memory.st_ino}}) {
    std::memcpy(&*at, &number, sizeof number);
    at += sizeof number;
  }
  return out;
}

result<std::vector<std::uint8_t>> random_proof() {
  std::vector<std::uint8_t> out(proof_bytes);
  for (;;) {
    // A request this short is answered in full once the kernel has entropy.
    if (::getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()))
      return out;
    if (errno != EINTR)
      return tl::unexpected(system_error(errno, "cannot draw a random number"));
  }
}

tl::unexpected<error> not_the_node(const std::string& path, const std::string& why) {
  return fail(errc::identity_mismatch,
              path + " is not the memory of this node, " + why + ": a client attaches by the Unix socket of its node");
}

std::string arena_text(std::uint64_t bytes) {
  return "an arena of " + size_text(bytes);
}

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

static_assert(two_mib_pages.bytes == extent_alignment);

/// Adds `seals`, then the seal that forbids more. The seal comes last: until then the file may be sized and written.
result<void> seal(const unique_descriptor& made, int seals) {
  if (::fcntl(made.get(), F_ADD_SEALS, seals) != 0)
    return tl::unexpected(system_error(errno, "cannot seal the memory of an arena"));
  return {};
}

/// Creates memory of `bytes` that cannot change its size. `flags` 0 means ordinary pages.
result<unique_descriptor> sealed_memory(const arena_kernel& kernel, std::uint64_t bytes, unsigned flags) {
  unique_descriptor made(kernel.create(MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!made)
    return tl::unexpected(system_error(errno, "cannot create " + arena_text(bytes)));
  if (::ftruncate(made.get(), static_cast<off_t>(bytes)) != 0)
    return tl::unexpected(system_error(errno, "cannot size " + arena_text(bytes)));
  if (auto done = seal(made, required_seals); !done)
    return tl::unexpected(std::move(done.error()));
  return made;
}

/// Creates the same in /dev/shm, under a name that does not exist yet.
result<unique_descriptor> named_memory(const std::string& name, std::uint64_t bytes) {
  const auto path = "/" + name;
  unique_descriptor made(::shm_open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!made)
    return tl::unexpected(system_error(errno, "cannot create /dev/shm/" + name));
  struct statfs status {};
  if (::fstatfs(made.get(), &status) == 0 && status.f_blocks != 0 &&
      std::uint64_t{status.f_bavail} * static_cast<std::uint64_t>(status.f_bsize) < bytes) {
    ::shm_unlink(path.c_str());
    return fail(errc::limit_exceeded,
                "/dev/shm has no room for " + arena_text(bytes) + ": " +
                    size_text(std::uint64_t{status.f_bavail} * static_cast<std::uint64_t>(status.f_bsize)) +
                    " are free; make it larger (mount -o remount,size=, or --shm-size of a container), or lower "
                    "memory.bytes");
  }
  if (::ftruncate(made.get(), static_cast<off_t>(bytes)) != 0) {
    const auto code = errno;
    ::shm_unlink(path.c_str());
    return tl::unexpected(system_error(code, "cannot size " + arena_text(bytes)));
  }
  return made;
}

result<unique_descriptor> proof_of(const unique_descriptor& memory, std::span<const std::uint8_t> proof,
                                   std::string_view name) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0)
    return tl::unexpected(system_error(errno, "cannot look at the memory of an arena"));
  unique_descriptor made(::memfd_create("troupe-arena-proof", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto page = page_with(name, proof, status);
  if (!made || ::write(made.get(), page.data(), page.size()) != static_cast<ssize_t>(page.size()))
    return tl::unexpected(system_error(errno, "cannot create the proof of an arena"));
  if (auto done = seal(made, required_seals | F_SEAL_WRITE); !done)
    return tl::unexpected(std::move(done.error()));
  return made;
}

/// Allocates the memory now. Without this, the first touch of a page that the host cannot provide is a SIGBUS.
int populate_now(std::span<std::byte> bytes, int descriptor, std::uint64_t offset) {
#ifdef MADV_POPULATE_WRITE
  for (;;) {
    if (::madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) == 0)
      return 0;
    if (errno == EINTR || errno == EAGAIN)
      continue;
    if (errno != EINVAL)
      return errno;
    break; // a kernel before 5.14
  }
#endif
  return ::fallocate(descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes.size())) == 0 ? 0 : errno;
}

/// The page size of a file of shared memory.
std::uint64_t page_bytes_of(int descriptor) {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) == 0 && status.f_type == HUGETLBFS_MAGIC)
    return static_cast<std::uint64_t>(status.f_bsize);
  return page_alignment;
}

result<std::span<std::byte>> mapping_of(int descriptor, std::uint64_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED)
    return tl::unexpected(system_error(errno, "cannot map " + arena_text(bytes)));
  // A core dump of a crashed process would otherwise contain all pages of all namespaces.
  ::madvise(at, bytes, MADV_DONTDUMP);
  return std::span{static_cast<std::byte*>(at), bytes};
}

/// Opens without blocking, in case the descriptor has become that of a pipe.
unique_descriptor opened(const std::string& path, int mode) {
  return unique_descriptor(::open(path.c_str(), mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

/// Runs before any call to the kernel, whose error is the same for a missing node and for other causes.
result<void> check_nodes(const std::vector<numa_node>& wanted) {
  const auto usable = usable_numa_nodes();
  for (const auto x : wanted)
    if (!usable.empty() && std::ranges::find(usable, x) == usable.end())
      return fail(errc::invalid_argument, "an arena cannot lie on NUMA node " + std::to_string(x) +
                                              ": this process may use memory on " + numa_text(usable));
  return {};
}

/// A descriptor, and its name in messages.
struct found_file {
  int descriptor = -1;
  std::string name;
};

/// Checks that this is the arena that the node has named, of exactly `bytes`. Does not write.
result<void> prove(const found_file& memory, const found_file& proof, const arena_name& name, std::uint64_t bytes) {
  struct stat status {};
  const auto seals = ::fcntl(memory.descriptor, F_GET_SEALS);
  if (seals == -1 || ::fstat(memory.descriptor, &status) != 0)
    return not_the_node(memory.name, "but no shared memory at all");
  const bool sealed = (seals & required_seals) == required_seals;
  const auto page_bytes = page_bytes_of(memory.descriptor);
  if (bytes == 0 || bytes % page_alignment != 0 || status.st_size <= 0 || status.st_size % page_alignment != 0 ||
      static_cast<std::uint64_t>(status.st_size) < bytes ||
      static_cast<std::uint64_t>(status.st_size) - bytes >= page_bytes)
    return not_the_node(memory.name, "since it has " + std::to_string(status.st_size) + " bytes and the node said " +
                                         std::to_string(bytes));
  constexpr int proof_seals = required_seals | F_SEAL_WRITE;
  const auto found_seals = ::fcntl(proof.descriptor, F_GET_SEALS);
  proof_page page{};
  if (found_seals == -1 || (found_seals & proof_seals) != proof_seals || name.proof.size() != proof_bytes ||
      ::pread(proof.descriptor, page.data(), page.size(), 0) != static_cast<ssize_t>(page.size()) ||
      page != page_with(sealed ? proof_page_name : named_proof_page_name, name.proof, status))
    return sealed ? not_the_node(memory.name,
                                 "since " + proof.name + " does not hold the number that the node has put into its own")
                  : not_the_node(memory.name, "but memory that could be shrunk while it is mapped");
  return {};
}

tl::unexpected<error> out_of_reach(const std::string& path) {
  return fail(errc::unreachable,
              system_error(errno, "cannot open the node's memory at " + path).text +
                  "; a client that transfers pages attaches by the node's Unix socket, on the node's host and as the "
                  "same user");
}

/// The reason as a sentence. The kernel returns EFAULT where the touch of a page would have been a SIGBUS.
std::string why_not_populated(int code, const std::string& what, bool huge, bool named) {
  if (code == EFAULT && huge)
    return what + ": the kernel reserved huge pages and refuses their use, as under a control group limit";
  if (code == EFAULT && named)
    return what + ": /dev/shm is full";
  return system_error(code, what).text;
}

/// Counts operations in progress while it lives.
class busy_count {
public:
  explicit busy_count(std::atomic<std::uint64_t>& of) : of_(of), number_(of.fetch_add(1) + 1) {}
  busy_count(const busy_count&) = delete;
  busy_count& operator=(const busy_count&) = delete;
  ~busy_count() { of_.fetch_sub(1); }

  /// The count, including this one.
  std::uint64_t number() const noexcept { return number_; }

private:
  std::atomic<std::uint64_t>& of_;
  std::uint64_t number_;
};

} // namespace

arena_kernel arena_kernel::of_host() {
  return {room_for, [](unsigned flags) { return ::memfd_create("troupe-arena", flags); }, populate_now};
}

arena::~arena() {
  if (mapping_.data() != nullptr)
    ::munmap(mapping_.data(), mapping_.size());
}

result<std::shared_ptr<arena>> arena::made_of(const arena_options& wanted, std::uint64_t huge_page_bytes,
                                              unsigned flags) {
  const auto all = rounded_up(wanted.bytes, std::max(huge_page_bytes, page_alignment));
  auto memory =
      wanted.shared_name.empty() ? sealed_memory(wanted.kernel, all, flags) : named_memory(wanted.shared_name, all);
  if (!memory)
    return tl::unexpected(std::move(memory.error()));
  const std::shared_ptr<arena> out(new arena);
  if (!wanted.shared_name.empty()) {
    auto held = held_memory_name::hold(wanted.shared_name, memory->get());
    if (!held)
      return tl::unexpected(std::move(held.error()));
    out->shared_name_ = std::move(*held);
  }
  // This reserves as many huge pages: from now on no other process gets them.
  const auto mapped = mapping_of(memory->get(), all);
  if (!mapped)
    return tl::unexpected(mapped.error());
  out->mapping_ = *mapped;
  out->bytes_ = mapped->first(wanted.bytes);
  out->extent_bytes_ = wanted.extent_bytes;
  out->huge_page_bytes_ = huge_page_bytes;
  out->kernel_ = wanted.kernel;
  out->descriptor_ = std::move(*memory);
  auto proof = random_proof();
  if (!proof)
    return tl::unexpected(std::move(proof.error()));
  auto written =
      proof_of(out->descriptor_, *proof, wanted.shared_name.empty() ? proof_page_name : named_proof_page_name);
  if (!written)
    return tl::unexpected(std::move(written.error()));
  out->proof_ = std::move(*proof);
  out->proof_descriptor_ = std::move(*written);
  return out;
}

result<std::shared_ptr<arena>> arena::create(const arena_options& options) {
  auto wanted = options;
  const auto choice = wanted.huge_pages;
  const bool must_be_huge = choice == huge_page_choice::two_mib || choice == huge_page_choice::one_gib;
  const auto alignment = must_be_huge ? extent_alignment : page_alignment;
  if (wanted.extent_bytes == 0 || wanted.extent_bytes % alignment != 0)
    return fail(errc::invalid_argument, "extents of an arena have a multiple of " + std::to_string(alignment) +
                                            " bytes, not " + std::to_string(wanted.extent_bytes));
  wanted.bytes = wanted.bytes / wanted.extent_bytes * wanted.extent_bytes;
  if (wanted.bytes == 0)
    return fail(errc::invalid_argument, "an arena needs at least one extent of " + size_text(wanted.extent_bytes) +
                                            ", not " + size_text(options.bytes));
  if (const auto total = bytes_of_meminfo(text_of_file("/proc/meminfo"), "MemTotal:"); total && *total < wanted.bytes)
    return fail(errc::limit_exceeded, "the host has no memory for " + arena_text(wanted.bytes) + ": it has " +
                                          size_text(*total) + " in all; lower memory.bytes");
  if (auto there = check_nodes(wanted.numa_nodes); !there)
    return tl::unexpected(std::move(there.error()));
  return made_as(wanted);
}

result<std::shared_ptr<arena>> arena::made_as(const arena_options& wanted) {
  const auto choice = wanted.huge_pages;
  const bool must_be_huge = choice == huge_page_choice::two_mib || choice == huge_page_choice::one_gib;
  if (must_be_huge && !wanted.shared_name.empty())
    return fail(errc::invalid_argument, "an arena with a name in /dev/shm is made of ordinary pages: set "
                                        "memory.huge_pages to \"auto\"");
  if (must_be_huge)
    return made_of_huge(wanted, choice == huge_page_choice::two_mib ? two_mib_pages : one_gib_pages);
  if (choice == huge_page_choice::automatic && wanted.extent_bytes % extent_alignment == 0 &&
      wanted.shared_name.empty()) {
    const auto counts = wanted.kernel.huge_pages(two_mib_pages).host;
    if (counts && counts->all >= two_mib_pages.pages_of(wanted.bytes)) {
      auto made = made_of_huge(wanted, two_mib_pages);
      if (made)
        return made;
      log::get("io")->warn("using ordinary pages for page memory: {}", made.error().text);
    }
  }
  return made_of_ordinary(wanted);
}

result<std::shared_ptr<arena>> arena::made_of_huge(const arena_options& wanted, const huge_page_kind& kind) {
  const auto room = [&] { return wanted.kernel.huge_pages(kind); };
  await_spare_huge_pages(kind.pages_of(wanted.bytes), wanted.huge_page_patience, [&] { return room().host; });
  const auto otherwise = wanted.huge_pages == huge_page_choice::automatic
                             ? std::string("set memory.huge_pages to \"off\" to use ordinary pages")
                             : std::string("set memory.huge_pages to \"auto\"");
  const auto lack = [&](std::string_view attempt) {
    return tl::unexpected(lack_of_huge_pages(arena_text(wanted.bytes), wanted.bytes, kind, room(), attempt, otherwise));
  };
  // Where the limit does not allow all of them, the first extents would succeed and the others would always fail.
  if (!room().is_allowed(kind.bytes * kind.pages_of(wanted.bytes)))
    return lack({});
  auto made = made_of(wanted, kind.bytes, MFD_HUGETLB | kind.flag);
  if (!made)
    return lack(made.error().text);
  (*made)->spread_over(wanted.numa_nodes);
  // A reservation is a promise of the host; whether this process may use it shows at the first use.
  if (const auto first = (*made)->provide(0); !first) {
    const auto why = first.error().text;
    made->reset(); // otherwise the message would count its pages as missing
    return lack(why);
  }
  return made;
}

result<std::shared_ptr<arena>> arena::made_of_ordinary(const arena_options& wanted) {
  auto made = made_of(wanted, 0, 0);
  if (!made)
    return made;
  // Huge pages make gather, checksum and registration cheaper; nothing depends on them.
  (*made)->joins_pages_ = wanted.huge_pages == huge_page_choice::automatic;
  ::madvise((*made)->bytes_.data(), wanted.bytes, (*made)->joins_pages_ ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  (*made)->spread_over(wanted.numa_nodes);
  return made;
}

result<std::span<std::byte>> arena::provide(std::uint32_t extent) {
  if (extent_bytes_ == 0 || extent >= bytes_.size() / extent_bytes_)
    return fail(errc::out_of_range, "this arena has no extent " + std::to_string(extent));
  const auto offset = extent * extent_bytes_;
  const auto bytes = bytes_.subspan(offset, extent_bytes_);
  const auto name = "the host has no memory for an extent of " + size_text(extent_bytes_);
  // Huge pages are reserved already, and are never swapped.
  const bool ordinary = huge_page_bytes_ == 0;
  const busy_count under_way(providing_);
  // The kernel overcommits and kills a process when the memory is used. Memory that concurrent calls of this arena are
  // about to allocate is counted as used.
  if (const auto left = ordinary ? memory_left() : std::nullopt; left && *left / under_way.number() < extent_bytes_)
    return fail(errc::limit_exceeded, name + ": " + size_text(*left) + " are available");
  if (const auto code = kernel_.populate(bytes, descriptor_.get(), offset); code != 0) {
    // A partial allocation is useless here; it is returned to the host.
    ::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(extent_bytes_));
    return fail(errc::limit_exceeded, why_not_populated(code, name, !ordinary, !shared_name_.text().empty()));
  }
  look_where(extent);
  if (const auto code = ordinary && ::mlock(bytes.data(), bytes.size()) != 0 ? errno : 0;
      code != 0 && !unlocked_.exchange(true, std::memory_order_relaxed)) {
    const auto what = system_error(code, "cannot lock the arena").text;
    log::get("io")->warn("{}: the host may swap pages out, which costs only time; raise RLIMIT_MEMLOCK "
                         "(ulimit -l, LimitMEMLOCK=) to memory.bytes and more",
                         what);
  }
  return bytes;
}

void arena::spread_over(const std::vector<numa_node>& nodes) {
  if (nodes.empty())
    return;
  const numa_stretches wanted(nodes, bytes_.size(), extent_bytes_, std::max(huge_page_bytes_, page_alignment));
  for (std::uint64_t at = 0; at < mapping_.size(); at += wanted.stretch_bytes()) {
    const auto stretch = mapping_.subspan(at, std::min(wanted.stretch_bytes(), mapping_.size() - at));
    if (const auto code = prefer_numa_node(stretch, wanted.node_at(at)); code != 0) {
      prefer_no_numa_node(mapping_);
      log::get("io")->warn("NUMA placement over {} failed ({}); the kernel places the arena", numa_text(nodes),
                           why_not_placed(code));
      return;
    }
  }
  for (std::uint64_t at = 0; at < bytes_.size(); at += extent_bytes_)
    lies_on_.push_back(wanted.node_at(at));
  stretches_ = wanted;
}

void arena::look_where(std::uint32_t extent) {
  if (lies_on_.empty())
    return;
  const auto there = numa_node_of_page(bytes_.data() + extent * extent_bytes_);
  if (!there || *there == lies_on_[extent])
    return;
  if (!strayed_.exchange(true, std::memory_order_relaxed))
    log::get("io")->warn(
        "NUMA placement missed: memory for node {} is on {}, since the former has too little free{}; more "
        "extents may follow",
        lies_on_[extent], *there, huge_page_bytes_ != 0 ? " (huge pages are reserved per node)" : "");
  lies_on_[extent] = *there;
}

std::optional<numa_node> arena::numa_node_of(std::uint32_t extent) const {
  if (extent >= lies_on_.size())
    return std::nullopt;
  return lies_on_[extent];
}

arena_name arena::name() const {
  return {::getpid(), descriptor_.get(), proof_descriptor_.get(), proof_};
}

std::string arena::describe() const {
  const auto& nodes = stretches_.nodes();
  const auto where = nodes.empty() ? "" : (nodes.size() > 1 ? ", spread over " : ", on ") + numa_text(nodes);
  if (huge_page_bytes_ != 0)
    return std::string(huge_page_bytes_ == one_gib_pages.bytes ? one_gib_pages.name : two_mib_pages.name) +
           " huge pages" + where;
  return std::string("4 KiB pages") + (joins_pages_ ? ", huge ones where the kernel joins them" : "") +
         (unlocked_.load(std::memory_order_relaxed) ? ", not locked (RLIMIT_MEMLOCK)" : "") + where;
}

result<std::shared_ptr<arena>> arena::map(const arena_name& name, std::uint64_t bytes) {
  const auto directory = "/proc/" + std::to_string(name.process) + "/fd/";
  const auto path = directory + std::to_string(name.descriptor);
  // It is opened read-only until its identity is proved.
  const auto found = opened(path, O_RDONLY);
  if (!found)
    return out_of_reach(path);
  const auto proof_path = directory + std::to_string(name.proof_descriptor);
  const auto proof = opened(proof_path, O_RDONLY);
  if (!proof)
    return out_of_reach(proof_path);
  if (auto proven = prove({found.get(), path}, {proof.get(), proof_path}, name, bytes); !proven)
    return tl::unexpected(std::move(proven.error()));
  // This is the same file, even if the other process has reused the descriptor meanwhile.
  auto writable = opened("/proc/self/fd/" + std::to_string(found.get()), O_RDWR);
  if (!writable)
    return fail(errc::unreachable, system_error(errno, "cannot open the node's memory at " + path + " to write").text +
                                       "; client and node must run as the same user");
  return mapped(std::move(writable), name, bytes);
}

result<std::shared_ptr<arena>> arena::map(int memory, int proof, const arena_name& name, std::uint64_t bytes) {
  if (auto proven = prove({memory, "the descriptor from the node"}, {proof, "the proof from the node"}, name, bytes);
      !proven)
    return tl::unexpected(std::move(proven.error()));
  unique_descriptor own(::fcntl(memory, F_DUPFD_CLOEXEC, 0));
  if (!own)
    return tl::unexpected(system_error(errno, "cannot keep the node's memory open"));
  return mapped(std::move(own), name, bytes);
}

namespace {

/// The arenas that this process has mapped. Each keeps its file open, so that no other file can have the same number.
struct live_mappings {
  struct mapping {
    struct stat file {};
    std::vector<std::uint8_t> proof;
    std::uint64_t bytes = 0;
    std::weak_ptr<arena> memory;
  };

  std::mutex mutex;
  std::vector<mapping> all;
};

live_mappings& all_mappings() {
  // Never destroyed: an arena may be mapped at the end of the process.
  static auto* const out = new live_mappings;
  return *out;
}

} // namespace

result<std::shared_ptr<arena>> arena::mapped(unique_descriptor memory, const arena_name& name, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0)
    return tl::unexpected(system_error(errno, "cannot look at the memory of an arena"));
  if (status.st_size < 0 || static_cast<std::uint64_t>(status.st_size) < bytes)
    return fail(errc::identity_mismatch, "the memory of the node has shrunk while it was opened");
  auto& live = all_mappings();
  const std::lock_guard guard(live.mutex);
  std::erase_if(live.all, [](const auto& x) { return x.memory.expired(); });
  for (const auto& x : live.all)
    if (is_same_file(x.file, status) && x.proof == name.proof && x.bytes == bytes)
      if (auto known = x.memory.lock())
        return known;
  const auto page_bytes = page_bytes_of(memory.get());
  const auto all = mapping_of(memory.get(), static_cast<std::uint64_t>(status.st_size));
  if (!all)
    return tl::unexpected(all.error());
  const std::shared_ptr<arena> out(new arena);
  out->mapping_ = *all;
  out->bytes_ = all->first(bytes);
  out->huge_page_bytes_ = page_bytes == page_alignment ? 0 : page_bytes;
  out->descriptor_ = std::move(memory);
  if (out->huge_page_bytes_ == 0)
    ::madvise(all->data(), all->size(), MADV_HUGEPAGE);
  live.all.push_back({status, name.proof, bytes, out});
  return out;
}

} // namespace troupe::io
