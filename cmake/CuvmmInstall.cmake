# What `cmake --install` puts down: the libraries, the public headers, the command with the emulated driver that it puts
# under programs, a CMake package and a pkg-config file.
#
# Components are those of these that are built. A component's library links other static libraries of the project
# (the emulated driver, for one), which are installed with it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(CUVMM_COMPONENTS "")
foreach(component IN ITEMS core emulator sharing pool team mpi gpu)
  if(TARGET cuvmm_${component})
    list(APPEND CUVMM_COMPONENTS ${component})
  endif()
endforeach()

# Appends to the list named in `collected` the target and all targets of the project that it links, each once; the
# linking one comes first, as linkers want it.
function(cuvmm_collect_targets target collected)
  set(found ${${collected}})
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(aliased ${target} ALIASED_TARGET)
  if(aliased)
    set(target ${aliased})
  endif()
  get_target_property(imported ${target} IMPORTED)
  if(imported OR NOT target MATCHES "^cuvmm_")
    return()
  endif()
  list(REMOVE_ITEM found ${target})
  list(APPEND found ${target})
  foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(linked ${target} ${property})
    foreach(item IN LISTS linked)
      string(REGEX REPLACE "^\\$<(LINK_ONLY|BUILD_INTERFACE):(.*)>$" "\\2" item "${item}")
      if(NOT item STREQUAL target)
        cuvmm_collect_targets("${item}" found)
      endif()
    endforeach()
  endforeach()
  set(${collected} ${found} PARENT_SCOPE)
endfunction()

# An installed target finds its headers in the installed tree, a built one where it finds them now. Header-only packages
# that a static library uses within are compiled in: whoever links the installed library does not need them.
function(cuvmm_make_relocatable target)
  get_target_property(linked ${target} INTERFACE_LINK_LIBRARIES)
  set(needed "")
  foreach(item IN LISTS linked)
    if(item MATCHES "^\\$<LINK_ONLY:((fmt|nlohmann_json|CLI11)::.*)>$")
      list(APPEND needed "$<BUILD_INTERFACE:${item}>")
    elseif(item)
      list(APPEND needed "${item}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${needed}")

  get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
  set(relocatable "")
  foreach(folder IN LISTS folders)
    if(folder AND IS_ABSOLUTE "${folder}")
      list(APPEND relocatable "$<BUILD_INTERFACE:${folder}>")
    elseif(folder)
      list(APPEND relocatable "${folder}")
    endif()
  endforeach()
  list(APPEND relocatable "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  string(REGEX REPLACE "^cuvmm_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} INTERFACE_INCLUDE_DIRECTORIES "${relocatable}")
endfunction()

set(CUVMM_INSTALLED_TARGETS "")
foreach(component IN LISTS CUVMM_COMPONENTS)
  cuvmm_collect_targets(cuvmm_${component} CUVMM_INSTALLED_TARGETS)
endforeach()

if(CUVMM_INSTALLED_TARGETS)
  foreach(target IN LISTS CUVMM_INSTALLED_TARGETS)
    cuvmm_make_relocatable(${target})
  endforeach()
  set(CUVMM_PACKAGE_FOLDER "${CMAKE_INSTALL_LIBDIR}/cmake/cuvmm")
  install(TARGETS ${CUVMM_INSTALLED_TARGETS} EXPORT cuvmm-targets
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT cuvmm-targets NAMESPACE cuvmm:: DESTINATION "${CUVMM_PACKAGE_FOLDER}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cuvmm" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.cuh")
  # What a program needs to configure an emulated machine of its own, and to give it kernels.
  install(FILES "${PROJECT_SOURCE_DIR}/emulator/configuration.hpp" "${PROJECT_SOURCE_DIR}/emulator/host_kernel.hpp"
                "${PROJECT_SOURCE_DIR}/emulator/multimem.hpp"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/cuvmm/emulator")
  # Messages and headers name pages as docs/NAME.md, and the pages link one another, README and the examples: the folders
  # lie beside one another there as they do here.
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}")

  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/cuvmm-config.cmake.in"
                                "${PROJECT_BINARY_DIR}/package/cuvmm-config.cmake"
                                INSTALL_DESTINATION "${CUVMM_PACKAGE_FOLDER}" NO_SET_AND_CHECK_MACRO)
  # Before 1.0 a minor version may change the interface.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/cuvmm-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/package/cuvmm-config.cmake"
                "${PROJECT_BINARY_DIR}/package/cuvmm-config-version.cmake" DESTINATION "${CUVMM_PACKAGE_FOLDER}")

  set(CUVMM_PKG_CONFIG_LIBRARIES "")
  foreach(target IN LISTS CUVMM_INSTALLED_TARGETS)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      string(APPEND CUVMM_PKG_CONFIG_LIBRARIES " -l${target}")
    endif()
  endforeach()
  file(RELATIVE_PATH CUVMM_PREFIX_FROM_PKG_CONFIG "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/cuvmm.pc.in" "${PROJECT_BINARY_DIR}/package/cuvmm.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/cuvmm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()

if(TARGET cuvmm)
  install(TARGETS cuvmm RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(TARGET cuvmm_drop_in)
  get_target_property(CUVMM_DROP_IN_DESTINATION cuvmm_drop_in CUVMM_DESTINATION)
  install(TARGETS cuvmm_drop_in LIBRARY DESTINATION "${CUVMM_DROP_IN_DESTINATION}")
endif()
if(TARGET cuvmm_torch)
  install(TARGETS cuvmm_torch LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
if(TARGET cuvmm_emulator_broker)
  get_target_property(CUVMM_BROKER_DESTINATION cuvmm_emulator_broker CUVMM_DESTINATION)
  install(TARGETS cuvmm_emulator_broker RUNTIME DESTINATION "${CUVMM_BROKER_DESTINATION}")
endif()
