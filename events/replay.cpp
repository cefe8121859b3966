#include "events/replay.hpp"

#include "events/batch_text.hpp"

#include <algorithm>
#include <utility>

namespace troupe::events {

bool replay::begins_snapshot(const stream& of) const noexcept {
  const auto& log = of.log;
  if (phase_ == phase::kept)
    return next_ < end_ && next_ < log.oldest();
  return phase_ == phase::begin && (start_ < log.oldest() || start_ > log.next());
}

void replay::begin(const stream& of, const page_book& book) {
  const auto& log = of.log;
  if (!begins_snapshot(of)) {
    phase_ = phase::kept;
    next_ = start_;
    end_ = log.next();
    return;
  }
  if (snapshots_ == snapshots_most) {
    phase_ = phase::ended;
    failed_ = true;
    return;
  }
  ++snapshots_;
  phase_ = phase::snapshot;
  covered_ = log.next() - 1;
  // A requester that is ahead has numbers of another run.
  number_ = start_ > covered_ ? 0 : start_;
  // The last batch has the number `covered_`, all others must be below it.
  const auto numbers = covered_ - number_;
  pages_ = static_cast<std::uint32_t>(
      std::max<std::uint64_t>(pages_per_batch, numbers == 0 ? book.pages() + 1 : book.pages() / numbers + 1));
  entry_ = 0;
  first_ = true;
}

replay::step replay::next_of_snapshot(const stream& of, const page_book& book, double wall) {
  std::vector<page_event> found;
  // Without a number for another batch, this one takes all.
  const auto most = number_ >= covered_ ? 0xffffffffU : pages_;
  entry_ = book.walk(stream_, entry_, most, left_out_, [&](page_record page) {
    found.push_back({page_event::kind::stored, std::move(page)});
  });
  const bool last = entry_ >= book.end();
  step out;
  out.number = last ? covered_ : number_++;
  out.text =
      std::make_shared<const std::string>(batch_text({wall, std::exchange(first_, false), of.form}, found, book));
  if (last) {
    phase_ = phase::kept;
    next_ = covered_ + 1;
    end_ = of.log.next();
  }
  return out;
}

std::optional<replay::step> replay::next(stream& of, const page_book& book, double wall) {
  if (phase_ == phase::kept && begins_snapshot(of)) {
    // Batches after the snapshot are not kept any more. What the requester has so far counts up to before `next_`.
    start_ = next_;
    phase_ = phase::begin;
  }
  if (phase_ == phase::begin)
    begin(of, book);
  if (phase_ == phase::snapshot)
    return next_of_snapshot(of, book, wall);
  if (phase_ == phase::kept && next_ < end_) {
    const auto& kept = of.log.at(next_++);
    return step{kept.number, kept.text};
  }
  phase_ = phase::ended;
  return std::nullopt;
}

} // namespace troupe::events
