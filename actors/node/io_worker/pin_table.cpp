#include "actors/node/io_worker/pin_table.hpp"

#include <algorithm>

namespace troupe {

namespace {

std::uint64_t frames_of(const pin_table::pin& x) {
  return static_cast<std::uint64_t>(
      std::count_if(x.frames.begin(), x.frames.end(), [](frame_number f) { return f != no_frame; }));
}

} // namespace

pin_number pin_table::add(pin x) {
  const auto number = ++last_;
  auto& mine = owners_[x.owner];
  mine.frames += frames_of(x);
  mine.pins.push_back(number);
  pins_.emplace(number, std::move(x));
  return number;
}

std::optional<pin_table::pin> pin_table::take(owner_id owner, pin_number number, bool fetch) {
  const auto i = pins_.find(number);
  if (i == pins_.end() || i->second.owner != owner || i->second.fetch != fetch)
    return std::nullopt;
  auto out = std::move(i->second);
  pins_.erase(i);
  const auto mine = owners_.find(owner);
  mine->second.frames -= frames_of(out);
  std::erase(mine->second.pins, number);
  if (mine->second.pins.empty())
    owners_.erase(mine);
  return out;
}

std::vector<pin_table::pin> pin_table::take_all(owner_id owner) {
  std::vector<pin> out;
  const auto mine = owners_.find(owner);
  if (mine == owners_.end())
    return out;
  for (const auto number : mine->second.pins)
    out.push_back(std::move(pins_.extract(number).mapped()));
  owners_.erase(mine);
  return out;
}

std::uint64_t pin_table::pinned_by(owner_id owner) const noexcept {
  const auto i = owners_.find(owner);
  return i == owners_.end() ? 0 : i->second.frames;
}

} // namespace troupe
