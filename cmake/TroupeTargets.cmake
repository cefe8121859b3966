# How every target of Troupe is built: warnings, sanitizers, ccache.

find_program(TROUPE_CCACHE ccache)
if(TROUPE_CCACHE)
  # With the base directory, and a working directory that stays out of the hash, another clone of the repository hits as
  # well.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${TROUPE_CCACHE}")
endif()

add_library(troupe_options INTERFACE)
target_include_directories(troupe_options INTERFACE "${PROJECT_SOURCE_DIR}")
set(TROUPE_WARNINGS
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wold-style-cast -Woverloaded-virtual -Wnon-virtual-dtor
  $<$<BOOL:${TROUPE_WERROR}>:-Werror>
  # GCC treats the files of a unity build as headers, in which local types would be a fault.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It sees the buffers of fmt, which is inlined everywhere, end too early: dozens of warnings at -O2, of code that is
  # not ours, and none of our own. The sanitizers watch the bounds of ours.
  list(APPEND TROUPE_WARNINGS -Wno-array-bounds -Wno-stringop-overflow)
endif()
target_compile_options(troupe_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${TROUPE_WARNINGS}>
  $<$<COMPILE_LANGUAGE:CUDA>:$<$<BOOL:${TROUPE_WERROR}>:-Werror=all-warnings>>)

# The environment of test programs, which the sanitizers read.
set(TROUPE_TEST_ENVIRONMENT "")
if(TROUPE_SANITIZE)
  target_compile_options(troupe_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TROUPE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(troupe_options INTERFACE -fsanitize=${TROUPE_SANITIZE})
  if(TROUPE_SANITIZE MATCHES "undefined")
    # CAF's headers bind a null reference in known places, which ubsan.supp names. A suppression works only where the
    # check may continue; halt_on_error makes everything else end the program all the same.
    target_compile_options(troupe_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize-recover=null>)
    # A check before each use of each pointer is half of the time to compile the programs that test, and says of those
    # what AddressSanitizer says as well. What is tested has them.
    set(is_test "$<PATH:IS_PREFIX,${PROJECT_SOURCE_DIR}/tests,$<TARGET_PROPERTY:SOURCE_DIR>>")
    target_compile_options(troupe_options INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,${is_test}>:-fno-sanitize=null,alignment,vptr,pointer-overflow>)
    set(TROUPE_TEST_ENVIRONMENT
      "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:suppressions=${PROJECT_SOURCE_DIR}/ubsan.supp")
  elseif(TROUPE_SANITIZE MATCHES "thread")
    set(TROUPE_TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tsan.supp")
  endif()
endif()

# troupe_add_library(NAME SOURCES ... [LINK ...]): a static library of this project.
function(troupe_add_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC troupe_options ${arg_LINK})
endfunction()
