#include "tests/simulation/node_words.hpp"

namespace troupe::simulation {

std::string name_of(const caf::actor_system& system, const caf::message& what) {
  std::string out;
  for (std::size_t i = 0; i < what.size(); ++i) {
    const auto [number, type] = what.type(i);
    auto name = system.types().portable_name(number, type);
    if (const auto scope = name.rfind("::"); scope != std::string::npos)
      name.erase(0, scope + 2);
    out += (i > 0 ? " " : "") + name;
  }
  return out;
}

void trace_message(environment& world, std::string_view what, std::uint32_t whom, const caf::message& x) {
  if (world.verbose())
    world.trace(what, {whom}, std::to_string(whom) + ": " + caf::deep_to_string(x));
  else
    world.trace(what, {whom});
}

bool is_word_of_slots(const caf::message& x) {
  return x.match_elements<publish_page_atom, slot_batch>() || x.match_elements<abort_atom, slot_batch>() ||
         x.match_elements<release_atom, slot_batch>();
}

void judge_word(environment& world, const passing& asked, const caf::message& answer) {
  if (!is_word_of_slots(asked.content) || !answer.match_elements<slot_results>())
    return;
  for (const auto code : answer.get_as<slot_results>(0).results)
    if (static_cast<errc>(code) != errc::ok)
      world.fail("slots", "an allocator refuses what a shard says of a slot: " +
                              std::string(to_string(static_cast<errc>(code))));
}

void note_granted(environment& world, rank_number rank, const passing& asked, const take_reply& answer) {
  const auto wanted = asked.content.get_as<std::uint32_t>(1);
  const auto& slots = answer.slots;
  world.trace("granted", {rank, slots.size(), wanted});
  world.count(slots.size() >= wanted ? "take: all" : slots.empty() ? "take: none" : "take: some");
}

} // namespace troupe::simulation
