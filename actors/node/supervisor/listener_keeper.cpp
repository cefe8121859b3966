#include "actors/node/supervisor/listener_keeper.hpp"

#include "base/log.hpp"

#include <cstdint>
#include <utility>

namespace troupe {

namespace {

constexpr duration look_pause = std::chrono::seconds(1);

} // namespace

std::vector<std::string> listener_keeper::look() {
  std::vector<std::string> out;
  for (std::uint32_t i = 0; i < files_.size(); ++i) {
    const auto& x = files_[i];
    const bool was_there = x.is_there();
    const auto made = was_there ? result<void>() : x.make_anew();
    if (!made) {
      auto text = x.name + " was removed while the node runs, and cannot be recreated: " + to_string(made.error()) +
                  "; the node retries every second";
      if (condition_->begins(trouble::socket_lost, i, text))
        out.push_back(std::move(text));
      continue;
    }
    const bool ended = condition_->ends(trouble::socket_lost, i);
    if (!was_there)
      out.push_back(x.name + " was removed while the node runs, and has been recreated; exclude it from programs that "
                             "clean up, such as systemd-tmpfiles");
    else if (ended)
      out.push_back("no longer: " + x.name + " exists again");
  }
  return out;
}

result<void> listener_keeper::start() {
  auto started = serial_executor::start(thread_name("troupe-sockets"), "the thread that monitors the node's sockets");
  if (!started)
    return tl::unexpected<error>(std::move(started.error()));
  thread_ = std::move(*started);
  return thread_->repeat(duration::zero(), look_pause, [this] {
    for (const auto& line : look())
      log::get("node")->warn("{}", line);
    return true;
  });
}

} // namespace troupe
