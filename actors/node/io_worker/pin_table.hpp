#pragma once

#include "actors/node/io_worker/frame_table.hpp"
#include "base/identifiers.hpp"
#include "messages/io_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// A table of the clients' pins: the frames of each pin, by the number that the client was given, until the client ends
/// it.
class pin_table {
public:
  struct pin {
    owner_id owner = 0;
    /// True: pins stored pages; false: pins frames that are to be filled.
    bool fetch = false;
    /// One per page of the request, `no_frame` where it has none.
    std::vector<frame_number> frames;
  };

  /// `first`: numbers begin after this one. It differs between runs and workers, so that the number of a pin of an
  /// earlier run is not found.
  explicit pin_table(pin_number first) : last_(first) {}

  pin_number add(pin x);

  /// Removes and returns the pin, if the client has it.
  std::optional<pin> take(owner_id owner, pin_number number, bool fetch);

  /// Removes and returns all pins of the client.
  std::vector<pin> take_all(owner_id owner);

  /// The number of frames that the client has pinned; a frame that it has pinned twice counts twice.
  std::uint64_t pinned_by(owner_id owner) const noexcept;

  std::size_t size() const noexcept { return pins_.size(); }

  template <class F>
  void for_each(F f) const {
    for (const auto& [number, x] : pins_)
      f(number, x);
  }

private:
  struct owned {
    std::uint64_t frames = 0;
    /// In any order.
    std::vector<pin_number> pins;
  };

  std::unordered_map<pin_number, pin> pins_;
  std::unordered_map<owner_id, owned> owners_;
  pin_number last_;
};

} // namespace troupe
