# How every target of Troupe is built: warnings, sanitizers, ccache.

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TROUPE_CCACHE}")
endif()

add_library(troupe_options INTERFACE)
target_include_directories(troupe_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(troupe_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Woverloaded-virtual -Wnon-virtual-dtor
  $<$<BOOL:${TROUPE_WERROR}>:-Werror>)
# ccache can reuse an object built with a precompiled header only when the compiler is told to ignore its time stamps.
target_compile_options(troupe_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
if(TROUPE_SANITIZE)
  target_compile_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE})
endif()

# troupe_add_library(NAME SOURCES ... [LINK ...]): a static library of this project.
function(troupe_add_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  if(NOT arg_SOURCES)
    file(TOUCH "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
    set(arg_SOURCES "${CMAKE_CURRENT_BINARY_DIR}/empty.cpp")
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC troupe_options ${arg_LINK})
endfunction()
