#pragma once

#include "io/foreign/foreign_pages.hpp"
#include "messages/messages.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Reads pages of one rank from the slab file of a node whose storage is shared. Its reads block, so spawn it with a
/// thread of its own.
class slab_reading : public slab_reading_actor::base {
public:
  /// `node`: for the log.
  slab_reading(caf::actor_config& config, io::foreign_pages::options how, std::string node);

  const char* name() const override { return "slab_reading"; }
  void on_exit() override { pages_.reset(); }

protected:
  behavior_type make_behavior() override;

private:
  caf::result<read_reply> read(const read_order& order);
  /// Logs failures once, until all reads succeed again. An error on opening a file is logged elsewhere.
  void report_failures(const read_order& order, const std::vector<errc>& codes);

  std::optional<io::foreign_pages> pages_;
  std::string node_;
  bool failing_ = false;
};

} // namespace troupe
