#pragma once

#include "cli/screens/top_screen.hpp"

#include <chrono>
#include <memory>
#include <vector>

namespace troupe::cli {

/// The terminal that the program runs on, taken over as a whole until this ends. Of one thread.
class terminal {
public:
  virtual ~terminal() = default;

  /// Null where stdin and stdout are none, where it is one that cannot be drawn on, or where the program was built
  /// without the library for it.
  static std::unique_ptr<terminal> open();

  /// Whether there is a library for it.
  static bool is_built_in() noexcept;

  virtual bool has_blocks() const = 0;
  virtual std::size_t columns() const = 0;
  virtual std::size_t rows() const = 0;
  virtual void draw(const std::vector<screen_line>& lines) = 0;

  /// What was pressed, by then at the latest; `none` also where the terminal has another size now.
  virtual top_key wait_for_key(std::chrono::milliseconds limit) = 0;
};

} // namespace troupe::cli
