# Writes OUTPUT from INPUT with the commit of the repository at SOURCE, unless it is unchanged. It runs as a script at
# each build, since the commit changes without a new configuration.
find_program(git git)
set(TROUPE_COMMIT "")
if(git)
  execute_process(COMMAND "${git}" describe --always --dirty --exclude=*
    WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE TROUPE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT TROUPE_COMMIT)
  set(TROUPE_COMMIT unknown)
endif()
configure_file("${INPUT}" "${OUTPUT}" @ONLY)
