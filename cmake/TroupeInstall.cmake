# `cmake --install`, and packages by CPack: scripts/package makes them, scripts/check-package tests them.
# Components are packages: the program with its service, the library, and what programs in C and C++ are built with.

if(NOT TROUPE_CAF_PARTS)
  return()
endif()
include(GNUInstallDirs)
# Installing does not build missing targets: tests and benchmarks are not part of a package.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(TROUPE_UNIT_DIR "${CMAKE_INSTALL_PREFIX}/lib/systemd/system" CACHE PATH "Where the systemd unit goes")
set(TROUPE_CONFIG_DIR "${CMAKE_INSTALL_PREFIX}/share/troupe" CACHE PATH "Where the config of the service goes")
set(TROUPE_HOMEPAGE "" CACHE STRING "For packages")
set(TROUPE_MAINTAINER "The authors of Troupe <troupe@users.noreply.github.com>" CACHE STRING "For packages")

install(TARGETS troupe RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
install(TARGETS troupe_capi
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development
  PUBLIC_HEADER DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)
install(FILES packaging/troupe.service DESTINATION "${TROUPE_UNIT_DIR}" COMPONENT program)
install(FILES packaging/node.json DESTINATION "${TROUPE_CONFIG_DIR}" COMPONENT program)
install(DIRECTORY configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/troupe/configs" COMPONENT program)
install(FILES traces/sample.jsonl DESTINATION "${CMAKE_INSTALL_DATADIR}/troupe/traces" COMPONENT program)
install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs" COMPONENT program)
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)

# Manual pages and completion: made from the program's own help at the installation, so that a build does not wait for
# them.
find_program(TROUPE_PYTHON3 python3)
if(TROUPE_PYTHON3)
  # Debian's zsh looks for those of packages in a folder of its own.
  set(zsh_folder $<IF:$<BOOL:${TROUPE_DEBIAN_FILES}>,vendor-completions,site-functions>)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    set(data \"\${prefix}/${CMAKE_INSTALL_DATADIR}\")
    execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/packaging/make-manuals\" \"$<TARGET_FILE:troupe>\"
      \"\${prefix}/${CMAKE_INSTALL_MANDIR}\" ${PROJECT_VERSION} COMMAND_ERROR_IS_FATAL ANY)
    foreach(pair bash=bash-completion/completions/troupe zsh=zsh/${zsh_folder}/_troupe
        fish=fish/vendor_completions.d/troupe.fish)
      string(REGEX MATCH \"^([a-z]+)=((.*)/[^/]+)$\" pair \"\${pair}\")
      set(shell \"\${CMAKE_MATCH_1}\")
      set(file \"\${data}/\${CMAKE_MATCH_2}\")
      file(MAKE_DIRECTORY \"\${data}/\${CMAKE_MATCH_3}\")
      execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/packaging/make-completion\" \"$<TARGET_FILE:troupe>\" \${shell}
        OUTPUT_FILE \"\${file}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
  " COMPONENT program)
else()
  message(STATUS "There is no python3: manual pages and completion will not be installed")
endif()

# Debian's requirements for each package.
set(TROUPE_PACKAGE_NAMES "program=troupe;library=libtroupe1;development=libtroupe-dev")
if(TROUPE_DEBIAN_FILES)
  foreach(pair IN LISTS TROUPE_PACKAGE_NAMES)
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES packaging/debian/copyright DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}"
      COMPONENT ${component})
    install(CODE "
      set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/${package}\")
      file(MAKE_DIRECTORY \"\${folder}\")
      # Of SOURCE_DATE_EPOCH, if the environment has it, as that of scripts/package.
      string(TIMESTAMP now \"%a, %d %b %Y %H:%M:%S +0000\" UTC)
      file(WRITE \"\${folder}/changelog\" \"troupe (${PROJECT_VERSION}) unstable; urgency=medium\n\n\"
        \"  * /usr/share/doc/troupe/CHANGELOG.md lists what has changed.\n\n\"
        \" -- ${TROUPE_MAINTAINER}  \${now}\n\")
      execute_process(COMMAND gzip -9nf \"\${folder}/changelog\" COMMAND_ERROR_IS_FATAL ANY)
      " COMPONENT ${component})
  endforeach()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "${TROUPE_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SOURCE troupe)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${TROUPE_HOMEPAGE}")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
  "${PROJECT_SOURCE_DIR}/packaging/debian/postinst" "${PROJECT_SOURCE_DIR}/packaging/debian/prerm"
  "${PROJECT_SOURCE_DIR}/packaging/debian/postrm" "${PROJECT_SOURCE_DIR}/packaging/debian/conffiles")
set(about "Troupe keeps the KV caches of LLM inference engines outside the GPU, in memory
and on disk, and shares them between the engines and ranks of a host.")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${about}
This package has the program, and a service that runs a node.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libtroupe1)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA
  "${PROJECT_SOURCE_DIR}/packaging/debian/shlibs" "${PROJECT_SOURCE_DIR}/packaging/debian/triggers")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${about}
This package has the library that engines load to attach to a node.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtroupe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libtroupe1 (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${about}
This package has the header of its C interface.")
include(CPack)
