#include "tests/simulation/memory_host.hpp"

#include "io/page.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::simulation {

struct memory_host::shared_memory final : io::shared_memory {
  shared_memory(std::uint64_t name_, std::uint64_t bytes) : name(name_), memory(bytes), pages_as_sealed(bytes) {}
  std::span<std::byte> bytes() noexcept override { return memory; }

  std::uint64_t name;
  std::vector<std::byte> memory;
  /// Memory that was not corrupted.
  std::vector<std::byte> pages_as_sealed;
};

namespace {

io::shared_memory_name name_of(std::uint64_t number) {
  io::shared_memory_name out(sizeof number);
  std::memcpy(out.data(), &number, sizeof number);
  return out;
}

std::uint64_t number_of(std::span<const std::uint8_t> name) {
  std::uint64_t number = 0;
  std::memcpy(&number, name.data(), std::min(name.size(), sizeof number));
  return number;
}

} // namespace

class memory_host::lender final : public io::extent_source {
public:
  lender(memory_host& host, rank_number rank) : host_(host), arena_(host.arena_), rank_(rank), info_(host.info()) {}

  result<io::extent> assign(std::optional<io::numa_node>) override { return host_.assign(rank_); }
  bool take_back(std::uint32_t number) override { return host_.take_back(number); }
  std::uint32_t available() const override { return host_.left(); }

  io::extent_counts counts() const override {
    const auto assigned =
        host_.assigned_to_.size() -
        static_cast<std::size_t>(std::count(host_.assigned_to_.begin(), host_.assigned_to_.end(), unassigned));
    return {host_.assigned_to_.size(), assigned, assigned, 0};
  }

  /// Called when a page is verified before it is written.
  std::span<std::byte> memory() noexcept override {
    return host_.world_.has(defect::skip_check) ? std::span(arena_->pages_as_sealed) : std::span(arena_->memory);
  }

  const io::arena_facts& info() const noexcept override { return info_; }
  io::extent at(std::uint32_t number) override { return host_.extent_at(number); }

private:
  memory_host& host_;
  std::shared_ptr<shared_memory> arena_;
  rank_number rank_;
  io::arena_facts info_;
};

class memory_host::seeker final : public io::shared_memory_finder {
public:
  explicit seeker(memory_host& host) : host_(host) {}

  result<std::shared_ptr<io::shared_memory>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) override {
    const auto& arena = host_.arena_;
    if (!arena || arena->name != number_of(name) || arena->memory.size() != bytes)
      return fail(errc::unreachable, "no node has an arena of that name");
    return std::shared_ptr<io::shared_memory>(arena);
  }

private:
  memory_host& host_;
};

memory_host::memory_host(environment& world, frame_ledger& frames, std::uint64_t slot_bytes)
    : world_(world), random_(world.random.fork()), frames_(frames), slot_bytes_(slot_bytes),
      extent_bytes_(world.p.memory.frames_per_extent * slot_bytes) {
  // The bytes behind the last frame of an extent belong to none.
  if (world_.p.memory.uneven_extents)
    extent_bytes_ += slot_bytes / 2;
}

void memory_host::begin_run() {
  auto extents = world_.p.memory.extents;
  // Verification does not follow pages that move: so there is memory for all, and none of it is returned.
  if (world_.has(defect::skip_check))
    extents = world_.p.ranks * (2 * world_.p.slots / world_.p.memory.frames_per_extent + 2);
  arena_ = std::make_shared<shared_memory>(++last_, extents * extent_bytes_);
  known_.emplace(last_, arena_);
  assigned_to_.assign(extents, unassigned);
}

void memory_host::end_run() {
  arena_ = nullptr;
  assigned_to_.clear();
  std::erase_if(known_, [](const auto& x) { return x.second.expired(); });
}

std::shared_ptr<io::extent_source> memory_host::source(rank_number rank) {
  return std::make_shared<lender>(*this, rank);
}

io::arena_facts memory_host::info() const {
  return {arena_->memory.size(), extent_bytes_, name_of(arena_->name)};
}

std::shared_ptr<io::shared_memory_finder> memory_host::finder() {
  return std::make_shared<seeker>(*this);
}

std::span<std::byte> memory_host::memory() const {
  return arena_ ? std::span(arena_->memory) : std::span<std::byte>{};
}

std::shared_ptr<io::shared_memory> memory_host::keep(std::span<const std::uint8_t> name) const {
  const auto found = known_.find(number_of(name));
  return found == known_.end() ? nullptr : found->second.lock();
}

std::span<std::byte> memory_host::memory_named(std::span<const std::uint8_t> name) const {
  const auto memory = keep(name);
  return memory ? memory->bytes() : std::span<std::byte>{};
}

io::extent memory_host::extent_at(std::uint32_t number) const {
  const auto offset = number * extent_bytes_;
  return {number, offset, memory().subspan(offset, extent_bytes_)};
}

std::uint32_t memory_host::left() const {
  return static_cast<std::uint32_t>(std::count(assigned_to_.begin(), assigned_to_.end(), unassigned));
}

result<io::extent> memory_host::assign(rank_number rank) {
  if (!world_.winding_down && random_.chance(world_.p.memory.short_host)) {
    world_.count("fault: the host is short of memory");
    return fail(errc::busy, "the simulated host has not given this memory yet");
  }
  if (left() == 0)
    return fail(errc::full, "all extents are assigned");
  std::vector<std::uint32_t> free;
  std::vector<std::uint32_t> others;
  for (std::uint32_t i = 0; i < assigned_to_.size(); ++i)
    if (assigned_to_[i] == unassigned)
      free.push_back(i);
    else if (assigned_to_[i] != rank && assigned_to_[i] != broker)
      others.push_back(i);
  const bool twice = world_.has(defect::assign_twice) && !others.empty();
  const auto number = random_.pick(twice ? others : free);
  assigned_to_[number] = rank;
  const auto out = extent_at(number);
  world_.trace("extent is assigned", {rank, number});
  world_.count("extent: assigned");
  if (!twice)
    frames_.assigned(rank, out.offset, extent_bytes_);
  return out;
}

bool memory_host::take_back(std::uint32_t number) {
  if (number >= assigned_to_.size() || assigned_to_[number] == unassigned)
    return false;
  world_.trace("extent comes back", {assigned_to_[number], number});
  world_.count("extent: came back");
  if (assigned_to_[number] != broker)
    frames_.taken_back(assigned_to_[number], number * extent_bytes_, extent_bytes_);
  assigned_to_[number] = unassigned;
  return true;
}

bool memory_host::passes(std::uint32_t number, rank_number from, rank_number to) {
  if (number < assigned_to_.size() && assigned_to_[number] == from) {
    assigned_to_[number] = to;
    return true;
  }
  world_.fail("extents", "extent " + std::to_string(number) + " goes to " + std::to_string(to) +
                             " and is not that of " + std::to_string(from));
  return false;
}

void memory_host::given_back(rank_number rank, std::uint32_t number) {
  world_.trace("extent is given back", {rank, number});
  world_.count("extent: given back");
  if (passes(number, rank, broker))
    frames_.taken_back(rank, number * extent_bytes_, extent_bytes_);
}

void memory_host::handed_over(rank_number rank, std::uint32_t number) {
  world_.trace("extent is handed over", {rank, number});
  world_.count("extent: handed over");
  if (passes(number, broker, rank))
    frames_.assigned(rank, number * extent_bytes_, extent_bytes_);
}

void memory_host::not_taken(rank_number rank, std::uint32_t number) {
  world_.count("extent: not taken");
  if (passes(number, rank, broker))
    frames_.taken_back(rank, number * extent_bytes_, extent_bytes_);
}

void memory_host::corrupt_memory() {
  std::vector<std::uint32_t> assigned;
  for (std::uint32_t i = 0; i < assigned_to_.size(); ++i)
    if (assigned_to_[i] != unassigned && assigned_to_[i] != broker)
      assigned.push_back(i);
  if (assigned.empty())
    return;
  world_.count("fault: corrupted memory");
  const auto frame = random_.below(world_.p.memory.frames_per_extent);
  auto offset = random_.pick(assigned) * extent_bytes_ + frame * slot_bytes_;
  if (const auto unwritten = frames_.unwritten_frame(random_.next()); unwritten && random_.one_in(2))
    offset = *unwritten;
  frames_.notice_moves(offset);
  // The part that an engine would hit: the header of a page, or its bytes.
  const auto used = io::page_header_bytes + world_.p.ns.geometry.page_bytes();
  const auto length = random_.between(1, 64);
  const auto first = random_.one_in(4)
                         ? random_.below(64)
                         : io::page_header_bytes - 32 + random_.below(used - length - io::page_header_bytes + 32);
  for (std::uint64_t i = 0; i < length; ++i)
    arena_->memory[offset + first + i] = static_cast<std::byte>(random_.next());
  world_.trace("memory is corrupted", {offset, first, length});
  frames_.corrupted(offset);
}

void memory_host::sealed(std::uint64_t offset) {
  if (arena_ && offset + slot_bytes_ <= arena_->memory.size())
    std::memcpy(&arena_->pages_as_sealed[offset], &arena_->memory[offset], slot_bytes_);
}

std::uint64_t memory_host::begin_copy(owner_id owner) {
  copies_.emplace(++last_copy_, owner);
  return last_copy_;
}

std::size_t memory_host::copies_of(owner_id owner) const {
  return static_cast<std::size_t>(
      std::count_if(copies_.begin(), copies_.end(), [&](const auto& x) { return x.second == owner; }));
}

} // namespace troupe::simulation
