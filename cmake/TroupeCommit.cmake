# Writes OUTPUT from INPUT with the commit of the repository at SOURCE, and leaves it alone where that is the same:
# run at each build, as a script, since a commit changes without a new configuration.
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
