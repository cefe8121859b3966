#pragma once

#include "base/clock.hpp"
#include "base/incarnation.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// The content of a claim: which node holds or requests a data directory. docs/decisions/0022 has the reasons.

namespace troupe::io {

/// The version of the format, as in the first line of a claim.
inline constexpr int claim_version = 1;

/// Numbers count from 1, each is used once; the highest that exists is the claim in force.
using claim_number = std::uint64_t;

/// The longest lease of a claim. A claim that cannot be read is treated as one with this lease.
inline constexpr duration longest_claim_lease = std::chrono::minutes(1);

enum class claim_kind : std::uint8_t {
  /// The node that owns the directory and writes there once it holds the claim.
  owner,
  /// Another node, which reads the directory of a dead one and never writes there.
  adopter,
};

enum class claim_phase : std::uint8_t {
  /// The previous holder may not have noticed the loss yet.
  waiting,
  holding,
  /// Released: no write is in progress.
  released,
};

struct claim_record {
  std::string holder;
  /// The incarnation of the run that made the claim.
  incarnation_number incarnation = 0;
  claim_kind kind = claim_kind::owner;
  claim_phase phase = claim_phase::waiting;
  /// How long after a renewal a node may still write that has not renewed since: the holder, and while it waits also
  /// the previous holders.
  duration lease{};
  /// Changes with each renewal.
  std::uint64_t counter = 0;
  /// The cluster of the holder: nodes of other clusters leave the directory alone.
  std::string cluster{};

  friend bool operator==(const claim_record&, const claim_record&) = default;
};

/// The size of each claim file, which is written by one call.
inline constexpr std::size_t claim_record_bytes = 1024;

/// The record as readable lines with a checksum.
std::string text_of(const claim_record& x);
/// Nothing where the record is incomplete or damaged.
std::optional<claim_record> read_claim(std::span<const std::byte> bytes);

} // namespace troupe::io
