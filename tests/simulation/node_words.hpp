#pragma once

#include "tests/simulation/environment.hpp"
#include "tests/simulation/tap.hpp"

#include <cstdint>
#include <string>
#include <string_view>

/// Names of messages, and handlers of a node's taps for those of shards and allocators, for any kind of client.

namespace troupe::simulation {

/// "reserve_request", or the types of all that it consists of.
std::string name_of(const caf::actor_system& system, const caf::message& what);

/// Into the trace; what it says goes to stdout only.
void trace_message(environment& world, std::string_view what, std::uint32_t whom, const caf::message& x);

/// A shard's message to an allocator about slots that it has: publish, abort or release.
bool is_word_of_slots(const caf::message& x);

/// An allocator agrees with all that shards say.
void judge_word(environment& world, const passing& asked, const caf::message& answer);

/// Counts what came of a request for slots, and puts it into the trace.
void note_granted(environment& world, rank_number rank, const passing& asked, const take_reply& answer);

} // namespace troupe::simulation
