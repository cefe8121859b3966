#include "actors/node/supervisor/trace_file.hpp"

#include "base/log.hpp"

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

namespace troupe {

std::filesystem::path recorded_trace(const std::filesystem::path& data_dir) {
  return data_dir / "requests.jsonl";
}

trace_file::trace_file(std::filesystem::path path, std::shared_ptr<const request_recorder> recorder,
                       std::shared_ptr<const write_gate> gate, duration interval)
    : path_(std::move(path)), recorder_(std::move(recorder)), gate_(std::move(gate)) {
  thread_ = std::thread([this, interval] {
    bool complained = false;
    for (bool last = false; !last;) {
      {
        std::unique_lock guard(mutex_);
        last = changed_.wait_for(guard, interval, [&] { return ends_; });
      }
      const auto written = write();
      // A closed gate is reported together with the claim.
      const bool failed = !written && gate_->is_open();
      if (failed && !complained)
        log::get("node")->warn("recorded lookups cannot be written: {}", written.error().text);
      complained = failed;
    }
  });
}

trace_file::~trace_file() {
  {
    const std::lock_guard guard(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

result<void> trace_file::write() const {
  const auto check = [this] { return gate_->check("write '" + path_.string() + "'"); };
  if (auto may = check(); !may)
    return may;
  const auto next = path_.string() + ".new";
  std::ofstream out(next, std::ios::binary | std::ios::trunc);
  out << recorder_->trace() << std::flush;
  if (!out)
    return tl::unexpected(system_error(errno == 0 ? EIO : errno, "cannot write " + next));
  out.close();
  // Writing may have taken longer than the claim is valid, so the gate is checked again.
  if (auto may = check(); !may)
    return may;
  std::error_code failure;
  std::filesystem::rename(next, path_, failure);
  if (failure)
    return tl::unexpected(system_error(failure.value(), "cannot rename " + next));
  return {};
}

} // namespace troupe
