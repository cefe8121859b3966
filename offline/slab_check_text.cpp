#include "offline/slab_check.hpp"

#include <nlohmann/json.hpp>

/// The output of a check as text and as JSON.

namespace troupe::offline {

namespace {

std::string line_of(const rank_check& x) {
  std::string out = "namespace '" + x.namespace_name + "' rank " + std::to_string(x.rank) + ": ";
  if (x.fault)
    return out + x.fault->text + "\n";
  out += std::to_string(x.live) + " pages in " + std::to_string(x.slots) + " slots, ";
  if (x.unsound_pages() == 0)
    return out + "all sound\n";
  out += std::to_string(x.unsound_pages()) + " unsound (" + std::to_string(x.corrupt) + " corrupt, " +
         std::to_string(x.misplaced) + " of another identity, " + std::to_string(x.unreadable) + " unreadable)\n";
  for (const auto& [page, why] : x.unsound)
    out += "  slot " + std::to_string(page.where.slot) + ": key " + to_string(page.key) + ", " +
           std::string(to_string(why)) + "\n";
  if (x.unsound_pages() > x.unsound.size())
    out += "  and " + std::to_string(x.unsound_pages() - x.unsound.size()) + " more\n";
  return out;
}

std::string advice(const slab_check_report& report) {
  switch (report.index) {
  case index_state::none:
    return "There is no durable index (registry.durability): nothing says which slots have a page, and the node starts "
           "without any. The files themselves were checked.\n";
  case index_state::left_aside:
    return "The index is not the one that the last run on this data_dir kept: the node starts without its pages.\n";
  case index_state::believed:
    break;
  }
  if (report.sound())
    return {};
  return "Unsound pages become misses when they are loaded, and are saved anew. If their number grows with each "
         "check, the disk is failing.\n";
}

} // namespace

std::string_view to_string(index_state x) noexcept {
  switch (x) {
  case index_state::none:
    return "none";
  case index_state::left_aside:
    return "left_aside";
  case index_state::believed:
    break;
  }
  return "believed";
}

std::string to_text(const slab_check_report& report) {
  std::string out;
  for (const auto& x : report.ranks)
    out += line_of(x);
  if (report.forgotten_pages > 0)
    out += std::to_string(report.forgotten_pages) +
           " pages in the index are of removed files, or of namespaces that this "
           "config does not serve\n";
  if (report.foreign_pages > 0)
    out += std::to_string(report.foreign_pages) + " pages are in files of engines, which only the engines can read\n";
  return out + advice(report);
}

std::string to_json(const slab_check_report& report) {
  nlohmann::ordered_json out{{"sound", report.sound()},
                             {"index", to_string(report.index)},
                             {"forgotten_pages", report.forgotten_pages},
                             {"foreign_pages", report.foreign_pages},
                             {"ranks", nlohmann::ordered_json::array()}};
  for (const auto& x : report.ranks) {
    nlohmann::ordered_json rank{{"namespace", x.namespace_name},
                                {"id", to_string(x.ns)},
                                {"rank", x.rank},
                                {"file", x.file.string()},
                                {"slots", x.slots},
                                {"slot_bytes", x.slot_bytes},
                                {"live", x.live},
                                {"sound", x.sound},
                                {"corrupt", x.corrupt},
                                {"misplaced", x.misplaced},
                                {"unreadable", x.unreadable}};
    if (x.fault)
      rank["fault"] = x.fault->text;
    auto& pages = rank["unsound"] = nlohmann::ordered_json::array();
    for (const auto& [page, why] : x.unsound)
      pages.push_back({{"key", to_string(page.key)},
                       {"slot", page.where.slot},
                       {"generation", page.where.generation},
                       {"reason", to_string(why)}});
    out["ranks"].push_back(std::move(rank));
  }
  return out.dump() + "\n";
}

} // namespace troupe::offline
