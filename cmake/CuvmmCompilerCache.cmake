# Compiles through ccache where it is installed, unless the builder has chosen a launcher.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CUVMM_CCACHE ccache)
  mark_as_advanced(CUVMM_CCACHE)
  if(CUVMM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CUVMM_CCACHE}")
  endif()
endif()
