#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// Decides which pages of a rank are encoded, by what became of the last ones. Pages whose bytes have no encoding are
/// copied twice, so encoding pays off only where nearly all pages have one: at 0.77 of the bytes, four of five.
///
/// A few pages are tried first, then all, for as long as enough of them have an encoding. Otherwise there is a rest, in
/// which pages are stored as they are, and then a few are tried again. Rests become longer, up to a limit, since bytes
/// of an engine seldom change their kind.
///
/// Not thread-safe.
class encoding_choice {
public:
  static constexpr std::size_t pages_tried = 8;
  static constexpr std::size_t pages_judged = 64;
  static constexpr std::size_t first_rest = 1024;
  static constexpr std::size_t longest_rest = 65536;

  /// How many of the next pages are to be encoded, from the first one on; and the judgement that this follows from.
  struct plan {
    std::size_t pages = 0;
    std::uint64_t judgement = 0;
  };
  plan next(std::size_t pages) noexcept {
    if (encodes_)
      return {pages, judgements_};
    const auto rested = std::min(rest_, pages);
    rest_ -= rested;
    return {rest_ > 0 ? 0 : std::min(pages, pages_tried), judgements_};
  }

  /// What became of the pages of a plan: those that were stored, and those of them that were encoded. Plans of an
  /// earlier judgement do not count again: orders are carried out side by side.
  void note(const plan& what, std::size_t stored, std::size_t encoded) noexcept {
    if (what.judgement != judgements_)
      return;
    tried_ += stored;
    encoded_ += encoded;
    if (tried_ < (encodes_ ? pages_judged : pages_tried))
      return;
    const bool pays_off = encoded_ * 5 >= tried_ * 4;
    if (pays_off) {
      next_rest_ = first_rest;
    } else {
      rest_ = next_rest_;
      next_rest_ = std::min(next_rest_ * 4, longest_rest);
    }
    if (!encodes_ || !pays_off)
      ++judgements_;
    encodes_ = pays_off;
    tried_ = 0;
    encoded_ = 0;
  }

  /// Whether all pages are encoded at present.
  bool encodes() const noexcept { return encodes_; }

private:
  bool encodes_ = false;
  /// Changes of `encodes_`, and rests.
  std::uint64_t judgements_ = 0;
  /// Pages that are stored as they are before the next ones are tried.
  std::size_t rest_ = 0;
  std::size_t next_rest_ = first_rest;
  /// Since the last judgement.
  std::size_t tried_ = 0;
  std::size_t encoded_ = 0;
};

} // namespace troupe
