#include "actors/node/io_worker/write_queue.hpp"

#include <utility>

namespace troupe {

void write_queue::pass_time(timestamp now) {
  if (now >= trouble_ends_)
    trouble_ = errc::ok;
  while (!failed_.empty() && failed_.front().not_before <= now) {
    due_.push_back(failed_.front().what);
    failed_.pop_front();
  }
}

write_queue::entry write_queue::take() {
  const auto out = due_.front();
  due_.pop_front();
  return out;
}

std::deque<write_queue::entry> write_queue::take_all() {
  release();
  return std::exchange(due_, {});
}

void write_queue::release() {
  due_.insert(due_.begin(), held_.begin(), held_.end());
  held_.clear();
}

void write_queue::note_trouble(errc code, timestamp now) {
  trouble_ = code;
  trouble_ends_ = now + trouble_time_;
}

} // namespace troupe
