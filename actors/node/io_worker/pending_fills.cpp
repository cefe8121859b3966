#include "actors/node/io_worker/pending_fills.hpp"

#include <utility>

namespace troupe {

void pending_fills::add(std::uint64_t request, io_reply reply, std::span<const unwritten> pages) {
  if (pages.empty()) {
    answers_.push_back({request, std::move(reply)});
    return;
  }
  for (const auto& x : pages)
    waiters_[x.frame].push_back({request, x.position});
  fills_.emplace(request, waiting_fill{std::move(reply), pages.size()});
}

void pending_fills::written(frame_number f, errc code) {
  const auto waiting = waiters_.extract(f);
  if (waiting.empty())
    return;
  for (const auto& x : waiting.mapped()) {
    const auto found = fills_.find(x.request);
    found->second.reply.results[x.position] = static_cast<std::uint8_t>(code);
    if (--found->second.waiting > 0)
      continue;
    answers_.push_back({x.request, std::move(found->second.reply)});
    fills_.erase(found);
  }
}

void pending_fills::moved(frame_number from, frame_number to) {
  auto waiting = waiters_.extract(from);
  if (waiting.empty())
    return;
  waiting.key() = to;
  waiters_.insert(std::move(waiting));
}

std::vector<pending_fills::answer> pending_fills::take_answers() {
  return std::exchange(answers_, {});
}

} // namespace troupe
