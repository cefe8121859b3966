#include "workload/runner/tally.hpp"

#include "workload/replay/text_table.hpp"

namespace troupe::replay {

namespace {

void add_to(failure_codes& sums, const failure_codes& more) {
  for (const auto& [code, count] : more)
    sums[code] += count;
}

} // namespace

tally::tally(std::uint64_t first, std::uint64_t end, std::uint64_t page_bytes, bool compared)
    : requests_(end - first), end_(end), page_bytes_(page_bytes), next_(first) {
  report_.compared = compared;
}

void tally::begin_after(const tally& earlier) {
  report_.verify_failures = earlier.report_.verify_failures;
  report_.load_failures = earlier.report_.load_failures;
  report_.save_failures = earlier.report_.save_failures;
  report_.load_failure_codes = earlier.report_.load_failure_codes;
  report_.save_failure_codes = earlier.report_.save_failure_codes;
  slab_damaged_ = earlier.slab_damaged_;
  first_wrong_ = earlier.first_wrong_;
  abandoned_ = earlier.abandoned_;
}

std::optional<std::uint64_t> tally::next() noexcept {
  if (abandoned_ || next_ == end_)
    return std::nullopt;
  return next_++;
}

void tally::note(const run_event& event) {
  std::visit([this](const auto& x) { add(x); }, event);
}

void tally::abandon(const error& why) {
  if (!abandoned_)
    abandoned_ = why;
}

void tally::add(const lookup_ended& x) {
  lookup_times_.record(x.took);
  phases_.add(phase::lookup, x.took);
}

void tally::add(const transfer_began& x) {
  (x.kind == transfer_kind::load ? load_busy_ : save_busy_).begin(x.at);
  any_busy_.begin(x.at);
}

void tally::add(const load_ended& x) {
  const auto loaded = x.right + x.wrong;
  load_busy_.end(x.ended);
  any_busy_.end(x.ended);
  load_times_.record(x.ended - x.began);
  report_.loaded_pages += loaded;
  report_.loaded_from_disk += x.from_disk;
  report_.loaded_bytes += loaded * page_bytes_;
  report_.verify_failures += x.wrong;
  report_.load_failures += x.missing;
  add_to(report_.load_failure_codes, x.codes);
  if (first_wrong_.empty())
    first_wrong_ = x.first_wrong;
  phases_.add(phase::compare, x.comparing, loaded * page_bytes_);
  phases_.add(phase::locate, x.timing.registry);
  phases_.add(phase::read, x.timing.io, x.bytes);
  phases_.add(phase::scatter, x.timing.move, x.bytes);
}

void tally::add(const save_ended& x) {
  save_busy_.end(x.ended);
  any_busy_.end(x.ended);
  save_times_.record(x.ended - x.began);
  report_.saved_pages += x.written;
  report_.saved_bytes += x.written * page_bytes_;
  report_.save_failures += x.failures;
  add_to(report_.save_failure_codes, x.codes);
  slab_damaged_ = slab_damaged_ || x.slab_damaged;
  phases_.add(phase::reserve, x.timing.registry);
  phases_.add(phase::gather, x.timing.move, x.bytes);
  phases_.add(phase::write, x.timing.io, x.bytes);
  phases_.add(phase::commit, x.timing.finish);
}

void tally::add(const blocks_produced& x) {
  phases_.add(phase::produce, x.took, x.pages * page_bytes_);
}

void tally::add(const request_ended& x) {
  ++report_.requests;
  report_.blocks += x.blocks;
  report_.hit_blocks += x.hit_blocks;
}

void tally::add(const run_abandoned& x) {
  abandon(x.why);
}

replay_progress tally::progress(duration elapsed) const noexcept {
  replay_progress out;
  out.requests = requests_;
  out.requests_done = report_.requests;
  out.blocks = report_.blocks;
  out.hit_blocks = report_.hit_blocks;
  out.loaded_bytes = report_.loaded_bytes;
  out.saved_bytes = report_.saved_bytes;
  out.failures = report_.verify_failures + report_.load_failures + report_.save_failures;
  out.elapsed = elapsed;
  return out;
}

replay_report tally::report(timestamp now) const {
  auto out = report_;
  out.load_gbps = gigabytes_per_second(out.loaded_bytes, load_busy_.total(now));
  out.save_gbps = gigabytes_per_second(out.saved_bytes, save_busy_.total(now));
  out.together_gbps = gigabytes_per_second(out.loaded_bytes + out.saved_bytes, any_busy_.total(now));
  out.lookup_us = lookup_times_.summary();
  out.load_us = load_times_.summary();
  out.save_us = save_times_.summary();
  return out;
}

} // namespace troupe::replay
