#include "base/nearest_name.hpp"
#include "cli/help_pages.hpp"
#include "cli/output.hpp"
#include "cli/program.hpp"
#include "cli/screens/manual_text.hpp"
#include "cli/screens/words.hpp"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace troupe::cli {

namespace {

/// Lines of text that are longer than this are hard to read, also on a wide terminal.
constexpr std::size_t widest_text = 100;

const help_page* page_named(std::string_view name) {
  const auto pages = help_pages();
  const auto found = std::ranges::find(pages, name, &help_page::name);
  return found == pages.end() ? nullptr : &*found;
}

/// The name of a topic that is also a command carries its ending, since the bare name prints the command's options.
std::string topic_name(const help_page& page, std::span<const std::string> commands) {
  const bool is_command = std::ranges::find(commands, page.name) != commands.end();
  return std::string(page.name) + (is_command ? ".md" : "");
}

int list_topics(std::span<const std::string> commands) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& page : help_pages())
    rows.push_back({topic_name(page, commands), std::string(title_of(page.text))});
  return print(
             "`troupe help TOPIC` prints a page of the documentation, and `troupe help TOPIC#SECTION` a section:\n\n" +
             table_of(rows))
             ? exit_ok
             : exit_failed;
}

/// The error for a topic that is unknown.
int refuse_topic(std::string_view topic, std::span<const std::string> commands) {
  if (std::ranges::find(commands, topic) != commands.end()) {
    std::cerr << "troupe: '" << topic << "' is a command, and has no page: troupe help " << topic << '\n';
    return exit_usage;
  }
  std::vector<std::string_view> names(commands.begin(), commands.end());
  for (const auto& page : help_pages())
    names.push_back(page.name);
  names.emplace_back("topics");
  const auto meant = nearest_name(topic, names);
  std::cerr << "troupe: no command or topic '" << topic << "'";
  if (!meant.empty())
    std::cerr << "; did you mean '" << meant << "'?";
  std::cerr << "\nRun `troupe help topics` for the topics, and `troupe help` for the commands.\n";
  return exit_usage;
}

} // namespace

int help(const help_options& options) {
  if (options.topic == "topics")
    return list_topics(options.commands);
  std::string_view topic = options.topic;
  const auto cut = std::min(topic.find('#'), topic.size());
  const auto anchor = topic.substr(std::min(cut + 1, topic.size()));
  topic = topic.substr(0, cut);
  // As warnings of a node name them: docs/operations.md#slab_damaged.
  if (topic.starts_with("docs/"))
    topic.remove_prefix(std::string_view("docs/").size());
  if (topic.ends_with(".md"))
    topic.remove_suffix(std::string_view(".md").size());
  const auto* page = page_named(topic);
  if (page == nullptr)
    return refuse_topic(topic, options.commands);
  const auto text = anchor.empty() ? page->text : section_of(page->text, anchor);
  if (text.empty()) {
    std::cerr << "troupe: the topic '" << topic << "' has no section '" << anchor << "'; `troupe help " << topic
              << "` prints all of it\n";
    return exit_usage;
  }
  return print(manual_text(text, std::min(columns_of_stdout(), widest_text))) ? exit_ok : exit_failed;
}

} // namespace troupe::cli
