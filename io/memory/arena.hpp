#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/memory/huge_pages.hpp"
#include "io/memory/memory_name.hpp"
#include "io/memory/numa.hpp"
#include "io/memory/shared_memory.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::io {

/// The host pages that an arena is made of. Few and large ones make the first touch and the registration with a device
/// several times as fast; only an operator can reserve them.
enum class huge_page_choice {
  /// 2 MiB pages if the host has enough free ones, else ordinary ones, which the kernel may join to huge ones.
  automatic,
  two_mib,
  one_gib,
  off,
};

/// The kernel calls of an arena. Tests replace it with a kernel that has less memory.
struct arena_kernel {
  std::function<huge_page_room(const huge_page_kind&)> huge_pages = room_for;
  /// As `memfd_create` with these flags: returns a descriptor, or -1 and errno.
  std::function<int(unsigned flags)> create;
  /// Allocates memory for these bytes, which are at `offset` of the file. Returns 0 or an error number.
  std::function<int(std::span<std::byte> bytes, int descriptor, std::uint64_t offset)> populate;

  /// The calls of this host.
  static arena_kernel of_host();
};

struct arena_options {
  /// Is rounded down to whole extents.
  std::uint64_t bytes = 0;
  /// A multiple of `page_alignment`; of `extent_alignment` with huge pages.
  std::uint64_t extent_bytes = 0;
  huge_page_choice huge_pages = huge_page_choice::automatic;
  /// The nodes over which its memory is spread, as `numa_stretches` says. Empty: the kernel places it.
  std::vector<numa_node> numa_nodes{};
  /// A name below /dev/shm, without a slash, by which other programs find the arena. Empty: it has no name.
  std::string shared_name{};
  /// How long to wait for huge pages that other processes are about to free; see `await_spare_huge_pages`.
  duration huge_page_patience = std::chrono::seconds(5);
  arena_kernel kernel = arena_kernel::of_host();
};

/// The data with which a client on the same host finds an arena; see `arena::map`.
struct arena_name {
  std::int32_t process = 0;
  /// The descriptor of the memory.
  std::int32_t descriptor = -1;
  std::int32_t proof_descriptor = -1;
  std::vector<std::uint8_t> proof{};

  friend bool operator==(const arena_name&, const arena_name&) = default;
};

/// The memory that a node shares with the clients on its host. Clients gather pages into it and the node writes them to
/// disk from it, and back, without a copy between. It lives as long as it is mapped anywhere; its size is sealed, so
/// that no process can shrink it while others map it.
///
/// With a shared name it is a file in /dev/shm that belongs to this user and consists of ordinary pages. The kernel
/// cannot seal such a file: other programs of the same user could shrink it. The proof says which kind it is, and
/// clients trust the proof. The name is removed with the arena (`memory_name.hpp`).
///
/// A client on the same host receives the two descriptors over the node's Unix socket (`handed_memory`), whatever
/// capabilities either side has and whatever process namespace it is in. A client in the node's own process has them
/// already.
///
/// Beside the memory there is a separate page, the proof, which identifies the memory and holds a random number. A
/// process number and a descriptor mean something else in every process namespace, so a file found under them is
/// accepted as this memory only together with its proof: the number cannot be guessed and is sent to clients only. The
/// proof is a file of its own for two reasons: behind the memory it would cost a huge page, perhaps 1 GiB; and it can
/// be sealed against writing, so that a process that maps the memory can overwrite all of the memory but not the proof.
class arena final : public shared_memory {
public:
  /// Creates an arena with its address space; memory follows with `provide`. Huge pages are reserved at once and the
  /// first extent of them is provided, since a control group may forbid their use. With `automatic` such a refusal is
  /// logged as a warning and the arena consists of ordinary pages. Where the kernel refuses to place memory on NUMA
  /// nodes, a warning is logged and the arena is created all the same.
  ///
  /// Errors: `invalid_argument` (also for a NUMA node without memory for this process), `limit_exceeded` (more than the
  /// host has, or more huge pages than it has free or a control group allows; the text names the way out), `io_error`.
  static result<std::shared_ptr<arena>> create(const arena_options& wanted);

  /// Maps the arena of exactly `bytes` that a process holds open under this name. The caller must run on the same host
  /// and be permitted to inspect that process, in practice as the same user. Nothing is written before the file has
  /// proved to be the arena. The caller may touch only what the node has named: other memory may not be allocated yet,
  /// and the host may have none.
  ///
  /// Errors: `unreachable` (no such process or descriptor here, or no permission), `identity_mismatch` (another file,
  /// such as the arena of another node), `io_error`.
  ///
  /// All callers in a process share one mapping as long as one of them has it. An engine attaches once for each of its
  /// KV cache groups, and the memory that a process may lock for a GPU counts by mappings.
  static result<std::shared_ptr<arena>> map(const arena_name& name, std::uint64_t bytes);

  /// Maps an arena from descriptors that this process has received; they stay the caller's. Only the proof of `name` is
  /// used. Errors: `identity_mismatch`, `io_error`.
  static result<std::shared_ptr<arena>> map(int memory, int proof, const arena_name& name, std::uint64_t bytes);

  ~arena() override;

  std::span<std::byte> bytes() noexcept override { return bytes_; }

  std::uint64_t extent_bytes() const noexcept { return extent_bytes_; }

  /// Allocates the memory of one extent, zeroed, and locks it. Is called once for each extent, and again after a
  /// failure; does nothing for an extent that is provided already. Thread-safe. Error: `limit_exceeded` if the host or
  /// a control group of this process is short of memory, which without this call would be a SIGBUS at the first touch
  /// or the end of the process. Memory that may not be locked is used as it is, and `describe` says so.
  result<std::span<std::byte>> provide(std::uint32_t extent);

  /// The NUMA node of this extent, or the intended one before the extent is provided; nothing where the kernel chooses.
  /// Must not be called while that extent is being provided.
  std::optional<numa_node> numa_node_of(std::uint32_t extent) const;

  /// The name in /dev/shm, without a slash; empty if the arena has none.
  const std::string& shared_name() const noexcept { return shared_name_.text(); }
  /// Whether other programs find this memory by the shared name. False for good after the name was removed.
  bool shared_name_is_there() const noexcept { return shared_name_.is_there(); }

  /// The name for `map` of a client; it must not be passed to another process. Valid while the arena lives.
  arena_name name() const;

  /// Whether the arena consists of huge pages, which an operator has reserved.
  bool of_huge_pages() const noexcept { return huge_page_bytes_ != 0; }

  /// A description for the log: "2 MiB huge pages, spread over NUMA nodes 0 and 1".
  std::string describe() const;

private:
  arena() = default;

  /// Creates an arena of the wanted or the available kind of pages.
  static result<std::shared_ptr<arena>> made_as(const arena_options& wanted);
  static result<std::shared_ptr<arena>> made_of_ordinary(const arena_options& wanted);
  /// Creates an arena of huge pages, with its first extent provided.
  static result<std::shared_ptr<arena>> made_of_huge(const arena_options& wanted, const huge_page_kind& kind);

  /// Maps memory that has proved to be the arena, unless this process has it mapped already.
  static result<std::shared_ptr<arena>> mapped(unique_descriptor memory, const arena_name& name, std::uint64_t bytes);

  /// Creates an arena of pages of `huge_page_bytes`, 0 for ordinary ones. `flags`: the kind of page for the kernel.
  static result<std::shared_ptr<arena>> made_of(const arena_options& wanted, std::uint64_t huge_page_bytes,
                                                unsigned flags);

  /// Sets the NUMA nodes of the extents, before any has memory.
  void spread_over(const std::vector<numa_node>& nodes);
  /// Records on which NUMA node an extent was allocated.
  void look_where(std::uint32_t extent);

  unique_descriptor descriptor_;
  /// The name in /dev/shm, if the arena has one.
  held_memory_name shared_name_;
  /// Empty where the arena was mapped and not created.
  unique_descriptor proof_descriptor_;
  std::vector<std::uint8_t> proof_;
  /// Whole host pages, of which the arena takes `bytes_`.
  std::span<std::byte> mapping_;
  std::span<std::byte> bytes_;
  /// 0 where the arena was mapped and not created: only its creator allocates memory for it.
  std::uint64_t extent_bytes_ = 0;
  arena_kernel kernel_;
  /// The number of extents that are being provided.
  std::atomic<std::uint64_t> providing_{0};
  /// 0 for ordinary pages.
  std::uint64_t huge_page_bytes_ = 0;
  bool joins_pages_ = false;
  /// Some memory could not be locked.
  std::atomic<bool> unlocked_{false};
  /// The intended NUMA nodes; empty where the kernel refused.
  numa_stretches stretches_;
  /// The node of each extent, by number; empty if `stretches_` is. Each entry is written by the thread that provides
  /// it.
  std::vector<numa_node> lies_on_;
  /// An extent was allocated on another node than intended.
  std::atomic<bool> strayed_{false};
};

} // namespace troupe::io
