#pragma once

#include "base/digest.hpp"
#include "events/page_record.hpp"
#include "messages/event_messages.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::events {

/// The pages about which events were published: what a node holds, as far as engines have described it. 37 bytes a
/// page at most (entry and index), and the details, which are limited together: beyond the limit, tokens are not kept,
/// and a snapshot leaves the page out.
class page_book {
public:
  /// `seed` makes the identification of keys by 64 bits unpredictable.
  page_book(std::uint64_t seed, std::uint64_t details_max);

  page_book(const page_book&) = delete;
  page_book& operator=(const page_book&) = delete;
  ~page_book() = default;

  /// Identifies a key of a namespace.
  std::uint64_t id_of(const namespace_id& ns, const key_digest& key) const noexcept;

  /// The number of this shape; none where there are too many, as clients choose adapters.
  std::optional<std::uint16_t> number_of(const page_shape& shape);
  /// Forgets the shapes that no page has, and whose numbers nothing else may refer to. Whether there was one.
  bool forget_unused_shapes();
  static constexpr std::size_t shapes_max = 4096;
  const page_shape& shape(std::uint16_t number) const noexcept { return *shapes_[number]; }

  enum class outcome : std::uint8_t {
    /// It is new, and an event follows.
    stored,
    /// It is known with this hash.
    known,
    /// It is known, and its details, which were not kept, are kept now: an event follows, for those who got a snapshot
    /// without it.
    completed,
    /// It is known with another hash, which stays.
    differs,
    /// No entry is free: there are too many pages.
    full,
  };
  outcome store(const page_record& page);

  /// Forgets the page, and returns it without its tokens; none for an unknown one.
  std::optional<page_record> remove(std::uint64_t id);

  /// Notes where the page is now, and returns it as it is now if that has changed.
  std::optional<page_record> move(std::uint64_t id, bool in_memory);

  /// A copy, with the details; none for an unknown page.
  std::optional<page_record> find(std::uint64_t id) const;

  /// Calls f with the pages of a stream whose tokens are known, from entry `from` on, at most `most` of them;
  /// `left_out` counts the others. Returns where to continue: `end()` at the end.
  template <class F>
  std::uint32_t walk(std::uint32_t stream, std::uint32_t from, std::uint32_t most, std::uint64_t& left_out,
                     F&& f) const {
    std::uint32_t found = 0;
    auto i = from;
    for (; i < end_ && found < most; ++i) {
      const auto& e = entry(i);
      if (e.id == 0 || shape(e.shape).stream != stream)
        continue;
      auto page = record_of(e);
      if (has_tokens(page, shape(e.shape))) {
        ++found;
        f(std::move(page));
      } else {
        ++left_out;
      }
    }
    return i;
  }
  std::uint32_t end() const noexcept { return end_; }

  void clear();

  std::uint64_t pages() const noexcept { return pages_; }
  std::uint64_t details_bytes() const noexcept { return details_bytes_; }
  /// Pages whose tokens are not kept.
  std::uint64_t without_tokens() const noexcept { return without_tokens_; }
  std::uint64_t resident_bytes() const noexcept;

private:
  struct book_entry {
    /// 0: unused; `hash` is the next unused one then.
    std::uint64_t id = 0;
    std::uint64_t hash = 0;
    std::uint64_t parent = 0;
    /// The number of the details plus one; 0: none.
    std::uint32_t details = 0;
    std::uint16_t shape = 0;
    bool has_parent = false;
    bool in_memory = false;
  };
  static_assert(sizeof(book_entry) == 32);

  static constexpr std::uint32_t chunk_entries = 4096;
  static constexpr std::uint32_t none = 0xffffffff;

  book_entry& entry(std::uint32_t i) noexcept { return chunks_[i / chunk_entries][i % chunk_entries]; }
  const book_entry& entry(std::uint32_t i) const noexcept { return chunks_[i / chunk_entries][i % chunk_entries]; }
  std::size_t place_of(std::uint64_t id) const noexcept;
  std::uint32_t find_entry(std::uint64_t id) const noexcept;
  void index(std::uint32_t i) noexcept;
  void unindex(std::uint64_t id) noexcept;
  void grow_index();
  page_record record_of(const book_entry& e) const;
  void keep_details(book_entry& e, const page_record& page);
  void drop_details(book_entry& e);

  std::uint64_t seed_hi_;
  std::uint64_t seed_lo_;
  std::uint64_t details_max_;
  std::vector<std::unique_ptr<page_shape>> shapes_;
  std::map<page_shape, std::uint16_t> shape_numbers_;
  /// Pages of each shape, and numbers without a shape.
  std::vector<std::uint32_t> shape_pages_;
  std::vector<std::uint16_t> unused_shapes_;
  std::vector<std::unique_ptr<book_entry[]>> chunks_;
  std::uint32_t end_ = 0;
  std::uint32_t unused_ = none;
  /// Linear probing; entries plus one, 0: empty.
  std::vector<std::uint32_t> places_;
  std::vector<std::string> details_;
  std::vector<std::uint32_t> unused_details_;
  std::uint64_t pages_ = 0;
  std::uint64_t details_bytes_ = 0;
  std::uint64_t without_tokens_ = 0;
};

} // namespace troupe::events
