#include "handshake/watch_state.hpp"

#include <algorithm>

namespace troupe::handshake {

void watch_state::begin(step what, timestamp now) {
  under_way_ = ++last_;
  at_ = later(now, options_.patience);
  order_ = order{under_way_, what};
}

void watch_state::fail(timestamp now) {
  under_way_ = 0;
  order_.reset();
  pause_ = std::clamp(pause_ * 2, options_.backoff_min, options_.backoff_max);
  at_ = later(now, pause_);
}

void watch_state::lose_connection(timestamp now) {
  connection_ = 0;
  watch_.reset();
  fail(now);
}

bool watch_state::opened(number id, bool is_open, timestamp now) {
  if (connection_ != 0 || id != under_way_)
    return false;
  if (!is_open) {
    fail(now);
    return true;
  }
  connection_ = id;
  begin(step::watch, now);
  return true;
}

bool watch_state::connection_lost(number id, timestamp now) {
  if (id == 0 || id != connection_)
    return false;
  lose_connection(now);
  return true;
}

bool watch_state::watched(number id, const result<number>& answer, timestamp now) {
  if (connection_ == 0 || id != under_way_)
    return false;
  if (!answer && answer.error().code != errc::limit_exceeded) {
    lose_connection(now);
    return true;
  }
  if (!answer) {
    watch_.reset();
    fail(now);
    return false;
  }
  watch_ = *answer;
  under_way_ = 0;
  pause_ = {};
  at_ = later(now, options_.renew);
  return false;
}

void watch_state::watch_lost(number watch, timestamp now) {
  if (!watch_ || *watch_ != watch)
    return;
  watch_.reset();
  if (under_way_ == 0)
    begin(step::watch, now);
}

bool watch_state::advance(timestamp now) {
  if (now < at_)
    return false;
  if (under_way_ == 0) {
    begin(connection_ == 0 ? step::open : step::watch, now);
    return false;
  }
  if (connection_ == 0) {
    fail(now);
    return false;
  }
  lose_connection(now);
  return true;
}

} // namespace troupe::handshake
