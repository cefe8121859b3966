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

/// What of a node can be looked at while it does not run.

namespace troupe::offline {

/// A page that the index has, and whose slot has something else.
struct unsound_page {
  page_ref page;
  /// As `verify_page` tells them apart, or `io_error`, or `out_of_range`: the file has no such slot.
  errc why = errc::corrupt;
};

/// What was found in the slab file of one rank.
struct rank_check {
  /// Named here at most.
  static constexpr std::size_t named_pages_max = 64;

  namespace_id space;
  std::string space_name;
  rank_number rank = 0;
  std::filesystem::path file;
  /// Why nothing in the file could be looked at; pages that were to be there are not counted then.
  std::optional<error> fault;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  /// Pages that the next start of the node will believe to be there, and how many of them are.
  std::uint64_t live = 0;
  std::uint64_t sound = 0;
  /// No sound page at all; a sound page of something else; what the disk did not give.
  std::uint64_t corrupt = 0;
  std::uint64_t misplaced = 0;
  std::uint64_t unreadable = 0;
  std::vector<unsound_page> unsound;

  std::uint64_t unsound_pages() const noexcept { return corrupt + misplaced + unreadable; }
  /// Of a page that was looked at.
  void count(const page_ref& page, errc verdict);
};

/// What a start of the node will make of its index.
enum class index_state : std::uint8_t {
  /// There is none: a start begins with no pages, and nothing says what lies in the slabs.
  none,
  /// A run has left it aside, or it is not of this data directory: a start forgets all of its pages.
  left_aside,
  believed,
};

struct slab_check_report {
  index_state index = index_state::none;
  std::vector<rank_check> ranks;
  /// Pages in the index that a start will not believe, as they are of earlier slab files or of nothing that it serves;
  /// and those that lie in files of engines, which only these can read.
  std::uint64_t forgotten_pages = 0;
  std::uint64_t foreign_pages = 0;

  bool sound() const noexcept;
};

/// Bytes that were read, and that are to be read.
using check_progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Reads every page that the next start of the node will believe to be there, and says of each whether it is. Changes
/// nothing, and keeps nodes out of the data directory and the slabs meanwhile.
///
/// Locks keep out who is on the same host. A claim that somebody renews, on whatever host, is found within its lease,
/// and nothing is looked at then, unless claims are to be ignored.
///
/// Errors: `busy` (a node runs there, or somebody else has a slab), `not_found` (no data directory), those of reading
/// the index.
result<slab_check_report> check_slabs(const config::node_config& options, const check_progress& progress,
                                      bool ignore_claims = false);

/// For people, a line for each rank and one for each page that is named.
std::string to_text(const slab_check_report& report);
/// One object, for programs.
std::string to_json(const slab_check_report& report);

std::string_view to_string(index_state x) noexcept;

} // namespace troupe::offline
