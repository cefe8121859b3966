# TROUPE_HAS_CURSES: whether `troupe top` has a screen. Everything else is built either way, and top then prints lines.
# Of the terminal libraries that are kept well, ncurses is the one that both Debian 12 and Ubuntu 24.04 have.

set(TROUPE_CURSES AUTO CACHE STRING "Build the screen of `troupe top`: AUTO (where ncurses is), ON or OFF")
set_property(CACHE TROUPE_CURSES PROPERTY STRINGS AUTO ON OFF)

set(TROUPE_HAS_CURSES OFF)
if(NOT TROUPE_CURSES STREQUAL "OFF")
  set(CURSES_NEED_NCURSES ON)
  set(CURSES_NEED_WIDE ON)
  find_package(Curses QUIET)
  if(CURSES_FOUND)
    set(TROUPE_HAS_CURSES ON)
    set(TROUPE_CURSES_INCLUDE_DIRS "${CURSES_INCLUDE_DIRS}")
    set(TROUPE_CURSES_LIBRARIES "${CURSES_LIBRARIES}")
  elseif(TROUPE_CURSES STREQUAL "ON")
    message(FATAL_ERROR "TROUPE_CURSES is ON, but there is no ncurses with wide characters: install libncurses-dev, or "
      "configure with -DTROUPE_CURSES=AUTO")
  endif()
endif()
message(STATUS "Screen of `troupe top`: ${TROUPE_HAS_CURSES}")
