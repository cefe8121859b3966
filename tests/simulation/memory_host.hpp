#pragma once

#include "io/memory/extent_source.hpp"
#include "tests/simulation/environment.hpp"
#include "tests/simulation/frame_ledger.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace troupe::simulation {

/// The memory that processes of one host share: the arena of each run of a node, under a name that is never used again.
/// It can be found as long as the run lasts; a process that has mapped it by then keeps it, and may still copy there.
class memory_host {
public:
  memory_host(environment& world, frame_ledger& frames, std::uint64_t slot_bytes);

  /// A run of the node begins, over memory of its own.
  void begin_run();
  void end_run();

  /// The extents for the io worker of a rank, in this run: assigned to the first request.
  std::shared_ptr<io::extent_source> source(rank_number rank);
  /// The extents for the actor that distributes them then.
  std::shared_ptr<io::extent_source> source_of_broker() { return source(broker); }
  /// A rank reports that this extent is no longer accessed; from now on it is the broker's.
  void given_back(rank_number rank, std::uint32_t number);
  /// The broker assigns an extent to a rank; or the rank does not take it.
  void handed_over(rank_number rank, std::uint32_t number);
  void not_taken(rank_number rank, std::uint32_t number);
  /// The memory for the node itself.
  io::arena_facts info() const;
  std::shared_ptr<io::shared_memory_finder> finder();

  /// All memory of this run; empty if there is none.
  std::span<std::byte> memory() const;
  /// Memory that a client got the name of, even if the run has ended; empty if no process has it any more.
  std::span<std::byte> memory_named(std::span<const std::uint8_t> name) const;
  std::shared_ptr<io::shared_memory> keep(std::span<const std::uint8_t> name) const;

  /// A client writes by mistake: a few bytes somewhere in assigned memory.
  void corrupt_memory();

  /// A page was gathered there, for the defect in which writes are not verified.
  void sealed(std::uint64_t offset);

  // -- copies under way, of whatever client --

  /// A copy of an attachment begins in whatever memory.
  std::uint64_t begin_copy(owner_id owner);
  void end_copy(std::uint64_t copy) { copies_.erase(copy); }
  std::size_t copies_of(owner_id owner) const;

private:
  struct shared_memory;
  class lender;
  class seeker;

  result<io::extent> assign(rank_number rank);
  bool take_back(std::uint32_t number);
  io::extent extent_at(std::uint32_t number) const;
  std::uint32_t left() const;
  /// From one to another; it must be the first one's.
  bool passes(std::uint32_t number, rank_number from, rank_number to);

  static constexpr rank_number unassigned = 0xffffffff;
  /// Between two ranks.
  static constexpr rank_number broker = 0xfffffffe;

  environment& world_;
  random_source random_;
  frame_ledger& frames_;
  std::uint64_t slot_bytes_;
  std::uint64_t extent_bytes_;
  std::shared_ptr<shared_memory> arena_;
  /// By number: the rank that has it.
  std::vector<rank_number> assigned_to_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::weak_ptr<shared_memory>> known_;
  std::map<std::uint64_t, owner_id> copies_;
  std::uint64_t last_copy_ = 0;
};

} // namespace troupe::simulation
