# TROUPE_HAS_UCX: whether pages can move between hosts. Everything else is built either way. Only headers are needed to
# build it: the library is loaded at run time, by processes that use it.

set(TROUPE_UCX AUTO CACHE STRING "Build the transport between hosts: AUTO (where UCX is), ON or OFF")
set_property(CACHE TROUPE_UCX PROPERTY STRINGS AUTO ON OFF)

set(TROUPE_HAS_UCX OFF)
if(NOT TROUPE_UCX STREQUAL "OFF")
  find_path(TROUPE_ucp_INCLUDE_DIR ucp/api/ucp.h)
  if(TROUPE_ucp_INCLUDE_DIR)
    set(TROUPE_HAS_UCX ON)
  elseif(TROUPE_UCX STREQUAL "ON")
    message(FATAL_ERROR "TROUPE_UCX is ON, but there is no ucp/api/ucp.h: install libucx-dev, name the folder with "
      "-DTROUPE_ucp_INCLUDE_DIR=/path/to/include, or configure with -DTROUPE_UCX=AUTO")
  endif()
endif()
message(STATUS "Clients on other hosts, through UCX: ${TROUPE_HAS_UCX}")
