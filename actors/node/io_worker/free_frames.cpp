#include "actors/node/io_worker/free_frames.hpp"

#include <bit>
#include <cassert>

namespace troupe {

namespace {

/// The first set bit from `from` on; `limit` if there is none.
std::uint64_t next_bit(const std::vector<std::uint64_t>& words, std::uint64_t from, std::uint64_t limit) noexcept {
  for (auto word = from / 64; word < words.size(); ++word) {
    const auto left = word == from / 64 ? words[word] & (~std::uint64_t{0} << (from % 64)) : words[word];
    if (left != 0)
      return word * 64 + static_cast<std::uint64_t>(std::countr_zero(left));
  }
  return limit;
}

} // namespace

bool free_frames::contains(frame_number f) const noexcept {
  return f / word_bits < words_.size() && (words_[f / word_bits] >> (f % word_bits) & 1U) != 0;
}

void free_frames::insert(frame_number f) {
  assert(!contains(f));
  const auto word = f / word_bits;
  if (word >= words_.size()) {
    words_.resize(word + 1);
    filled_.resize(word / word_bits + 1);
  }
  words_[word] |= std::uint64_t{1} << (f % word_bits);
  filled_[word / word_bits] |= std::uint64_t{1} << (word % word_bits);
  ++size_;
}

void free_frames::erase(frame_number f) noexcept {
  assert(contains(f));
  const auto word = f / word_bits;
  words_[word] &= ~(std::uint64_t{1} << (f % word_bits));
  if (words_[word] == 0)
    filled_[word / word_bits] &= ~(std::uint64_t{1} << (word % word_bits));
  --size_;
}

frame_number free_frames::at_or_behind(std::uint64_t f) const noexcept {
  const auto word = f / word_bits;
  if (word >= words_.size())
    return no_frame;
  if (const auto left = words_[word] & (~std::uint64_t{0} << (f % word_bits)); left != 0)
    return static_cast<frame_number>(word * word_bits + static_cast<std::uint64_t>(std::countr_zero(left)));
  const auto found = next_bit(filled_, word + 1, words_.size());
  if (found >= words_.size())
    return no_frame;
  return static_cast<frame_number>(found * word_bits + static_cast<std::uint64_t>(std::countr_zero(words_[found])));
}

frame_number free_frames::take() noexcept {
  auto f = at_or_behind(next_);
  if (f == no_frame)
    f = at_or_behind(0);
  erase(f);
  next_ = std::uint64_t{f} + 1;
  return f;
}

} // namespace troupe
