#include "cli/terminal.hpp"

#if TROUPE_HAS_CURSES

// Functions instead of macros, whose names collide with others.
#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <algorithm>
#include <clocale>
#include <cstdio>
#include <curses.h>
#include <langinfo.h>
#include <string_view>
#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr int key_control_c = 3;

class curses_terminal final : public terminal {
public:
  explicit curses_terminal(SCREEN* screen) : screen_(screen) {
    ::set_term(screen_);
    ::raw(); // so that ^C is a key, and the terminal is restored when the program ends
    ::noecho();
    ::nonl();
    ::keypad(::stdscr, true);
    ::curs_set(0);
    if (::has_colors()) {
      ::start_color();
      ::use_default_colors();
      ::init_pair(1, COLOR_GREEN, -1);
      ::init_pair(2, COLOR_RED, -1);
      has_colors_ = true;
    }
  }

  ~curses_terminal() override {
    ::endwin();
    ::delscreen(screen_);
  }

  bool has_blocks() const override { return std::string_view(::nl_langinfo(CODESET)) == "UTF-8"; }
  std::size_t columns() const override { return static_cast<std::size_t>(std::max(::getmaxx(::stdscr), 1)); }
  std::size_t rows() const override { return static_cast<std::size_t>(std::max(::getmaxy(::stdscr), 1)); }

  void draw(const std::vector<screen_line>& lines) override {
    ::werase(::stdscr);
    int y = 0;
    for (const auto& x : lines) {
      const auto look = look_of(x.style);
      ::wattrset(::stdscr, static_cast<int>(look));
      ::mvwaddnstr(::stdscr, y++, 0, x.text.c_str(), static_cast<int>(x.text.size()));
    }
    ::wrefresh(::stdscr);
  }

  top_key wait_for_key(std::chrono::milliseconds limit) override {
    ::wtimeout(::stdscr, static_cast<int>(limit.count()));
    switch (::wgetch(::stdscr)) {
    case 'q':
    case 'Q':
    case key_control_c:
      return top_key::quit;
    case 'p':
    case ' ':
      return top_key::pause;
    case 's':
      return top_key::sort;
    case 'r':
      return top_key::ranks;
    case 'v':
    case '\t':
      return top_key::view;
    case KEY_UP:
    case 'k':
      return top_key::up;
    case KEY_DOWN:
    case 'j':
      return top_key::down;
    default:
      return top_key::none;
    }
  }

private:
  chtype look_of(line_style style) const {
    const auto colored = [this](short pair, chtype else_) {
      return has_colors_ ? static_cast<chtype>(COLOR_PAIR(pair)) | else_ : else_;
    };
    switch (style) {
    case line_style::title:
    case line_style::head:
      return A_BOLD;
    case line_style::healthy:
      return colored(1, A_BOLD);
    case line_style::trouble:
      return colored(2, A_BOLD);
    case line_style::quiet:
      return A_DIM;
    case line_style::plain:
      break;
    }
    return A_NORMAL;
  }

  SCREEN* screen_;
  bool has_colors_ = false;
};

} // namespace

bool terminal::is_built_in() noexcept {
  return true;
}

std::unique_ptr<terminal> terminal::open() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0)
    return nullptr;
  // For characters only: the format of numbers does not change.
  std::setlocale(LC_CTYPE, "");
  auto* screen = ::newterm(nullptr, stdout, stdin);
  return screen == nullptr ? nullptr : std::make_unique<curses_terminal>(screen);
}

} // namespace troupe::cli

#else

namespace troupe::cli {

bool terminal::is_built_in() noexcept {
  return false;
}

std::unique_ptr<terminal> terminal::open() {
  return nullptr;
}

} // namespace troupe::cli

#endif
