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
                       std::shared_ptr<const write_gate> gate)
    : path_(std::move(path)), recorder_(std::move(recorder)), gate_(std::move(gate)) {}

result<std::unique_ptr<trace_file>> trace_file::start(std::filesystem::path path,
                                                      std::shared_ptr<const request_recorder> recorder,
                                                      std::shared_ptr<const write_gate> gate, duration interval) {
  if (!recorder)
    return nullptr;
  std::unique_ptr<trace_file> made(new trace_file(std::move(path), std::move(recorder), std::move(gate)));
  auto thread = serial_executor::start(thread_name("troupe-trace"), "the thread that writes recorded lookups");
  if (!thread)
    return tl::unexpected<error>(std::move(thread.error()));
  made->thread_ = std::move(*thread);
  const auto begun = made->thread_->repeat(interval, interval, [self = made.get()] {
    self->write_and_report();
    return true;
  });
  if (!begun)
    return tl::unexpected<error>(begun.error());
  return made;
}

trace_file::~trace_file() {
  if (!thread_)
    return;
  thread_->end();
  write_and_report();
}

void trace_file::write_and_report() {
  const auto written = write();
  // A closed gate is reported together with the claim.
  const bool failed = !written && gate_->is_open();
  if (failed && !failing_)
    log::get("node")->warn("recorded lookups cannot be written: {}", written.error().text);
  failing_ = failed;
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
