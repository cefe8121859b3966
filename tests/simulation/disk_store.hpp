#pragma once

#include "io/slab/page_store.hpp"
#include "tests/simulation/disk.hpp"
#include "tests/simulation/frame_ledger.hpp"
#include "tests/simulation/page_ledger.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

namespace troupe::simulation {

/// The pages of one run of the node, on a simulated disk. Completions come one by one at their time in the world.
class disk_store final : public io::page_store {
public:
  using sink = std::function<void(std::span<const io::completion>)>;

  disk_store(environment& world, disk& medium, const page_ledger& pages, frame_ledger& frames,
             const asked_ledger& asked, rank_number rank, std::uint64_t slot_bytes, sink done);
  ~disk_store() override { disk_store::stop(); }

  const io::page_store_traits& traits() const noexcept override { return traits_; }
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override;
  void remove_buffer(std::uint32_t buffer) override;
  void submit(std::span<const io::page_request> requests) override;
  void stop() override;
  result<void> health() const override;
  std::string describe() const override { return "a simulated disk"; }

  /// Whether a scrub has read another page than the expected one, so that it may be reported.
  bool was_read_unsound(slot_ref where) const { return unsound_.contains(where); }
  /// Receives, for a defect, the page that by now lies in a slot where another one was expected.
  std::function<void(const page_ref&)> on_other_page{};

  /// The process is killed: what its actors still do while they end is never done.
  void cut_off() { stopped_ = true; }

private:
  void complete(const io::completion& done);
  void read_aside(const io::page_request& x);
  /// Into a frame that a client has pinned, if there is one.
  io::page_request misled(io::page_request x) const;

  environment& world_;
  disk& medium_;
  const page_ledger& pages_;
  frame_ledger& frames_;
  const asked_ledger& asked_;
  rank_number rank_;
  io::page_store_traits traits_;
  sink sink_;
  std::map<std::uint32_t, std::span<std::byte>> buffers_;
  /// Transfers that have not been completed.
  std::set<std::uint64_t> under_way_;
  std::set<slot_ref> unsound_;
  std::uint32_t last_ = 0;
  bool stopped_ = false;
  /// The requester has received it.
  mutable bool notified_damage_ = false;
};

} // namespace troupe::simulation
