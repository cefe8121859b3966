#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/huge_pages.hpp"
#include "io/memory_name.hpp"
#include "io/numa.hpp"
#include "io/shared_memory.hpp"

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

/// Which pages of the host an arena is made of. Few and large ones make the first touch and the registration with a
/// device several times as fast; only an operator can reserve them.
enum class huge_page_choice {
  /// Of 2 MiB if the host has as many to spare, else ordinary ones, which the kernel may join to huge ones.
  automatic,
  two_mib,
  one_gib,
  off,
};

/// What an arena asks of the kernel. Tests put another one in its place, which has less.
struct arena_kernel {
  std::function<huge_page_room(const huge_page_kind&)> huge_pages = room_for;
  /// As `memfd_create` with these flags: a descriptor, or -1 and errno.
  std::function<int(unsigned flags)> create;
  /// Gets memory for these bytes, which lie at `offset` of the file: 0, or an error number.
  std::function<int(std::span<std::byte> bytes, int descriptor, std::uint64_t offset)> populate;

  /// That of this host.
  static arena_kernel of_host();
};

struct arena_options {
  /// Rounded down to whole extents.
  std::uint64_t bytes = 0;
  /// A multiple of `page_alignment`; of `extent_alignment` where huge pages are asked for.
  std::uint64_t extent_bytes = 0;
  huge_page_choice huge_pages = huge_page_choice::automatic;
  /// Over which its memory is spread, as `numa_stretches` says; none: it lies wherever the kernel likes.
  std::vector<numa_node> numa_nodes{};
  /// A name below /dev/shm by which programs find it that know nothing else, without a slash; empty: it has none.
  std::string shared_name{};
  /// How long huge pages are waited for that others are about to give back; see `await_spare_huge_pages`.
  duration huge_page_patience = std::chrono::seconds(5);
  arena_kernel kernel = arena_kernel::of_host();
};

/// What a client needs to map an arena of a node on its host; see `arena::map`.
struct arena_name {
  std::int32_t process = 0;
  /// Of the memory.
  std::int32_t descriptor = -1;
  std::int32_t proof_descriptor = -1;
  std::vector<std::uint8_t> proof{};

  friend bool operator==(const arena_name&, const arena_name&) = default;
};

/// The memory that a node and the clients on its host share: pages are gathered into it by these and written to disk
/// from it by the node, and back, without a copy between. Lives as long as anybody maps it; its size is sealed, so
/// nobody can pull memory away from under another.
///
/// With a shared name it is a file in /dev/shm, of this user's and of ordinary pages. The kernel seals no such file:
/// other programs of the same user could shrink it. The proof says so, and clients believe the proof. The name goes
/// with the arena (`memory_name.hpp`).
///
/// A client on the same host gets the two descriptors over the node's Unix socket (`handed_memory`), whatever
/// capabilities either side has and whatever process namespace it is in; one in the node's own process has them
/// already.
///
/// Beside the memory there is a page of its own, the proof, which says which memory it is about and holds a random
/// number. A process and a descriptor mean something else in every process namespace, so what is found under them is
/// believed to be this memory only if its proof is found with it: the number cannot be guessed, and is told to clients
/// only. The proof is a file of its own, because behind the memory it would cost a huge page, a GiB perhaps, and
/// because so it can be sealed against writing: whoever maps the memory can scribble over all of it, and over no proof.
class arena final : public shared_memory {
public:
  /// New memory, of which nothing is there yet but the address space: see `provide`. Huge pages are set aside at once,
  /// and the first extent of them is got, since a control group may forbid to use what was set aside: with `automatic`
  /// a warning says so then, and the arena is made of ordinary pages. Where the kernel does not let NUMA nodes be
  /// chosen, a warning says so, and it is made all the same.
  ///
  /// Errors: `invalid_argument` (also for a NUMA node that has no memory for this process), `limit_exceeded` (more than
  /// the host has, or more huge pages than it has to spare or a control group allows, with the way out), `io_error`.
  static result<std::shared_ptr<arena>> create(const arena_options& wanted);

  /// The arena that a process made and holds open under this name, of exactly `bytes`. The caller must run on the same
  /// host and be permitted to look into that process, in practice as the same user. Nothing can be written to what was
  /// found before it has proved to be the arena. Only what a node has named may be touched: elsewhere there may be no
  /// memory yet, and the host may have none.
  ///
  /// Errors: `unreachable` (no such process or descriptor here, or no permission), `identity_mismatch` (something
  /// else, such as an arena of another node), `io_error`.
  static result<std::shared_ptr<arena>> map(const arena_name& name, std::uint64_t bytes);

  /// The same of descriptors that this process was handed; they stay the caller's. Of the name only the proof is used.
  /// Errors: `identity_mismatch`, `io_error`.
  static result<std::shared_ptr<arena>> map(int memory, int proof, const arena_name& name, std::uint64_t bytes);

  ~arena() override;

  std::span<std::byte> bytes() noexcept override { return bytes_; }

  std::uint64_t extent_bytes() const noexcept { return extent_bytes_; }

  /// Gets the memory of one extent from the host, zeroed, and locks it; to be called once for each, and again where it
  /// has failed; where it is there already, nothing happens. Thread-safe. `limit_exceeded` if the host or a control
  /// group of this process is short of memory, which without this would be a SIGBUS at the first touch, or the end of
  /// the process. Memory that may not be locked is used as it is, and `describe` says so.
  result<std::span<std::byte>> provide(std::uint32_t extent);

  /// The NUMA node on which this extent lies, or is to lie before it is provided; nothing where that was left to the
  /// kernel. Not to be asked while that extent is being provided.
  std::optional<numa_node> numa_node_of(std::uint32_t extent) const;

  /// In /dev/shm, without a slash; empty if it was made without one.
  const std::string& shared_name() const noexcept { return shared_name_.text(); }
  /// Whether programs that are told the shared name find this memory. False after somebody removed it, for good.
  bool shared_name_is_there() const noexcept { return shared_name_.is_there(); }

  /// For the peer's `map`, and for nobody else; valid as long as the arena lives.
  arena_name name() const;

  /// Whether it is made of pages that an operator has reserved.
  bool of_huge_pages() const noexcept { return huge_page_bytes_ != 0; }

  /// What was got, for the log: "2 MiB huge pages, spread over NUMA nodes 0 and 1".
  std::string describe() const;

private:
  arena() = default;

  /// Of the pages that are wanted or can be had.
  static result<std::shared_ptr<arena>> made_as(const arena_options& wanted);
  static result<std::shared_ptr<arena>> made_of_ordinary(const arena_options& wanted);
  /// With a first extent that is there.
  static result<std::shared_ptr<arena>> made_of_huge(const arena_options& wanted, const huge_page_kind& kind);

  /// Of memory that has proved what it is.
  static result<std::shared_ptr<arena>> mapped(unique_descriptor memory, std::uint64_t bytes);

  /// Of ordinary pages with `huge_page_bytes` 0. `flags`: for the kernel, which kind.
  static result<std::shared_ptr<arena>> made_of(const arena_options& wanted, std::uint64_t huge_page_bytes,
                                                unsigned flags);

  /// Says to the kernel where extents are to lie, before there is memory for any.
  void spread_over(const std::vector<numa_node>& nodes);
  /// Where one has come to lie.
  void look_where(std::uint32_t extent);

  unique_descriptor descriptor_;
  /// In /dev/shm, if it was made with one.
  held_memory_name shared_name_;
  /// None where the arena was mapped and not made.
  unique_descriptor proof_descriptor_;
  std::vector<std::uint8_t> proof_;
  /// Whole pages of the host's, of which `bytes_` are the arena.
  std::span<std::byte> mapping_;
  std::span<std::byte> bytes_;
  /// 0 where the arena was mapped and not made: only its maker gets memory for it.
  std::uint64_t extent_bytes_ = 0;
  arena_kernel kernel_;
  /// How many extents are being provided.
  std::atomic<std::uint64_t> providing_{0};
  /// 0: ordinary pages.
  std::uint64_t huge_page_bytes_ = 0;
  bool joins_pages_ = false;
  /// Memory was provided that could not be locked.
  std::atomic<bool> unlocked_{false};
  /// On which nodes it is to lie; none where the kernel refused.
  numa_stretches stretches_;
  /// Of extents, by number; empty if `stretches_` has none. Who provides an extent writes its one.
  std::vector<numa_node> lies_on_;
  /// An extent was provided that lies elsewhere.
  std::atomic<bool> strayed_{false};
};

} // namespace troupe::io
