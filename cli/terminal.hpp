#pragma once

#include "cli/screens/top_screen.hpp"

#include <chrono>
#include <memory>
#include <vector>

namespace troupe::cli {

/// The terminal of the program, in full-screen mode until destruction. For one thread.
class terminal {
public:
  virtual ~terminal() = default;

  /// Null if stdin and stdout are no terminal, if the terminal cannot be drawn on, or if the program was built without
  /// the library for it.
  static std::unique_ptr<terminal> open();

  /// Whether the library for it is built in.
  static bool is_built_in() noexcept;

  virtual bool has_blocks() const = 0;
  virtual std::size_t columns() const = 0;
  virtual std::size_t rows() const = 0;
  virtual void draw(const std::vector<screen_line>& lines) = 0;

  /// The key that was pressed within `limit`; `none` if there was none, or if the terminal was resized.
  virtual top_key wait_for_key(std::chrono::milliseconds limit) = 0;
};

} // namespace troupe::cli
