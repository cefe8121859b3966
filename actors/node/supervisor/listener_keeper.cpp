#include "actors/node/supervisor/listener_keeper.hpp"

#include "base/log.hpp"

#include <cstdint>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr auto look_pause = std::chrono::seconds(1);

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
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    return {};
  } catch (const std::system_error& e) {
    return fail(errc::io_error, std::string("cannot create the thread that monitors the node's sockets: ") + e.what());
  }
}

void listener_keeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    for (const auto& line : look())
      log::get("node")->warn("{}", line);
    std::unique_lock guard(mutex_);
    stopped_.wait_for(guard, stop, look_pause, [] { return false; });
  }
}

} // namespace troupe
