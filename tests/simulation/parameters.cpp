#include "tests/simulation/parameters.hpp"

#include <algorithm>
#include <sstream>

namespace troupe::simulation {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* tier_names[] = {"strict", "eager", "on eviction", "only"};

namespace_spec make_namespace(std::uint32_t ranks) {
  namespace_spec ns;
  ns.name = "simulated";
  ns.model = "model";
  ns.revision = "1";
  ns.dtype = "bfloat16";
  ns.world_size = ranks;
  ns.geometry = {.layers = 2, .parts = 2, .heads = 1, .head_size = 16, .element_bytes = 2, .block_tokens = 4};
  return ns;
}

void choose_sizes(parameters& p, random_source& random) {
  p.ranks = random.number(1, 3);
  p.shards = random.number(1, 4);
  p.clients = random.number(1, 4);
  p.ns = make_namespace(p.ranks);
  p.slots = random.number(8, 64);
  if (random.one_in(2)) {
    p.high_watermark = random.number(0, p.slots / 2);
    p.low_watermark = random.number(0, p.high_watermark);
  }
  p.pinned_pages = 2U << random.below(5);
  p.blocks = random.number(16, 64);
  p.batch_pages = random.number(1, 8);
  p.batch_keys = random.number(8, 40);
  p.sessions = random.number(1, 4);
  p.branches = random.number(1, 4);
  p.depth = random.number(4, 24);
}

/// From memory for a page or two, of which pages have to leave all the time, to memory for all.
void choose_memory(parameters& p, random_source& random) {
  auto& m = p.memory;
  m.kind = static_cast<tier>(random.below(4));
  m.frames_per_extent = random.number(1, 8);
  m.extents_per_rank = random.number(1, 4);
  if (random.one_in(4)) {
    m.frames_per_extent = 8;
    m.extents_per_rank = (p.slots + 7) / 8 + 1;
  }
  m.uneven_extents = random.one_in(4);
  if (m.kind == tier::memory_only) {
    m.frames_per_extent = std::max(m.frames_per_extent, 4U);
    m.extents_per_rank = std::max(m.extents_per_rank, 2U);
    p.slots = m.frames_per_extent * m.extents_per_rank;
    p.high_watermark = std::min(p.high_watermark, p.slots / 2);
    p.low_watermark = std::min(p.low_watermark, p.high_watermark);
  }
  if (random.one_in(4))
    m.waiting_max = random.number(1, 4);
  if (random.one_in(3))
    m.reads_max = random.number(1, 4);
  if (random.one_in(3))
    m.writes_max = random.number(1, 4);
  m.write_retry = random.skewed_time(milliseconds(1), seconds(1));
  m.second_hit = (m.kind == tier::eager || m.kind == tier::on_eviction) && random.one_in(2);
  if (m.kind != tier::memory_only && random.one_in(2)) {
    m.prefetch_pages = random.number(1, 8);
    m.prefetch_reads_max = random.number(1, 4);
    if (random.one_in(3))
      m.prefetch_waiting_max = random.number(1, 8);
  }
  m.extents = m.extents_per_rank * p.ranks;
  if (p.ranks > 1 && random.one_in(2))
    m.extents = random.number(p.ranks, m.extents);
  // Not drawn, so that the worlds of a seed stay as they were.
  if ((m.kind == tier::eager || m.kind == tier::on_eviction) && (p.slots + p.blocks) % 2 == 0) {
    // A small disk, beside which memory counts.
    p.slots = std::max(8U, p.slots / 2);
    p.high_watermark = std::min(p.high_watermark, p.slots / 2);
    p.low_watermark = std::min(p.low_watermark, p.high_watermark);
    p.memory_slots = m.frames_per_extent * m.extents_per_rank;
  }
  m.give_patience = random.skewed_time(milliseconds(20), seconds(4));
  m.keep_at_least = random.skewed_time(milliseconds(1), seconds(1));
  m.age_margin = random.skewed_time(milliseconds(1), seconds(1));
}

/// Small limits, so that they are reached.
void choose_limits(parameters& p, random_source& random) {
  if (random.one_in(4))
    p.tasks_max = random.number(1, 3);
  if (random.one_in(4))
    p.lookups_max = random.number(1, 2);
  if (random.one_in(4))
    p.parked_max = random.number(1, 2);
  if (random.one_in(6))
    p.leases_max = random.number(1, 8);
  if (random.one_in(6))
    p.leases_per_owner = random.number(1, 4);
  if (random.one_in(6))
    p.reserved_pages_max = random.number(4, 24);
  if (random.one_in(3))
    p.tick_work = random.number(1, 16);
  if (random.one_in(3))
    p.eviction_looks = random.number(1, 16);
}

void choose_times(parameters& p, random_source& random) {
  p.local_delay = random.skewed_time(microseconds(20), milliseconds(5));
  p.network_delay = random.skewed_time(microseconds(200), milliseconds(50));
  p.disk_time = random.skewed_time(microseconds(200), milliseconds(100));
  p.copy_time = random.skewed_time(microseconds(10), milliseconds(50));
  p.process_hang = random.skewed_time(milliseconds(1), seconds(4));
  p.think_time = random.skewed_time(milliseconds(1), milliseconds(100));
  p.request_timeout = random.skewed_time(milliseconds(50), seconds(2));
  p.io_deadline = random.skewed_time(milliseconds(50), seconds(4));
  p.hang_time = random.skewed_time(milliseconds(100), seconds(8));
  p.task_deadline_max = random.skewed_time(milliseconds(50), seconds(5));
  p.task_deadline_min = std::max<duration>(milliseconds(1), p.task_deadline_max / random.number(1, 50));
  p.lease_max = random.skewed_time(milliseconds(50), seconds(6));
  p.reservation_max = random.skewed_time(milliseconds(50), seconds(6));
  // So that a save that is larger than memory can end well: its pages are committed, and its last ones still in time.
  p.memory.commit_time = std::min(8 * (p.network_delay + p.local_delay), p.reservation_max / 4);
  p.notice_min = microseconds(100);
  p.notice_max = random.skewed_time(milliseconds(1), seconds(2));
  p.nemesis_interval = random.skewed_time(milliseconds(20), seconds(1));
}

void choose_scrub(parameters& p, random_source& random) {
  if (p.memory.kind == tier::memory_only || random.one_in(2))
    return;
  p.memory.scrub_interval = random.skewed_time(milliseconds(1), milliseconds(200));
  p.memory.scrub_pause = random.skewed_time(milliseconds(1), seconds(1));
}

void choose_faults(parameters& p, random_source& random) {
  if (random.one_in(8))
    return; // a calm world, in which more can be demanded
  const auto rate = [&](std::uint64_t rarity, ppm most) -> ppm {
    return random.one_in(rarity) ? random.number(1'000, most) : 0;
  };
  auto& n = p.nemesis;
  if (p.memory.kind != tier::memory_only) {
    p.disk.read_error = rate(3, 50'000);
    // At times a disk is full, or as good as lost, for most of a life.
    p.disk.write_error = random.one_in(8) ? random.number(200'000, 900'000) : rate(3, 50'000);
    p.disk.lost_write = rate(4, 30'000);
    p.disk.misdirected_write = rate(6, 20'000);
    p.disk.flipped_read = rate(4, 30'000);
    p.disk.hang = rate(3, 50'000);
    n.flip = random.one_in(5);
    n.truncate = random.one_in(5);
  }
  for (auto* fault :
       {&n.cut, &n.pause_client, &n.pause_node, &n.kill_client, &n.leave, &n.hang_process, &n.erase, &n.stray_words})
    *fault = random.one_in(3);
  for (auto* fault : {&n.kill_node, &n.drain_node})
    *fault = random.one_in(5);
  n.corrupt_memory = random.one_in(4);
  p.memory.short_host = random.one_in(6) ? random.number(100'000, 500'000) : 0;
}

} // namespace

bool parameters::bytes_at_risk() const noexcept {
  return disk.read_error + disk.write_error + disk.lost_write + disk.misdirected_write + disk.flipped_read + disk.hang >
             0 ||
         nemesis.flip || nemesis.truncate || nemesis.corrupt_memory;
}

bool parameters::disks_lie() const noexcept {
  return disk.lost_write + disk.misdirected_write > 0 || nemesis.flip || nemesis.truncate || nemesis.corrupt_memory;
}

std::string parameters::describe() const {
  const auto ms = [](duration x) { return std::chrono::duration<double, std::milli>(x).count(); };
  std::ostringstream out;
  out << ranks << " ranks, " << shards << " shards, " << clients << " clients of " << sessions << " sessions, " << slots
      << " slots and " << memory_slots << " in memory (low " << low_watermark << ", high " << high_watermark << "), "
      << pinned_pages << " pages pinned, " << blocks << " blocks, batches of " << batch_pages << ", tree of depth "
      << depth << " and " << branches << " branches; delays " << ms(local_delay) << "/" << ms(network_delay) << "/"
      << ms(disk_time) << " ms, requests " << ms(request_timeout) << " ms, tasks " << ms(task_deadline_min) << "-"
      << ms(task_deadline_max) << " ms, leases " << ms(lease_max) << " ms, reservations " << ms(reservation_max)
      << " ms" << (cancels ? ", tasks are cancelled" : "") << (other_node ? ", another node" : "") << "; memory "
      << tier_names[static_cast<int>(memory.kind)] << ", " << memory.extents << " extents of "
      << memory.frames_per_extent << " frames, at once " << memory.waiting_max << " waiting, " << memory.reads_max
      << " reads, " << memory.writes_max << " writes" << (memory.second_hit ? ", written when asked for again" : "");
  if (memory.prefetch_pages > 0)
    out << ", " << memory.prefetch_pages << " ahead, " << memory.prefetch_reads_max << " at once, "
        << memory.prefetch_waiting_max << " waiting";
  if (memory.scrub_interval > duration::zero())
    out << ", a page is looked at unasked each " << ms(memory.scrub_interval) << " ms";
  out << "; faults:";
  const auto rate = [&](const char* name, ppm x) {
    if (x > 0)
      out << ' ' << name;
  };
  rate("read-error", disk.read_error);
  rate("write-error", disk.write_error);
  rate("lost-write", disk.lost_write);
  rate("misdirected-write", disk.misdirected_write);
  rate("flipped-read", disk.flipped_read);
  rate("hang", disk.hang);
  rate("cut", nemesis.cut);
  rate("pause-client", nemesis.pause_client);
  rate("pause-node", nemesis.pause_node);
  rate("kill-client", nemesis.kill_client);
  rate("leave", nemesis.leave);
  rate("kill-node", nemesis.kill_node);
  rate("drain-node", nemesis.drain_node);
  rate("flip", nemesis.flip);
  rate("truncate", nemesis.truncate);
  rate("erase", nemesis.erase);
  rate("scribble", nemesis.corrupt_memory);
  rate("hang-process", nemesis.hang_process);
  rate("stray-words", nemesis.stray_words);
  rate("short-host", memory.short_host);
  return out.str();
}

parameters make_parameters(random_source& random) {
  parameters p;
  choose_sizes(p, random);
  choose_memory(p, random);
  choose_limits(p, random);
  choose_times(p, random);
  choose_faults(p, random);
  p.cancels = random.one_in(2);
  choose_scrub(p, random);
  p.other_node = random.one_in(2);
  return p;
}

} // namespace troupe::simulation
