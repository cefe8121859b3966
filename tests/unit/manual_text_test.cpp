#include "cli/screens/manual_text.hpp"
#include "tests/catch.hpp"

#include <algorithm>

namespace manual_text_test {

using namespace troupe::cli;

constexpr std::string_view page = "# A page\n\nFirst words.\n\n## Alert: one\nOf one.\n```sh\n# no heading\n```\n"
                                  "### Part\nOf the part.\n\n## `b_c` and (d)\n\nLast.\n";

TEST_CASE("manual text: a page has the title of its first heading") {
  CHECK(title_of(page) == "A page");
  CHECK(title_of("no heading\n").empty());
}

TEST_CASE("manual text: a section ends at the next heading of its level or above") {
  CHECK(section_of(page, "alert-one").starts_with("## Alert: one\nOf one."));
  CHECK(section_of(page, "alert-one").ends_with("Of the part.\n\n"));
  CHECK(section_of(page, "part") == "### Part\nOf the part.\n\n");
  CHECK(section_of(page, "b_c-and-d").ends_with("Last.\n"));
  CHECK(section_of(page, "a-page") == page);
  CHECK(section_of(page, "no-heading").empty());
  CHECK(section_of(page, "").empty());
}

TEST_CASE("manual text: paragraphs and lists are filled, and blocks of code stay as they are") {
  CHECK(manual_text("# T\n\none two\nthree four five six seven eight\n", 23) ==
        "T\n=\n\none two three four five\nsix seven eight\n");
  CHECK(manual_text("- one two three four five\n  six\n- seven\n\nafter\n", 22) ==
        "- one two three four\n  five six\n- seven\n\nafter\n");
  CHECK(manual_text("10. one two three four five\n", 22) == "10. one two three\n    four five\n");
  CHECK(manual_text("```sh\na  *b* `c` [d](e) | f   g   h   i   j\n\nk\n```\n", 22) ==
        "    a  *b* `c` [d](e) | f   g   h   i   j\n\n    k\n");
  CHECK(manual_text("    troupe a  b\n", 22) == "    troupe a  b\n");
}

TEST_CASE("manual text: marks of links, pictures and bold letters are removed outside of code") {
  CHECK(manual_text("**Order.** See [hosts](hosts.md#a), [here](#b), [x.md](x.md), ![P](p.png).\n", 100) ==
        "Order. See hosts (hosts.md#a), here, x.md, [picture: P].\n");
  CHECK(manual_text("`a**b` and `[i](j)` and a[i] stay, \\* too\n", 100) ==
        "`a**b` and `[i](j)` and a[i] stay, * too\n");
  CHECK(manual_text("[**bold**](https://x) a [ b\n", 100) == "bold (https://x) a [ b\n");
  CHECK(manual_text("a\n<img src=\"p.png\" alt=\"P\">\nb\n", 100) == "a b\n");
}

TEST_CASE("manual text: a table has columns where they fit, and else an entry for each row") {
  constexpr std::string_view table =
      "| key | type | |\n| --- | --- | --- |\n| `a` | text \\| off | |\n| `b` | path | x |\n";
  const auto wide = manual_text(table, 80);
  CHECK(wide.find("key") == 0);
  CHECK(wide.find("text | off") != std::string::npos);
  CHECK(wide.find("---") == std::string::npos);
  CHECK(std::count(wide.begin(), wide.end(), '\n') == 3);
  CHECK(manual_text(table, 14) == "key: `a`\n    type: text |\n      off\nkey: `b`\n    type: path\n    x\n");
  // Its columns may be without titles.
  constexpr std::string_view untitled = "| | |\n|---|---|\n| no node | it starts |\n| a fault | it computes |\n";
  CHECK(manual_text(untitled, 80) == "no node  it starts\na fault  it computes\n");
  CHECK(manual_text(untitled, 14) == "no node\n    it starts\na fault\n    it computes\n");
}

} // namespace manual_text_test
