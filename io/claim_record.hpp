#pragma once

#include "base/clock.hpp"
#include "base/incarnation.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// What stands in a claim: who has a data directory, or wants it. docs/decisions/0022 has the reasons.

namespace troupe::io {

/// Of what stands in a claim, as its first line has it.
inline constexpr int claim_version = 1;

/// From 1 on, each once: the highest that is there is the claim in force.
using claim_number = std::uint64_t;

/// A claim that cannot be read is taken for one with this lease. No claim has a longer one.
inline constexpr duration longest_claim_lease = std::chrono::minutes(1);

enum class claim_kind : std::uint8_t {
  /// The node whose directory it is: writes there once it holds the claim.
  owner,
  /// Another node, which reads what a dead one has left, and never writes there.
  adopter,
};

enum class claim_phase : std::uint8_t {
  /// Whoever had the directory before may not know yet that it is lost.
  waiting,
  holding,
  /// Given back: nothing is under way.
  released,
};

struct claim_record {
  std::string holder;
  /// Of the run that made the claim.
  incarnation_number incarnation = 0;
  claim_kind kind = claim_kind::owner;
  claim_phase phase = claim_phase::waiting;
  /// So long after a renewal somebody may still write who has not renewed since: the holder, and while it waits those
  /// before it too.
  duration lease{};
  /// Another one with each renewal.
  std::uint64_t counter = 0;
  /// Of the holder: nodes of another one leave the directory alone.
  std::string cluster{};

  friend bool operator==(const claim_record&, const claim_record&) = default;
};

/// Of each claim file, written by one call.
inline constexpr std::size_t claim_record_bytes = 1024;

/// As lines that people can read, with a sum.
std::string text_of(const claim_record& x);
/// Nothing where it is not whole.
std::optional<claim_record> read_claim(std::span<const std::byte> bytes);

} // namespace troupe::io
