#include "io/arena.hpp"

#include "io/page.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <linux/mempolicy.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace troupe::io {

namespace {

constexpr int required_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t proof_bytes = 32;

/// The page behind the memory: this, the proof, zeroes. The name keeps a node that lies from passing off memory of
/// another program whose contents it can guess.
constexpr std::string_view proof_page_name = "troupe arena 1";

using proof_page = std::array<std::uint8_t, page_alignment>;

proof_page page_with(std::span<const std::uint8_t> proof) {
  proof_page out{};
  std::copy(proof.begin(), proof.end(), std::copy(proof_page_name.begin(), proof_page_name.end(), out.begin()));
  return out;
}

result<std::vector<std::uint8_t>> random_proof() {
  std::vector<std::uint8_t> out(proof_bytes);
  for (;;) {
    // Whole, once the kernel has entropy at all, since it is short.
    if (::getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()))
      return out;
    if (errno != EINTR)
      return tl::unexpected(system_error(errno, "cannot draw a random number"));
  }
}

tl::unexpected<error> not_the_node(const std::string& path, const std::string& why) {
  return fail(errc::identity_mismatch, path + " is not the memory of this node, " + why +
                                           ": client and node must share host, process namespace and user");
}

std::string size_text(std::uint64_t bytes) {
  return "an arena of " + std::to_string(bytes) + " bytes";
}

tl::unexpected<error> no_memory(std::uint64_t bytes, int code) {
  return fail(errc::limit_exceeded, system_error(code, "the host has no memory for " + size_text(bytes)).text);
}

// What the host can give without swapping or killing, in bytes; nothing if it does not say.
std::optional<std::uint64_t> available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string name, rest; info >> name;) {
    std::uint64_t kilobytes = 0;
    if (name == "MemAvailable:" && info >> kilobytes)
      return kilobytes * 1024;
    std::getline(info, rest);
  }
  return std::nullopt;
}

// Asks for memory of that node. Only makes transfers faster: a machine without such a node changes nothing.
void prefer_node(std::span<std::byte> bytes, std::int32_t node) {
  constexpr int most_nodes = 1024;
  constexpr int bits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= most_nodes)
    return;
  std::array<unsigned long, most_nodes / bits> mask{};
  mask[static_cast<std::size_t>(node / bits)] = 1UL << static_cast<unsigned>(node % bits);
  // Without libnuma, for one call. The kernel counts one bit less than it is told.
  ::syscall(SYS_mbind, bytes.data(), bytes.size(), MPOL_PREFERRED, mask.data(), most_nodes + 1, 0);
}

// Gets the memory now. Without this the first touch of a page that the host cannot provide is a SIGBUS.
int populate(std::span<std::byte> bytes, int descriptor) {
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
  return ::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes.size())) == 0 ? 0 : errno;
}

} // namespace

arena::arena(unique_descriptor descriptor, std::vector<std::uint8_t> proof, std::span<std::byte> bytes) noexcept
    : descriptor_(std::move(descriptor)), proof_(std::move(proof)), bytes_(bytes) {}

arena::~arena() {
  ::munmap(bytes_.data(), bytes_.size());
}

result<std::shared_ptr<arena>> arena::adopt(unique_descriptor descriptor, std::vector<std::uint8_t> proof,
                                            std::uint64_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (at == MAP_FAILED)
    return tl::unexpected(system_error(errno, "cannot map " + size_text(bytes)));
  // Huge pages make gather, checksum and registration cheaper; without them everything works as well.
  ::madvise(at, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<arena>(
      new arena(std::move(descriptor), std::move(proof), {static_cast<std::byte*>(at), bytes}));
}

result<std::shared_ptr<arena>> arena::create(std::uint64_t bytes, std::int32_t memory_node) {
  bytes = (bytes + page_alignment - 1) / page_alignment * page_alignment;
  if (bytes == 0)
    return fail(errc::invalid_argument, "an arena needs at least one byte");
  // The kernel promises more than it has and kills somebody when the promise is called in.
  if (const auto available = available_memory(); available && *available < bytes)
    return fail(errc::limit_exceeded, "the host has no memory for " + size_text(bytes) + ": " +
                                          std::to_string(*available) + " bytes are available");
  unique_descriptor made(::memfd_create("troupe-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made)
    return tl::unexpected(system_error(errno, "cannot create " + size_text(bytes)));
  if (::ftruncate(made.get(), static_cast<off_t>(bytes + page_alignment)) != 0)
    return errno == ENOMEM ? no_memory(bytes, ENOMEM)
                           : tl::unexpected(system_error(errno, "cannot size " + size_text(bytes)));
  auto proof = random_proof();
  if (!proof)
    return tl::unexpected(proof.error());
  const auto page = page_with(*proof);
  if (::pwrite(made.get(), page.data(), page.size(), static_cast<off_t>(bytes)) != static_cast<ssize_t>(page.size()))
    return no_memory(bytes, errno);
  if (::fcntl(made.get(), F_ADD_SEALS, required_seals) != 0)
    return tl::unexpected(system_error(errno, "cannot seal " + size_text(bytes)));
  const int descriptor = made.get();
  auto mapped = adopt(std::move(made), std::move(*proof), bytes);
  if (!mapped)
    return mapped;
  prefer_node((*mapped)->bytes(), memory_node);
  if (const auto code = populate((*mapped)->bytes(), descriptor); code != 0)
    return no_memory(bytes, code);
  return mapped;
}

result<std::shared_ptr<arena>> arena::map(std::int32_t process, std::int32_t descriptor, std::uint64_t bytes,
                                          std::span<const std::uint8_t> proof) {
  const auto path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  // For reading only, until it is known what it is. Not blocking, in case the descriptor has become that of a pipe.
  const unique_descriptor found(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!found)
    return fail(errc::unreachable,
                system_error(errno, "cannot open the node's memory at " + path).text +
                    "; a client that transfers pages must run on the node's host, in the same process namespace and as "
                    "the same user");
  struct stat status {};
  const auto seals = ::fcntl(found.get(), F_GET_SEALS);
  if (seals == -1 || ::fstat(found.get(), &status) != 0)
    return not_the_node(path, "but no shared memory at all");
  if ((seals & required_seals) != required_seals)
    return not_the_node(path, "but memory that could be shrunk while it is mapped");
  if (bytes == 0 || bytes % page_alignment != 0 || status.st_size < 0 ||
      static_cast<std::uint64_t>(status.st_size) - page_alignment != bytes)
    return not_the_node(path, "since it has " + std::to_string(status.st_size) + " bytes and the node said " +
                                  std::to_string(bytes) + " and a page");
  proof_page page{};
  if (proof.size() != proof_bytes ||
      ::pread(found.get(), page.data(), page.size(), static_cast<off_t>(bytes)) != static_cast<ssize_t>(page.size()) ||
      page != page_with(proof))
    return not_the_node(path, "since it does not hold the number that the node has put into its own");
  // The same file, whatever the descriptor of the other process has become meanwhile.
  unique_descriptor opened(
      ::open(("/proc/self/fd/" + std::to_string(found.get())).c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!opened)
    return fail(errc::unreachable, system_error(errno, "cannot open the node's memory at " + path + " to write").text +
                                       "; client and node must run as the same user");
  return adopt(std::move(opened), {proof.begin(), proof.end()}, bytes);
}

} // namespace troupe::io
