#pragma once

#include "base/digest.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <vector>

namespace troupe::simulation {

/// The slab file of one rank that engines read and write themselves. A page holds the bytes of its last write; while it
/// is being written, or when writes of different keys have overlapped, its content is invalid. Writing the same bytes
/// again changes nothing.
class slot_disk {
public:
  explicit slot_disk(std::uint32_t slots) : pages_(slots) {}

  void begin_write(std::uint64_t number, slot_number slot, const key_digest& key) {
    auto& page = pages_[slot];
    bool alone = true;
    for (auto& x : page.writes) {
      const bool same = x.key == key;
      x.alone = x.alone && same;
      alone = alone && same;
    }
    page.writes.push_back({number, key, alone});
    set(page, page.content == key ? key : key_digest{});
  }

  void end_write(std::uint64_t number, slot_number slot, bool well) {
    auto& page = pages_[slot];
    for (auto x = page.writes.begin(); x != page.writes.end(); ++x)
      if (x->number == number) {
        const auto done = *x;
        page.writes.erase(x);
        if (page.content != done.key)
          set(page, well && done.alone ? done.key : key_digest{});
        return;
      }
  }

  const key_digest& content(slot_number slot) const { return pages_[slot].content; }
  /// Differs if the content has changed since.
  std::uint64_t changes(slot_number slot) const { return pages_[slot].changes; }

private:
  struct write {
    std::uint64_t number = 0;
    key_digest key;
    bool alone = true;
  };

  struct state {
    key_digest content;
    std::uint64_t changes = 0;
    std::vector<write> writes;
  };

  static void set(state& x, const key_digest& content) {
    x.changes += x.content == content ? 0 : 1;
    x.content = content;
  }

  std::vector<state> pages_;
};

} // namespace troupe::simulation
