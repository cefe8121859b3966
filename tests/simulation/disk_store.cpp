#include "tests/simulation/disk_store.hpp"

#include "io/page.hpp"

#include <utility>
#include <vector>

namespace troupe::simulation {

disk_store::disk_store(environment& world, disk& medium, const page_ledger& pages, frame_ledger& frames,
                       const asked_ledger& asked, rank_number rank, std::uint64_t slot_bytes, sink done)
    : world_(world), medium_(medium), pages_(pages), frames_(frames), asked_(asked),
      rank_(rank), traits_{world.p.slots, slot_bytes, 4096, true, 0, "nowhere"}, sink_(std::move(done)) {}

result<std::uint32_t> disk_store::add_buffer(std::span<std::byte> bytes) {
  buffers_.emplace(++last_, bytes);
  return last_;
}

void disk_store::remove_buffer(std::uint32_t buffer) {
  const auto node = buffers_.extract(buffer);
  if (node.empty())
    world_.fail("memory", "the store is asked to forget memory that it does not know");
  else if (medium_.uses(node.mapped()))
    world_.fail("memory", "rank " + std::to_string(rank_) + ": memory is released while bytes move in it");
}

void disk_store::submit(std::span<const io::page_request> requests) {
  if (stopped_)
    return;
  for (const auto& wanted : requests) {
    if (wanted.op == io::operation::read && !frames_.in_arena(wanted.data)) {
      read_aside(wanted);
      continue;
    }
    const bool ahead = wanted.op == io::operation::read && asked_.has_no_waiter(rank_, wanted.where);
    const auto x = ahead && world_.has(defect::prefetch_over_pin) ? misled(wanted) : wanted;
    if (ahead)
      world_.count("page is read ahead");
    if (auto wrong = asked_.may_transfer(rank_, x); !wrong.empty())
      world_.fail("asked", std::move(wrong));
    if (auto wrong = pages_.may_transfer(x.op, rank_, x.where); !wrong.empty())
      world_.fail("transfers", std::move(wrong));
    if (x.op == io::operation::write && notified_damage_)
      world_.fail("damage", "rank " + std::to_string(rank_) + ": the io worker writes to a slab that is damaged");
    const auto memory = buffers_.find(x.buffer);
    if (memory == buffers_.end() || x.data < memory->second.data() ||
        x.data + x.length > memory->second.data() + memory->second.size()) {
      world_.fail("memory", "rank " + std::to_string(rank_) + ": a transfer names memory outside of its buffer");
      continue;
    }
    frames_.transfers(rank_, x);
    under_way_.insert(x.tag);
    const bool read = x.op == io::operation::read;
    if (world_.has(defect::unwritten) && !read && world_.random.one_in(4)) {
      complete({x.tag, errc::ok, 0});
      continue;
    }
    if (world_.has(defect::early_written) && !read && world_.random.one_in(4))
      complete({x.tag, errc::ok, 0});
    medium_.submit(x, [this, ahead, where = x.where](const io::completion& done) {
      const bool in_vain = ahead && asked_.has_no_waiter(rank_, where) && asked_.is_unforeseen(rank_, where);
      if (in_vain)
        world_.count("page is read ahead for a lease that has ended");
      if (!in_vain || !world_.has(defect::lose_prefetch))
        complete(done);
    });
    if (world_.has(defect::early_promotion) && read && world_.random.one_in(4))
      complete({x.tag, errc::ok, 0});
  }
}

void disk_store::read_aside(const io::page_request& x) {
  const auto memory = buffers_.find(x.buffer);
  if (memory == buffers_.end() || x.data != memory->second.data() || x.length != memory->second.size())
    return world_.fail("memory", "rank " + std::to_string(rank_) + ": a page is scrubbed into memory without an owner");
  if (notified_damage_)
    world_.fail("damage", "rank " + std::to_string(rank_) + ": a damaged slab is read without a request");
  world_.count("page is read unasked");
  under_way_.insert(x.tag);
  medium_.submit(
      x,
      [this, x, key = pages_.key_at(rank_, x.where)](const io::completion& done) {
        const io::page_identity is{world_.p.ns.id(), key.value_or(key_digest{}), rank_, x.where,
                                   world_.p.ns.geometry.page_bytes()};
        if (done.status != errc::ok || !key || io::verify_page({x.data, x.length}, is) != errc::ok) {
          unsound_.insert(x.where);
          world_.count("page is read unasked, and is not what it should be");
          pages_.for_each_committed([&](rank_number rank, const page_ref& other) {
            if (rank != rank_ || other.where.slot != x.where.slot || other.where.generation == x.where.generation)
              return;
            world_.count("page is read unasked, and its slot has another one");
            if (world_.has(defect::scrub_slot) && on_other_page)
              world_.schedule.after(duration::zero(), [this, other] { on_other_page(other); });
          });
        }
        complete(done);
      },
      true);
}

io::page_request disk_store::misled(io::page_request x) const {
  const auto pinned = frames_.pinned_frame(rank_);
  if (!pinned)
    return x;
  x.data = frames_.bytes(*pinned).data();
  for (const auto& [number, bytes] : buffers_)
    if (x.data >= bytes.data() && x.data < bytes.data() + bytes.size())
      x.buffer = number;
  return x;
}

void disk_store::complete(const io::completion& done) {
  if (under_way_.erase(done.tag) > 0)
    sink_({&done, 1});
}

result<void> disk_store::health() const {
  notified_damage_ = notified_damage_ || medium_.damaged();
  if (!notified_damage_ || world_.has(defect::forget_damage))
    return {};
  world_.count("slab found damaged");
  return fail(errc::slab_damaged, "the simulated disk was cut off");
}

void disk_store::stop() {
  if (!std::exchange(stopped_, true))
    medium_.crash();
}

} // namespace troupe::simulation
