#include "tests/io_faults/fault_engine.hpp"

#include "io/engine/thread_pool_engine.hpp"

#include <algorithm>
#include <utility>

namespace troupe::test {

namespace {

constexpr std::uint32_t table_size = 1024;

} // namespace

fault_engine::fault_engine(io::completion_sink sink, plan faults)
    : sink_(std::move(sink)), plan_(std::move(faults)), resources_(table_size, table_size) {}

fault_engine::~fault_engine() {
  stop();
}

void fault_engine::set_plan(plan faults) {
  std::lock_guard guard(mutex_);
  plan_ = std::move(faults);
}

bool fault_engine::release(std::uint64_t tag) {
  std::vector<io::completion> batch;
  {
    std::lock_guard guard(mutex_);
    const auto at = std::find_if(held_.begin(), held_.end(), [&](const auto& one) { return one.what.tag == tag; });
    if (at == held_.end())
      return false;
    batch.push_back(carry_out(*at));
    held_.erase(at);
  }
  deliver(batch);
  return true;
}

std::size_t fault_engine::release_all() {
  std::vector<io::completion> batch;
  {
    std::lock_guard guard(mutex_);
    for (const auto& one : held_)
      batch.push_back(carry_out(one));
    held_.clear();
  }
  deliver(batch);
  return batch.size();
}

void fault_engine::set_now(timestamp now) {
  std::lock_guard guard(mutex_);
  now_ = now;
  for (auto& one : held_)
    if (one.abandoned == errc::ok && one.what.deadline <= now)
      one.abandoned = errc::timeout;
}

std::vector<std::uint64_t> fault_engine::held() const {
  std::lock_guard guard(mutex_);
  std::vector<std::uint64_t> tags;
  for (const auto& one : held_)
    tags.push_back(one.what.tag);
  return tags;
}

result<std::uint32_t> fault_engine::add_file(int descriptor) {
  std::lock_guard guard(mutex_);
  return resources_.add_file(descriptor);
}

void fault_engine::remove_file(std::uint32_t file) {
  std::lock_guard guard(mutex_);
  resources_.remove_file(file);
}

result<std::uint32_t> fault_engine::add_buffer(std::span<std::byte> bytes) {
  std::lock_guard guard(mutex_);
  return resources_.add_buffer(bytes);
}

void fault_engine::remove_buffer(std::uint32_t buffer) {
  std::lock_guard guard(mutex_);
  resources_.remove_buffer(buffer);
}

void fault_engine::submit(std::span<const io::request> requests) {
  std::vector<io::completion> batch;
  {
    std::lock_guard guard(mutex_);
    for (const auto& what : requests) {
      ++counters_.submitted;
      held_request one{what, plan_ ? plan_(what, ordinal_) : fault{}};
      ++ordinal_;
      if (stopped_)
        batch.push_back({what.tag, errc::shutting_down, 0});
      else if (const auto code = resources_.check(what); code != errc::ok)
        batch.push_back({what.tag, code, 0});
      else if (what.deadline <= now_)
        batch.push_back({what.tag, errc::timeout, 0});
      else if (one.how.held)
        held_.push_back(std::move(one));
      else
        batch.push_back(carry_out(one));
    }
  }
  deliver(batch);
}

void fault_engine::cancel(std::uint64_t tag) {
  std::lock_guard guard(mutex_);
  for (auto& one : held_)
    if (one.what.tag == tag && one.abandoned == errc::ok)
      one.abandoned = errc::cancelled;
}

void fault_engine::stop() {
  {
    std::lock_guard guard(mutex_);
    stopped_ = true;
    for (auto& one : held_)
      if (one.abandoned == errc::ok)
        one.abandoned = errc::shutting_down;
  }
  release_all();
}

io::engine_counters fault_engine::counters() const {
  std::lock_guard guard(mutex_);
  return counters_;
}

std::string fault_engine::describe() const {
  return "fault injection";
}

io::completion fault_engine::carry_out(const held_request& one) {
  const auto& [what, how, abandoned] = one;
  if (abandoned != errc::ok)
    return {what.tag, abandoned, 0};
  const bool fails = how.status != errc::ok;
  const auto bytes = fails && how.bytes == ~std::uint64_t{0} ? 0 : std::min(what.length, how.bytes);
  auto part = what;
  part.length = bytes;
  part.file_offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(what.file_offset) + how.shift);
  std::uint64_t done = 0;
  std::uint32_t fruitless = 0;
  while (done < bytes) {
    const auto outcome = io::thread_pool_engine::system_transfer(
        part.op, resources_.descriptor(part.file), part.data + done, bytes - done, part.file_offset + done);
    const auto judged = io::judge_transfer(part, outcome, done, fruitless);
    if (!judged.again && judged.status != errc::ok)
      return {what.tag, judged.status, judged.system_errno};
    if (part.op == io::operation::trim)
      break;
  }
  return {what.tag, how.status, how.system_errno};
}

void fault_engine::deliver(const std::vector<io::completion>& batch) {
  if (batch.empty())
    return;
  {
    std::lock_guard guard(mutex_);
    counters_.completed += batch.size();
  }
  sink_(batch);
}

} // namespace troupe::test
