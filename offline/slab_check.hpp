#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "config/node_config.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The inspection of a stopped node's data.

namespace troupe::offline {

/// A page in the index whose slot has other content.
struct unsound_page {
  page_ref page;
  /// A code of `verify_page`, or `io_error`, or `out_of_range`: the file has no such slot.
  errc why = errc::corrupt;
};

/// The findings in the slab file of one rank.
struct rank_check {
  /// The most pages that are named.
  static constexpr std::size_t named_pages_max = 64;

  namespace_id ns;
  std::string namespace_name;
  rank_number rank = 0;
  std::filesystem::path file;
  /// The reason why the file could not be checked; its pages are not counted then.
  std::optional<error> fault;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// Pages that the next start of the node will trust, and how many of them are intact.
  std::uint64_t live = 0;
  std::uint64_t sound = 0;
  /// Pages that are no valid page; that are a valid page of another identity; that could not be read.
  std::uint64_t corrupt = 0;
  std::uint64_t misplaced = 0;
  std::uint64_t unreadable = 0;
  std::vector<unsound_page> unsound;

  std::uint64_t unsound_pages() const noexcept { return corrupt + misplaced + unreadable; }
  /// Counts a checked page.
  void count(const page_ref& page, errc verdict);
};

/// What a start of the node will do with its index.
enum class index_state : std::uint8_t {
  /// There is none: a start begins without pages, and the content of the slabs is unknown.
  none,
  /// The last run disabled it, or it belongs to another data directory: a start drops all of its pages.
  left_aside,
  believed,
};

struct slab_check_report {
  index_state index = index_state::none;
  std::vector<rank_check> ranks;
  /// Pages in the index that a start will not trust, since they are of earlier slab files or of namespaces that it does
  /// not serve; and those in files of engines, which only the engines can read.
  std::uint64_t forgotten_pages = 0;
  std::uint64_t foreign_pages = 0;

  bool sound() const noexcept;
};

/// Receives the bytes that were read, and the total.
using check_progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Reads every page that the next start of the node will trust, and verifies it. Changes nothing, and keeps nodes out
/// of the data directory and the slabs meanwhile.
///
/// Locks keep out processes of the same host. A claim that is renewed on any host is detected within its lease, and
/// then nothing is checked, unless claims are to be ignored.
///
/// Errors: `busy` (a node runs there, or another process has a slab open), `not_found` (no data directory), those of
/// reading the index.
result<slab_check_report> check_slabs(const config::node_config& options, const check_progress& progress,
                                      bool ignore_claims = false);

/// The report as text: a line for each rank and one for each named page.
std::string to_text(const slab_check_report& report);
/// The report as one JSON object.
std::string to_json(const slab_check_report& report);

std::string_view to_string(index_state x) noexcept;

} // namespace troupe::offline
