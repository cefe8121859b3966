# Third-party libraries, all from the distribution; scripts/bootstrap installs them.

find_package(Threads REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(Boost 1.81 REQUIRED) # headers only: asio, beast
find_package(OpenSSL 3.0 REQUIRED)
find_package(simdjson REQUIRED)

# troupe_find_library(TARGET HEADER LIBRARY [ROOT]): imports a library that comes without a CMake package, from below
# ROOT if that is given and not empty, else from the system.
function(troupe_find_library target header library)
  string(MAKE_C_IDENTIFIER "${library}" id)
  set(where "")
  if(ARGN)
    set(where PATHS "${ARGN}" NO_DEFAULT_PATH)
  endif()
  find_path(TROUPE_${id}_INCLUDE_DIR ${header} ${where} PATH_SUFFIXES include REQUIRED)
  find_library(TROUPE_${id}_LIBRARY ${library} ${where} PATH_SUFFIXES lib REQUIRED)
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${TROUPE_${id}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TROUPE_${id}_INCLUDE_DIR}")
endfunction()

troupe_find_library(xxhash::xxhash xxhash.h xxhash)
troupe_find_library(liburing::liburing liburing.h uring)
troupe_find_library(rocksdb::rocksdb rocksdb/db.h rocksdb)
troupe_find_library(zeromq::zeromq zmq.h zmq)

if(TROUPE_CAF_PARTS)
  # Debian ships CAF 0.17 without a CMake package.
  troupe_find_library(CAF::core caf/all.hpp caf_core ${TROUPE_CAF_ROOT})
  troupe_find_library(CAF::io caf/io/all.hpp caf_io ${TROUPE_CAF_ROOT})
  target_link_libraries(CAF::core INTERFACE Threads::Threads)
  target_link_libraries(CAF::io INTERFACE CAF::core)
  find_package(CLI11 REQUIRED)
endif()
